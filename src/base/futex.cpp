#include "base/futex.h"

#if defined(__linux__)

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

namespace heddle::futex {

namespace {

// The place in memory that the kernel compares and queues by.
const uint32_t* place_of(const Atomic<uint32_t>& word) {
  static_assert(sizeof(Atomic<uint32_t>) == sizeof(uint32_t));
  return reinterpret_cast<const uint32_t*>(&word);
}

timespec absolute(TimePoint at) {  // steady_clock is CLOCK_MONOTONIC
  const auto since = std::max(at.time_since_epoch(), Duration(0));
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(since);
  timespec out{};
  out.tv_sec = static_cast<time_t>(whole.count());
  out.tv_nsec = static_cast<long>(std::chrono::nanoseconds(since - whole).count());
  return out;
}

}  // namespace

void sleep_while(const Atomic<uint32_t>& word, uint32_t value, Deadline deadline,
                 [[maybe_unused]] const char* at) {
#if defined(HEDDLE_SIM)
  if (seam::simulated()) {
    seam::step("load", seam::kAtomic, &word);
    if (seam::Memory* const memory = seam::memory()) memory->look(&word);
    if (word.newest() == value) seam::sleep({.key = &word, .at = at, .until = deadline.when()});
    return;
  }
#endif
  timespec end{};
  const bool ends = !deadline.is_never();
  if (ends) end = absolute(deadline.when());
  syscall(SYS_futex, place_of(word), FUTEX_WAIT_BITSET_PRIVATE, value, ends ? &end : nullptr, nullptr,
          FUTEX_BITSET_MATCH_ANY);
}

void wake(const Atomic<uint32_t>& word, int sleepers, [[maybe_unused]] const char* at) {
#if defined(HEDDLE_SIM)
  if (seam::simulated()) return seam::wake(&word, sleepers, at);
#endif
  syscall(SYS_futex, place_of(word), FUTEX_WAKE_PRIVATE, sleepers, nullptr, nullptr, 0);
}

}  // namespace heddle::futex

#endif
