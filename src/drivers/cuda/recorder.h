// recorder.h: one submission on its way into a stream.
//
//   What       check() finds what can be refused before anything is enqueued, and waits until what the list
//              waits for is enqueued; enqueue() hands the commands to CUDA.
//   Threads    A local variable of submit().
#pragma once

#include "device/command_list.h"
#include "drivers/cuda/graphs.h"
#include "drivers/cuda/timeline.h"

namespace heddle::cuda {

class Recorder {
 public:
  // `graphs` null: each run is launched step by step.
  Recorder(Ref<const OpenDevice> device, Graphs* graphs, StreamHandle stream, Ref<CudaTimeline> timeline,
           uint64_t value);

  Status check(const device::CommandList& list);
  Status enqueue(const device::CommandList& list);
  Status enqueue_waits(const device::CommandList& list);  // of one that is refused
  Flight take() { return std::move(flight_); }

 private:
  Status check_one(const device::Wait& wait) const;
  Status check_one(const device::Run& run);
  Status check_one(const device::Copy& copy) const;
  Status check_one(const device::Fill& fill) const { return check_view(fill.to); }
  Status check_one(const device::Signal& signal) const;
  Status check_view(const device::View& view) const;

  Status enqueue_one(const device::Wait& wait);
  Status enqueue_one(const device::Run& run) { return enqueue_run(run, {}, {}, false); }
  Status enqueue_one(const device::Copy& copy);
  Status enqueue_one(const device::Fill& fill);
  Status enqueue_one(const device::Signal& signal);
  // `last`: nothing follows.
  Status enqueue_run(const device::Run& run, std::span<const device::Command> before,
                     std::span<const device::Command> after, bool last);

  const Ref<const OpenDevice> device_;
  Graphs* const graphs_;
  const StreamHandle stream_;
  const Ref<CudaTimeline> timeline_;
  Flight flight_;
  uint64_t flag_words_ = 0, flags_used_ = 0;
};

}  // namespace heddle::cuda
