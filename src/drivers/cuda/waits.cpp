#include "drivers/cuda/waits.h"

#include "base/no_memory.h"
#include "base/yield.h"
#include "drivers/cuda/foreign_timeline.h"
#include "drivers/cuda/timeline.h"

namespace heddle::cuda {
namespace {

// A wait ends early where its thread is asked to end it, or finds no memory to sleep.
void await_on_host(const device::Point& point) {
  device::Timeline& timeline = *point.timeline;
  while (!point.done() && !timeline.failed() && timeline.is_ours()) {
    static_cast<void>(or_exhausted("a wait", [&] { return timeline.wait(point.value, Deadline::never()); }));
    give_way();
  }
}

}  // namespace

Status until_enqueued(const device::Point& point) {
  if (point.done() || dynamic_cast<const ForeignTimeline*>(point.timeline.get()) != nullptr) return {};
  auto* const other = dynamic_cast<CudaTimeline*>(point.timeline.get());
  const Status status =
      other == nullptr ? point.timeline->wait(point.value, Deadline::never()) : other->enqueued(point.value);
  if (status.ok()) return {};
  if (status.code() == heddle::Code::device_lost && other != nullptr) return status;
  return Status::unavailable("a submission that this one waits for has failed: ", status.message());
}

Status hold(const OpenDevice& device, StreamHandle stream, const device::Point& point) {
  if (point.done()) return {};
  if (const auto* foreign = dynamic_cast<const ForeignTimeline*>(point.timeline.get()))
    return device.check(device.api.stream_wait(stream, foreign->event(), 0), "cuStreamWaitEvent");
  const auto* other = dynamic_cast<const CudaTimeline*>(point.timeline.get());
  return other == nullptr ? Status() : other->hold_back(stream);
}

void await_on_host(const device::CommandList& list, const device::Timeline* own) {
  for (const device::Command& command : list) {
    const auto* const wait = std::get_if<device::Wait>(&command);
    if (wait == nullptr || wait->point.timeline == nullptr || wait->point.timeline.get() == own) continue;
    await_on_host(wait->point);
  }
}

}  // namespace heddle::cuda
