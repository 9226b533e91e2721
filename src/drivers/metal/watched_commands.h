// watched_commands.h: MPSGraph's command buffer, which tells each part that MPSGraph commits on its own.
//
//   What       MPSGraph may commit what it has encoded and go on with another command buffer, any number of
//              times in one run. Each such part has an end and an error of its own, seen here only.
//   Threads    The queue's owner, while it submits.
//   Lifetime   Of the caller's autorelease pool; encodes while `flight` lives.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include "drivers/metal/flight.h"

namespace heddle::metal {

MPSCommandBuffer* watched_commands(id<MTLCommandBuffer> first, Flight& flight);

}  // namespace heddle::metal
