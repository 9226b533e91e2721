#include "drivers/cuda/waits.h"

#include "drivers/cuda/foreign_timeline.h"
#include "drivers/cuda/timeline.h"

namespace heddle::cuda {

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

}  // namespace heddle::cuda
