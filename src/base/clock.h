// clock.h: time is an argument.
//
//   What       Clock tells the time; Deadline says until when a call may wait. Both are passed in, so that a
//              test or a simulated device can own time.
//   Invariant  Time never goes back. Deadline::in() saturates: a duration too long to add means never.
//   Threads    Any; all reads are const. ManualClock::advance() may run beside now().
//   Blocks     Never.
//   Lifetime   Clock::real() lives as long as the process. A Deadline is a plain value and keeps no clock:
//              pass to expired() the clock that it was made with. Guarded::wait_until() waits in the time
//              of Clock::real(), which is virtual in a simulation (base/simulation.h).
#pragma once

#include <chrono>

#include "base/atomic.h"

namespace heddle {

using TimePoint = std::chrono::steady_clock::time_point;
using Duration = std::chrono::nanoseconds;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;

  static const Clock& real();
};

// Processor time that the calling thread has used: what it was made to wait for other threads is not in it.
Duration thread_cpu_time();

// For tests: stands still until it is advanced.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(TimePoint start = TimePoint(Duration(0)))
      : now_ns_(start.time_since_epoch().count()) {}
  TimePoint now() const override { return TimePoint(Duration(now_ns_.load_acquire())); }
  void advance(Duration by) { now_ns_.add_acq_rel(by.count()); }

 private:
  // Only grows; what was done before advance() is visible to a reader of the new time.
  Atomic<Duration::rep> now_ns_;
};

class Deadline {
 public:
  static Deadline never() { return Deadline(TimePoint::max()); }
  static Deadline at(TimePoint when) { return Deadline(when); }
  static Deadline in(Duration wait, const Clock& clock = Clock::real());

  bool is_never() const { return when_ == TimePoint::max(); }
  bool expired(const Clock& clock = Clock::real()) const { return !is_never() && clock.now() >= when_; }
  TimePoint when() const { return when_; }

 private:
  explicit Deadline(TimePoint when) : when_(when) {}
  TimePoint when_;
};

}  // namespace heddle
