#include "drivers/cuda/queue.h"

#include "base/no_memory.h"
#include "base/trace.h"
#include "drivers/cuda/recorder.h"

namespace heddle::cuda {

Result<std::unique_ptr<device::Queue>> CudaQueue::make(Ref<const OpenDevice> device, Ref<Graphs> graphs,
                                                       Ref<Watcher> watcher) {
  const Current current(*device);
  StreamHandle stream = nullptr;
  HEDDLE_TRY(device->check(device->api.stream_create(&stream, kNonBlockingStream), "cuStreamCreate"));
  auto timeline = CudaTimeline::make(device, stream, std::move(watcher), completion());
  if (!timeline.ok()) {
    device->api.stream_destroy(stream);
    return timeline.status();
  }
  return std::unique_ptr<device::Queue>(
      new CudaQueue(std::move(device), std::move(graphs), stream, std::move(timeline).value()));
}

CudaQueue::~CudaQueue() {
  if (!device_->is_ours()) return;
  const Current current(*device_);
  timeline_->close();
  device_->api.stream_destroy(stream_);
}

// Whatever becomes of the list, its value is reached: the write that says so is enqueued in any case, by
// itself or as the end of a graph. What lacks the host's memory is refused, or spoils the queue where some of
// it is enqueued.
Status CudaQueue::submit(const device::CommandList& list, uint64_t value, NoLocksHeld) {
  const trace::Span span("cuda", "submit", value);
  HEDDLE_TRY(timeline_->broken());
  HEDDLE_TRY(timeline_->make_room());
  const Current current(*device_);
  Recorder recorder(device_, graphs_.get(), stream_, timeline_, value);
  const Status refused = or_exhausted("a submission", [&] { return recorder.check(list); });
  if (!refused.ok()) refuse(list, refused);
  const Status broken = or_exhausted(
      "a submission", [&] { return refused.ok() ? recorder.enqueue(list) : recorder.enqueue_waits(list); });
  Flight flight = recorder.take();
  const bool told = flight.is_told;
  if (!broken.ok()) {
    flight.spoiled = or_exhausted("a submission that was enqueued in part", [&] {
      return Status::device_lost("a submission could not be enqueued to its end: ", broken.message());
    });
  }
  timeline_->begin(std::move(flight));
  const Status written = or_exhausted("the end of a submission", [&] {
    if (told) return Status();
    return device_->check(device_->api.stream_write(stream_, timeline_->word(), value, 0),
                          "cuStreamWriteValue64");
  });
  if (!written.ok()) timeline_->write_failed(value, written);
  timeline_->enqueue_done(value);
  if (!written.ok()) return written;
  return refused.ok() ? broken : refused;
}

}  // namespace heddle::cuda
