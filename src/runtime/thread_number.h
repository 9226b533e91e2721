// thread_number.h: tells threads apart, for recursion checks and for spreading. Holds no state of theirs.
//
//   Invariant  Numbers start at 1, and none is given twice.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/atomic.h"

namespace heddle::runtime {

inline constinit Atomic<uint64_t> threads_seen{0};  // only counts

inline uint64_t this_thread_number() {
  static thread_local const uint64_t number = threads_seen.add_relaxed(1) + 1;
  return number;
}

// Threads are numbered as they come, so that as many threads as there are stripes share none.
inline size_t this_thread_stripe(size_t stripes) { return this_thread_number() % stripes; }

}  // namespace heddle::runtime
