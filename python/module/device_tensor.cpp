#include "device_tensor.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include <utility>

#include "arrays.h"
#include "bindings.h"
#include "dlpack_array.h"
#include "options.h"

namespace heddle::python {
namespace {

using namespace nb::literals;

constexpr int kCpu = 1, kCuda = 2;  // DLDeviceType

// DLManagedTensor of DLPack's ABI 0, which the protocol allows for any max_version: whoever takes it calls
// the deleter once.
struct Managed {
  nb::dlpack::dltensor tensor;
  void* context = nullptr;
  void (*deleter)(Managed*) = nullptr;
};

using Place = std::pair<int, int>;  // kind, number

Place place_of(nb::handle array) {
  const nb::object place = array.attr("__dlpack_device__")();
  return {nb::cast<int>(place[0]), nb::cast<int>(place[1])};
}

std::string name_of(Place place) {
  std::string name(1, '(');  // GCC 12 warns of a sum that begins with a literal
  name.append(std::to_string(place.first)).append(", ").append(std::to_string(place.second)).append(")");
  return name;
}

std::string device_name(int ordinal) { return ordinal == 0 ? "cuda" : "cuda:" + std::to_string(ordinal); }

Place place_of(const Tensor& tensor) {
  if (tensor.on_host()) return {kCpu, 0};
  const std::optional<Device> device = tensor.device();
  if (!device)
    throw Error(ErrorCode::unavailable, "the device whose memory this tensor is in is closed or gone");
  const std::string name = device->name();
  if (!name.starts_with("cuda"))
    throw Error(ErrorCode::unsupported, "memory of device '" + name + "' has no name in DLPack");
  return {kCuda, name.size() > 5 ? std::stoi(name.substr(5)) : 0};
}

// What an export holds until the other library lets go of it.
struct Export {
  Managed managed;
  Tensor tensor;
  void* stream;                         // that may still read it then; null: none
  std::shared_ptr<const void> streams;  // its object; null: it does not end
  std::vector<int64_t> shape, strides;
};

// On whatever thread the other library lets go, with or without the GIL.
void end_export(Managed* managed) {
  const std::unique_ptr<Export> ended(static_cast<Export*>(managed->context));
  if (ended->stream == nullptr) return;
  try {
    ended->tensor.released_by(ended->stream);
  } catch (...) {  // the caller is C
    // The device is lost or closed: nothing uses its memory again.
  }
}

// A stream of CuPy's ends with its object, which the protocol does not hand over. Arrays may live longer, and
// CUDA ends the process where a stream that has ended is asked what it still does.
std::shared_ptr<const void> streams_object(int64_t number) {
  const nb::object modules = nb::module_::import_("sys").attr("modules");
  const nb::object cupy = modules.attr("get")("cupy");
  if (cupy.is_none() || !nb::hasattr(cupy, "cuda")) return nullptr;  // half imported
  nb::object current = cupy.attr("cuda").attr("get_current_stream")();
  if (nb::cast<int64_t>(current.attr("ptr")) != number) return nullptr;
  return keep(std::move(current));
}

nb::object export_of(const Tensor& tensor, nb::handle stream) {
  const auto [kind, ordinal] = place_of(tensor);
  const int64_t number = stream.is_none() ? 1 : nb::cast<int64_t>(stream);
  void* const native = kind != kCuda || number == -1 ? nullptr : reinterpret_cast<void*>(number);
  if (kind == kCuda && number == 0)
    throw Error(ErrorCode::invalid, "__dlpack__: stream 0 is ambiguous; 1 is CUDA's legacy default stream");
  if (kind == kCuda && number == 2) {
    throw Error(
        ErrorCode::invalid,
        "__dlpack__: stream 2, the thread's own default one, is another where the memory is let go of; "
        "give 1 or a stream's handle");
  }
  without_gil([&] { native != nullptr ? tensor.hand_to(native) : tensor.wait(); });
  std::shared_ptr<const void> streams = native == nullptr ? nullptr : streams_object(number);
  auto made = std::make_unique<Export>(
      Export{{}, tensor, native, std::move(streams), tensor.shape(), tensor.strides()});
  nb::dlpack::dltensor& described = made->managed.tensor;
  described.data = const_cast<void*>(tensor.address());
  described.device.device_type = kind;
  described.device.device_id = ordinal;
  described.ndim = static_cast<int32_t>(made->shape.size());
  described.dtype = to_dlpack(tensor.dtype());
  described.shape = made->shape.data();
  described.strides = made->strides.data();
  made->managed.context = made.get();
  made->managed.deleter = end_export;
  PyObject* const capsule = PyCapsule_New(&made->managed, "dltensor", [](PyObject* unused) {
    // Renamed by whoever has taken it.
    if (PyCapsule_IsValid(unused, "dltensor") == 0) return;
    auto* const left = static_cast<Managed*>(PyCapsule_GetPointer(unused, "dltensor"));
    left->deleter(left);
  });
  if (capsule == nullptr) throw nb::python_error();
  static_cast<void>(made.release());
  return nb::steal(capsule);
}

// Without the GIL, since it waits.
Tensor copied_to(const Tensor& given, const Device& device) {
  Tensor there = Tensor::empty(given.dtype(), given.shape(), device);
  current_stream(device).copy(given, there);
  there.wait();
  return there;
}

// What goes out for DLPack's dl_device= and copy=: the tensor itself, or a copy.
Tensor requested(const Tensor& tensor, std::optional<Place> dl_device, std::optional<bool> copy) {
  const Place here = place_of(tensor), there = dl_device.value_or(here);
  if (there == here) {
    if (!copy.value_or(false)) return tensor;
    return without_gil([&] {
      const std::optional<Device> device = tensor.device();
      return copied_to(tensor, device ? *device : Device("host"));
    });
  }
  const std::string asked = "__dlpack__: dl_device=" + name_of(there);
  if (there != Place{kCpu, 0}) {
    throw nb::buffer_error(
        (asked + " is neither the tensor's, " + name_of(here) + ", nor the host's").c_str());
  }
  if (!copy.value_or(true)) {
    throw nb::buffer_error(
        (asked + " with copy=False: memory of " + name_of(here) + " reaches the host only by a copy")
            .c_str());
  }
  return without_gil([&] { return tensor.to_host(); });
}

}  // namespace

bool is_on_a_gpu(nb::handle array) {
  if (nb::isinstance<Tensor>(array) || !nb::hasattr(array, "__dlpack_device__")) return false;
  return place_of(array).first == kCuda;
}

Tensor lent(nb::handle array, std::string_view name, const Device* wanted) {
  const std::string place = device_name(place_of(array).second);
  const auto [device, native] = without_gil([&] {  // opening one tells the log, which may be Python's
    const Device found = wanted != nullptr && wanted->name() == place ? *wanted : Device(place);
    return std::pair(found, current_stream(found).native_handle());
  });
  // CUDA's null stream has a number of its own in DLPack.
  const int64_t number = native == nullptr ? 1 : reinterpret_cast<int64_t>(native);
  nb::object capsule = array.attr("__dlpack__")("stream"_a = number);
  auto* const managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  if (managed == nullptr) throw nb::python_error();
  // Whoever drops a capsule that nobody took lets go of the memory. keep() has that done by a thread that
  // holds the GIL; a thread of ours that waited for it could keep one that has it waiting.
  const std::shared_ptr<const void> owner = keep(std::move(capsule));
  const nb::dlpack::dltensor& given = managed->tensor;
  const ArrayParts parts = checked({given.data,
                                    given.ndim,
                                    {given.dtype.code, given.dtype.bits, given.dtype.lanes},
                                    given.shape,
                                    given.strides,
                                    given.byte_offset},
                                   name);
  return Tensor::lend(parts.data, parts.dtype, parts.shape, parts.strides, device, owner,
                      reinterpret_cast<void*>(number));
}

void bind_device_tensor(nb::module_& m) {
  nb::class_<Tensor>(m, "Tensor")
      .def_prop_ro("shape", [](const Tensor& t) { return nb::tuple(nb::cast(t.shape())); })
      .def_prop_ro("dtype", [](const Tensor& t) { return std::string(name(t.dtype())); })
      .def_prop_ro("device", [](const Tensor& t) { return t.device(); })
      .def_prop_ro("ready", &Tensor::ready)
      .def(
          "wait",
          [](const Tensor& t, nb::handle timeout) {
            const auto limit = to_timeout(timeout);
            without_gil([&] { t.wait(limit); });
          },
          "timeout"_a = nb::none())
      .def("numpy",
           [](const Tensor& t) {
             const Tensor on_host = without_gil([&] { return t.to_host(); });
             return Kind::numpy().wrap(on_host);
           })
      .def("__dlpack_device__",
           [](const Tensor& t) {
             const auto [kind, ordinal] = place_of(t);
             return nb::make_tuple(kind, ordinal);
           })
      .def(
          "__dlpack__",
          [](const Tensor& t, nb::handle stream, std::optional<Place> /*max_version*/,
             std::optional<Place> dl_device,
             std::optional<bool> copy) { return export_of(requested(t, dl_device, copy), stream); },
          nb::kw_only(), "stream"_a = nb::none(), "max_version"_a = nb::none(), "dl_device"_a = nb::none(),
          "copy"_a = nb::none());
  m.def(
      "to_device",
      [](nb::handle array, nb::handle on) {
        const Device device = to_device(on);
        const Tensor given = to_tensor(array, "array");
        return without_gil([&] { return copied_to(given, device); });
      },
      "array"_a, "device"_a = nb::none());
}

}  // namespace heddle::python
