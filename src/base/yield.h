// yield.h: the seams through which a simulator owns every pause.
//
//   What       yield_point(name) marks a place where another thread may run between two steps of a protocol.
//              Backoff pauses a bounded number of times before its user must park. give_way() offers the core
//              to others, for the rare wait on a thread that cannot notify.
//   Switch     HEDDLE_SIM (compile time). Without it yield_point() is empty and the other two act on the
//              processor. With it all three call the installed Scheduler, or do nothing if there is none.
//   Threads    Any. install_scheduler() runs while no other thread is inside a seam.
//   Blocks     yield_point() and give_way() only as long as the Scheduler holds the thread; spin() for well
//              under a microsecond a call, kLimit calls at most.
//   Lifetime   The Scheduler outlives its installation. Names are string literals.
#pragma once

#if defined(HEDDLE_SIM)
#include "base/atomic.h"
#else
#include <sched.h>
#endif

namespace heddle {

#if defined(HEDDLE_SIM)
inline namespace simulated {

class Scheduler {
 public:
  virtual ~Scheduler() = default;
  virtual void yield(const char* name) = 0;  // may switch to any other simulated thread
};

// Set before and cleared after a simulation; released to its threads.
inline Atomic<Scheduler*> scheduler{nullptr};

inline void install_scheduler(Scheduler* next) { scheduler.store_release(next); }  // pairs with yield_point()
inline void yield_point(const char* name) {
  if (Scheduler* now = scheduler.load_acquire(); now != nullptr)
    now->yield(name);  // pairs with install_scheduler()
}
inline void give_way() { yield_point("give_way"); }
inline void relax_processor() { yield_point("backoff"); }

#else
inline namespace native {

inline void yield_point(const char*) {}
inline void give_way() { sched_yield(); }
inline void relax_processor() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

#endif

class Backoff {
 public:
  static constexpr int kLimit = 8;  // 1 + 2 + ... + 128 pauses in all: a few microseconds

  // Pauses, each time longer. False: the bound is reached, park instead.
  bool spin() {
    if (round_ == kLimit) return false;
    for (int i = 0; i < (1 << round_); ++i) relax_processor();
    ++round_;
    return true;
  }

 private:
  int round_ = 0;
};

}  // inline namespace
}  // namespace heddle
