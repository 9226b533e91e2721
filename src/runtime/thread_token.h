// thread_token.h: tells threads apart, for recursion checks and for spreading. Holds no state of theirs.
//
//   Invariant  Differs between threads that live at one time; a later thread may get a dead one's token.
#pragma once

#include <cstddef>

#include "base/atomic.h"

namespace heddle::runtime {

inline const void* this_thread_token() {
  static thread_local const char token = 0;
  return &token;
}

inline constinit Atomic<size_t> threads_seen{0};  // only counts

// Threads are numbered as they come, so that as many threads as there are stripes share none.
inline size_t this_thread_stripe(size_t stripes) {
  static thread_local const size_t number = threads_seen.add_relaxed(1);
  return number % stripes;
}

}  // namespace heddle::runtime
