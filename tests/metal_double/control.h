// control.h: how a test steers the Metal double.
//
//   What       The Mac that it stands for, the seed of its schedule, faults on request, memory sizes, kernels
//              for MSL sources, places where threads meet, and counts of what happened. Plain C++: tests need
//              no Objective-C.
//   Threads    Any. A fault that is switched on holds for what begins after the call.
//   Lifetime   State of the process, like the machine's GPU. reset() brings back what a fresh process has,
//              counters included; call it while nothing is in flight.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tests/metal_double/metal/field_limits.h"

namespace heddle::metal_double {

// The same seed gives every queue the same decisions: how long a pass is held back, how late a handler runs.
void seed(uint64_t value);
void reset();

// What the real system is known to do, and what it may do. Off unless switched on.
enum class Fault : uint8_t {
  kHandlerAfterWait,            // waitUntilCompleted returns before the completion handlers have run
  kStridedCopyReadsUnfinished,  // a strided copy reads its source as it was before its last writer
  kStridedCopyDropsSource,      // a strided copy does not keep its source alive and reads recycled memory
  kDeviceRemoved,               // every command buffer fails with MTLCommandBufferErrorDeviceRemoved
  kOutOfMemory,                 // device and heaps answer nil for new buffers
  kCommandBufferOutOfMemory,    // the next commit fails with MTLCommandBufferErrorOutOfMemory
  kCommandBufferError,          // the next commit fails with MTLCommandBufferErrorInternal
  kKernelNeverEnds,             // the next pass runs until end_stuck_kernels()
  kCompileFailure,              // newLibraryWithSource answers nil and an error
  kGraphCompileFailure,         // the next MPSGraph that is compiled answers nil
  kHandlersOutOfOrder,          // a handler runs after that of the buffer that was committed next
  kGraphSplits,                 // MPSGraph commits before a run and behind it, and goes on with a new buffer
  kGraphRunError,               // the next run of an MPSGraph fails with MTLCommandBufferErrorInternal
  kPlainProductAtThree,         // MPSGraph's product of two plain matrices: wrong with 3 runs in flight
  kLayerNormAtFour,             // MPSGraph's fused normalisation: wrong with 4
  kPackedViewAtEight,           // a slice of a turned tensor, as attention's of a packed projection: with 8
  kNoCommandBuffer,             // a queue answers nil for a command buffer
  kExecutableNotReentrant,  // a run that is encoded while another thread encodes the same executable: wrong
  kCount
};
void set(Fault fault, bool on);
bool is_on(Fault fault);
bool take(Fault fault);  // for faults that hit once: true, and off, if it was on

// As the field met it: the double is this Mac, with its limits (field_limits.h) or a test's. What MPSGraph
// refuses then ends the process instead of raising an exception. HEDDLE_METAL_DOUBLE_MAC=14.0-M1 in the
// environment does it for the whole process; reset() goes back to that, or to no Mac at all.
void become(const FieldMac& mac);
void become(const FieldMac& mac, const FieldLimits& limits);
const FieldLimits* field();  // null: as documented. What it points to stays.
Chip chip();

// As the watchdog does: every stuck kernel ends and its command buffer fails with
// MTLCommandBufferErrorTimeout.
void end_stuck_kernels();

struct Memory {
  uint64_t recommended = 4ull << 30;  // recommendedMaxWorkingSetSize
  uint64_t limit = 8ull << 30;        // beyond it newBuffer answers nil
};
void set_memory(Memory memory);

// The slowest a pass or a handler is made by the schedule. Zero: as fast as the machine.
void set_longest_delay_us(uint32_t microseconds);
// The least a pass takes, without a processor's help for what its work here does not need. Zero: none.
void set_pass_time_us(uint32_t microseconds);

// A kernel of an MSL source: the double finds `kernel void NAME(` and calls what is registered under NAME.
struct Size3 {
  size_t width = 1, height = 1, depth = 1;
};
struct Argument {
  void* data = nullptr;  // of setBuffer (offset applied) or setBytes; null if unset
  size_t size = 0;       // bytes from data to the end
};
struct KernelCall {
  Size3 grid;  // threads
  Size3 threads_per_group;
  std::array<Argument, 31> arguments;

  template <class T>
  std::span<T> at(size_t index) const {
    return {static_cast<T*>(arguments[index].data), arguments[index].size / sizeof(T)};
  }
  template <class T>
  const T& value(size_t index) const {
    return *static_cast<const T*>(arguments[index].data);
  }
};
using Kernel = void (*)(const KernelCall&);
void register_kernel(std::string_view name, Kernel kernel);

// Shows without a clock that work runs side by side. From meet() on, whatever reaches `where` stays there
// until `count` are there at once; after `times` such meetings it is over. What stays alone for twenty
// seconds was kept apart from the others: it goes on, missed() counts it, and the meetings are over. A new
// meet() counts from zero.
enum class Meeting : uint8_t {
  kRun,      // a run of a graph, on its queue's GPU thread
  kCommit,   // a commit, on the thread that calls it
  kCompile,  // a graph's compilation, on the thread that calls it
  kEncode,   // the encoding of a graph's run, on the thread that calls it
  kCount
};
void meet(Meeting where, int count, uint64_t times = 1);
uint64_t met(Meeting where);
uint64_t missed(Meeting where);

// What happened since the process began or reset().
enum class Count : uint8_t {
  kCommits,
  kCompletions,
  kErrors,        // of the completions: with an error
  kPasses,        // encoders and graph runs that were executed
  kKernels,       // dispatches among them
  kHandlers,      // completion handlers run
  kSettled,       // command buffers that have completed and whose handlers, if they had any, have run
  kHandlersLate,  // buffers whose handlers ran after those of the buffer that was committed next
  kQueueWaits,    // times commandBuffer had to wait for one of 64 to complete
  kOverlaps,      // command buffers that began while another queue executed one
  kCount
};
uint64_t count(Count what);

int64_t live_objects();  // of the double's own classes, autoreleased ones included

}  // namespace heddle::metal_double

// The meetings for Python's ctypes, where the double lies in the process through LD_PRELOAD. `where` is
// "run", "commit", "compile" or "encode"; another name aborts.
extern "C" {
void metal_double_meet(const char* where, int count, uint64_t times);
uint64_t metal_double_met(const char* where);
uint64_t metal_double_missed(const char* where);
}
