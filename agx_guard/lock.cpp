#include "lock.h"

#include "counters.h"
#include "settings.h"

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>

namespace agx_guard {

namespace {

using Time = std::chrono::steady_clock;

// Where waiters sleep. Which lot is a matter of the lock's address; strangers in a lot only wake each other.
struct Lot {
  std::mutex mutex;
  std::condition_variable changed;
};
constexpr size_t kLots = 64;

Lot& lot_of(const void* lock) {
  static auto* const lots = new Lot[kLots];  // waiters may outlive every destructor
  return lots[(reinterpret_cast<uintptr_t>(lock) >> 6) % kLots];
}

uint64_t ms_since(Time::time_point start) {
  return uint64_t(std::chrono::duration_cast<std::chrono::milliseconds>(Time::now() - start).count());
}

constexpr auto kPatience = std::chrono::milliseconds(1);

// Sleeps until woken, or until something has to be said.
void sleep(Lot& lot, std::unique_lock<std::mutex>& hold, Time::time_point start, uint64_t& warned_at,
           const char* waiting) {
  if (Time::now() - start < kPatience) {
    lot.changed.wait_until(hold, start + kPatience);
    return;
  }
  const auto [warn_ms, limit_ms] = std::pair(settings().warn_ms, settings().limit_ms);
  if (warn_ms == 0 && limit_ms == 0) return lot.changed.wait(hold);
  const uint64_t warn_next = warn_ms ? warned_at + warn_ms : UINT64_MAX;
  const uint64_t next = std::min(warn_next, limit_ms ? limit_ms : UINT64_MAX);
  lot.changed.wait_until(hold, start + std::chrono::milliseconds(next));
  const uint64_t waited = ms_since(start);
  if (limit_ms && waited >= limit_ms) {
    counters.lock_limits.add();
    say("%s has waited %llu ms for another call on its encoder, the limit of AGX_GUARD_LIMIT_MS; stopping",
        waiting, (unsigned long long)waited);
    abort();
  }
  if (waited >= warn_next) {
    warned_at = waited;
    counters.lock_wait_warnings.add();
    say("%s has waited %llu ms for another call on its encoder", waiting, (unsigned long long)waited);
  }
}

}  // namespace

void Lock::wait(const char* waiting) {
  counters.lock_contentions.add();
  for (int attempt = 0; attempt < 64; ++attempt) {
    uint32_t free = kFree;
    if (state_.load(std::memory_order_relaxed) == kFree &&
        state_.compare_exchange_strong(free, kHeld, std::memory_order_acquire, std::memory_order_relaxed)) {
      return;
    }
  }
  const Time::time_point start = Time::now();
  uint64_t warned_at = 0;
  Lot& lot = lot_of(this);
  std::unique_lock hold(lot.mutex);
  // The thread that gets the lock here leaves it as waited for: others may sleep in the lot.
  while (!handed_over_ && state_.exchange(kWaitedFor, std::memory_order_acquire) != kFree) {
    if (Time::now() - start >= kPatience) state_.store(kImpatient, std::memory_order_relaxed);
    sleep(lot, hold, start, warned_at, waiting);
  }
  handed_over_ = false;
  hold.unlock();
  counters.lock_wait_us_max.raise_to(
      uint64_t(std::chrono::duration_cast<std::chrono::microseconds>(Time::now() - start).count()));
}

void Lock::wake() {
  Lot& lot = lot_of(this);
  // Taken so that a waiter that has set the word but does not sleep yet is not missed.
  const std::lock_guard hold(lot.mutex);
  if (state_.load(std::memory_order_relaxed) == kImpatient) {
    handed_over_ = true;
    state_.store(kWaitedFor, std::memory_order_relaxed);
  } else {
    state_.store(kFree, std::memory_order_release);
  }
  lot.changed.notify_all();
}

}  // namespace agx_guard
