// timeline.h: how far a Metal queue has got, told by its command buffers' completion handlers.
//
//   What       A Flight is one submission between commit and the end of what its handler does. MetalTimeline
//              adds to device::Timeline the shared event that other queues' command buffers wait for, and
//              puts handlers, which Metal calls late and in any order, into the order of values.
//   Order      A value is reached when its own command buffer has completed without error, its status words
//              are read, all values before are reached, and the points that it waited for are too: a value
//              another queue's data went into is right only when that is known to be.
//   Failure    The first error is kept. The timeline fails when none of the queue's command buffers runs any
//              more; until then new submissions are refused, and waits with a deadline end at it. The
//              event is signalled to its end at once, so that no other queue hangs on it.
//   Threads    Handlers: Metal's threads, several at once. begin(): the queue's owner. One lock per timeline,
//              held for no call that blocks; what a settled flight wakes is done after it.
//   Blocks     begin(), while kMostInFlight command buffers are not over.
#pragma once

#import <Metal/Metal.h>

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "device/device.h"
#include "drivers/metal/defences.h"
#include "drivers/metal/owned.h"

namespace heddle::metal {

class Flight;

class MetalTimeline final : public device::Timeline, public std::enable_shared_from_this<MetalTimeline> {
 public:
  // Metal gives a queue 64 command buffers that are not completed, and blocks at the next. The last
  // submission that begins may be one of which MPSGraph makes several.
  static constexpr size_t kMostInFlight = 48;

  MetalTimeline(Owned<id<MTLSharedEvent>> event, const Defences& defences, device::Completion completion)
      : event_(std::move(event)), defences_(defences), completion_(completion) {}

  id<MTLSharedEvent> event() const { return event_.get(); }

  // Room for `value`, which end() gives back. exhausted when none was free for `stuck_after`, the failure
  // once there is one; then nothing is to be given back.
  Status begin(uint64_t value, Duration stuck_after);
  // The submission of `value` takes one command buffer more.
  void split(uint64_t value);
  // The submission is over, well or not; or it was refused, and nothing of it ran. Adds to `ready` the
  // flights that waited for what this decides: the caller settles them.
  void end(uint64_t value, Status status, std::vector<Ref<Flight>>& ready);
  // True: `value` is not decided yet, and `flight` will be ready when it is.
  bool decides_later(uint64_t value, const Ref<Flight>& flight);
  Status outcome(uint64_t value) const;  // of a decided value

 private:
  struct InFlight {
    uint64_t value;
    bool over;
    size_t buffers = 1;
  };
  struct State {
    std::deque<InFlight> in_flight;  // by value, from the first that is not reached
    size_t open = 0;                 // command buffers of those that are not over
    uint64_t broken_from = UINT64_MAX;
    Status cause;  // of `broken_from`
    std::vector<std::pair<uint64_t, Ref<Flight>>> waiting;
  };
  static std::deque<InFlight>::iterator in_flight_of(State& state, uint64_t value);
  bool decided(const State& state, uint64_t value) const;
  void reach(State& state, uint64_t value);

  const Owned<id<MTLSharedEvent>> event_;
  const Defences defences_;
  const device::Completion completion_;
  Guarded<State, Rank::kStream> state_;
};

}  // namespace heddle::metal
