// scenarios.h: work for the simulated device that a seed decides, for replays.
//
//   What       play() hands one scenario in, on three streams and from this one thread, while the device is
//              held; then the device does it all. So equal seeds make equal histories: no thread of ours
//              meets the device's while there is a choice.
//   Values     Each download is compared with what the operations give one after the other.
//   Threads    One, which is given the device for itself.
//   Blocks     play(), until the device has nothing left to do.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "drivers/sim/sim_device.h"

namespace heddle::scenarios {

enum class Deed : uint8_t { kUpload, kFill, kCopy, kRun, kEvent, kDownload };

struct Scenario {
  std::string_view name, meaning;
  std::span<const Deed> deeds;  // one of them each time; none: a broken rule
};
std::span<const Scenario> all();

struct Outcome {
  Status status;                             // the first failure
  int operations = 0;                        // handed in
  int values_checked = 0, values_right = 0;  // downloads
  std::vector<sim::Happened> history;
};
Outcome play(const Scenario& scenario, const Ref<sim::SimDevice>& device, uint64_t seed);

}  // namespace heddle::scenarios
