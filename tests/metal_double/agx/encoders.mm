#include "encoders.h"

#include "command_buffer.h"

#include <cstring>

// Only what the tests of the guard send; an unknown selector stops the program with the runtime's message.
#pragma clang diagnostic ignored "-Wprotocol"
#pragma clang diagnostic ignored "-Wobjc-property-implementation"

using agx_double::Context;
using agx_double::keep;

namespace {

void run_once(Context* context, std::shared_ptr<void> target, NSUInteger offset, int amount) {
  context->kept->push_back(target);
  context->enqueue_state = 2;
  context->commands->push_back([target, offset, amount] {
    auto* cell = reinterpret_cast<int*>(static_cast<char*>([(id<MTLBuffer>)target.get() contents]) + offset);
    *cell += amount;
    agx_double::kernels++;
  });
}

void bind(Context* context, id<MTLBuffer> buffer, NSUInteger offset, NSUInteger index) {
  if (buffer) context->kept->push_back(keep((const void*)buffer));
  context->arguments[index] = buffer ? static_cast<char*>([buffer contents]) + offset : nullptr;
}

void bind_copy(Context* context, const void* bytes, NSUInteger length, NSUInteger index) {
  std::shared_ptr<void> copy(malloc(length), free);
  memcpy(copy.get(), bytes, length);
  context->arguments[index] = copy.get();
  context->kept->push_back(copy);
}

void dispatch(Context* context, NSUInteger threads) {
  if (!context->has_pipeline) {
    fprintf(stderr, "failed assertion `computePipelineState is not set'\n");
    abort();
  }
  auto* target = static_cast<int*>(context->arguments[0]);
  auto* step = static_cast<int*>(context->arguments[1]);
  auto kept = *context->kept;
  context->enqueue_state = 2;
  context->commands->push_back([target, step, threads, kept] {
    *target += int(threads) * (step ? *step : 1);
    agx_double::kernels++;
  });
}

}  // namespace

@implementation IOGPUMetalCommandEncoder
- (instancetype)initWithCommandBuffer:(AGXG16XFamilyCommandBuffer*)buffer {
  self = [super init];
  _commandBuffer = [buffer retain];
  *[self context] = agx_double::take();
  agx_double::live_encoders++;
  return self;
}
- (Context**)context {
  abort();  // each kind has its own
}
- (id<MTLDevice>)device {
  return [_commandBuffer device];
}
- (NSString*)label {
  return _label;
}
- (void)setLabel:(NSString*)label {
  NSString* old = _label;
  _label = [label copy];
  [old release];
}
- (void)insertDebugSignpost:(NSString*)string {
}
- (void)pushDebugGroup:(NSString*)string {
}
- (void)popDebugGroup {
}
- (void)endEncoding {
  [self deferredEndEncoding];
}
- (void)deferredEndEncoding {
  Context* context = *[self context];
  context->enqueue_state = 3;
  std::vector<agx_double::Work> work;
  work.swap(*context->commands);
  [_commandBuffer encoder:self endedWith:work];
  [self destroyImpl];
}
- (void)destroyImpl {
  agx_double::give_back([self context]);
}
- (void)dealloc {
  [self destroyImpl];
  [_label release];
  [_commandBuffer release];
  agx_double::live_encoders--;
  [super dealloc];
}
@end

@implementation AGXG16XFamilyComputeContext
- (Context**)context {
  return &_impl;
}
- (void)setComputePipelineState:(id<MTLComputePipelineState>)state {
  Context* context = _impl;
  context->commands->reserve(8);
  context->has_pipeline = true;
  context->enqueue_state++;
}
- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index {
  bind(_impl, buffer, offset, index);
}
- (void)setBufferOffset:(NSUInteger)offset atIndex:(NSUInteger)index {
  abort();  // the double keeps addresses, not buffers
}
- (void)setBytes:(const void*)bytes length:(NSUInteger)length atIndex:(NSUInteger)index {
  bind_copy(_impl, bytes, length, index);
}
- (void)setThreadgroupMemoryLength:(NSUInteger)length atIndex:(NSUInteger)index {
  _impl->enqueue_state++;
}
- (void)useResource:(id<MTLResource>)resource usage:(MTLResourceUsage)usage {
  _impl->kept->push_back(keep((const void*)resource));
}
- (void)memoryBarrierWithScope:(MTLBarrierScope)scope {
  _impl->enqueue_state++;
}
- (void)updateFence:(id<MTLFence>)fence {
  _impl->kept->push_back(keep((const void*)fence));
}
- (void)waitForFence:(id<MTLFence>)fence {
  _impl->kept->push_back(keep((const void*)fence));
}
- (void)dispatchThreads:(MTLSize)grid threadsPerThreadgroup:(MTLSize)group {
  dispatch(_impl, grid.width * grid.height * grid.depth);
}
- (void)dispatchThreadgroups:(MTLSize)groups threadsPerThreadgroup:(MTLSize)group {
  [self dispatchThreads:MTLSizeMake(groups.width * group.width, groups.height * group.height,
                                    groups.depth * group.depth)
      threadsPerThreadgroup:group];
}
@end

@implementation AGXG16XFamilyComputeContext_mtlnext
- (void)setComputePipelineState:(id<MTLComputePipelineState>)state {
  [super setComputePipelineState:state];
}
- (void)dispatchThreads:(MTLSize)grid threadsPerThreadgroup:(MTLSize)group {
  _dispatches++;
  [super dispatchThreads:grid threadsPerThreadgroup:group];
}
- (void)endEncoding {
  [super endEncoding];
}
- (void)dealloc {
  [super dealloc];
}
@end

@implementation AGXG16XFamilyBlitContext
- (Context**)context {
  return &_impl;
}
- (void)fillBuffer:(id<MTLBuffer>)buffer range:(NSRange)range value:(uint8_t)value {
  _copies[0]++;
  run_once(_impl, keep((const void*)buffer), range.location, value);
}
- (void)copyFromBuffer:(id<MTLBuffer>)source
          sourceOffset:(NSUInteger)source_offset
              toBuffer:(id<MTLBuffer>)target
     destinationOffset:(NSUInteger)offset
                  size:(NSUInteger)size {
  _impl->kept->push_back(keep((const void*)source));
  run_once(_impl, keep((const void*)target), offset, int(size));
}
- (void)copyFromTensor:(id)sourceTensor
             sourceOrigin:(id)sourceOrigin
         sourceDimensions:(id)sourceDimensions
                 toTensor:(id)destinationTensor
        destinationOrigin:(id)destinationOrigin
    destinationDimensions:(id)destinationDimensions {
  for (const id each in @[
         sourceTensor, sourceOrigin, sourceDimensions, destinationTensor, destinationOrigin,
         destinationDimensions
       ])
    _impl->kept->push_back(keep((const void*)each));
}
- (void)synchronizeResource:(id<MTLResource>)resource {
  _impl->kept->push_back(keep((const void*)resource));
}
- (void)updateFence:(id<MTLFence>)fence {
  _copies[1]++;
  _impl->kept->push_back(keep((const void*)fence));
}
- (void)waitForFence:(id<MTLFence>)fence {
  _copies[2]++;
  _impl->kept->push_back(keep((const void*)fence));
}
@end

@implementation AGXG16XFamilyRenderContext
- (Context**)context {
  return &_impl;
}
- (void)setVertexBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index {
  _viewport[index]++;
  bind(_impl, buffer, offset, index);
}
- (void)setVertexBytes:(const void*)bytes length:(NSUInteger)length atIndex:(NSUInteger)index {
  bind_copy(_impl, bytes, length, index);
}
- (void)setFragmentBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index {
  bind(_impl, buffer, offset, index + 8);
}
- (void)drawPrimitives:(MTLPrimitiveType)type vertexStart:(NSUInteger)start vertexCount:(NSUInteger)count {
  _impl->has_pipeline = true;
  dispatch(_impl, count);
}
@end

@implementation AGXG16XFamilyParallelRenderContext
- (Context**)context {
  return &_impl;
}
- (id<MTLRenderCommandEncoder>)renderCommandEncoder {
  _impl->enqueue_state++;
  return [[[AGXG16XFamilyRenderContext alloc] initWithCommandBuffer:_commandBuffer] autorelease];
}
@end

@implementation AGXG16XFamilyResourceStateContext
- (Context**)context {
  return &_impl;
}
- (void)updateFence:(id<MTLFence>)fence {
  _mappings[0]++;
  _impl->kept->push_back(keep((const void*)fence));
}
- (void)waitForFence:(id<MTLFence>)fence {
  _mappings[1]++;
  _impl->kept->push_back(keep((const void*)fence));
}
@end

@implementation AGXG16XFamilyAccelerationStructureContext
- (Context**)context {
  return &_impl;
}
- (void)useResource:(id<MTLResource>)resource usage:(MTLResourceUsage)usage {
  _builds[0]++;
  _impl->kept->push_back(keep((const void*)resource));
}
- (void)updateFence:(id<MTLFence>)fence {
  _builds[1]++;
  _impl->kept->push_back(keep((const void*)fence));
}
- (void)waitForFence:(id<MTLFence>)fence {
  _builds[2]++;
  _impl->kept->push_back(keep((const void*)fence));
}
@end

@implementation AGXFence
@end
