// open_device.h: what all parts of one device share: Metal's device, our kernels, staging, options.
//
//   Threads    Immutable but for staging and loss, which lock.
//   Lifetime   Shared by device, queues, modules and programs.
#pragma once

#import <Metal/Metal.h>

#include "base/first_failure.h"
#include "drivers/metal/kernels/kernels.h"
#include "drivers/metal/metal_device.h"
#include "drivers/metal/owned.h"
#include "drivers/metal/staging.h"

namespace heddle::metal {

struct OpenDevice {
  Owned<id<MTLDevice>> device;
  Kernels kernels;
  MetalOptions options;
  Mac mac;
  Limits limits;  // of that Mac, or a test's
  uint64_t memory_bytes = 0;
  Ref<Staging> staging;
  Owned<MTLSharedEventListener*> listener;  // for events of others
  const Ref<FirstFailure> loss = std::make_shared<FirstFailure>();
};

}  // namespace heddle::metal
