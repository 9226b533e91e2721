#include "drivers/metal/queue.h"

#include "base/no_memory.h"
#include "base/trace.h"
#include "drivers/metal/recorder.h"

namespace heddle::metal {

Result<std::unique_ptr<device::Queue>> MetalQueue::make(Ref<const OpenDevice> open) {
  @autoreleasepool {
    const id<MTLDevice> device = open->device.get();
    auto queue = Owned<id<MTLCommandQueue>>::adopt([device newCommandQueue]);
    auto event = Owned<id<MTLSharedEvent>>::adopt([device newSharedEvent]);
    if (!queue || !event) return Status::exhausted("Metal gives no more command queues or shared events");
    auto timeline = std::make_shared<MetalTimeline>(std::move(event), open->options.defences, completion());
    return std::unique_ptr<device::Queue>(
        new MetalQueue(std::move(open), std::move(queue), std::move(timeline)));
  }
}

Status MetalQueue::submit(const device::CommandList& list, uint64_t value, NoLocksHeld) {
  const trace::Span span("metal", "submit", value);
  HEDDLE_TRY(timeline_->begin(value, open_->options.stuck_after));
  Status status;
  @autoreleasepool {
    status = submit_within_pool(list, value);
  }
  return status;
}

Status MetalQueue::submit_within_pool(const device::CommandList& list, uint64_t value) {
  Recorder recorder(*open_, timeline_, value);
  Status status = recorder.begin(queue_.get());
  for (auto command = list.begin(); status.ok() && command != list.end(); ++command) {
    status = or_exhausted("a submission", [&] {
      return std::visit([&](const auto& each) { return recorder.record(each); }, *command);
    });
  }
  if (!status.ok()) refuse(list, status);
  return status.ok() ? recorder.commit() : recorder.drop(std::move(status), queue_.get(), list);
}

}  // namespace heddle::metal
