// stamp.h: when something happened; filled once.
//
//   Threads    fill(): one thread, once. The rest: any.
//   Blocks     Never.
//   Lifetime   The clock outlives it.
#pragma once

#include "base/atomic.h"
#include "base/clock.h"

namespace heddle {

class Stamp {
 public:
  explicit Stamp(const Clock& clock) : clock_(&clock) {}
  bool filled() const { return at_.load_acquire() != 0; }
  TimePoint when() const { return TimePoint(Duration(at_.load_acquire())); }
  void fill() { at_.store_release(clock_->now().time_since_epoch().count()); }

 private:
  const Clock* clock_;
  Atomic<Duration::rep> at_{0};  // one writer, once; 0 until then
};

}  // namespace heddle
