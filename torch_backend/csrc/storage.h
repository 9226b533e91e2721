// storage.h: at::Tensor <-> heddle::Tensor, and the memory of tensors on device "heddle".
//
//   What       A storage on this device is one heddle::Tensor of bytes, made by the allocator or taken over
//              from a result; nothing is copied either way. It carries Heddle's own record of its writes
//              and reads, so a tensor that crosses threads or streams is ordered without the user's care.
//   Threads    Any.
//   Blocks     Never; device memory that runs out: torch.OutOfMemoryError.
#pragma once

#include <ATen/core/Tensor.h>
#include <heddle/heddle.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "device.h"

namespace heddle::torch_backend {

DType to_heddle(c10::ScalarType type);  // NotImplementedError names a type that has no counterpart
std::optional<DType> counterpart(c10::ScalarType type);
c10::ScalarType to_torch(DType dtype);
// NotImplementedError unless tensors may have this dtype: those with a counterpart, and complex ones, which
// no graph computes with.
void check_type(c10::ScalarType type);
DType default_float();  // torch.get_default_dtype()

// Borrows: a tensor on this device shares its storage, any other one (CPU) lends its memory and is kept.
Tensor to_heddle(const at::TensorBase& tensor);
// A result as a tensor of device heddle:index; shares the memory.
at::Tensor to_torch(Tensor tensor, c10::DeviceIndex index);

at::Tensor empty(at::IntArrayRef sizes, c10::ScalarType type, c10::DeviceIndex index);
// Of a part of a storage; weight_casts.h.
struct WeightCast {
  uint64_t writes;  // to the storage, before it was made
  c10::ScalarType from;
  int64_t offset;
  std::vector<int64_t> strides;
  at::Tensor made;
};

// What a storage of this device is.
struct Memory {
  explicit Memory(Tensor its) : bytes(std::move(its)) {}
  const Tensor bytes;
  // That the device was given; counted after each. No two memories have a count in common, so that none is
  // taken for another one that had its address.
  std::atomic<uint64_t> writes{memories.fetch_add(uint64_t{1} << 32, std::memory_order_relaxed)};
  std::mutex lock;
  std::vector<WeightCast> casts;  // guarded by `lock`

 private:
  static inline constinit std::atomic<uint64_t> memories{0};
};
Memory* memory_of(
    const c10::Storage& storage);  // null: laid around an address by PyTorch, or not this device's

// Counts a write to each of these when it ends: when the device was given it, or not all of it.
class Writes {
 public:
  explicit Writes(std::vector<at::Tensor> targets) : targets_(std::move(targets)) {}
  ~Writes() {
    for (const at::Tensor& each : targets_) {
      Memory* const memory = each.defined() && each.has_storage() ? memory_of(each.storage()) : nullptr;
      if (memory != nullptr) memory->writes.fetch_add(1, std::memory_order_release);
    }
  }
  Writes(const Writes&) = delete;
  Writes& operator=(const Writes&) = delete;

 private:
  const std::vector<at::Tensor> targets_;
};

// The bytes of a storage of this device, and a storage's data made of such bytes.
Tensor bytes_of(const c10::Storage& storage);
c10::DataPtr data_of(Tensor bytes, c10::DeviceIndex index);
void resize_storage(const c10::Storage& storage, size_t bytes);  // what it holds is copied in stream order

}  // namespace heddle::torch_backend
