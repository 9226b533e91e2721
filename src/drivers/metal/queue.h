// queue.h: one MTLCommandQueue, the only place that makes command buffers for it.
//
//   Threads    submit() by one thread at a time; completion handlers reach the timeline only.
//   Lifetime   Handlers hold timeline and flight, not the queue.
#pragma once

#import <Metal/Metal.h>

#include <vector>

#include "drivers/metal/open_device.h"
#include "drivers/metal/timeline.h"

namespace heddle::metal {

class MetalQueue final : public device::Queue {
 public:
  static Result<std::unique_ptr<device::Queue>> make(Ref<const OpenDevice> open);
  Status submit(const device::CommandList& list, uint64_t value, NoLocksHeld) override;
  static device::Completion key() { return completion(); }

 private:
  MetalQueue(Ref<const OpenDevice> open, Owned<id<MTLCommandQueue>> queue, Ref<MetalTimeline> timeline)
      : Queue(timeline), open_(std::move(open)), queue_(std::move(queue)), timeline_(std::move(timeline)) {}
  // `room` not ok: there is no command buffer for it.
  Status submit_within_pool(const device::CommandList& list, uint64_t value, Status room);

  const Ref<const OpenDevice> open_;
  const Owned<id<MTLCommandQueue>> queue_;
  const Ref<MetalTimeline> timeline_;
  std::vector<device::Point> owed_;  // of submissions without command buffer: recorder.h
};

}  // namespace heddle::metal
