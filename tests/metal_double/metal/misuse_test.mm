// Everything that Metal's validation asserts and that Heddle could get wrong: each row aborts, with these
// words.
#import <Metal/Metal.h>

#include <atomic>
#include <thread>

#include <unistd.h>

#include "tests/metal_double/control.h"
#include "tests/metal_double/dying_fixture.h"
#import "tests/metal_double/metal/command_buffer.h"

using namespace heddle::metal_double;

namespace {

id<MTLDevice> device() {
  static const id<MTLDevice> only = MTLCreateSystemDefaultDevice();
  return only;
}
id<MTLCommandQueue> queue() {
  static const id<MTLCommandQueue> only = [device() newCommandQueue];
  return only;
}
id<MTLCommandBuffer> command_buffer() { return [queue() commandBuffer]; }
id<MTLBuffer> memory(MTLResourceOptions options) { return [device() newBufferWithLength:64 options:options]; }
id<MTLBuffer> shared() { return memory(MTLResourceStorageModeShared); }
id<MTLBuffer> untracked() {
  return memory(MTLResourceStorageModeShared | MTLResourceHazardTrackingModeUntracked);
}

void fill(id<MTLCommandBuffer> buffer, id<MTLBuffer> bytes, NSRange range = {0, 64}) {
  const id<MTLBlitCommandEncoder> encoder = [buffer blitCommandEncoder];
  [encoder fillBuffer:bytes range:range value:1];
  [encoder endEncoding];
}
void commit_and_wait(id<MTLCommandBuffer> buffer) {
  [buffer commit];
  [buffer waitUntilCompleted];
}

void second_encoder() {
  const id<MTLCommandBuffer> buffer = command_buffer();
  [buffer computeCommandEncoder];
  [buffer blitCommandEncoder];
}
void append_with_an_encoder_open() {
  const id<MTLCommandBuffer> buffer = command_buffer();
  [buffer computeCommandEncoder];
  append(buffer, {PassKind::kGraph, {}, {}});
}
void commit_twice() {
  const id<MTLCommandBuffer> buffer = command_buffer();
  [buffer commit];
  [buffer commit];
}
void completed_handler_after_commit() {
  const id<MTLCommandBuffer> buffer = command_buffer();
  [buffer commit];
  [buffer addCompletedHandler:^(id<MTLCommandBuffer>){
  }];
}
void scheduled_handler_after_commit() {
  const id<MTLCommandBuffer> buffer = command_buffer();
  [buffer commit];
  [buffer addScheduledHandler:^(id<MTLCommandBuffer>){
  }];
}
void encoder_after_commit() {
  const id<MTLCommandBuffer> buffer = command_buffer();
  [buffer commit];
  [buffer computeCommandEncoder];
}
void encode_after_end() {
  const id<MTLBlitCommandEncoder> encoder = [command_buffer() blitCommandEncoder];
  [encoder endEncoding];
  [encoder fillBuffer:shared() range:NSMakeRange(0, 4) value:1];
}
void end_twice() {
  const id<MTLComputeCommandEncoder> encoder = [command_buffer() computeCommandEncoder];
  [encoder endEncoding];
  [encoder endEncoding];
}
void commit_with_open_encoder() {
  const id<MTLCommandBuffer> buffer = command_buffer();
  [buffer computeCommandEncoder];
  [buffer commit];
}
void encoder_dies_open() {
  const id<MTLCommandBuffer> buffer = command_buffer();
  @autoreleasepool {
    [buffer computeCommandEncoder];
  }
}
void wait_without_commit() { [command_buffer() waitUntilCompleted]; }
void message_after_last_release() {
  const id<MTLBuffer> bytes = shared();
  [bytes release];
  [bytes contents];
}
void command_buffer_after_its_pool() {
  id<MTLCommandBuffer> buffer = nil;
  @autoreleasepool {
    buffer = command_buffer();
  }
  [buffer commit];
}
void buffer_dies_before_an_unretaining_command_buffer() {
  const id<MTLCommandBuffer> buffer = [queue() commandBufferWithUnretainedReferences];
  const id<MTLBuffer> bytes = shared();
  fill(buffer, bytes);
  [bytes release];
}
template <class Touch>
void two_threads(Touch touch) {
  std::atomic<bool> go{false};
  const auto hammer = [&] {
    while (!go) std::this_thread::yield();
    for (int i = 0; i < 10'000'000; ++i) touch();
  };
  std::thread one(hammer), other(hammer);
  go = true;
  one.join();
  other.join();
}
void two_threads_encode() {
  const id<MTLComputeCommandEncoder> encoder = [command_buffer() computeCommandEncoder];
  two_threads([&] { [encoder setBytes:"1234" length:4 atIndex:0]; });
}
void two_threads_on_a_command_buffer() {
  const id<MTLCommandBuffer> buffer = command_buffer();
  two_threads([&] {
    [buffer addCompletedHandler:^(id<MTLCommandBuffer>){
    }];
  });
}
void untracked_on_one_queue() {
  const id<MTLBuffer> bytes = untracked();
  const id<MTLCommandBuffer> buffer = command_buffer();
  fill(buffer, bytes);
  fill(buffer, bytes);
  commit_and_wait(buffer);
}
void untracked_on_one_queue_in_two_buffers() {
  const id<MTLBuffer> bytes = untracked();
  const id<MTLCommandBuffer> first = command_buffer(), second = command_buffer();
  const id<MTLSharedEvent> gate = [device() newSharedEvent];
  [first encodeWaitForEvent:gate value:1];
  fill(first, bytes);
  fill(second, bytes);
  [first commit];
  [second commit];
  [gate setSignaledValue:1];
  [second waitUntilCompleted];
}
void two_queues_without_an_event() {
  const id<MTLBuffer> bytes = shared();
  const id<MTLCommandQueue> other = [device() newCommandQueue];
  const id<MTLCommandBuffer> first = command_buffer(), second = [other commandBuffer];
  const id<MTLSharedEvent> gate = [device() newSharedEvent];
  for (const id<MTLCommandBuffer> buffer : {first, second}) {
    [buffer encodeWaitForEvent:gate value:1];
    fill(buffer, bytes);
    [buffer commit];
  }
  [gate setSignaledValue:1];
  [first waitUntilCompleted];
  [second waitUntilCompleted];
}
void an_event_that_comes_too_early() {
  const id<MTLBuffer> bytes = shared();
  const id<MTLCommandQueue> other = [device() newCommandQueue];
  const id<MTLSharedEvent> event = [device() newSharedEvent];
  const id<MTLCommandBuffer> first = command_buffer(), second = [other commandBuffer];
  [first encodeSignalEvent:event value:1];  // before the pass that the other queue needs
  fill(first, bytes);
  [second encodeWaitForEvent:event value:1];
  fill(second, bytes);
  [second commit];
  [first commit];
  [first waitUntilCompleted];
  [second waitUntilCompleted];
}
id<MTLComputePipelineState> pipeline() {
  register_kernel("write", [](const KernelCall&) {});
  const id<MTLLibrary> library =
      [device() newLibraryWithSource:@"kernel void write(device int* x [[buffer(0)]]) {}"
                             options:nil
                               error:nil];
  return [device() newComputePipelineStateWithFunction:[library newFunctionWithName:@"write"] error:nil];
}
void concurrent_dispatches_without_a_barrier() {
  const id<MTLComputeCommandEncoder> encoder =
      [command_buffer() computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
  [encoder setComputePipelineState:pipeline()];
  [encoder setBuffer:shared() offset:0 atIndex:0];
  for (int i = 0; i < 2; ++i) {
    [encoder dispatchThreads:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
  }
}
void dispatch_without_a_pipeline() {
  [[command_buffer() computeCommandEncoder] dispatchThreads:MTLSizeMake(1, 1, 1)
                                      threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
}
void missing_argument() {
  const id<MTLComputeCommandEncoder> encoder = [command_buffer() computeCommandEncoder];
  [encoder setComputePipelineState:pipeline()];
  [encoder dispatchThreads:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
}
void group_too_large() {
  const id<MTLComputeCommandEncoder> encoder = [command_buffer() computeCommandEncoder];
  [encoder setComputePipelineState:pipeline()];
  [encoder dispatchThreads:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(2048, 1, 1)];
}
void set_bytes_too_long() {
  static const char long_bytes[4097] = {};
  [[command_buffer() computeCommandEncoder] setBytes:long_bytes length:sizeof long_bytes atIndex:0];
}
void copy_beyond_the_end() { fill(command_buffer(), shared(), NSMakeRange(60, 8)); }
void borrowed_memory_unaligned() {
  [device() newBufferWithBytesNoCopy:reinterpret_cast<void*>(0x10001)
                              length:static_cast<NSUInteger>(getpagesize())
                             options:MTLResourceStorageModeShared
                         deallocator:nil];
}
void empty_buffer() { [device() newBufferWithLength:0 options:0]; }
void parallel_part_not_ended() {
  const id<MTLParallelRenderCommandEncoder> parallel = [command_buffer()
      parallelRenderCommandEncoderWithDescriptor:[MTLRenderPassDescriptor renderPassDescriptor]];
  [parallel renderCommandEncoder];
  [parallel endEncoding];
}

constexpr const char* kEncoding =
    "failed assertion `A command encoder is already encoding to this command buffer'";
constexpr const char* kEnded = "failed assertion `encoder has already ended encoding'";
constexpr const char* kNotThreadSafe = "at once: it is not thread-safe";

constexpr Misuse kMisuses[] = {
    {"second encoder", second_encoder, kEncoding},
    {"append with an encoder open", append_with_an_encoder_open, kEncoding},
    {"commit twice", commit_twice, "failed assertion `commit an already committed command buffer'"},
    {"completed handler after commit", completed_handler_after_commit,
     "failed assertion `Completed handler provided after commit call'"},
    {"scheduled handler after commit", scheduled_handler_after_commit,
     "failed assertion `Scheduled handler provided after commit call'"},
    {"encoder after commit", encoder_after_commit, "failed assertion `command buffer was already committed'"},
    {"encode after endEncoding", encode_after_end, kEnded},
    {"endEncoding twice", end_twice, kEnded},
    {"commit with an open encoder", commit_with_open_encoder,
     "failed assertion `commit command buffer with uncommitted encoder'"},
    {"encoder released while open", encoder_dies_open,
     "failed assertion `Command encoder released without endEncoding'"},
    {"wait without commit", wait_without_commit, "not committed"},
    {"message after the last release", message_after_last_release,
     "*** -[DoubleBuffer contents]: message sent to deallocated instance"},
    {"command buffer outlives its pool", command_buffer_after_its_pool,
     "*** -[DoubleCommandBuffer commit]: message sent to deallocated instance"},
    {"buffer dies before an unretaining command buffer", buffer_dies_before_an_unretaining_command_buffer,
     "The following Metal object is being destroyed while still required to be alive by the command buffer"},
    {"two threads on an encoder", two_threads_encode, kNotThreadSafe, true},
    {"two threads on a command buffer", two_threads_on_a_command_buffer, kNotThreadSafe, true},
    {"untracked, one command buffer, no fence", untracked_on_one_queue, "of untracked buffer"},
    {"untracked, one queue, no fence or event", untracked_on_one_queue_in_two_buffers, "of untracked buffer"},
    {"two queues, no event", two_queues_without_an_event, "of tracked buffer"},
    {"an event signalled before the pass", an_event_that_comes_too_early, "of tracked buffer"},
    {"concurrent dispatches, no barrier", concurrent_dispatches_without_a_barrier, "no memory barrier"},
    {"no pipeline", dispatch_without_a_pipeline, "No compute pipeline state set"},
    {"argument missing", missing_argument,
     "Compute Function(write): missing Buffer binding at index 0 for x[0]."},
    {"threadgroup too large", group_too_large, "(device threadgroup size limit)"},
    {"setBytes too long", set_bytes_too_long, "length(4097) must be <= 4096"},
    {"range beyond the end", copy_beyond_the_end, "must be <= range.length(64)"},
    {"unaligned memory to borrow", borrowed_memory_unaligned, "byte aligned."},
    {"empty buffer", empty_buffer, "buffer length(0) must be > 0"},
    {"part of a parallel encoder not ended", parallel_part_not_ended, "unended child encoders"},
};

}  // namespace

TEST_CASE("a child runs its misuse of Metal" * doctest::skip()) {
  @autoreleasepool {
    run_misuse_of_child(kMisuses);
  }
}

TEST_CASE("every misuse that Metal's validation asserts aborts with its words") {
  check_all_die(kMisuses, "a child runs its misuse of Metal");
}

TEST_CASE("what is ordered by a fence, an event, tracking or a completion is no hazard") {
  @autoreleasepool {
    reset();
    const id<MTLCommandQueue> other = [[device() newCommandQueue] autorelease];
    const id<MTLBuffer> loose = [untracked() autorelease];
    const id<MTLBuffer> bytes = [shared() autorelease];
    const id<MTLFence> fence = [[device() newFence] autorelease];
    const id<MTLEvent> event = [[device() newEvent] autorelease];

    const id<MTLCommandBuffer> fenced = command_buffer();
    for (int i = 0; i < 3; ++i) {
      const id<MTLBlitCommandEncoder> encoder = [fenced blitCommandEncoder];
      [encoder waitForFence:fence];
      [encoder fillBuffer:loose range:NSMakeRange(0, 64) value:static_cast<uint8_t>(i)];
      [encoder updateFence:fence];
      [encoder endEncoding];
    }
    fill(fenced, bytes);
    fill(fenced, bytes);
    [fenced encodeSignalEvent:event value:1];
    [fenced commit];

    const id<MTLCommandBuffer> after_event = [other commandBuffer];
    [after_event encodeWaitForEvent:event value:1];
    fill(after_event, loose);
    fill(after_event, bytes);
    commit_and_wait(after_event);

    const id<MTLCommandBuffer> after_completion = command_buffer();
    fill(after_completion, loose);
    fill(after_completion, bytes, NSMakeRange(0, 32));
    [after_completion commit];
    const id<MTLCommandBuffer> elsewhere = [other commandBuffer];
    fill(elsewhere, bytes, NSMakeRange(32, 32));  // other bytes of the same buffer
    commit_and_wait(elsewhere);
    [after_completion waitUntilCompleted];
    CHECK(count(Count::kErrors) == 0);
    CHECK(count(Count::kCompletions) == 4);
  }
}
