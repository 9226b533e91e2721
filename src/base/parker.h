// parker.h: one thread sleeps until it is told something.
//
//   What       tell() leaves bits, wait() returns those that were left and not yet taken. One word and a
//              futex on Linux: telling costs no system call while the owner is awake. Elsewhere a Condition.
//   States     awake -> asleep (the word has kAsleep alone) -> awake (told, late, or for no reason).
//   Ordering   What was done before tell() is visible once wait() or take() has returned its bits. tell() and
//              take() are seq_cst: they can be a side of "I write mine, then read yours".
//   Threads    wait() and take(): the owner's alone. tell(): any.
//   Blocks     wait(), until told or the deadline, with no lock held. As Guarded::wait_until(), it also ends
//              when its thread is asked to (ask_while_waiting).
//   Lifetime   Outlives every tell(): whoever tells the owner keeps what the Parker lies in.
#pragma once

#include <cstdint>

#include "base/sync.h"

namespace heddle {

class Parker {
 public:
  static constexpr uint32_t kAsleep = uint32_t{1} << 31;  // not for tell()

  void tell(uint32_t bits);
  // The owner's, awake: a hint, since wait() and take() acquire what was told.
  bool is_told() const { return (word_.load_relaxed() & ~kAsleep) != 0; }
  bool is_asleep() const { return (word_.load_relaxed() & kAsleep) != 0; }  // a hint
  // 0: the deadline passed, or the thread was asked to end its wait. Leaves the bits where they are.
  uint32_t wait(Deadline deadline);
  bool take(uint32_t bits) {  // true: one of them was there
    const uint32_t taken = word_.and_seq_cst(~bits) & bits;
    seam::did("parker.take", taken);
    return taken != 0;
  }

 private:
  uint32_t sleep(Deadline deadline);

  // What was told and not taken, and whether the owner sleeps: tellers add their bits, the owner the rest.
  Atomic<uint32_t> word_{0};
#if !defined(__linux__)
  Mutex mutex_;
  Condition changed_;
#endif
};

}  // namespace heddle
