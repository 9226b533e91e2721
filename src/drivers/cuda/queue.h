// queue.h: one stream of the GPU and its timeline.
#pragma once

#include "device/queue.h"
#include "drivers/cuda/timeline.h"

namespace heddle::cuda {

class CudaQueue final : public device::Queue {
 public:
  static Result<std::unique_ptr<device::Queue>> make(Ref<const OpenDevice> device, Ref<Watcher> watcher);
  ~CudaQueue() override;

  Status submit(const device::CommandList& list, uint64_t value, NoLocksHeld) override;
  static device::Completion key() { return completion(); }

 private:
  CudaQueue(Ref<const OpenDevice> device, StreamHandle stream, Ref<CudaTimeline> timeline)
      : Queue(timeline), device_(std::move(device)), stream_(stream), timeline_(std::move(timeline)) {}

  const Ref<const OpenDevice> device_;
  const StreamHandle stream_;
  const Ref<CudaTimeline> timeline_;
};

}  // namespace heddle::cuda
