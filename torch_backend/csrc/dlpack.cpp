#include "dlpack.h"

#include <ATen/DLConvertor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/strides.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "private_names.h"
#include "process_end.h"
#include "storage.h"

namespace py = pybind11;

namespace heddle::torch_backend {
namespace {

constexpr const char* kCapsule = "dltensor";
constexpr const char* kTaken = "used_dltensor";

void* stream_at(int64_t number) { return reinterpret_cast<void*>(number); }

// ---- what needs the GIL to be let go of

// A thread without the GIL leaves it here: the thread that has the GIL may be waiting for that one.
class Unfreed {
 public:
  void add(std::function<void()> free) {
    {
      const std::lock_guard lock(lock_);
      frees_.push_back(std::move(free));
    }
    added_.notify_one();
  }
  void await_one() {
    std::unique_lock lock(lock_);
    added_.wait(lock, [&] { return !frees_.empty(); });
  }
  void free_all() {  // with the GIL
    std::vector<std::function<void()>> frees;
    {
      const std::lock_guard lock(lock_);
      frees.swap(frees_);
    }
    for (const auto& free : frees) free();
  }

 private:
  std::mutex lock_;
  std::condition_variable added_;
  std::vector<std::function<void()>> frees_;
};

Unfreed& unfreed() {
  static Unfreed& all = *new Unfreed;  // threads may outlive every static
  return all;
}

#if PY_VERSION_HEX >= 0x030C0000
constexpr bool kPendingCalls = true;
#else
// Py_AddPendingCall then asks the thread that has the GIL for its interpreter, and that thread may be ending.
constexpr bool kPendingCalls = false;
#endif

int free_unfreed(void* /*nothing*/) {
  unfreed().free_all();
  return 0;
}

// The body of a thread, where there are no pending calls. Ends with the process.
void free_for_ever() {
  for (;;) {
    {
      const FreeGil without_gil;
      unfreed().await_one();
    }
    unfreed().free_all();
  }
}

void free_with_gil(std::function<void()> free) {
  if (process_ends()) return;  // the end of the process frees it
  if (PyGILState_Check() != 0) return free();
  unfreed().add(std::move(free));
  // Where the interpreter has too many such calls, the next from_dlpack() frees it.
  if (kPendingCalls) static_cast<void>(Py_AddPendingCall(&free_unfreed, nullptr));
}

// ---- out

// What an export holds until the consumer lets go of it.
struct Export {
  DLManagedTensor managed;
  DLManagedTensor* of_pytorch;  // keeps the at::Tensor, and has its shape and strides
  std::optional<Tensor> bytes;  // empty: the consumer named no stream, whose reads would have to end first
  void* stream;
  PyObject* streams;  // the object whose end would be the stream's; null: none
};

// On whatever thread the consumer lets go, with or without the GIL.
void end_export(DLManagedTensor* managed) {
  const std::unique_ptr<Export> ended(static_cast<Export*>(managed->manager_ctx));
  try {
    if (ended->bytes) ended->bytes->released_by(ended->stream);
  } catch (const Error&) {
    // The device is lost or closed: nothing uses its memory again.
  }
  ended->of_pytorch->deleter(ended->of_pytorch);
  if (PyObject* const streams = ended->streams) free_with_gil([streams] { Py_DECREF(streams); });
}

void end_unless_taken(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, kCapsule) == 0) return;
  auto* const left = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, kCapsule));
  left->deleter(left);
}

// Orders the consumer after the work that writes the tensor. Returns the bytes that Heddle must not use again
// before the stream has read them.
std::optional<Tensor> handed_over(const at::Tensor& tensor, std::optional<int64_t> stream) {
  if (tensor.numel() == 0) return std::nullopt;
  Tensor bytes = bytes_of(tensor.storage());
  const FreeGil without_gil;
  if (!stream) {
    bytes.wait();
    return std::nullopt;
  }
  bytes.hand_to(stream_at(*stream));
  return bytes;
}

py::capsule to_dlpack(const at::Tensor& given, int ordinal, std::optional<int64_t> stream,
                      const py::object& streams) {
  // Calls that were joined to a batch have their results in memory of the host.
  const at::Tensor tensor = bytes_of(given.storage()).on_host() ? given.clone() : given;
  std::optional<Tensor> bytes = translated([&] { return handed_over(tensor, stream); });
  DLManagedTensor* const of_pytorch = at::toDLPack(tensor);
  auto* const made = new Export{*of_pytorch, of_pytorch, std::move(bytes), stream_at(stream.value_or(0)),
                                streams.is_none() ? nullptr : py::object(streams).release().ptr()};
  made->managed.dl_tensor.device = {kDLCUDA, ordinal};
  made->managed.manager_ctx = made;
  made->managed.deleter = end_export;
  return py::capsule(&made->managed, kCapsule, end_unless_taken);
}

// ---- in

DLManagedTensor* take(const py::capsule& capsule) {
  auto* const array = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), kCapsule));
  if (array == nullptr || PyCapsule_SetName(capsule.ptr(), kTaken) != 0) throw py::error_already_set();
  return array;
}

// The producer has made this thread's current stream wait for its values.
at::Tensor from_dlpack(const py::capsule& capsule, c10::DeviceIndex index) {
  unfreed().free_all();
  DLManagedTensor* const array = take(capsule);
  const std::shared_ptr<const void> keep(array, [array](const void*) {
    if (array->deleter != nullptr) free_with_gil([array] { array->deleter(array); });
  });
  const DLTensor& given = array->dl_tensor;
  const c10::ScalarType type = at::toScalarType(given.dtype);
  to_heddle(type);  // says so where there is no such type here
  const at::IntArrayRef sizes(given.shape, static_cast<size_t>(given.ndim));
  const c10::DimVector strides = given.strides == nullptr
                                     ? c10::contiguous_strides(sizes)
                                     : c10::DimVector(given.strides, given.strides + given.ndim);
  const size_t bytes = computeStorageNbytes(sizes, strides, c10::elementSize(type));
  const at::Tensor lent = translated([&] {
    const FreeGil without_gil;
    void* const data = static_cast<std::byte*>(given.data) + given.byte_offset;
    void* const stream = current_stream_of(index).native_handle();
    return to_torch(
        Tensor::lend(data, DType::u8, {static_cast<int64_t>(bytes)}, {}, device_at(index), keep, stream),
        index);
  });
  const at::AutoDispatchBelowADInplaceOrView no_view_of_another_tensor;
  return lent.view(type).as_strided(sizes, strides);
}

}  // namespace

void bind_dlpack(py::module_& m) {
  m.def("to_dlpack", &to_dlpack);
  m.def("from_dlpack", &from_dlpack);
  m.attr("frees_by_itself") = kPendingCalls;
  m.def("free_for_ever", &free_for_ever);
}

}  // namespace heddle::torch_backend
