// device.h: the driver contract. A driver implements Device, Queue, Module and Program; the runtime names no
// driver.
//
//   Threads    Device: every call from any thread. Queue: submit() by one thread at a time (its stream's
//              lease sees to that).
//   Blocks     Calls that take NoLocksHeld may block; no lock of ours may be held around them.
//   Errors     Status for what a caller can mend. A device's own failure fails the timeline, for good: the
//              queue is discarded, never repaired.
//   Lifetime   Queues, memory, modules and slots are destroyed before their Device; the runtime owns them in
//              that order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/buffer.h"
#include "device/command_list.h"
#include "device/program.h"
#include "device/timeline.h"

namespace heddle::device {

struct Fact {  // for people
  std::string name, value;
};

struct Traits {
  std::string name;                               // "host"
  std::string description;                        // "AMD EPYC, 2 threads, oneDNN 3.2"
  bool binds_caller_memory = false;               // a View without buffer may be used in place
  bool unified_memory = false;                    // Memory::host() is never null
  bool synchronous = false;                       // submit() returns when the work is over
  std::vector<std::string> precisions = {"f32"};  // that LoadOptions may ask for
  int threads = 0;             // of this process that compute, callers included; 0: the device has its own
  int lanes = 1;               // batches of one model at once that keep the device busy
  int in_flight = 1;           // submissions to hold at once by default, all queues together; 1 to 63
  uint64_t memory_bytes = 0;   // what may reasonably be used
  std::vector<Fact> facts;     // versions, limits of the hardware
  std::vector<Fact> defences;  // fault that the vendor's stack is known for -> what the driver does about it
};

// In order: a submission's commands, and submissions of one queue. Nothing else is promised between queues
// than Wait commands.
class Queue {
 public:
  virtual ~Queue() = default;
  const Ref<Timeline>& timeline() const { return timeline_; }

  // Starts (synchronous devices: does) the work of `list`, which is over when the timeline reaches `value`;
  // values grow by one. The caller keeps `list` alive until then. Returns
  //   ok           it was accepted; the timeline will reach `value` or fail
  //   invalid      only the data could show the mistake (an index out of range, named with its node), or the
  //                operands are not the program's; the outputs are undefined, and the queue goes on
  //   others       refused before anything was started
  // In both cases the timeline has reached `value`, or does when all before is over. What the data shows
  // later than that an asynchronous device records in the run's row faults.
  virtual Status submit(const CommandList& list, uint64_t value, NoLocksHeld) = 0;

 protected:
  explicit Queue(Ref<Timeline> timeline) : timeline_(std::move(timeline)) {}
  static Completion completion() { return {}; }  // for drivers: the right to advance and fail

 private:
  Ref<Timeline> timeline_;
};

struct LoadOptions {
  std::string precision = "f32";  // one of Traits::precisions: arithmetic of float operators
  bool exact = false;  // a row's bits depend neither on the other rows nor on their number; the host's
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const Traits& traits() const = 0;
  // device_lost once the device itself is gone: no queue of it works again, and the runtime makes none. That
  // one queue has failed is no reason.
  virtual Status lost() const { return {}; }
  virtual Result<std::unique_ptr<Memory>> allocate(uint64_t bytes,
                                                   NoLocksHeld) = 0;  // at least 64-byte aligned; exhausted
  virtual Result<std::unique_ptr<Queue>> make_queue(NoLocksHeld) = 0;
  virtual Result<std::unique_ptr<Slot>> make_slot(NoLocksHeld) = 0;
  // Prepares the graph (plan/prepare.h) and makes the module. unsupported: a precision that the device does
  // not have.
  Result<Ref<const Module>> load(ir::Graph graph, const LoadOptions& options, NoLocksHeld);
  // For load(), and for devices that wrap another. `options` were found right.
  virtual Result<Ref<const Module>> make_module(plan::Prepared prepared, const LoadOptions& options,
                                                NoLocksHeld) = 0;
};

}  // namespace heddle::device
