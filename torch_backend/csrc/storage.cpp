// storage.cpp: memory for PyTorch's tensors, and the two ways across.
#include "storage.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DefaultDtype.h>

#include <algorithm>

#include "private_names.h"
#include "process_end.h"

namespace heddle::torch_backend {
namespace {

constexpr std::pair<c10::ScalarType, DType> kTypes[] = {
    {c10::ScalarType::Float, DType::f32},     {c10::ScalarType::Half, DType::f16},
    {c10::ScalarType::BFloat16, DType::bf16}, {c10::ScalarType::Double, DType::f64},
    {c10::ScalarType::Char, DType::i8},       {c10::ScalarType::Byte, DType::u8},
    {c10::ScalarType::Short, DType::i16},     {c10::ScalarType::Int, DType::i32},
    {c10::ScalarType::Long, DType::i64},      {c10::ScalarType::Bool, DType::boolean}};

void drop(void* context) { delete static_cast<Memory*>(context); }

class DeviceMemory final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::DeviceIndex index = current_device();
    const FreeGil without_gil;  // what another thread's Python callback frees may be waited for
    return translated([&] {
      return data_of(Tensor::empty(DType::u8, {static_cast<int64_t>(bytes)}, device_at(index)), index);
    });
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  // Of a storage that PyTorch copies behind the operators' back (lazy clones). It names addresses alone.
  void copy_data(void* to, const void* from, size_t bytes) const override {
    TORCH_CHECK_NOT_IMPLEMENTED(device_at(current_device()).unified_memory(),
                                "device heddle: a storage in the device's own memory is copied by "
                                "tensor.clone(), not by a lazy clone");
    default_copy_data(to, from, bytes);
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t /*pool*/) override {
    translated([] { device_at(current_device()).empty_cache(); });
  }
  // A tensor's memory knows the work that Heddle was given; this covers kernels it does not see.
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    if (data.get_deleter() != &drop) return;
    translated(
        [&] { static_cast<const Memory*>(data.get_context())->bytes.record_stream(*NamedStream(stream)); });
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    const MemoryStats memory = translated([&] { return device_at(index).stats().memory; });
    c10::CachingDeviceAllocator::DeviceStats stats;
    auto& allocated = stats.allocated_bytes[0];
    allocated.current = static_cast<int64_t>(memory.allocated);
    allocated.peak = static_cast<int64_t>(memory.peak_allocated);
    stats.reserved_bytes[0].current = static_cast<int64_t>(memory.reserved);
    stats.reserved_bytes[0].peak = static_cast<int64_t>(memory.peak_reserved);
    stats.num_device_alloc = static_cast<int64_t>(memory.misses);
    stats.num_device_free = static_cast<int64_t>(memory.frees);
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex /*index*/) override {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "device heddle: memory figures count from the start of the process");
  }
  void resetPeakStats(c10::DeviceIndex index) override {
    translated([&] { device_at(index).reset_peak_memory(); });
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    const MemoryStats memory = translated([&] { return device_at(index).stats().memory; });
    return {memory.limit - std::min(memory.limit, memory.reserved), memory.limit};
  }
};

DeviceMemory device_memory;
REGISTER_ALLOCATOR(kType, &device_memory)

Shape shape_of(c10::IntArrayRef sizes) { return {sizes.begin(), sizes.end()}; }

}  // namespace

c10::DataPtr data_of(Tensor bytes, c10::DeviceIndex index) {
  auto* data = const_cast<void*>(bytes.address());
  return {data, new Memory(std::move(bytes)), &drop, c10::Device(kType, index)};
}

std::optional<DType> counterpart(c10::ScalarType type) {
  const auto* const found = std::ranges::find(kTypes, type, &std::pair<c10::ScalarType, DType>::first);
  return found == std::end(kTypes) ? std::nullopt : std::optional(found->second);
}

void check_type(c10::ScalarType type) {
  TORCH_CHECK_NOT_IMPLEMENTED(counterpart(type) || c10::isComplexType(type),
                              "device heddle has no tensors of dtype ", type,
                              "; it has float32, float16, bfloat16, float64, int64, int32, int16, int8, "
                              "uint8, bool and complex numbers");
}

DType to_heddle(c10::ScalarType type) {
  const std::optional<DType> dtype = counterpart(type);
  if (!dtype) [[unlikely]]
    check_type(type);
  TORCH_CHECK_NOT_IMPLEMENTED(dtype, "device heddle does not compute this with complex numbers (", type, ")");
  return *dtype;
}

c10::ScalarType to_torch(DType dtype) {
  return std::ranges::find(kTypes, dtype, &std::pair<c10::ScalarType, DType>::second)->first;
}

DType default_float() { return to_heddle(c10::get_default_dtype_as_scalartype()); }

Memory* memory_of(const c10::Storage& storage) {
  const c10::DataPtr& data = storage.data_ptr();
  return data.get_deleter() == &drop ? static_cast<Memory*>(data.get_context()) : nullptr;
}

Tensor bytes_of(const c10::Storage& storage) {
  if (const Memory* const memory = memory_of(storage)) return memory->bytes;
  const c10::DataPtr& data = storage.data_ptr();
  // Laid around an address by PyTorch (from_blob) or another library (DLPack). In a device's own memory
  // nothing would tell which work writes there.
  TORCH_CHECK_NOT_IMPLEMENTED(device_at(data.device().index()).unified_memory(),
                              "device heddle: this tensor lies at an address that is not known to be the "
                              "device's; torch.heddle.from_dlpack(array) takes memory of a GPU");
  return Tensor::borrow_mutable(data.get(), DType::u8, {static_cast<int64_t>(storage.nbytes())}, {},
                                std::make_shared<c10::Storage>(storage));
}

Tensor to_heddle(const at::TensorBase& tensor) {
  const DType dtype = to_heddle(tensor.scalar_type());
  const Memory* const memory = tensor.device().type() == kType ? memory_of(tensor.storage()) : nullptr;
  if (memory != nullptr && tensor.numel() != 0) [[likely]] {
    // Each operand of each call comes here: blocks of the heap that stay are filled again. A view calls
    // nobody who could come here meanwhile.
    thread_local Shape shape, strides;
    shape.assign(tensor.sizes().begin(), tensor.sizes().end());
    strides.assign(tensor.strides().begin(), tensor.strides().end());
    const auto offset = tensor.storage_offset() * static_cast<int64_t>(tensor.element_size());
    return memory->bytes.view(dtype, shape, strides, offset);
  }
  const Shape shape = shape_of(tensor.sizes()), strides = shape_of(tensor.strides());
  if (tensor.device().type() == kType) {
    if (tensor.numel() == 0) return Tensor::empty(dtype, shape, device_at(tensor.device().index()));
    const auto offset = tensor.storage_offset() * static_cast<int64_t>(tensor.element_size());
    return bytes_of(tensor.storage()).view(dtype, shape, strides, offset);
  }
  TORCH_CHECK(tensor.device().is_cpu(), "a tensor of device ", tensor.device(),
              " was given to device heddle; move it with .to(\"heddle\") first");
  auto kept = std::make_shared<at::TensorBase>(tensor);
  void* data = tensor.numel() == 0 ? nullptr : const_cast<void*>(tensor.const_data_ptr());
  return Tensor::borrow_mutable(data, dtype, shape, strides, std::move(kept));
}

at::Tensor to_torch(Tensor tensor, c10::DeviceIndex index) {
  const Shape shape = tensor.shape();
  const c10::ScalarType type = to_torch(tensor.dtype());
  const auto bytes = static_cast<size_t>(tensor.elements()) * size_of(tensor.dtype());
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, data_of(std::move(tensor), index),
                       &device_memory, /*resizable=*/true);
  auto made =
      make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::scalarTypeToTypeMeta(type));
  made.unsafeGetTensorImpl()->set_sizes_contiguous(shape);
  return made;
}

at::Tensor empty(at::IntArrayRef sizes, c10::ScalarType type, c10::DeviceIndex index) {
  return translated(
      [&] { return to_torch(Tensor::empty(to_heddle(type), shape_of(sizes), device_at(index)), index); });
}

}  // namespace heddle::torch_backend
