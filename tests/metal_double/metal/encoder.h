// encoder.h: the encoders. Each gathers one pass and hands it to its command buffer at endEncoding.
//
//   Threads   One at a time, checked. The encoders of a parallel render encoder may each have their own.
//   Errors    Anything after endEncoding, a second endEncoding and an end without endEncoding abort.
#pragma once

#include <array>
#include <vector>

#import "command_buffer_object.h"
#import "library.h"

@interface DoubleEncoder : DoubleObject <MTLCommandEncoder> {
 @public
  DoubleCommandBuffer* _buffer;
  heddle::metal_double::OneThread _one_thread;
  heddle::metal_double::Pass _pass;
  std::vector<heddle::metal_double::FenceUse> _fences;
  bool _ended;
}
- (instancetype)initWithCommandBuffer:(DoubleCommandBuffer*)buffer;
- (void)finishPass;  // overridden by encoders whose passes have work
@end

// Begins every method that encodes.
#define METAL_ENCODES            \
  METAL_ONE_THREAD(_one_thread); \
  METAL_ASSERT(!_ended, "encoder has already ended encoding")

@interface DoubleFencedEncoder : DoubleEncoder
- (void)updateFence:(id<MTLFence>)fence;
- (void)waitForFence:(id<MTLFence>)fence;
@end

namespace heddle::metal_double {

inline constexpr size_t kBufferSlots = 31;
inline constexpr size_t kSetBytesLimit = 4096;

struct Binding {
  DoubleBuffer* buffer = nil;  // retained
  NSUInteger offset = 0;
  std::vector<std::byte> bytes;  // of setBytes
  bool set = false;
};

// One dispatch, ready to run: where in the pass's accesses each argument is.
struct Dispatch {
  Kernel kernel = nullptr;
  KernelCall call;
  std::array<int, kBufferSlots> accesses;  // -1: bytes or nothing
  std::array<std::vector<std::byte>, kBufferSlots> bytes;
};

}  // namespace heddle::metal_double

@interface DoubleComputeEncoder : DoubleFencedEncoder <MTLComputeCommandEncoder> {
 @public
  bool _concurrent;
  DoublePipeline* _pipeline;  // retained
  std::array<heddle::metal_double::Binding, heddle::metal_double::kBufferSlots> _bindings;
  std::vector<heddle::metal_double::Dispatch> _dispatches;
  size_t _first_since_barrier;  // index into _pass.accesses
}
@end

@interface DoubleBlitEncoder : DoubleFencedEncoder <MTLBlitCommandEncoder> {
  std::vector<std::function<void(const heddle::metal_double::PassBytes&)>> _commands;
}
@end

// The double draws, maps and traces nothing; these keep an encoder's rules.
@interface DoubleRenderEncoder : DoubleEncoder <MTLRenderCommandEncoder>
@end
@interface DoubleParallelRenderEncoder : DoubleEncoder <MTLParallelRenderCommandEncoder> {
  std::atomic<int> _open_children;
}
- (void)childEnded;
@end
@interface DoubleResourceStateEncoder : DoubleFencedEncoder <MTLResourceStateCommandEncoder>
@end
@interface DoubleAccelerationStructureEncoder : DoubleFencedEncoder <MTLAccelerationStructureCommandEncoder>
@end
