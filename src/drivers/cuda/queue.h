// queue.h: one stream of the GPU and its timeline.
#pragma once

#include "device/queue.h"
#include "drivers/cuda/graphs.h"
#include "drivers/cuda/timeline.h"

namespace heddle::cuda {

class Recorder;

class CudaQueue final : public device::Queue {
 public:
  // `graphs` null: runs are launched step by step.
  static Result<std::unique_ptr<device::Queue>> make(Ref<const OpenDevice> device, Ref<Graphs> graphs,
                                                     Ref<Watcher> watcher);
  ~CudaQueue() override;

  void* native() const override { return stream_; }
  Status submit(const device::CommandList& list, uint64_t value, NoLocksHeld) override;
  static device::Completion key() { return completion(); }

 private:
  CudaQueue(Ref<const OpenDevice> device, Ref<Graphs> graphs, StreamHandle stream, Ref<CudaTimeline> timeline)
      : Queue(timeline),
        device_(std::move(device)),
        graphs_(std::move(graphs)),
        stream_(stream),
        timeline_(std::move(timeline)) {}
  Status refuse_all(const device::CommandList& list, uint64_t value, Status why);
  void hold_waits(Recorder& recorder, const device::CommandList& list) const;
  Status end(uint64_t value);

  const Ref<const OpenDevice> device_;
  const Ref<Graphs> graphs_;
  const StreamHandle stream_;
  const Ref<CudaTimeline> timeline_;
};

}  // namespace heddle::cuda
