// thread_number.h: tells threads apart, for recursion checks and for spreading. Holds no state of theirs.
//
//   Invariant  Numbers start at 1, and none is given twice. Those of a simulation's threads are its own and
//              come again in the next one, so that its seed repeats it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/atomic.h"
#include "base/seam.h"

namespace heddle::runtime {

inline constinit Atomic<uint64_t> threads_seen{0};  // only counts

inline uint64_t this_thread_number() {
#if defined(HEDDLE_SIM)
  if (seam::simulated()) return (uint64_t{1} << 32) + seam::thread_number();
#endif
  static thread_local const uint64_t number = threads_seen.add_relaxed(1) + 1;
  return number;
}

// Threads are numbered as they come, so that as many threads as there are stripes share none.
inline size_t this_thread_stripe(size_t stripes) { return this_thread_number() % stripes; }

}  // namespace heddle::runtime
