// waits.h: a stream of the GPU that goes on when a point is reached, of whatever timeline.
//
//   Threads    Any.
//   Blocks     until_enqueued(): until the thread that submits the value has; for another driver's point,
//              which CUDA cannot wait for, until it is reached. hold(): never. await_on_host(): until it is.
#pragma once

#include "device/command_list.h"
#include "device/device.h"
#include "drivers/cuda/driver/open_device.h"

namespace heddle::cuda {

// ok: hold() finds what it needs. unavailable, device_lost: the point will never be reached.
Status until_enqueued(const device::Point& point);
Status hold(const OpenDevice& device, StreamHandle stream, const device::Point& point);
// Until all that the list waits for on other timelines is over, well or not. Throws nothing.
void await_on_host(const device::CommandList& list, const device::Timeline* own);

}  // namespace heddle::cuda
