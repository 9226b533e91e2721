// timeline.h: how far a Metal queue has got, told by its command buffers' completion handlers.
//
//   What       A Flight is one submission between commit and the end of what its handler does. MetalTimeline
//              adds to device::Timeline the shared event that other queues' command buffers wait for, and
//              puts handlers, which Metal calls late and in any order, into the order of values.
//   Order      A value is reached when its own command buffer has completed without error, its status words
//              are read, all values before are reached, and the points that it waited for are too: a value
//              another queue's data went into is right only when that is known to be. One that was refused
//              may have no command buffer: then the host waits in its place, and signals the event.
//   Failure    The first error is kept. The timeline fails when none of the queue's command buffers runs any
//              more, and what it refused meanwhile has been waited for; until then new submissions are
//              refused, and waits with a deadline end at it. A value from the broken one on is decided, and
//              signalled, when nothing up to it runs any more: its memory may be another's then.
//   Memory     Places are list nodes that move: what ends a submission needs no memory of the host.
//   Threads    Handlers: Metal's threads, several at once. begin(): the queue's owner. One lock per timeline,
//              held for no call that blocks; what a settled flight wakes is done after it.
//   Blocks     begin(), while kMostInFlight command buffers are not over, or the host has no memory for one.
#pragma once

#import <Metal/Metal.h>

#include <functional>
#include <list>
#include <memory>

#include "device/device.h"
#include "drivers/metal/defences.h"
#include "drivers/metal/owned.h"

namespace heddle::metal {

class Flight;

// A flight that waits for a value. Its node is the flight's own when it waits for none.
struct Waiting {
  uint64_t value = 0;
  Ref<Flight> flight;
};
using WaitingList = std::list<Waiting>;

class MetalTimeline final : public device::Timeline, public std::enable_shared_from_this<MetalTimeline> {
 public:
  // Metal gives a queue 64 command buffers that are not completed, and blocks at the next. The last
  // submission that begins may be one of which MPSGraph makes several.
  static constexpr size_t kMostInFlight = 48;

  MetalTimeline(Owned<id<MTLSharedEvent>> event, const Defences& defences, device::Completion completion)
      : event_(std::move(event)), defences_(defences), completion_(completion) {}

  id<MTLSharedEvent> event() const { return event_.get(); }

  // A place for `value`, until end(), and room for a command buffer. Without room it is to be refused:
  // exhausted when there was none for `stuck_after`, the failure once there is one. If failed() then, it has
  // no place either.
  Status begin(uint64_t value, Duration stuck_after);
  // The submission of `value` takes one command buffer more.
  void split(uint64_t value);
  // The submission of `value` is refused, and has no command buffer: the host signals its end.
  void has_no_commands(uint64_t value);
  // None of its command buffers runs any more. Adds to `ready` the flights that waited for what this decides:
  // the caller settles them.
  void ran(uint64_t value, WaitingList& ready);
  // The submission is over, well or not; or it was refused, and nothing of it ran. As above.
  void end(uint64_t value, Status status, WaitingList& ready);
  // True: `value` is not decided yet, and `flight` will be ready when it is. Takes the node in `place`.
  bool decides_later(uint64_t value, const Ref<Flight>& flight, WaitingList& place);
  Status outcome(uint64_t value) const;  // of a decided value

 private:
  struct InFlight {
    uint64_t value = 0;
    size_t buffers = 0;  // 0: it was refused
    bool ran = false, over = false;
  };
  using Places = std::list<InFlight>;
  struct State {
    Places in_flight;         // by value, from the first that is not reached
    Places idle = Places(1);  // room for more: with the others it is never less than one
    size_t open = 0;          // command buffers of those that are not over
    uint64_t begun = 0;
    uint64_t broken_from = UINT64_MAX;
    Status cause;               // of `broken_from`
    bool host_signals = false;  // for some value no command buffer does
    WaitingList waiting;
  };
  Places take_place();
  static Places::iterator in_flight_of(State& state, uint64_t value);
  static uint64_t ran_up_to(const State& state);  // all of them; UINT64_MAX: there are no others
  bool decided(const State& state, uint64_t value) const;
  void reach(State& state, uint64_t value);
  void signal(uint64_t value);
  void wake(State& state, WaitingList& ready) const;

  const Owned<id<MTLSharedEvent>> event_;
  const Defences defences_;
  const device::Completion completion_;
  Guarded<State, Rank::kStream> state_;
};

}  // namespace heddle::metal
