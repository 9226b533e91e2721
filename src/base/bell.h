// bell.h: one thread waits for any of many events.
//
//   Threads    Any.
//   Blocks     wait(), until the bell has rung since `seen` was read.
#pragma once

#include <cstdint>

#include "base/atomic.h"

namespace heddle {

class Bell {
 public:
  uint64_t rings() const { return rings_.load_acquire(); }
  void wait(uint64_t seen) const { rings_.wait(seen); }
  void ring() {
    rings_.add_release(1);
    seam::did("bell.ring");
    rings_.notify_all();
  }

 private:
  Atomic<uint64_t> rings_{0};  // only grows; the ringer's work is visible to a reader of the new count
};

}  // namespace heddle
