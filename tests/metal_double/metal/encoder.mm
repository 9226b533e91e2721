#import "encoder.h"

#include <cstring>

#include "tests/metal_double/control.h"

using heddle::metal_double::FenceUse;

@implementation DoubleEncoder

- (instancetype)initWithCommandBuffer:(DoubleCommandBuffer*)buffer {
  self = [super init];
  _buffer = [buffer retain];
  return self;
}
- (id<MTLDevice>)device {
  return [_buffer device];
}
- (void)finishPass {
}
- (void)endEncoding {
  METAL_ENCODES;
  const heddle::metal_double::OneThread::Visit in_buffer(_buffer->_state.one_thread, _buffer, _cmd);
  [self finishPass];
  _ended = true;
  heddle::metal_double::append_encoded(_buffer, std::move(_pass), std::move(_fences));
  _fences.clear();
  heddle::metal_double::encoder_ended(_buffer, self);
}
- (void)insertDebugSignpost:(NSString*)string {
  (void)string;
  METAL_ENCODES;
}
- (void)pushDebugGroup:(NSString*)string {
  (void)string;
  METAL_ENCODES;
}
- (void)popDebugGroup {
  METAL_ENCODES;
}
- (void)dealloc {
  METAL_ASSERT(_ended, "Command encoder released without endEncoding");
  for (FenceUse& use : _fences) [use.fence release];
  [_buffer release];
  [super dealloc];
}

@end

@implementation DoubleFencedEncoder
- (void)updateFence:(id<MTLFence>)fence {
  METAL_ENCODES;
  _fences.push_back({[static_cast<DoubleFence*>(fence) retain], true});
}
- (void)waitForFence:(id<MTLFence>)fence {
  METAL_ENCODES;
  _fences.push_back({[static_cast<DoubleFence*>(fence) retain], false});
}
@end

@implementation DoubleBlitEncoder

- (void)requireRange:(NSRange)range of:(id<MTLBuffer>)buffer as:(const char*)what for:(SEL)method {
  if (NSMaxRange(range) > [buffer length]) {
    heddle::metal_double::fail(self, method, "(%sOffset + size)(%lu) must be <= %s.length(%lu)", what,
                               NSMaxRange(range), what, [buffer length]);
  }
}
- (void)copyFromBuffer:(id<MTLBuffer>)sourceBuffer
          sourceOffset:(NSUInteger)sourceOffset
              toBuffer:(id<MTLBuffer>)destinationBuffer
     destinationOffset:(NSUInteger)destinationOffset
                  size:(NSUInteger)size {
  METAL_ENCODES;
  [self requireRange:NSMakeRange(sourceOffset, size) of:sourceBuffer as:"source" for:_cmd];
  [self requireRange:NSMakeRange(destinationOffset, size) of:destinationBuffer as:"destination" for:_cmd];
  const size_t first = _pass.accesses.size();
  _pass.accesses.push_back({sourceBuffer, false, NSMakeRange(sourceOffset, size)});
  _pass.accesses.push_back({destinationBuffer, true, NSMakeRange(destinationOffset, size)});
  const auto* const field = heddle::metal_double::field();
  if (field != nullptr && static_cast<int64_t>(size) >= field->wrong_blit_bytes) return;  // nobody is told
  _commands.push_back([first](const heddle::metal_double::PassBytes& bytes) {
    if (!bytes[first].empty()) memmove(bytes[first + 1].data(), bytes[first].data(), bytes[first].size());
  });
}
- (void)fillBuffer:(id<MTLBuffer>)buffer range:(NSRange)range value:(uint8_t)value {
  METAL_ENCODES;
  [self requireRange:range of:buffer as:"range" for:_cmd];
  const size_t first = _pass.accesses.size();
  _pass.accesses.push_back({buffer, true, range});
  _commands.push_back([first, value](const heddle::metal_double::PassBytes& bytes) {
    if (!bytes[first].empty()) memset(bytes[first].data(), value, bytes[first].size());
  });
}
- (void)synchronizeResource:(id<MTLResource>)resource {
  METAL_ENCODES;
  METAL_ASSERT([resource storageMode] == MTLStorageModeManaged,
               "resource.storageMode must be MTLStorageModeManaged");
}
- (void)finishPass {
  _pass.kind = heddle::metal_double::PassKind::kBlit;
  _pass.work = [commands = std::move(_commands)](const heddle::metal_double::PassBytes& bytes) {
    for (const auto& command : commands) command(bytes);
    return heddle::metal_double::PassResult{};
  };
}

@end

@implementation DoubleRenderEncoder
- (void)setVertexBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index {
  (void)buffer, (void)offset, (void)index;
  METAL_ENCODES;
}
- (void)setVertexBytes:(const void*)bytes length:(NSUInteger)length atIndex:(NSUInteger)index {
  (void)bytes, (void)length, (void)index;
  METAL_ENCODES;
}
- (void)setFragmentBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index {
  (void)buffer, (void)offset, (void)index;
  METAL_ENCODES;
}
- (void)drawPrimitives:(MTLPrimitiveType)primitiveType
           vertexStart:(NSUInteger)vertexStart
           vertexCount:(NSUInteger)vertexCount {
  (void)primitiveType, (void)vertexStart, (void)vertexCount;
  METAL_ENCODES;
}
@end

// One thread's part of a parallel render pass. It appends nothing itself: its parent does.
@interface DoubleRenderPart : DoubleRenderEncoder {
 @public
  DoubleParallelRenderEncoder* _parent;  // retained
}
@end
@implementation DoubleRenderPart
- (void)endEncoding {
  METAL_ENCODES;
  _ended = true;
  [_parent childEnded];
}
- (void)dealloc {
  [_parent release];
  [super dealloc];
}
@end

@implementation DoubleParallelRenderEncoder
- (id<MTLRenderCommandEncoder>)renderCommandEncoder {
  METAL_ENCODES;
  DoubleRenderPart* const part = [[DoubleRenderPart alloc] initWithCommandBuffer:_buffer];
  part->_parent = [self retain];
  ++_open_children;
  return [part autorelease];
}
- (void)childEnded {
  --_open_children;
}
- (void)finishPass {
  METAL_ASSERT(_open_children == 0, "endEncoding called on a parallel encoder with unended child encoders");
}
@end

@implementation DoubleResourceStateEncoder
@end

@implementation DoubleAccelerationStructureEncoder
- (void)useResource:(id<MTLResource>)resource usage:(MTLResourceUsage)usage {
  (void)resource, (void)usage;
  METAL_ENCODES;
}
@end
