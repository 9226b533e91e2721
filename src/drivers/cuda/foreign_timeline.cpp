#include "drivers/cuda/foreign_timeline.h"

namespace heddle::cuda {

void ForeignTimeline::look() {
  if (reached() > 0) return;
  auto over = over_.try_lock();
  if (!over.has_value() || **over) return;
  const Current current(*device_);
  const Code code = device_->api.event_query(event_.handle);
  if (code == kNotReady) return;
  **over = true;
  Status status = device_->check(code, "cuEventQuery of a foreign event");
  if (status.ok()) {
    advance(1, completion_);
  } else {
    fail(std::move(status), completion_);
  }
}

}  // namespace heddle::cuda
