// pinned.h: what PyTorch calls pinned memory: that of CPU tensors which copies to and from the device may use
// while their caller goes on.
//
//   What       Each block is a Tensor::pinned() of the current device, known by its address. On a GPU it is
//              page-locked; a device with unified memory reads all of the CPU's where it lies.
//   Lifetime   The allocator lives as long as the process. A block that PyTorch frees is used again once the
//              copies from and to it are over. A forked child never gives back what it inherited.
//   Threads    Any.
//   Blocks     allocate(), as long as the driver does.
//   Errors     torch.OutOfMemoryError; RuntimeError in the child of a process that has used the device.
#pragma once

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/TensorBase.h>
#include <heddle/heddle.h>

#include <optional>

namespace heddle::torch_backend {

at::HostAllocator& pinned_memory();
bool is_pinned(const void* data);  // anywhere within memory of that allocator
// For a copy: the elements of a CPU tensor as a window on its block, which remembers the copy. Nothing: it is
// not pinned. PyTorch uses the memory by its address, unseen: whoever copies waits until it may.
enum class CopySide : uint8_t { source, target };
std::optional<Tensor> pinned_view(const at::TensorBase& tensor, CopySide side);

}  // namespace heddle::torch_backend
