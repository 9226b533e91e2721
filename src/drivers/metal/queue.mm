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
  Status room = timeline_->begin(value, open_->options.stuck_after);
  if (!room.ok() && timeline_->failed()) {
    // Its value counts as over by now: the caller, who is in here, keeps what the list names.
    refuse(list, room);
    await_on_host(list, timeline_.get());
    return room;
  }
  Status status;
  @autoreleasepool {
    status = submit_within_pool(list, value, std::move(room));
  }
  return status;
}

Status MetalQueue::submit_within_pool(const device::CommandList& list, uint64_t value, Status room) {
  Ref<Flight> flight;
  const Status has_flight = or_exhausted("a submission", [&] {
    flight = std::make_shared<Flight>(timeline_, value, *open_);
    return Status();
  });
  if (!has_flight.ok()) {
    refuse(list, has_flight);
    await_on_host(list, timeline_.get());
    timeline_->has_no_commands(value);
    Flight::end_waited_for(*timeline_, value);
    return has_flight;
  }
  Recorder recorder(*open_, timeline_, value, std::move(flight), owed_);
  const bool has_room = room.ok();
  Status status = std::move(room);
  if (status.ok()) status = or_exhausted("a submission", [&] { return recorder.begin(queue_.get()); });
  for (auto command = list.begin(); status.ok() && command != list.end(); ++command) {
    status = or_exhausted("a submission", [&] {
      return std::visit([&](const auto& each) { return recorder.record(each); }, *command);
    });
  }
  if (status.ok()) return recorder.commit();
  refuse(list, status);
  return recorder.drop(std::move(status), has_room ? queue_.get() : nil, list);
}

}  // namespace heddle::metal
