// flags.h: what a kernel says of data that is wrong.
#pragma once

#include "drivers/cuda/kernels/portable.h"

namespace heddle::cuda {

// Words in pinned memory, zero while all is right: one for each place along an axis, or one for all.
struct Flags {
  uint64_t words = 0;
  uint64_t enabled = 0;          // a bool: while it is false nothing is wrong; 0: always
  int64_t count = 1, inner = 1;  // element i belongs to word i / inner % count
};

HEDDLE_DEVICE void mark_wrong(const Flags& flags, int64_t element) {
  if (flags.enabled != 0 && *global<const uint8_t>(flags.enabled) == 0) return;
  const int64_t word = flags.count == 1 ? 0 : element / flags.inner % flags.count;
#if defined(__CUDA_ARCH__)
  global<uint32_t>(flags.words)[word] = 1;
#else
  __atomic_store_n(global<uint32_t>(flags.words) + word, 1u, __ATOMIC_RELAXED);  // by several blocks
#endif
}

}  // namespace heddle::cuda
