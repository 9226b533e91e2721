// heap.h: DoubleHeap: memory charged at once; its buffers take from it and give back at their end.
#pragma once

#import "buffer.h"

@interface DoubleHeap : DoubleObject <MTLHeap> {
 @public
  id<MTLDevice> _device;
  MTLHeapDescriptor* _descriptor;  // retained
  std::atomic<uint64_t> _used;
}
@end
