// lock.h: an encoder's lock: one word, so that every encoder has its own.
//
//   Order     A thread may hold several, always from the outside in: a wrapper's before what it wraps, a
//             child's before its parent's. A thread never takes one twice (frames.h sees nested calls first).
//   Fairness  The first thread after an unlock gets it, which is cheapest; but a thread that has waited
//             for kPatience is handed the lock, or one that encodes in a loop would keep the one that ends
//             the encoder out.
//   Blocks    lock() waits as long as another call on the same encoder runs. It warns and gives up as
//             settings.h says; giving up stops the process, since both ways on would be wrong.
//   Lifetime  The word lives in a record that is never freed, so a waiter may outlive the encoder.
#pragma once

#include <atomic>
#include <cstdint>

namespace agx_guard {

class Lock {
 public:
  // `waiting` names the call in warnings.
  void lock(const char* waiting) {
    if (!try_lock()) wait(waiting);
  }
  bool try_lock() {
    uint32_t free = kFree;
    return state_.compare_exchange_strong(free, kHeld, std::memory_order_acquire, std::memory_order_relaxed);
  }
  void unlock() {
    uint32_t held = kHeld;
    if (!state_.compare_exchange_strong(held, kFree, std::memory_order_release, std::memory_order_relaxed))
      wake();
  }

 private:
  // Out of kWaitedFor and kImpatient the word is led by holders of the lot's mutex only (lock.cpp).
  static constexpr uint32_t kFree = 0, kHeld = 1, kWaitedFor = 2, kImpatient = 3;

  void wait(const char* waiting);
  void wake();

  std::atomic<uint32_t> state_{kFree};
  bool handed_over_ = false;  // under the lot's mutex: held, by the next waiter that sees it
};

}  // namespace agx_guard
