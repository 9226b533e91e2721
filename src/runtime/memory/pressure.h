// pressure.h: the callbacks that may free memory before a request is refused.
//
//   What       relieve() runs all callbacks on the calling thread, in the order in which they were added.
//              Then it waits for those that other threads had begun by then: what such a thread took from the
//              same caches is not free before it has dropped it.
//   Nested     Callbacks that a thread is inside of are not called again for what they ask for, and a thread
//              that is inside any callback waits for no other's: they may wait for each other.
//   Threads    Any; several may be in the callbacks at once.
//   Blocks     relieve(), as long as the callbacks: with no lock held, and holding nothing that one may need.
#pragma once

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
  bool relieve(uint64_t bytes_asked);  // false: no callback was called
  uint64_t calls() const { return calls_.load_relaxed(); }
  // This thread is in one, of any Pressure: whoever it was called for may be what others wait for.
  static bool inside_callback();

 private:
  struct Callers {
    uint64_t next = 0;
    std::set<uint64_t> inside;  // who began later has a larger number
  };
  class Caller;
  bool call(uint64_t bytes_asked);
  void wait_for_others();

  Guarded<std::vector<Ref<const Callback>>, Rank::kAllocator> callbacks_;
  Guarded<Callers, Rank::kAllocator> callers_;
  Atomic<uint64_t> calls_{0};  // a statistic
};

}  // namespace heddle::runtime
