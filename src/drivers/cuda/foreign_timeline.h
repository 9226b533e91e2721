// foreign_timeline.h: another library's event as a timeline of one value.
//
//   What       A cudaEvent_t or CUevent as it had been recorded when it was imported. Queues of the device
//              wait for it on the GPU; look() asks CUDA.
//   Threads    Any.
//   Lifetime   Keeps the event for as long as anybody may wait for it.
#pragma once

#include <memory>

#include "device/device.h"
#include "drivers/cuda/driver/open_device.h"
#include "drivers/cuda/watcher.h"

namespace heddle::cuda {

class ForeignTimeline final : public Watched {
 public:
  ForeignTimeline(Ref<const OpenDevice> device, device::ForeignEvent event, Ref<Watcher> watcher,
                  device::Completion completion)
      : Watched(std::move(watcher)),
        device_(std::move(device)),
        event_(std::move(event)),
        completion_(completion) {}
  EventHandle event() const { return event_.handle; }

  void look() override;
  Duration begin_looking() override { return Duration(0); }  // each look is a call of CUDA's

 private:
  const Ref<const OpenDevice> device_;
  const device::ForeignEvent event_;
  const device::Completion completion_;
  Guarded<bool, Rank::kStream> over_{false};
};

}  // namespace heddle::cuda
