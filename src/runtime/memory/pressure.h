// pressure.h: the callbacks that may free memory before a request is refused.
//
//   What       call() runs all callbacks on the calling thread, in the order in which they were added. What
//              a callback took from caches that the others share is not free before it has dropped it: so
//              wait_for_others() waits for those that other threads are in.
//   Nested     Callbacks that a thread is inside of are not called again for what they ask for, and a thread
//              that is inside any callback waits for no other's: they may wait for each other.
//   Threads    Any; several may be in the callbacks at once.
//   Blocks     call(), as long as the callbacks: with no lock held, and holding nothing that one may need.
//              wait_for_others(): kLongestWait at most, or until a signal. A callback that waits for such a
//              thread, by the application's lock or a model's end, so costs a delay and hangs nobody.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "base/sync.h"
#include "device/device.h"

namespace heddle::runtime {

class Pressure {
 public:
  using Callback = std::function<void(uint64_t bytes_asked)>;
  void add(Callback callback);
  bool call(uint64_t bytes_asked);  // false: there was none to call
  void wait_for_others();
  uint64_t calls() const { return calls_.load_relaxed(); }
  // This thread is in one, of any Pressure: whoever it was called for may be what others wait for.
  static bool inside_callback();

 private:
  static constexpr std::chrono::milliseconds kLongestWait{200};
  struct Callers {
    uint64_t next = 0;
    std::set<uint64_t> inside;  // who began later has a larger number
  };
  class Caller;

  Guarded<std::vector<Ref<const Callback>>, Rank::kAllocator> callbacks_;
  Guarded<Callers, Rank::kAllocator> callers_;
  Atomic<uint64_t> calls_{0};  // a statistic
};

}  // namespace heddle::runtime
