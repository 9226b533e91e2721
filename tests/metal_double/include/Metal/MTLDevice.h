// MTLDevice.h: a GPU. Any thread may use it.
#pragma once

#import <Metal/MTLBuffer.h>
#import <Metal/MTLComputePipeline.h>
#import <Metal/MTLCounters.h>
#import <Metal/MTLHeap.h>
#import <Metal/MTLLibrary.h>
#import <Metal/MTLTypes.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLCommandQueue
, MTLEvent, MTLFence, MTLSharedEvent;

typedef NS_ENUM(NSInteger, MTLGPUFamily) {
  MTLGPUFamilyApple1 = 1001,
  MTLGPUFamilyApple2 = 1002,
  MTLGPUFamilyApple3 = 1003,
  MTLGPUFamilyApple4 = 1004,
  MTLGPUFamilyApple5 = 1005,
  MTLGPUFamilyApple6 = 1006,
  MTLGPUFamilyApple7 = 1007,
  MTLGPUFamilyApple8 = 1008,
  MTLGPUFamilyApple9 = 1009,
  MTLGPUFamilyMac2 = 2002,
  MTLGPUFamilyCommon1 = 3001,
  MTLGPUFamilyCommon2 = 3002,
  MTLGPUFamilyCommon3 = 3003,
  MTLGPUFamilyMetal3 = 5001,
};

typedef struct {
  NSUInteger size;
  NSUInteger align;
} MTLSizeAndAlign;

@protocol MTLDevice <NSObject>
@property(readonly) NSString* name;
@property(readonly) uint64_t registryID;
@property(readonly) MTLSize maxThreadsPerThreadgroup;
@property(readonly) NSUInteger maxThreadgroupMemoryLength;
@property(readonly, getter=isLowPower) BOOL lowPower;
@property(readonly, getter=isHeadless) BOOL headless;
@property(readonly, getter=isRemovable) BOOL removable;
@property(readonly) BOOL hasUnifiedMemory;
@property(readonly) uint64_t recommendedMaxWorkingSetSize;
@property(readonly) NSUInteger maxBufferLength;
@property(readonly) NSUInteger currentAllocatedSize;
@property(nullable, readonly) NSArray<id<MTLCounterSet>>* counterSets;
- (BOOL)supportsFamily:(MTLGPUFamily)gpuFamily;
- (BOOL)supportsCounterSampling:(MTLCounterSamplingPoint)samplingPoint;
- (void)sampleTimestamps:(MTLTimestamp*)cpuTimestamp gpuTimestamp:(MTLTimestamp*)gpuTimestamp;
- (nullable id<MTLCommandQueue>)newCommandQueue NS_RETURNS_RETAINED;
- (nullable id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)maxCommandBufferCount
    NS_RETURNS_RETAINED;
- (MTLSizeAndAlign)heapBufferSizeAndAlignWithLength:(NSUInteger)length options:(MTLResourceOptions)options;
- (nullable id<MTLHeap>)newHeapWithDescriptor:(MTLHeapDescriptor*)descriptor NS_RETURNS_RETAINED;
- (nullable id<MTLBuffer>)newBufferWithLength:(NSUInteger)length
                                      options:(MTLResourceOptions)options NS_RETURNS_RETAINED;
- (nullable id<MTLBuffer>)newBufferWithBytes:(const void*)pointer
                                      length:(NSUInteger)length
                                     options:(MTLResourceOptions)options NS_RETURNS_RETAINED;
- (nullable id<MTLBuffer>)newBufferWithBytesNoCopy:(void*)pointer
                                            length:(NSUInteger)length
                                           options:(MTLResourceOptions)options
                                       deallocator:
                                           (void (^_Nullable)(void* pointer, NSUInteger length))deallocator
    NS_RETURNS_RETAINED;
- (nullable id<MTLFence>)newFence NS_RETURNS_RETAINED;
- (nullable id<MTLEvent>)newEvent NS_RETURNS_RETAINED;
- (nullable id<MTLSharedEvent>)newSharedEvent NS_RETURNS_RETAINED;
- (nullable id<MTLLibrary>)newLibraryWithSource:(NSString*)source
                                        options:(nullable MTLCompileOptions*)options
                                          error:(NSError* _Nullable* _Nullable)error NS_RETURNS_RETAINED;
- (nullable id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)computeFunction
                                                                      error:
                                                                          (NSError* _Nullable* _Nullable)error
    NS_RETURNS_RETAINED;
@end

MTL_EXTERN id<MTLDevice> _Nullable MTLCreateSystemDefaultDevice(void) NS_RETURNS_RETAINED;
MTL_EXTERN NSArray<id<MTLDevice>>* MTLCopyAllDevices(void) NS_RETURNS_RETAINED;

NS_ASSUME_NONNULL_END
