#import "command_buffer_object.h"

#import "encoder.h"

NSErrorDomain const MTLCommandBufferErrorDomain = @"MTLCommandBufferErrorDomain";
NSErrorUserInfoKey const MTLCommandBufferEncoderInfoErrorKey = @"MTLCommandBufferEncoderInfoErrorKey";

namespace heddle::metal_double {
namespace {

HeldAccess held(const Access& access, const CommandBufferState& state, PassKind kind) {
  HeldAccess made;
  made.storage = storage(access.buffer);
  made.writes = access.writes;
  made.bytes.begin = access.range.location;
  made.bytes.end = access.range.length == NSUIntegerMax ? made.storage->size : NSMaxRange(access.range);
  const bool dropped =
      kind == PassKind::kStridedCopy && !access.writes && is_on(Fault::kStridedCopyDropsSource);
  if (state.retains && !dropped) made.retained = [access.buffer retain];
  return made;
}

}  // namespace

void append_encoded(DoubleCommandBuffer* buffer, Pass pass, std::vector<FenceUse> fences) {
  CommandBufferState& state = buffer->_state;
  EncodedPass encoded{pass.kind, {}, std::move(fences), std::move(pass.work)};
  for (const Access& access : pass.accesses) {
    HeldAccess& one = encoded.accesses.emplace_back(held(access, state, pass.kind));
    if (state.retains) continue;
    ++one.storage->unretained_uses;
    one.storage->unretained_user = buffer;
  }
  state.operations.emplace_back(std::move(encoded));
}

void encoder_ended(DoubleCommandBuffer* buffer, DoubleEncoder* encoder) {
  if (buffer->_state.open_encoder == encoder) buffer->_state.open_encoder = nil;
}

}  // namespace heddle::metal_double

using heddle::metal_double::CommandBufferState;
using heddle::metal_double::EventUse;

@implementation DoubleCommandBuffer

- (id<MTLDevice>)device {
  return _queue->_device;
}
- (id<MTLCommandQueue>)commandQueue {
  return _queue;
}
- (BOOL)retainedReferences {
  return _state.retains;
}
- (MTLCommandBufferErrorOption)errorOptions {
  return _errorOptions;
}
- (MTLCommandBufferStatus)status {
  const std::lock_guard lock(_state.lock);
  return _state.status;
}
- (NSError*)error {
  const std::lock_guard lock(_state.lock);
  return _state.error;
}
- (CFTimeInterval)kernelStartTime {
  const std::lock_guard lock(_state.lock);
  return _state.kernel_start;
}
- (CFTimeInterval)kernelEndTime {
  const std::lock_guard lock(_state.lock);
  return _state.kernel_end;
}
- (CFTimeInterval)GPUStartTime {
  const std::lock_guard lock(_state.lock);
  return _state.gpu_start;
}
- (CFTimeInterval)GPUEndTime {
  const std::lock_guard lock(_state.lock);
  return _state.gpu_end;
}

- (void)requireOpenFor:(SEL)method {
  if ([self status] >= MTLCommandBufferStatusCommitted) {
    heddle::metal_double::fail(self, method, "command buffer was already committed");
  }
  if (_state.open_encoder) {
    heddle::metal_double::fail(self, method, "A command encoder is already encoding to this command buffer");
  }
}

- (void)enqueue {
  METAL_ONE_THREAD(_state.one_thread);
  {
    const std::lock_guard lock(_state.lock);
    METAL_ASSERT(_state.status < MTLCommandBufferStatusCommitted,
                 "enqueue an already committed command buffer");
    if (_state.status == MTLCommandBufferStatusEnqueued) return;
    _state.status = MTLCommandBufferStatusEnqueued;
  }
  heddle::metal_double::enqueue(_queue, self);
}

- (void)commit {
  METAL_ONE_THREAD(_state.one_thread);
  heddle::metal_double::arrive(heddle::metal_double::Meeting::kCommit);
  {
    const std::lock_guard lock(_state.lock);
    METAL_ASSERT(_state.status < MTLCommandBufferStatusCommitted,
                 "commit an already committed command buffer");
    METAL_ASSERT(!_state.open_encoder, "commit command buffer with uncommitted encoder");
    _state.status = MTLCommandBufferStatusCommitted;
  }
  _state.host_at_commit = heddle::metal_double::host_knowledge();
  heddle::metal_double::add(heddle::metal_double::Count::kCommits);
  heddle::metal_double::commit(_queue, self);
}

- (void)addScheduledHandler:(MTLCommandBufferHandler)block {
  METAL_ONE_THREAD(_state.one_thread);
  const std::lock_guard lock(_state.lock);
  METAL_ASSERT(_state.status < MTLCommandBufferStatusCommitted,
               "Scheduled handler provided after commit call");
  _state.scheduled_handlers.push_back(Block_copy(block));
}
- (void)addCompletedHandler:(MTLCommandBufferHandler)block {
  METAL_ONE_THREAD(_state.one_thread);
  const std::lock_guard lock(_state.lock);
  METAL_ASSERT(_state.status < MTLCommandBufferStatusCommitted,
               "Completed handler provided after commit call");
  _state.completed_handlers.push_back(Block_copy(block));
}

- (void)waitUntilScheduled {
  std::unique_lock lock(_state.lock);
  METAL_ASSERT(_state.status >= MTLCommandBufferStatusCommitted,
               "waitUntilScheduled called on a command buffer that was not committed");
  _state.changed.wait(lock, [&] { return _state.status >= MTLCommandBufferStatusScheduled; });
}
- (void)waitUntilCompleted {
  std::unique_lock lock(_state.lock);
  METAL_ASSERT(_state.status >= MTLCommandBufferStatusCommitted,
               "waitUntilCompleted called on a command buffer that was not committed");
  _state.changed.wait(lock, [&] {
    const bool over = _state.status >= MTLCommandBufferStatusCompleted;
    return over && (_state.handlers_over ||
                    heddle::metal_double::is_on(heddle::metal_double::Fault::kHandlerAfterWait));
  });
  _state.waiter_returned = true;
  _state.changed.notify_all();
}

- (void)encode:(id<MTLEvent>)event value:(uint64_t)value signal:(bool)signal for:(SEL)method {
  [self requireOpenFor:method];
  _state.operations.emplace_back(EventUse{[static_cast<DoubleEvent*>(event) retain], value, signal});
}
- (void)encodeWaitForEvent:(id<MTLEvent>)event value:(uint64_t)value {
  METAL_ONE_THREAD(_state.one_thread);
  [self encode:event value:value signal:false for:_cmd];
}
- (void)encodeSignalEvent:(id<MTLEvent>)event value:(uint64_t)value {
  METAL_ONE_THREAD(_state.one_thread);
  [self encode:event value:value signal:true for:_cmd];
}

- (id)encoderOfClass:(Class)encoderClass for:(SEL)method {
  [self requireOpenFor:method];
  DoubleEncoder* const made = [[encoderClass alloc] initWithCommandBuffer:self];
  _state.open_encoder = made;
  return [made autorelease];
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoder {
  METAL_ONE_THREAD(_state.one_thread);
  return [self encoderOfClass:[DoubleComputeEncoder class] for:_cmd];
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)dispatchType {
  METAL_ONE_THREAD(_state.one_thread);
  DoubleComputeEncoder* const made = [self encoderOfClass:[DoubleComputeEncoder class] for:_cmd];
  made->_concurrent = dispatchType == MTLDispatchTypeConcurrent;
  return made;
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDescriptor:(MTLComputePassDescriptor*)descriptor {
  return [self computeCommandEncoderWithDispatchType:descriptor.dispatchType];
}
- (id<MTLBlitCommandEncoder>)blitCommandEncoder {
  METAL_ONE_THREAD(_state.one_thread);
  return [self encoderOfClass:[DoubleBlitEncoder class] for:_cmd];
}
- (id<MTLBlitCommandEncoder>)blitCommandEncoderWithDescriptor:(MTLBlitPassDescriptor*)descriptor {
  (void)descriptor;
  return [self blitCommandEncoder];
}
- (id<MTLRenderCommandEncoder>)renderCommandEncoderWithDescriptor:(MTLRenderPassDescriptor*)descriptor {
  (void)descriptor;
  METAL_ONE_THREAD(_state.one_thread);
  return [self encoderOfClass:[DoubleRenderEncoder class] for:_cmd];
}
- (id<MTLParallelRenderCommandEncoder>)parallelRenderCommandEncoderWithDescriptor:
    (MTLRenderPassDescriptor*)descriptor {
  (void)descriptor;
  METAL_ONE_THREAD(_state.one_thread);
  return [self encoderOfClass:[DoubleParallelRenderEncoder class] for:_cmd];
}
- (id<MTLResourceStateCommandEncoder>)resourceStateCommandEncoder {
  METAL_ONE_THREAD(_state.one_thread);
  return [self encoderOfClass:[DoubleResourceStateEncoder class] for:_cmd];
}
- (id<MTLResourceStateCommandEncoder>)resourceStateCommandEncoderWithDescriptor:
    (MTLResourceStatePassDescriptor*)descriptor {
  (void)descriptor;
  return [self resourceStateCommandEncoder];
}
- (id<MTLAccelerationStructureCommandEncoder>)accelerationStructureCommandEncoder {
  METAL_ONE_THREAD(_state.one_thread);
  return [self encoderOfClass:[DoubleAccelerationStructureEncoder class] for:_cmd];
}
- (id<MTLAccelerationStructureCommandEncoder>)accelerationStructureCommandEncoderWithDescriptor:
    (MTLAccelerationStructurePassDescriptor*)descriptor {
  (void)descriptor;
  return [self accelerationStructureCommandEncoder];
}
- (void)pushDebugGroup:(NSString*)string {
  (void)string;
}
- (void)popDebugGroup {
}

- (void)dealloc {
  if (_state.holds_slot) heddle::metal_double::close_slot(_queue);
  heddle::metal_double::drop_operations(self);
  for (MTLCommandBufferHandler const handler : _state.scheduled_handlers) Block_release(handler);
  for (MTLCommandBufferHandler const handler : _state.completed_handlers) Block_release(handler);
  [_state.error release];
  [_queue release];
  [super dealloc];
}

@end

namespace heddle::metal_double {

void append(id<MTLCommandBuffer> command_buffer, Pass pass) {
  auto* const buffer = static_cast<DoubleCommandBuffer*>(command_buffer);
  const OneThread::Visit visit(buffer->_state.one_thread, buffer, @selector(encodeToCommandBuffer:));
  [buffer requireOpenFor:@selector(encodeToCommandBuffer:)];
  append_encoded(buffer, std::move(pass), {});
}

}  // namespace heddle::metal_double
