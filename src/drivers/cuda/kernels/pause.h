// pause.h: keeps a stream busy for a while, so that what is enqueued behind it runs without gaps.
#pragma once

#include "drivers/cuda/kernels/block.h"

namespace heddle::cuda {

struct Pause {
  static constexpr int kThreads = 1;
  uint64_t nanoseconds;  // not kept by the host's

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    block.each([&](int) {
#if defined(__CUDACC__)
      const auto now = [] {
        uint64_t time;
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
        return time;
      };
      const uint64_t begin = now();
      while (now() - begin < nanoseconds) {
      }
#endif
    });
  }
};

}  // namespace heddle::cuda
