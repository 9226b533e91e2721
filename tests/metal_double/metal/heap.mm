#import "heap.h"

#include <memory>

@implementation DoubleHeap
- (id<MTLDevice>)device {
  return _device;
}
- (MTLStorageMode)storageMode {
  return _descriptor.storageMode;
}
- (MTLHazardTrackingMode)hazardTrackingMode {
  return _descriptor.hazardTrackingMode;
}
- (MTLHeapType)type {
  return _descriptor.type;
}
- (NSUInteger)size {
  return _descriptor.size;
}
- (NSUInteger)usedSize {
  return _used;
}
- (NSUInteger)currentAllocatedSize {
  return _descriptor.size;
}
- (NSUInteger)maxAvailableSizeWithAlignment:(NSUInteger)alignment {
  const NSUInteger left = _descriptor.size - _used;
  return left / alignment * alignment;
}
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options {
  const MTLSizeAndAlign need = [_device heapBufferSizeAndAlignWithLength:length options:options];
  if (_used.fetch_add(need.size) + need.size > _descriptor.size) {
    _used -= need.size;
    return nil;
  }
  MTLResourceOptions own = options;
  if (_descriptor.hazardTrackingMode != MTLHazardTrackingModeTracked)
    own |= MTLResourceHazardTrackingModeUntracked;
  DoubleBuffer* const made = heddle::metal_double::new_heap_buffer(self, length, own);
  if (!made) _used -= need.size;
  return made;
}
- (void)dealloc {
  heddle::metal_double::refund(_descriptor.size);
  [_descriptor release];
  [_device release];
  [super dealloc];
}
@end
