#include "base/parker.h"

#include "base/futex.h"

namespace heddle {

namespace {

constexpr uint32_t told(uint32_t word) { return word & ~Parker::kAsleep; }

}  // namespace

void Parker::tell(uint32_t bits) {
  const bool sleeps = (word_.or_seq_cst(bits) & kAsleep) != 0;
  seam::did("parker.tell", sleeps);
  if (!sleeps) return;
#if defined(__linux__)
  futex::wake(word_, 1, "told");
#else
  {
    const std::unique_lock<Mutex> behind_the_sleeper(mutex_);
  }
  changed_.notify_one();
#endif
}

uint32_t Parker::wait(Deadline deadline) {
#ifndef NDEBUG
  lock_order::check_none("a wait to be told");
#endif
  for (;;) {
    const InterruptCheck check = interrupt_check();
    const TimePoint now = check == nullptr ? TimePoint::min() : Clock::real().now();
    const bool sliced = check != nullptr && deadline.when() - now > kInterruptPeriod;
    if (!sliced) return sleep(deadline);
    if (const uint32_t bits = sleep(Deadline::at(now + kInterruptPeriod))) return bits;
    if (check()) return told(word_.load_acquire());
  }
}

uint32_t Parker::sleep(Deadline deadline) {
  for (;;) {
    uint32_t seen = 0;
    word_.cas_strong_acq_rel(seen, kAsleep);
    seam::did("parker.fall_asleep", told(seen));
    if (told(seen) != 0) break;
    if (deadline.expired()) break;
#if defined(__linux__)
    futex::sleep_while(word_, kAsleep, deadline, "parked");
#else
    std::unique_lock<Mutex> held(mutex_);
    if (told(word_.load_acquire()) == 0) changed_.wait(held, deadline);
#endif
  }
  const uint32_t bits = told(word_.and_acq_rel(~kAsleep));
  seam::did("parker.wake", bits);
  return bits;
}

}  // namespace heddle
