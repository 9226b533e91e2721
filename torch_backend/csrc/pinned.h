// pinned.h: what PyTorch calls pinned memory: that of CPU tensors which copies to and from the device may use
// while their caller goes on.
//
//   What       Ordinary CPU memory whose addresses are remembered: Heddle's devices reach all of it.
//   Threads    Any.
//   Lifetime   The allocator lives as long as the process.
#pragma once

#include <c10/core/Allocator.h>

namespace heddle::torch_backend {

c10::Allocator& pinned_memory();
bool is_pinned(const void* data);  // anywhere within memory of that allocator

}  // namespace heddle::torch_backend
