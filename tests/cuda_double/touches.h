// touches.h: what commands of streams read and write.
//
//   Checks     An address that is not allocated (any more), or is another device's; memory that nothing has
//              written; what work_order.h finds.
//   Kernels    say nothing of what they touch. It is seen while the block of a launch that comes first runs:
//              each address that it takes from its parameters, whether it may write there, and whether the 16
//              bytes from there on have been written. What only other elements show, values show: new memory
//              is NaN.
//   Threads    Those of streams.
#pragma once

#include <set>
#include <string_view>

#include "drivers/cuda/kernels/block.h"
#include "tests/cuda_double/device_memory.h"

namespace heddle::cuda_double {

// What a copy, a write or a library reads and writes: where it is for the host.
const std::byte* to_read(cuda::Address at, uint64_t bytes, const char* what);
std::byte* to_write(cuda::Address at, uint64_t bytes, const char* what);
// No 16 bytes of them, from one multiple of 16 to the next, are as they were allocated; of less than that,
// not all are.
void require_written(const std::byte* at, uint64_t bytes, const char* what);

// While it lives, what the thread's kernel touches is checked.
class KernelWatch {
 public:
  KernelWatch(const char* kernel, int device);
  ~KernelWatch();
  KernelWatch(const KernelWatch&) = delete;
  KernelWatch& operator=(const KernelWatch&) = delete;
};

// Between them the thread's kernels are those of one graph: each may touch what those in front of it write
// when it has waited for them. Other kernels begin when those are over.
void begin_graph();
void end_graph();
// Of kernels that were seen to touch pinned memory of the host since the last call.
std::set<std::string_view> take_kernels_at_the_host();
// Which the thread runs; null: none.
void watch_block(const cuda::HostBlock* block);

}  // namespace heddle::cuda_double
