// device.mm: DoubleDevice, the one GPU of the process.
#include <chrono>
#include <cstring>

#include <unistd.h>

#import "buffer.h"
#import "event.h"
#import "heap.h"
#import "library.h"
#import "queue.h"

@interface DoubleDevice : DoubleObject <MTLDevice>
@end

namespace {

constexpr NSUInteger kMaxBufferLength = 2ull << 30;

NSError* compile_error(NSString* text) {
  return [NSError errorWithDomain:MTLLibraryErrorDomain
                             code:MTLLibraryErrorCompileFailure
                         userInfo:@{NSLocalizedDescriptionKey : text}];
}

}  // namespace

@implementation DoubleDevice

- (NSString*)name {
  return @"Heddle Metal double (CPU)";
}
- (uint64_t)registryID {
  return 0x4865'6464'6c65;
}
- (MTLSize)maxThreadsPerThreadgroup {
  return MTLSizeMake(1024, 1024, 1024);
}
- (NSUInteger)maxThreadgroupMemoryLength {
  return 32768;
}
- (BOOL)isLowPower {
  return NO;
}
- (BOOL)isHeadless {
  return NO;
}
- (BOOL)isRemovable {
  return NO;
}
- (BOOL)hasUnifiedMemory {
  return YES;
}
- (uint64_t)recommendedMaxWorkingSetSize {
  return heddle::metal_double::memory().recommended;
}
- (NSUInteger)maxBufferLength {
  return kMaxBufferLength;
}
- (NSUInteger)currentAllocatedSize {
  return heddle::metal_double::charged();
}
- (BOOL)supportsFamily:(MTLGPUFamily)gpuFamily {
  constexpr MTLGPUFamily kApple[] = {MTLGPUFamilyApple7, MTLGPUFamilyApple8, MTLGPUFamilyApple9,
                                     MTLGPUFamilyApple9};
  return gpuFamily <= kApple[static_cast<size_t>(heddle::metal_double::chip())] ||
         gpuFamily == MTLGPUFamilyMac2 ||
         (gpuFamily >= MTLGPUFamilyCommon1 && gpuFamily <= MTLGPUFamilyCommon3) ||
         gpuFamily == MTLGPUFamilyMetal3;
}
- (NSArray<id<MTLCounterSet>>*)counterSets {
  return nil;
}
- (BOOL)supportsCounterSampling:(MTLCounterSamplingPoint)samplingPoint {
  (void)samplingPoint;
  return NO;
}
- (void)sampleTimestamps:(MTLTimestamp*)cpuTimestamp gpuTimestamp:(MTLTimestamp*)gpuTimestamp {
  const auto now = static_cast<MTLTimestamp>(std::chrono::steady_clock::now().time_since_epoch().count());
  *cpuTimestamp = now;
  *gpuTimestamp = now;
}

- (id<MTLCommandQueue>)newCommandQueue {
  return [self newCommandQueueWithMaxCommandBufferCount:heddle::metal_double::kMaxCommandBuffers];
}
- (id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)maxCommandBufferCount {
  return [[DoubleCommandQueue alloc] initWithDevice:self limit:maxCommandBufferCount];
}

- (void)requireLength:(NSUInteger)length for:(SEL)method {
  if (length == 0 || length > kMaxBufferLength) {
    heddle::metal_double::fail(self, method, "Buffer Validation\nbuffer length(%lu) must be > 0 and <= %lu",
                               length, kMaxBufferLength);
  }
}
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options {
  [self requireLength:length for:_cmd];
  return heddle::metal_double::new_buffer(self, length, options);
}
- (id<MTLBuffer>)newBufferWithBytes:(const void*)pointer
                             length:(NSUInteger)length
                            options:(MTLResourceOptions)options {
  [self requireLength:length for:_cmd];
  METAL_ASSERT((options & MTLResourceStorageModePrivate) == 0,
               "newBufferWithBytes:length:options: does not support private storage");
  DoubleBuffer* const made = heddle::metal_double::new_buffer(self, length, options);
  if (made) memcpy([made contents], pointer, length);
  return made;
}
- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void*)pointer
                                   length:(NSUInteger)length
                                  options:(MTLResourceOptions)options
                              deallocator:(void (^)(void* pointer, NSUInteger length))deallocator {
  [self requireLength:length for:_cmd];
  const auto page = static_cast<NSUInteger>(getpagesize());
  METAL_ASSERT(reinterpret_cast<NSUInteger>(pointer) % page == 0,
               "newBufferWithBytesNoCopy:pointer %p is not %lu byte aligned.", pointer, page);
  METAL_ASSERT(length % page == 0, "newBufferWithBytesNoCopy:length %lu is not %lu byte aligned.", length,
               page);
  METAL_ASSERT((options & MTLResourceStorageModePrivate) == 0,
               "newBufferWithBytesNoCopy does not support private storage");
  if (heddle::metal_double::is_on(heddle::metal_double::Fault::kOutOfMemory)) return nil;
  DoubleBuffer* const made = heddle::metal_double::new_borrowing_buffer(self, pointer, length, options);
  if (deallocator) made->_deallocator = Block_copy(deallocator);
  return made;
}
- (MTLSizeAndAlign)heapBufferSizeAndAlignWithLength:(NSUInteger)length options:(MTLResourceOptions)options {
  (void)options;
  return {heddle::metal_double::whole_pages(length), static_cast<NSUInteger>(getpagesize())};
}
- (id<MTLHeap>)newHeapWithDescriptor:(MTLHeapDescriptor*)descriptor {
  METAL_ASSERT(descriptor.size > 0, "heap size must be > 0");
  if (!heddle::metal_double::charge(descriptor.size)) return nil;
  DoubleHeap* const made = [DoubleHeap new];
  made->_device = [self retain];
  made->_descriptor = [descriptor copy];
  return made;
}

- (id<MTLFence>)newFence {
  DoubleFence* const made = [DoubleFence new];
  made->_device = [self retain];
  return made;
}
- (id<MTLEvent>)newEvent {
  DoubleEvent* const made = [DoubleEvent new];
  made->_device = [self retain];
  return made;
}
- (id<MTLSharedEvent>)newSharedEvent {
  DoubleSharedEvent* const made = [DoubleSharedEvent new];
  made->_device = [self retain];
  return made;
}

- (id<MTLLibrary>)newLibraryWithSource:(NSString*)source
                               options:(MTLCompileOptions*)options
                                 error:(NSError**)error {
  (void)options;
  std::string mistake;
  std::vector<heddle::metal_double::KernelSource> kernels =
      heddle::metal_double::read_kernels([source UTF8String], &mistake);
  if (heddle::metal_double::is_on(heddle::metal_double::Fault::kCompileFailure)) {
    mistake = "Compiler encountered an internal error";
  }
  if (!mistake.empty()) {
    if (error) *error = compile_error([NSString stringWithUTF8String:mistake.c_str()]);
    return nil;
  }
  DoubleLibrary* const made = [DoubleLibrary new];
  made->_device = [self retain];
  made->_kernels = std::move(kernels);
  return made;
}
- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)computeFunction
                                                             error:(NSError**)error {
  METAL_ASSERT(computeFunction, "computeFunction must not be nil.");
  const auto& source = static_cast<DoubleFunction*>(computeFunction)->_source;
  const heddle::metal_double::Kernel kernel = heddle::metal_double::find_kernel(source.name);
  if (!kernel) {
    if (error) {
      *error = compile_error(
          [NSString stringWithFormat:@"the Metal double has no C++ function registered for kernel '%s'",
                                     source.name.c_str()]);
    }
    return nil;
  }
  DoublePipeline* const made = [DoublePipeline new];
  made->_device = [self retain];
  made->_name = [[computeFunction name] copy];
  made->_kernel = kernel;
  made->_arguments = source.arguments;
  return made;
}

@end

id<MTLDevice> MTLCreateSystemDefaultDevice(void) {
  static DoubleDevice* const only = [DoubleDevice new];  // the GPU outlives all that use it
  return [only retain];
}
NSArray<id<MTLDevice>>* MTLCopyAllDevices(void) {
  const id<MTLDevice> device = MTLCreateSystemDefaultDevice();
  NSArray* const all = [[NSArray arrayWithObject:device] retain];
  [device release];
  return all;
}
