// queue.h: one order of work of a device: submissions run one after the other.
//
//   Threads    submit() by one thread at a time (its stream's Turn, or its lane's Permit, sees to that).
//   Blocks     submit(): as long as the device needs to take the work; a synchronous device does it.
//   Errors     A queue whose work failed is discarded, never repaired. Its timeline fails when nothing of the
//              queue runs any more, and not before: what a submission names may be used until then.
#pragma once

#include "device/command_list.h"

namespace heddle::device {

// In order: a submission's commands, and submissions of one queue. Between queues only Waits order. One may
// name a value that another thread is about to submit: submit() may block until it has.
class Queue {
 public:
  virtual ~Queue() = default;
  const Ref<Timeline>& timeline() const { return timeline_; }
  virtual void* native() const { return nullptr; }  // the vendor's own, a cudaStream_t; null: it shows none

  // Starts (synchronous devices: does) the work of `list`, which is over when the timeline reaches `value`;
  // values grow by one. The caller keeps `list` alive until then. Returns
  //   ok           it was accepted; the timeline will reach `value` or fail
  //   invalid      only the data could show the mistake (an index out of range, named with its node), or the
  //                operands are not the program's; the outputs are undefined, and the queue goes on
  //   others       refused before anything was started
  // Refused, its value is reached when all before, and what it waits for, is over. An asynchronous device
  // throws nothing: what lacks host memory it refuses, or fails the queue. In the runs' row faults it records
  // what the data shows later, and before that value that a shared list was refused: refuse().
  virtual Status submit(const CommandList& list, uint64_t value, NoLocksHeld) = 0;

 protected:
  explicit Queue(Ref<Timeline> timeline) : timeline_(std::move(timeline)) {}
  static Completion completion() { return {}; }  // for drivers: the right to advance and fail
  static void refuse(const CommandList& list, const Status& why);  // in its runs' faults, if it is shared

 private:
  Ref<Timeline> timeline_;
};

}  // namespace heddle::device
