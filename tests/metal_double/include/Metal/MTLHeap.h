// MTLHeap.h: one allocation from which buffers are carved.
#pragma once

#import <Metal/MTLBuffer.h>

NS_ASSUME_NONNULL_BEGIN

typedef NS_ENUM(NSInteger, MTLHeapType) {
  MTLHeapTypeAutomatic = 0,
  MTLHeapTypePlacement = 1,
  MTLHeapTypeSparse = 2,
};

MTL_EXPORT @interface MTLHeapDescriptor : NSObject<NSCopying> {
  NSUInteger _size;
  MTLStorageMode _storageMode;
  MTLCPUCacheMode _cpuCacheMode;
  MTLHazardTrackingMode _hazardTrackingMode;
  MTLResourceOptions _resourceOptions;
  MTLHeapType _type;
}
@property(readwrite, nonatomic) NSUInteger size;
@property(readwrite, nonatomic) MTLStorageMode storageMode;
@property(readwrite, nonatomic) MTLCPUCacheMode cpuCacheMode;
@property(readwrite, nonatomic) MTLHazardTrackingMode hazardTrackingMode;
@property(readwrite, nonatomic) MTLResourceOptions resourceOptions;
@property(readwrite, nonatomic) MTLHeapType type;
@end

@protocol MTLHeap <NSObject>
- (NSUInteger)maxAvailableSizeWithAlignment:(NSUInteger)alignment;
- (nullable id<MTLBuffer>)newBufferWithLength:(NSUInteger)length
                                      options:(MTLResourceOptions)options NS_RETURNS_RETAINED;
@property(nullable, copy) NSString* label;
@property(readonly) id<MTLDevice> device;
@property(readonly) MTLStorageMode storageMode;
@property(readonly) MTLHazardTrackingMode hazardTrackingMode;
@property(readonly) MTLHeapType type;
@property(readonly) NSUInteger size;
@property(readonly) NSUInteger usedSize;
@property(readonly) NSUInteger currentAllocatedSize;
@end

NS_ASSUME_NONNULL_END
