// event.h: a moment in a stream's work that others can wait for.
//
//   What       A plain value {timeline, value}, recorded by Stream::record(). Recording again makes another
//              Event.
//   States     Not recorded: query() is true and waits are no-ops, as in torch.cuda. Recorded, then over: the
//              work before it has ended, well or with its stream's failure.
//   Threads    A value; const access from any thread. It outlives its stream.
//   Blocks     wait(), until its deadline. Runtime::wait() makes a stream wait for it.
//   Time       Of an event recorded with Timed::yes: when the stream had ended all work before it, or when it
//              was recorded if that was later.
#pragma once

#include "device/timeline.h"

namespace heddle::runtime {

enum class Timed : bool { no, yes };

class Event {
 public:
  Event() = default;
  explicit Event(device::Point point, Ref<const Stamp> stamp = nullptr)
      : point_(std::move(point)), stamp_(std::move(stamp)) {}

  bool recorded() const { return point_.timeline != nullptr; }
  bool timed() const { return stamp_ != nullptr; }
  bool query() const;                    // over; wait() tells how
  Status wait(Deadline deadline) const;  // ok, the stream's failure, or deadline
  const device::Point& point() const { return point_; }

  // From `start` to `end`; may be negative. invalid when one is not timed, unavailable when one is not over.
  static Result<Duration> elapsed(const Event& start, const Event& end);

 private:
  device::Point point_;
  Ref<const Stamp> stamp_;
};

}  // namespace heddle::runtime
