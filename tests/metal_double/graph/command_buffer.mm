// command_buffer.mm: MPSCommandBuffer: what Metal's protocol asks goes to the command buffer that it wraps.
#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

@implementation MPSCommandBuffer
@synthesize commandBuffer = _commandBuffer, rootCommandBuffer = _rootCommandBuffer;
+ (instancetype)commandBufferFromCommandQueue:(id<MTLCommandQueue>)commandQueue {
  return [self commandBufferWithCommandBuffer:[commandQueue commandBuffer]];
}
+ (instancetype)commandBufferWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer {
  return [[[self alloc] initWithCommandBuffer:commandBuffer] autorelease];
}
- (instancetype)initWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer {
  if ((self = [super init])) {
    _commandBuffer = [commandBuffer retain];
    _rootCommandBuffer = [commandBuffer retain];
  }
  return self;
}
- (void)commitAndContinue {
  const id<MTLCommandQueue> queue = [[[_rootCommandBuffer commandQueue] retain] autorelease];
  [_rootCommandBuffer commit];
  [_rootCommandBuffer release];
  _rootCommandBuffer = [[queue commandBuffer] retain];
}
- (void)dealloc {
  [_commandBuffer release];
  [_rootCommandBuffer release];
  [super dealloc];
}

- (id<MTLDevice>)device {
  return [_rootCommandBuffer device];
}
- (id<MTLCommandQueue>)commandQueue {
  return [_rootCommandBuffer commandQueue];
}
- (BOOL)retainedReferences {
  return [_rootCommandBuffer retainedReferences];
}
- (MTLCommandBufferErrorOption)errorOptions {
  return [_rootCommandBuffer errorOptions];
}
- (NSString*)label {
  return [_rootCommandBuffer label];
}
- (void)setLabel:(NSString*)label {
  [_rootCommandBuffer setLabel:label];
}
- (CFTimeInterval)kernelStartTime {
  return [_rootCommandBuffer kernelStartTime];
}
- (CFTimeInterval)kernelEndTime {
  return [_rootCommandBuffer kernelEndTime];
}
- (CFTimeInterval)GPUStartTime {
  return [_rootCommandBuffer GPUStartTime];
}
- (CFTimeInterval)GPUEndTime {
  return [_rootCommandBuffer GPUEndTime];
}
- (MTLCommandBufferStatus)status {
  return [_rootCommandBuffer status];
}
- (NSError*)error {
  return [_rootCommandBuffer error];
}
- (void)enqueue {
  [_rootCommandBuffer enqueue];
}
- (void)commit {
  [_rootCommandBuffer commit];
}
- (void)addScheduledHandler:(MTLCommandBufferHandler)block {
  [_rootCommandBuffer addScheduledHandler:block];
}
- (void)addCompletedHandler:(MTLCommandBufferHandler)block {
  [_rootCommandBuffer addCompletedHandler:block];
}
- (void)waitUntilScheduled {
  [_rootCommandBuffer waitUntilScheduled];
}
- (void)waitUntilCompleted {
  [_rootCommandBuffer waitUntilCompleted];
}
- (void)encodeWaitForEvent:(id<MTLEvent>)event value:(uint64_t)value {
  [_rootCommandBuffer encodeWaitForEvent:event value:value];
}
- (void)encodeSignalEvent:(id<MTLEvent>)event value:(uint64_t)value {
  [_rootCommandBuffer encodeSignalEvent:event value:value];
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoder {
  return [_rootCommandBuffer computeCommandEncoder];
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)dispatchType {
  return [_rootCommandBuffer computeCommandEncoderWithDispatchType:dispatchType];
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDescriptor:(MTLComputePassDescriptor*)descriptor {
  return [_rootCommandBuffer computeCommandEncoderWithDescriptor:descriptor];
}
- (id<MTLBlitCommandEncoder>)blitCommandEncoder {
  return [_rootCommandBuffer blitCommandEncoder];
}
- (id<MTLBlitCommandEncoder>)blitCommandEncoderWithDescriptor:(MTLBlitPassDescriptor*)descriptor {
  return [_rootCommandBuffer blitCommandEncoderWithDescriptor:descriptor];
}
- (id<MTLRenderCommandEncoder>)renderCommandEncoderWithDescriptor:(MTLRenderPassDescriptor*)descriptor {
  return [_rootCommandBuffer renderCommandEncoderWithDescriptor:descriptor];
}
- (id<MTLParallelRenderCommandEncoder>)parallelRenderCommandEncoderWithDescriptor:
    (MTLRenderPassDescriptor*)descriptor {
  return [_rootCommandBuffer parallelRenderCommandEncoderWithDescriptor:descriptor];
}
- (id<MTLResourceStateCommandEncoder>)resourceStateCommandEncoder {
  return [_rootCommandBuffer resourceStateCommandEncoder];
}
- (id<MTLResourceStateCommandEncoder>)resourceStateCommandEncoderWithDescriptor:
    (MTLResourceStatePassDescriptor*)descriptor {
  return [_rootCommandBuffer resourceStateCommandEncoderWithDescriptor:descriptor];
}
- (id<MTLAccelerationStructureCommandEncoder>)accelerationStructureCommandEncoder {
  return [_rootCommandBuffer accelerationStructureCommandEncoder];
}
- (id<MTLAccelerationStructureCommandEncoder>)accelerationStructureCommandEncoderWithDescriptor:
    (MTLAccelerationStructurePassDescriptor*)descriptor {
  return [_rootCommandBuffer accelerationStructureCommandEncoderWithDescriptor:descriptor];
}
- (void)pushDebugGroup:(NSString*)string {
  [_rootCommandBuffer pushDebugGroup:string];
}
- (void)popDebugGroup {
  [_rootCommandBuffer popDebugGroup];
}
@end
