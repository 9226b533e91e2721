// yield.h: pauses that are no waits.
//
//   What       yield_point(name) marks a place where another thread may run between two steps of a protocol.
//              Backoff pauses a bounded number of times before its user must park. give_way() offers the core
//              to others, for the rare wait on a thread that cannot notify.
//   Seams      On a simulated thread (base/seam.h) all three are the simulation's. Otherwise yield_point() is
//              nothing and the other two act on the processor.
//   Threads    Any.
//   Blocks     Never natively; spin() for well under a microsecond a call, kLimit calls at most.
//   Lifetime   Names are string literals.
#pragma once

#include <sched.h>

#include "base/seam.h"

namespace heddle {

[[gnu::always_inline]] inline void yield_point(const char* name) { seam::pass(name); }

inline void give_way() {
#if defined(HEDDLE_SIM)
  if (seam::simulated()) return seam::let_others_run("give_way");
#endif
  sched_yield();
}

inline void relax_processor(int times) {
#if defined(HEDDLE_SIM)
  if (seam::simulated()) return seam::let_others_run("backoff");  // once: others make the time pass
#endif
  for (int i = 0; i < times; ++i) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }
}

class Backoff {
 public:
  static constexpr int kLimit = 8;  // 1 + 2 + ... + 128 pauses in all: a few microseconds

  // Pauses, each time longer. False: the bound is reached, park instead.
  bool spin() {
    if (round_ == kLimit) return false;
    relax_processor(1 << round_);
    ++round_;
    return true;
  }

 private:
  int round_ = 0;
};

}  // namespace heddle
