// free_word.h: up to 63 numbered places, taken and given back by compare-and-swap on one word.
//
//   What       Bit i of the word is set while place i is free. kParked says that callers are parked: then
//              nothing is taken or given back past them; the holder of their queue's lock hands places
//              over.
//   Invariant  A place has one owner, or is free. No ABA: the word holds the whole state, so an equal word is
//              an equal state.
//   Ordering   What the last owner did is visible to the next one: every change is acquire-release.
//   Threads    try_take() and try_give_back(): any. The *_parked functions: the holder of the queue's lock.
//   Blocks     Never.
#pragma once

#include <bit>
#include <cstdint>

#include "base/atomic.h"
#include "base/yield.h"

namespace heddle::runtime {

class FreeWord {
 public:
  static constexpr int kMaxPlaces = 63;
  static constexpr int kNone = -1;
  static uint64_t first(int places) { return (uint64_t{1} << places) - 1; }

  explicit FreeWord(uint64_t free) : word_(free) {}

  int try_take() {  // the lowest free place; kNone when there is none, or callers are parked
    uint64_t seen = word_.load_relaxed();
    while (seen != 0 && (seen & kParked) == 0) {
      yield_point("free_word.take");
      if (word_.cas_weak_acq_rel(seen, seen & (seen - 1))) return std::countr_zero(seen);
    }
    return kNone;
  }
  // As try_take(), and it also changes the word when it finds nothing: a thread that gives a place back
  // later sees what we did before.
  int try_take_latest() {
    word_.or_acq_rel(0);
    return try_take();
  }
  bool try_give_back(int place) {  // false: callers are parked; the place is still the caller's to hand over
    uint64_t seen = word_.load_relaxed();
    do {
      if ((seen & kParked) != 0) return false;
      yield_point("free_word.give_back");
    } while (!word_.cas_weak_acq_rel(seen, seen | bit(place)));
    return true;
  }

  // From here on, and until unpark(), the word changes only under the queue's lock.
  void park() { word_.or_acq_rel(kParked); }
  void unpark() { word_.and_acq_rel(~kParked); }
  int take_parked() {
    const uint64_t free = word_.load_acquire() & ~kParked;
    if (free == 0) return kNone;
    word_.and_acq_rel(~(free & -free));
    return std::countr_zero(free);
  }
  void put_parked(int place) { word_.or_acq_rel(bit(place)); }

  uint64_t free() const { return word_.load_acquire() & ~kParked; }

 private:
  static constexpr uint64_t kParked = uint64_t{1} << 63;
  static uint64_t bit(int place) { return uint64_t{1} << place; }
  Atomic<uint64_t> word_;
};

}  // namespace heddle::runtime
