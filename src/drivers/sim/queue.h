// queue.h: a queue of the simulated device: it checks a command list, translates it and hands it in.
//
//   What       submit() copies no bytes: views become views of the wrapped device's memory, and the event
//              loop does the rest.
//   Threads    As device/queue.h says; that it is so is checked.
//   Blocks     As event_loop.h says of admit() and remove().
#pragma once

#include <memory>

#include "drivers/sim/event_loop.h"

namespace heddle::sim {

class SimQueue final : public device::Queue {
 public:
  SimQueue(const void* maker, Ref<EventLoop> loop, const SimOptions& options);
  ~SimQueue() override;
  Status submit(const device::CommandList& list, uint64_t value, NoLocksHeld) override;
  static device::Completion key() { return completion(); }

 private:
  Status submit_as(const device::CommandList& list, uint64_t value, Status lacks, Submissions& one);
  // Of a list that is refused, for `lacks` or what it finds, the waits are translated all the same.
  Status translate(const device::CommandList& list, Status lacks, Submission& submission);
  Status add(const device::Wait& wait, Submission& submission);
  Status add(const device::Run& run, Submission& submission);
  Status add(const device::Copy& copy, Submission& submission);
  Status add(const device::Fill& fill, Submission& submission);
  static Status add(const device::Signal& signal, Submission& submission);
  Result<device::View> translate(const device::View& view, bool writes, Step& step, Submission& submission);
  Result<Ref<Block>> name_block(const Ref<device::Buffer>& buffer, Submission& submission) const;
  Status against_binding(std::string detail);

  const void* const maker_;
  const Ref<EventLoop> loop_;
  const SimOptions& options_;
  const Ref<QueueState> state_;
  Atomic<int> inside_{0};  // threads in submit(): more than one is a finding
};

}  // namespace heddle::sim
