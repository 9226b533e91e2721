// storage.h: at::Tensor <-> heddle::Tensor, and the memory of tensors on device "heddle".
//
//   What       A storage on this device is one heddle::Tensor of bytes, made by the allocator or taken over
//              from a result; nothing is copied either way. It carries Heddle's own record of its writes
//              and reads, so a tensor that crosses threads or streams is ordered without the user's care.
//   Threads    Any.
//   Blocks     Never; device memory that runs out: torch.OutOfMemoryError.
#pragma once

#include <ATen/core/TensorBase.h>
#include <heddle/heddle.h>

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
// The bytes of a storage of this device, and a storage's data made of such bytes.
Tensor bytes_of(const c10::Storage& storage);
c10::DataPtr data_of(Tensor bytes, c10::DeviceIndex index);
void resize_storage(const c10::Storage& storage, size_t bytes);  // what it holds is copied in stream order

}  // namespace heddle::torch_backend
