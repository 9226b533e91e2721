#include "drivers/metal/foreign_timeline.h"

namespace heddle::metal {

id<MTLSharedEvent> shared_event_of(const device::ForeignEvent& event) {
  return static_cast<id<MTLSharedEvent>>(event.handle);
}

ForeignTimeline::ForeignTimeline(const device::ForeignEvent& event, Owned<MTLSharedEventListener*> listener,
                                 device::Completion completion)
    : event_(Owned<id<MTLSharedEvent>>::retain(shared_event_of(event))),
      keep_(event.keep),
      event_value_(event.value),
      listener_(std::move(listener)),
      completion_(completion) {}

void ForeignTimeline::look() {
  if (done(1)) return;
  const auto one_thread = state_.lock();
  if (!done(1) && [event_.get() signaledValue] >= event_value_) advance(1, completion_);
}

void ForeignTimeline::watch(uint64_t) {
  {
    auto state = state_.lock();
    if (state->watched) return;
    state->watched = true;
  }
  const std::weak_ptr<ForeignTimeline> self = weak_from_this();
  @autoreleasepool {
    [event_.get() notifyListener:listener_.get()
                         atValue:event_value_
                           block:^(id<MTLSharedEvent>, uint64_t) {
                             if (const Ref<ForeignTimeline> living = self.lock()) living->look();
                           }];
  }
}

}  // namespace heddle::metal
