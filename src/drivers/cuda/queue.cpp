#include "drivers/cuda/queue.h"

#include "base/no_memory.h"
#include "base/trace.h"
#include "drivers/cuda/recorder.h"
#include "drivers/cuda/waits.h"

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
// itself or as the end of a graph, and behind what the list waits for. What lacks the host's memory is
// refused, or spoils the queue where some of it is enqueued.
Status CudaQueue::submit(const device::CommandList& list, uint64_t value, NoLocksHeld) {
  const trace::Span span("cuda", "submit", value);
  timeline_->make_room();
  if (Status broken = timeline_->broken(); !broken.ok()) return refuse_all(list, value, std::move(broken));
  const Current current(*device_);
  Recorder recorder(device_, graphs_.get(), stream_, timeline_, value);
  const Status refused = or_exhausted("a submission", [&] { return recorder.check(list); });
  if (!refused.ok()) refuse(list, refused);
  const Status broken =
      or_exhausted("a submission", [&] { return refused.ok() ? recorder.enqueue(list) : Status(); });
  if (!refused.ok() || !broken.ok()) hold_waits(recorder, list);
  Flight flight = recorder.take();
  const bool told = flight.is_told;
  if (!broken.ok()) {
    flight.spoiled = or_exhausted("a submission that was enqueued in part", [&] {
      return Status::device_lost("a submission could not be enqueued to its end: ", broken.message());
    });
  }
  static_cast<void>(timeline_->begin(std::move(flight)));
  const Status written = told ? Status() : end(value);
  timeline_->enqueue_done(value);
  if (!written.ok()) return written;
  return refused.ok() ? broken : refused;
}

// Of a queue that broke. Where it has failed its value counts as over by now: the caller, who is in here,
// keeps what the list names.
Status CudaQueue::refuse_all(const device::CommandList& list, uint64_t value, Status why) {
  refuse(list, why);
  Flight flight;
  flight.value = value;
  if (!timeline_->begin(std::move(flight))) {
    await_on_host(list, timeline_.get());
    return why;
  }
  const Current current(*device_);
  Recorder recorder(device_, graphs_.get(), stream_, timeline_, value);
  hold_waits(recorder, list);
  static_cast<void>(end(value));
  timeline_->enqueue_done(value);
  return why;
}

// Of a list of which nothing else is enqueued from now on.
void CudaQueue::hold_waits(Recorder& recorder, const device::CommandList& list) const {
  const Status held = or_exhausted("a submission", [&] { return recorder.enqueue_waits(list); });
  if (!held.ok()) await_on_host(list, timeline_.get());
}

Status CudaQueue::end(uint64_t value) {
  Status written = or_exhausted("the end of a submission", [&] {
    return device_->check(device_->api.stream_write(stream_, timeline_->word(), value, 0),
                          "cuStreamWriteValue64");
  });
  if (!written.ok()) timeline_->write_failed(value, written);
  return written;
}

}  // namespace heddle::cuda
