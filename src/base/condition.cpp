#include "base/condition.h"

#if defined(__linux__)

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

namespace heddle {

namespace {

// The place in memory that the kernel compares and queues by.
const uint32_t* word_of(const Atomic<uint32_t>& value) {
  static_assert(sizeof(Atomic<uint32_t>) == sizeof(uint32_t));
  return reinterpret_cast<const uint32_t*>(&value);
}

timespec absolute(TimePoint at) {  // steady_clock is CLOCK_MONOTONIC
  const auto since = std::max(at.time_since_epoch(), Duration(0));
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(since);
  timespec out{};
  out.tv_sec = static_cast<time_t>(whole.count());
  out.tv_nsec = static_cast<long>(std::chrono::nanoseconds(since - whole).count());
  return out;
}

// Sleeps if the value is still `seen`. Woken, rung meanwhile, interrupted or late: the caller looks at what
// it waits for in any case.
void sleep_while(const Atomic<uint32_t>& value, uint32_t seen, Deadline deadline) {
#if defined(HEDDLE_SIM)
  if (seam::simulated()) {
    if (value.load_seq_cst() == seen)
      seam::sleep({.key = &value, .at = "condition wait", .until = deadline.when()});
    return;
  }
#endif
  timespec end{};
  const bool ends = !deadline.is_never();
  if (ends) end = absolute(deadline.when());
  syscall(SYS_futex, word_of(value), FUTEX_WAIT_BITSET_PRIVATE, seen, ends ? &end : nullptr, nullptr,
          FUTEX_BITSET_MATCH_ANY);
}

void wake(const Atomic<uint32_t>& value, int sleepers) {
#if defined(HEDDLE_SIM)
  if (seam::simulated()) return seam::wake(&value, sleepers, "condition notify");
#endif
  syscall(SYS_futex, word_of(value), FUTEX_WAKE_PRIVATE, sleepers, nullptr, nullptr, 0);
}

}  // namespace

void Condition::wait(std::unique_lock<Mutex>& held, Deadline deadline) {
  const uint32_t seen = rings_.load_seq_cst();
  sleepers_.add_seq_cst(1);
  held.unlock();
  sleep_while(rings_, seen, deadline);
  sleepers_.sub_relaxed(1);
  held.lock();
}

void Condition::ring(int sleepers) {
  rings_.add_seq_cst(1);
  if (sleepers_.load_seq_cst() != 0) wake(rings_, sleepers);
}

}  // namespace heddle

#endif
