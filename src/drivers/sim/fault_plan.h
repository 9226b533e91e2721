// fault_plan.h: what the simulated device can be asked to do wrong, and at which call of it.
//
//   What       A fault has a word and is counted by itself: `fault compile 3` is the third compilation, `3+`
//              each one from the third on. kFaultLines has one line a fault.
//   Threads    Values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "drivers/sim/faults.h"

namespace heddle::sim {

enum class Fault : uint8_t {
  kAllocation,
  kDeviceMemory,
  kStagingMemory,
  kQueue,
  kLoad,
  kCompile,
  kSlowCompile,
  kSubmit,
  kQueueFailure,
  kDeviceLoss,
  kLossInCall,
  kHang,
  kLostCompletion,
  kLateCompletion,
  kSecondCompletion,
  kCount
};

struct FaultLine {
  Fault fault;
  std::string_view word, what;
  Code error;  // that users get for it; ok: none
};
inline constexpr FaultLine kFaultLines[] = {
    {Fault::kAllocation, "allocation", "memory of either kind is refused", Code::exhausted},
    {Fault::kDeviceMemory, "device_memory", "memory of the device is refused", Code::exhausted},
    {Fault::kStagingMemory, "staging_memory", "staging memory is refused", Code::exhausted},
    {Fault::kQueue, "make_queue", "a queue is not made", Code::exhausted},
    {Fault::kLoad, "load", "a model is not loaded", Code::unavailable},
    {Fault::kCompile, "compile", "a program is not compiled", Code::unavailable},
    {Fault::kSlowCompile, "slow_compile", "a compilation takes kSlow longer", Code::ok},
    {Fault::kSubmit, "submit", "a submission is refused before anything was started", Code::unavailable},
    {Fault::kQueueFailure, "queue", "a command ends with the failure of its queue", Code::device_lost},
    {Fault::kDeviceLoss, "device", "a command begins, and the device is gone", Code::device_lost},
    {Fault::kLossInCall, "device_in_call", "the host calls the driver, and the device is gone",
     Code::device_lost},
    {Fault::kHang, "hang", "a command begins and never ends, until deliver_lost()", Code::deadline},
    {Fault::kLostCompletion, "lost", "a completion is not told, nor those behind it, until deliver_lost()",
     Code::deadline},
    {Fault::kLateCompletion, "late", "a completion is told kSlow later", Code::ok},
    {Fault::kSecondCompletion, "twice", "a completion is told twice", Code::ok},
};
inline constexpr Duration kSlow = std::chrono::seconds(1);

inline constexpr const FaultLine& line_of(Fault fault) { return kFaultLines[static_cast<size_t>(fault)]; }

struct PlannedFault {
  Fault fault;
  int64_t nth;           // from 1 on
  bool lasting = false;  // each time from then on
  void arm(Faults<Fault>& faults) const { lasting ? faults.arm_from(fault, nth) : faults.arm(fault, nth); }
};
// "compile 3", "compile 3+". invalid names the word that is wrong, and those that exist.
std::string to_string(const PlannedFault& planned);
Result<PlannedFault> parse_fault(std::string_view word, std::string_view nth);

}  // namespace heddle::sim
