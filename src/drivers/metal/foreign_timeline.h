// foreign_timeline.h: a shared event of somebody else's, as a timeline: 1 is reached when the event is.
//
//   What       Command buffers wait for the event itself. The host asks it (look()), or is told by Metal once
//              somebody sleeps (watch()).
//   Threads    Any. One lock, for one thread at a time to advance; Metal's listener comes without it.
//   Lifetime   Holds the event. What Metal is asked to call holds the timeline weakly: the event may never
//              come.
#pragma once

#import <Metal/Metal.h>

#include <memory>

#include "device/device.h"
#include "drivers/metal/owned.h"

namespace heddle::metal {

id<MTLSharedEvent> shared_event_of(const device::ForeignEvent& event);

class ForeignTimeline final : public device::Timeline, public std::enable_shared_from_this<ForeignTimeline> {
 public:
  ForeignTimeline(const device::ForeignEvent& event, Owned<MTLSharedEventListener*> listener,
                  device::Completion completion);
  void look() override;
  void watch(uint64_t value) override;

  id<MTLSharedEvent> event() const { return event_.get(); }
  uint64_t event_value() const { return event_value_; }

 private:
  struct State {
    bool watched = false;
  };
  const Owned<id<MTLSharedEvent>> event_;
  const Ref<const void> keep_;
  const uint64_t event_value_;
  const Owned<MTLSharedEventListener*> listener_;
  const device::Completion completion_;
  Guarded<State, Rank::kStream> state_;
};

}  // namespace heddle::metal
