// metal_device.h: an Apple GPU as a device: unified memory, a command queue a stream, whole graphs compiled
// by MPSGraph.
//
//   What       make_metal_device() opens the system's default device. Its Traits tell people which system and
//              chip it is, its limits, and the faults known of that version with the defence against each.
//   Threads    As device.h says. Encoders and command buffers are locals of the one function that submits, so
//              no two threads can encode with one.
//   Blocks     Queue::submit(): only while kMostInFlight submissions of its queue are not over; it gives up
//              when none of them ends for `stuck_after`. Never inside Metal. A wait for another driver's
//              queue blocks until that is over.
//   Errors     A command buffer's error fails the queue's timeline with Metal's own text: exhausted when the
//              device had no memory for it, else device_lost; as soon as nothing of that queue runs any more,
//              so that no memory in use is given away.
//   Lifetime   Completion handlers hold what they touch: they may come after the queue is gone.
#pragma once

#include <optional>

#include "device/device.h"
#include "drivers/metal/defences.h"
#include "drivers/metal/limits.h"

namespace heddle::metal {

struct MetalOptions {
  Defences defences;
  Duration stuck_after = std::chrono::seconds(30);
  std::optional<Limits> limits = {};  // a test's, else those of this Mac
};

Result<Ref<device::Device>> make_metal_device(const MetalOptions& options = {});

}  // namespace heddle::metal
