#import <Metal/Metal.h>

#include "driver_fixture.h"
#include "drivers/metal/owned.h"

namespace heddle::conformance {

VendorEvent make_metal_event() {
  constexpr uint64_t kValue = 3;
  @autoreleasepool {
    const id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    const auto event = metal::Owned<id<MTLSharedEvent>>::adopt([device newSharedEvent]);
    [device release];
    return {{event.get(), kValue},
            [event] { [event.get() setSignaledValue:kValue]; },
            [event] { return [event.get() signaledValue] >= kValue; }};
  }
}

}  // namespace heddle::conformance
