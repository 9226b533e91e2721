// history.h: what the simulated device did, event by event.
//
//   What       Kept on request (SimOptions::keeps_history), for people and for tests: equal seeds and equal
//              users make equal histories.
//   Threads    Values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "device/command_list.h"
#include "drivers/sim/hazards.h"

namespace heddle::sim {

struct Happened {
  enum class What : uint8_t { kSubmitted, kBegun, kEnded, kTold, kLost, kFailed, kViolated, kCount };
  uint64_t at = 0;  // nanoseconds of virtual time since the device was made
  What what = What::kSubmitted;
  QueueNumber queue = 0;  // 0: none
  uint64_t value = 0;     // of the submission; 0: none
  std::string detail;     // the command, or the failure
};
std::string_view name(Happened::What what);
std::string describe(const device::Command& command);  // "run", "copy of 64 bytes"

}  // namespace heddle::sim
