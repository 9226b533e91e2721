// device.h: the driver contract: Device, Memory, Queue, Module and Program. The runtime names no driver.
//
//   Threads    Any, for every call.
//   Blocks     Calls that take NoLocksHeld may block; no lock of ours may be held around them.
//   Errors     Status for what a caller can mend. A device's own failure fails timelines (queue.h).
//   Lifetime   Queues, memory and modules are destroyed before their Device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/buffer.h"
#include "device/program.h"
#include "device/queue.h"

namespace heddle::device {

struct Fact {  // for people
  std::string name, value;
};

// What a Run's views may be, beside contiguous views of the device's memory. The rest is staged in a Slot.
struct Binding {
  bool caller_memory = false;     // a View without buffer, here and in Copy and Fill,
  uint64_t caller_alignment = 1;  // ... whose address is a multiple of this
  uint64_t caller_bytes = 0;      // ... and that has at least so many bytes
  bool offsets = true;            // a View that does not begin where its buffer does
};

struct Traits {
  std::string name;         // "host"
  std::string description;  // "AMD EPYC, 2 threads, oneDNN 3.2"
  Binding binding;
  bool unified_memory = false;                    // Memory::host() is never null
  bool synchronous = false;                       // submit() returns when the work is over
  std::vector<std::string> precisions = {"f32"};  // that LoadOptions may ask for
  int threads = 0;                // of this process that compute, callers included; 0: the device has its own
  int lanes = 1;                  // batches of one model at once that keep the device busy
  int queue_depth = 1;            // submissions to hold at once by default, all queues together; 1 to 1024
  int runs_together = 1;          // runs that nobody waits for, in one submission; synchronous devices: 1
  bool grouped_products = false;  // its driver runs GroupedMatMul; elsewhere it is made of other products
  std::vector<int64_t> row_sizes;                // numbers of rows worth a program, ascending; empty: any
  uint64_t memory_bytes = 0, staging_bytes = 0;  // of each kind, to use at most; 0: till it is refused
  std::string events;          // what a ForeignEvent's handle is, "cudaEvent_t"; empty: it takes none
  std::vector<Fact> facts;     // versions, limits of the hardware
  std::vector<Fact> defences;  // fault that the vendor's stack is known for -> what the driver does about it
};

struct LoadOptions {
  std::string precision = "f32";  // one of Traits::precisions: arithmetic of float operators
  bool exact = false;  // a row's bits depend neither on the other rows nor on their number; the host's
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const Traits& traits() const = 0;
  // Whose memory it can use. A device that wraps another says what that one says.
  virtual const void* maker() const { return this; }
  // device_lost once the device itself is gone: no queue of it works again. One failed queue is no reason.
  virtual Status lost() const { return {}; }
  // At least 64-byte aligned; exhausted.
  virtual Result<std::unique_ptr<Memory>> allocate(uint64_t bytes, MemoryKind kind, NoLocksHeld) = 0;
  virtual Result<std::unique_ptr<Queue>> make_queue(NoLocksHeld) = 0;
  // A Point that is reached when the event is: what it had been recorded for, where that decides. Queues of
  // the device wait for it without the host. unsupported: it takes none.
  virtual Result<Point> import_event(const ForeignEvent& event, NoLocksHeld);
  // Memory of another library on this device, which `keep` holds: named, never freed. unsupported: it takes
  // none. invalid: it is not the device's.
  virtual Result<std::unique_ptr<Memory>> import_memory(const ForeignMemory& memory, NoLocksHeld);
  // Of another library's stream (with events "cudaEvent_t", a cudaStream_t). A Point that is reached when all
  // that the stream was given so far is over; and the reverse: what it is given from now on begins when the
  // point is reached. unsupported: it orders none.
  virtual Result<Point> import_stream(void* stream, NoLocksHeld);
  virtual Status hold_stream(void* stream, const Point& point, NoLocksHeld);
  // Prepares the graph (plan/prepare.h) and makes the module, whose weights lie in memory of `source`.
  // unsupported: a precision that the device does not have.
  Result<Ref<const Module>> load(ir::Graph graph, const LoadOptions& options, Ref<Source> source,
                                 NoLocksHeld);
  // For load(), and for devices that wrap another. `options` were found right.
  virtual Result<Ref<const Module>> make_module(plan::Prepared prepared, const LoadOptions& options,
                                                Ref<Source> source, NoLocksHeld) = 0;
};

}  // namespace heddle::device
