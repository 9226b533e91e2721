// device_memory.h: what the double has allocated, and who may name it.
//
//   Blocks     They begin at multiples of 256 and have exactly the bytes that were asked for. In front of and
//              behind them lie bytes that the address sanitizer knows as forbidden, and that are looked at
//              when the block is freed: without it, writes beyond a block are found then, reads are not.
//   Contents   New memory holds 16-bit words 0xfff5: NaN as f16, bf16, f32 and f64, -11 and less as an
//              integer. A result that was made of it differs from the reference; touches.h looks for it.
//   Threads    Any.
#pragma once

#include <cstddef>
#include <cstdint>

#include "drivers/cuda/driver/driver_api.h"

namespace heddle::cuda_double {

cuda::Address allocate(uint64_t bytes, int device);     // marked
void begin_release(cuda::Address address, int device);  // it may be asked for once
void end_release(cuda::Address address);                // by the stream that comes to it
void* allocate_pinned(uint64_t bytes);
void release_pinned(void* at);
int64_t allocated_bytes(int device);

inline constexpr int kPinned = -1, kNowhere = -2;
struct Block {
  uint64_t end = 0;       // of its bytes, without the mark
  int device = kNowhere;  // whose memory it is, or kPinned
  bool is_freed = false;  // by a call that its stream has not come to
};
Block block_at(cuda::Address address);  // the one that has the byte

// Of the host, for a copy or a write of `bytes`. Ends the process unless one block has all of them.
std::byte* host_of(cuda::Address address, uint64_t bytes, const char* what);

// Whether they are what new memory holds. `at` is even.
bool is_unwritten(const std::byte* at, uint64_t bytes);

[[noreturn]] void stop(const char* what, const char* why);

}  // namespace heddle::cuda_double
