#include "command_buffer.h"

#include "encoders.h"

#include <objc/runtime.h>
#include <cstdio>
#include <cstdlib>

#pragma clang diagnostic ignored "-Wprotocol"
#pragma clang diagnostic ignored "-Wobjc-property-implementation"

#define MTL_ASSERT(condition, text)                                   \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s: failed assertion `%s'\n", __func__, text); \
      abort();                                                        \
    }                                                                 \
  } while (0)

namespace {

// Variant 2: a class that did not exist when the guard looked for classes. The method above may be the
// guard's, whose type for MTLSize is its own.
__attribute__((no_sanitize("undefined"))) void dispatch_late(id self, SEL selector, MTLSize grid,
                                                             MTLSize group) {
  using Method = void (*)(id, SEL, MTLSize, MTLSize);
  const IMP original = class_getMethodImplementation([AGXG16XFamilyComputeContext class], selector);
  reinterpret_cast<Method>(original)(self, selector, grid, group);
}

Class late_class() {
  static const Class made = [] {
    Class parent = [AGXG16XFamilyComputeContext class];
    Class late = objc_allocateClassPair(parent, "AGXG17XFamilyComputeContext", 0);
    const SEL selector = @selector(dispatchThreads:threadsPerThreadgroup:);
    const Method method = class_getInstanceMethod(parent, selector);
    class_addMethod(late, selector, reinterpret_cast<IMP>(dispatch_late), method_getTypeEncoding(method));
    objc_registerClassPair(late);
    return late;
  }();
  return made;
}

Class compute_class() {
  switch (agx_double::option(AGX_DOUBLE_VARIANT)) {
    case 1:
      return [AGXG16XFamilyComputeContext_mtlnext class];
    case 2:
      return late_class();
    default:
      return [AGXG16XFamilyComputeContext class];
  }
}

}  // namespace

@implementation AGXG16XFamilyCommandBuffer
- (instancetype)initWithQueue:(AGXG16XFamilyCommandQueue*)queue {
  self = [super init];
  _queue = [queue retain];
  _counted = true;
  agx_double::live_command_buffers++;
  return self;
}
- (id<MTLCommandQueue>)commandQueue {
  return _queue;
}
- (id<MTLDevice>)device {
  return [_queue device];
}
- (NSString*)label {
  return _label;
}
- (void)setLabel:(NSString*)label {
  NSString* old = _label;
  _label = [label copy];
  [old release];
}
- (NSError*)error {
  return nil;
}
- (MTLCommandBufferStatus)status {
  std::lock_guard hold(_lock);
  return _status;
}
- (BOOL)retainedReferences {
  return YES;
}
- (id)open:(Class)kind {
  id encoder = [[kind alloc] initWithCommandBuffer:self];
  std::lock_guard hold(_lock);
  MTL_ASSERT(_status < MTLCommandBufferStatusCommitted, "encoding into a committed command buffer");
  MTL_ASSERT(!_open, "A command encoder is already encoding to this command buffer");
  _open = encoder;
  return [encoder autorelease];
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoder {
  return [self computeCommandEncoderWithDispatchType:MTLDispatchTypeSerial];
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)type {
  return [self open:compute_class()];
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDescriptor:(MTLComputePassDescriptor*)descriptor {
  return [self open:compute_class()];
}
- (id<MTLBlitCommandEncoder>)blitCommandEncoder {
  return [self open:[AGXG16XFamilyBlitContext class]];
}
- (id<MTLBlitCommandEncoder>)blitCommandEncoderWithDescriptor:(MTLBlitPassDescriptor*)descriptor {
  return [self open:[AGXG16XFamilyBlitContext class]];
}
- (id<MTLRenderCommandEncoder>)renderCommandEncoderWithDescriptor:(MTLRenderPassDescriptor*)descriptor {
  return [self open:[AGXG16XFamilyRenderContext class]];
}
- (id<MTLParallelRenderCommandEncoder>)parallelRenderCommandEncoderWithDescriptor:
    (MTLRenderPassDescriptor*)descriptor {
  return [self open:[AGXG16XFamilyParallelRenderContext class]];
}
- (id<MTLResourceStateCommandEncoder>)resourceStateCommandEncoder {
  return [self open:[AGXG16XFamilyResourceStateContext class]];
}
- (id<MTLResourceStateCommandEncoder>)resourceStateCommandEncoderWithDescriptor:
    (MTLResourceStatePassDescriptor*)descriptor {
  return [self open:[AGXG16XFamilyResourceStateContext class]];
}
- (id<MTLAccelerationStructureCommandEncoder>)accelerationStructureCommandEncoder {
  return [self open:[AGXG16XFamilyAccelerationStructureContext class]];
}
- (id<MTLAccelerationStructureCommandEncoder>)accelerationStructureCommandEncoderWithDescriptor:
    (MTLAccelerationStructurePassDescriptor*)descriptor {
  return [self open:[AGXG16XFamilyAccelerationStructureContext class]];
}
- (void)encoder:(id)encoder endedWith:(std::vector<agx_double::Work>&)work {
  std::lock_guard hold(_lock);
  if (_open == encoder) _open = nil;
  for (agx_double::Work& one : work) _work.push_back(std::move(one));
}
- (void)encodeSignalEvent:(id<MTLEvent>)event value:(uint64_t)value {
  MTL_ASSERT(!_open, "encodeSignalEvent:value: with uncommitted encoder");
  auto kept = agx_double::keep((const void*)event);
  std::lock_guard hold(_lock);
  _work.push_back([kept, value] { [(id<MTLSharedEvent>)kept.get() setSignaledValue:value]; });
}
- (void)encodeWaitForEvent:(id<MTLEvent>)event value:(uint64_t)value {
  MTL_ASSERT(!_open, "encodeWaitForEvent:value: with uncommitted encoder");
  auto kept = agx_double::keep((const void*)event);
  std::lock_guard hold(_lock);
  _work.push_back([kept, value] { [(id<AGXWaits>)kept.get() waitOnGpuForValue:value]; });
}
- (void)addCompletedHandler:(MTLCommandBufferHandler)handler {
  std::lock_guard hold(_lock);
  MTL_ASSERT(_status < MTLCommandBufferStatusCommitted, "Completed handler provided after commit call");
  _handlers.push_back([handler copy]);
}
- (void)commit {
  {
    std::lock_guard hold(_lock);
    MTL_ASSERT(_status < MTLCommandBufferStatusCommitted, "commit an already committed command buffer");
    MTL_ASSERT(!_open, "commit command buffer with uncommitted encoder");
    _status = MTLCommandBufferStatusCommitted;
  }
  dispatch_async(_queue->_gpu, ^{
    std::vector<agx_double::Work> work;
    {
      std::lock_guard hold(_lock);
      work.swap(_work);
    }
    for (agx_double::Work& one : work) one();
    work.clear();
    std::vector<MTLCommandBufferHandler> handlers;
    {
      std::lock_guard hold(_lock);
      handlers.swap(_handlers);
      _counted = false;
    }
    [_queue oneFewer];
    agx_double::command_buffers++;
    for (MTLCommandBufferHandler handler : handlers) {
      handler(self);
      [handler release];
    }
    std::lock_guard hold(_lock);
    _status = MTLCommandBufferStatusCompleted;
    _changed.notify_all();
  });
}
- (void)waitUntilCompleted {
  std::unique_lock hold(_lock);
  MTL_ASSERT(_status >= MTLCommandBufferStatusCommitted,
             "waiting for a command buffer that was not committed");
  _changed.wait(hold, [&] { return _status >= MTLCommandBufferStatusCompleted; });
}
- (void)dealloc {
  for (MTLCommandBufferHandler handler : _handlers) [handler release];
  if (_counted) [_queue oneFewer];
  [_queue release];
  [_label release];
  agx_double::live_command_buffers--;
  [super dealloc];
}
@end

@implementation AGXG16XFamilyCommandQueue
- (id<MTLDevice>)device {
  return _device;
}
- (NSString*)label {
  return _label;
}
- (void)setLabel:(NSString*)label {
  NSString* old = _label;
  _label = [label copy];
  [old release];
}
- (id<MTLCommandBuffer>)commandBuffer {
  {
    std::unique_lock hold(_lock);
    _freed.wait(hold, [&] { return _uncompleted < agx_double::option(AGX_DOUBLE_LIMIT); });
    _uncompleted++;
  }
  return [[[AGXG16XFamilyCommandBuffer alloc] initWithQueue:self] autorelease];
}
- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences {
  return [self commandBuffer];
}
- (id<MTLCommandBuffer>)commandBufferWithDescriptor:(MTLCommandBufferDescriptor*)descriptor {
  return [self commandBuffer];
}
- (void)oneFewer {
  std::lock_guard hold(_lock);
  _uncompleted--;
  _freed.notify_all();
}
- (void)dealloc {
  dispatch_release(_gpu);
  [_device release];
  [_label release];
  [super dealloc];
}
@end
