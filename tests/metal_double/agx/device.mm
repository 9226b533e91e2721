// device.mm: the AGX double's device: queues, buffers, fences, events and the one pipeline.
#include "command_buffer.h"
#include "encoders.h"

#include <condition_variable>
#include <mutex>

#pragma clang diagnostic ignored "-Wprotocol"
#pragma clang diagnostic ignored "-Wobjc-property-implementation"

@interface AGXBuffer : NSObject <MTLBuffer> {
 @public
  std::vector<char> _bytes;
}
@end

@implementation AGXBuffer
- (void*)contents {
  return _bytes.data();
}
- (NSUInteger)length {
  return _bytes.size();
}
@end

@interface AGXSharedEvent : NSObject <MTLSharedEvent, AGXWaits> {
  std::mutex _lock;
  std::condition_variable _changed;
  uint64_t _value;
}
@end

@implementation AGXSharedEvent
- (uint64_t)signaledValue {
  std::lock_guard hold(_lock);
  return _value;
}
- (void)setSignaledValue:(uint64_t)value {
  std::lock_guard hold(_lock);
  _value = value;
  _changed.notify_all();
}
- (void)waitOnGpuForValue:(uint64_t)value {
  std::unique_lock hold(_lock);
  _changed.wait_for(hold, std::chrono::minutes(1), [&] { return _value >= value; });
}
@end

@interface AGXPipeline : NSObject <MTLComputePipelineState>
@end

@implementation AGXPipeline
- (NSUInteger)maxTotalThreadsPerThreadgroup {
  return 1024;
}
- (NSUInteger)threadExecutionWidth {
  return 32;
}
@end

@interface AGXG16XDevice : NSObject <MTLDevice>
@end

@implementation AGXG16XDevice
- (NSString*)name {
  return @"AGX double";
}
- (id<MTLCommandQueue>)newCommandQueue {
  AGXG16XFamilyCommandQueue* queue = [[AGXG16XFamilyCommandQueue alloc] init];
  queue->_device = [self retain];
  queue->_gpu = dispatch_queue_create("agx double", DISPATCH_QUEUE_SERIAL);
  return queue;
}
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options {
  AGXBuffer* buffer = [[AGXBuffer alloc] init];
  buffer->_bytes.resize(length);
  return buffer;
}
- (id<MTLFence>)newFence {
  return [[AGXFence alloc] init];
}
- (id<MTLSharedEvent>)newSharedEvent {
  return [[AGXSharedEvent alloc] init];
}
// The double has one kernel, so it asks for no function.
- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)function
                                                             error:(NSError**)error {
  return [[AGXPipeline alloc] init];
}
@end

extern "C" __attribute__((visibility("default"))) void* agx_driver_make_device() {
  static id device = [[AGXG16XDevice alloc] init];
  return (void*)[device retain];
}
