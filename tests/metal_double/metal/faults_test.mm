// Faults on request: what a caller sees of each while it is on, and that it is over when it is off.
#import <Metal/Metal.h>

#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/metal_double/control.h"
#import "tests/metal_double/metal/command_buffer.h"

using namespace heddle::metal_double;

namespace {

struct Gpu {
  Gpu() { reset(); }
  ~Gpu() {
    reset();
    [queue release];
    [device release];
  }
  id<MTLDevice> device = MTLCreateSystemDefaultDevice();
  id<MTLCommandQueue> queue = [device newCommandQueue];
};

id<MTLBuffer> bytes_of(id<MTLDevice> device) {
  return [[device newBufferWithLength:16 options:MTLResourceStorageModeShared] autorelease];
}
void fill(id<MTLCommandBuffer> buffer, id<MTLBuffer> bytes, uint8_t value) {
  const id<MTLBlitCommandEncoder> encoder = [buffer blitCommandEncoder];
  [encoder fillBuffer:bytes range:NSMakeRange(0, 16) value:value];
  [encoder endEncoding];
}
void strided_copy(id<MTLCommandBuffer> buffer, id<MTLBuffer> from, id<MTLBuffer> to) {
  append(buffer, {PassKind::kStridedCopy, {{from, false}, {to, true}}, [](const PassBytes& bytes) {
                    for (size_t i = 0; i < bytes[0].size(); ++i)
                      bytes[1][i] = bytes[0][bytes[0].size() - 1 - i];
                    return PassResult{};
                  }});
}
int byte(id<MTLBuffer> buffer) { return static_cast<uint8_t*>([buffer contents])[0]; }

}  // namespace

TEST_CASE("handler after wait: waitUntilCompleted returns while the handler has yet to run") {
  @autoreleasepool {
    Gpu gpu;
    for (const bool fault : {false, true}) {
      set(Fault::kHandlerAfterWait, fault);
      std::atomic<bool> ran{false};
      std::atomic<bool>* const ran_at = &ran;
      const id<MTLCommandBuffer> buffer = [gpu.queue commandBuffer];
      [buffer addCompletedHandler:^(id<MTLCommandBuffer>) {
        *ran_at = true;
      }];
      [buffer commit];
      [buffer waitUntilCompleted];
      CHECK(ran == !fault);
      while (!ran) std::this_thread::yield();
    }
  }
}

TEST_CASE("unfinished source: a strided copy reads what was there before the pass in front of it") {
  @autoreleasepool {
    Gpu gpu;
    set(Fault::kStridedCopyReadsUnfinished, true);
    const id<MTLBuffer> from = bytes_of(gpu.device);
    const id<MTLBuffer> to = bytes_of(gpu.device);
    const id<MTLCommandBuffer> together = [gpu.queue commandBuffer];
    fill(together, from, 1);
    strided_copy(together, from, to);
    [together commit];
    [together waitUntilCompleted];
    CHECK(byte(to) == 0);
    const id<MTLCommandBuffer> afterwards = [gpu.queue commandBuffer];
    strided_copy(afterwards, from, to);
    [afterwards commit];
    [afterwards waitUntilCompleted];
    CHECK(byte(to) == 1);  // the host waited in between
    set(Fault::kStridedCopyReadsUnfinished, false);
    const id<MTLCommandBuffer> sound = [gpu.queue commandBuffer];
    fill(sound, from, 2);
    strided_copy(sound, from, to);
    [sound commit];
    [sound waitUntilCompleted];
    CHECK(byte(to) == 2);
  }
}

TEST_CASE("recycled source: a strided copy whose source the caller let go reads other bytes") {
  @autoreleasepool {
    Gpu gpu;
    struct Row {
      bool fault, kept;
      int reads;
    };
    for (const Row row : {Row{false, false, 0}, Row{true, false, 0xDB}, Row{true, true, 0}}) {
      set(Fault::kStridedCopyDropsSource, row.fault);
      const id<MTLSharedEvent> gate = [[gpu.device newSharedEvent] autorelease];
      const id<MTLBuffer> to = bytes_of(gpu.device);
      const id<MTLBuffer> from = [gpu.device newBufferWithLength:16 options:MTLResourceStorageModeShared];
      const id<MTLCommandBuffer> buffer = [gpu.queue commandBuffer];
      [buffer encodeWaitForEvent:gate value:1];
      strided_copy(buffer, from, to);
      [buffer commit];
      if (!row.kept) [from release];
      [gate setSignaledValue:1];
      [buffer waitUntilCompleted];
      if (row.kept) [from release];
      CHECK(byte(to) == row.reads);
    }
  }
}

TEST_CASE(
    "failing command buffers: status, domain, code and Metal's text; what they would have signalled is not") {
  struct Row {
    Fault fault;
    MTLCommandBufferError code;
    const char* text;
    bool lasts;
  };
  const Row rows[] = {
      {Fault::kDeviceRemoved, MTLCommandBufferErrorDeviceRemoved, "removed", true},
      {Fault::kCommandBufferOutOfMemory, MTLCommandBufferErrorOutOfMemory, "Insufficient Memory", false},
      {Fault::kCommandBufferError, MTLCommandBufferErrorInternal, "Internal Error", false},
  };
  for (const Row& row : rows) {
    @autoreleasepool {
      Gpu gpu;
      set(row.fault, true);
      for (int round = 0; round < 2; ++round) {
        const bool fails = round == 0 || row.lasts;
        const id<MTLSharedEvent> event = [[gpu.device newSharedEvent] autorelease];
        const id<MTLCommandBuffer> buffer = [gpu.queue commandBuffer];
        fill(buffer, bytes_of(gpu.device), 1);
        [buffer encodeSignalEvent:event value:1];
        [buffer commit];
        [buffer waitUntilCompleted];
        CHECK([event signaledValue] == (fails ? 0 : 1));
        CHECK([buffer status] == (fails ? MTLCommandBufferStatusError : MTLCommandBufferStatusCompleted));
        CHECK(([buffer error] != nil) == fails);
        if (!fails) continue;
        CHECK([[[buffer error] domain] isEqualToString:MTLCommandBufferErrorDomain]);
        CHECK([[buffer error] code] == static_cast<NSInteger>(row.code));
        CHECK(
            [[[buffer error] localizedDescription] containsString:[NSString stringWithUTF8String:row.text]]);
      }
    }
  }
}

TEST_CASE("a removed device ends what waits on it") {
  @autoreleasepool {
    Gpu gpu;
    const id<MTLSharedEvent> never = [[gpu.device newSharedEvent] autorelease];
    const id<MTLCommandBuffer> buffer = [gpu.queue commandBuffer];
    [buffer encodeWaitForEvent:never value:1];
    [buffer commit];
    [buffer waitUntilScheduled];
    set(Fault::kDeviceRemoved, true);
    [buffer waitUntilCompleted];
    CHECK([[buffer error] code] == MTLCommandBufferErrorDeviceRemoved);
  }
}

TEST_CASE("a kernel that never ends holds its queue, not others, until the watchdog ends it") {
  @autoreleasepool {
    Gpu gpu;
    const id<MTLCommandQueue> other = [[gpu.device newCommandQueue] autorelease];
    set(Fault::kKernelNeverEnds, true);
    const id<MTLCommandBuffer> stuck = [gpu.queue commandBuffer];
    fill(stuck, bytes_of(gpu.device), 1);
    [stuck commit];
    while (is_on(Fault::kKernelNeverEnds)) std::this_thread::yield();  // until it has begun
    const id<MTLCommandBuffer> behind = [gpu.queue commandBuffer];
    [behind commit];
    const id<MTLCommandBuffer> beside = [other commandBuffer];
    fill(beside, bytes_of(gpu.device), 1);
    [beside commit];
    [beside waitUntilCompleted];
    CHECK([beside status] == MTLCommandBufferStatusCompleted);
    CHECK([stuck status] == MTLCommandBufferStatusScheduled);
    CHECK([behind status] == MTLCommandBufferStatusCommitted);
    end_stuck_kernels();
    [behind waitUntilCompleted];
    CHECK([[stuck error] code] == MTLCommandBufferErrorTimeout);
    CHECK([behind status] == MTLCommandBufferStatusCompleted);
  }
}

TEST_CASE("out of memory: new buffers are nil, from device and heap; a failing compiler says so") {
  @autoreleasepool {
    Gpu gpu;
    MTLHeapDescriptor* const descriptor = [[MTLHeapDescriptor new] autorelease];
    descriptor.size = 1 << 20;
    const id<MTLHeap> heap = [[gpu.device newHeapWithDescriptor:descriptor] autorelease];
    set(Fault::kOutOfMemory, true);
    CHECK([gpu.device newBufferWithLength:16 options:0] == nil);
    CHECK([heap newBufferWithLength:16 options:0] == nil);
    CHECK([gpu.device newHeapWithDescriptor:descriptor] == nil);
    set(Fault::kOutOfMemory, false);
    const id<MTLBuffer> again = [heap newBufferWithLength:16 options:0];
    CHECK(again != nil);
    [again release];
    set(Fault::kCompileFailure, true);
    NSError* error = nil;
    CHECK([gpu.device newLibraryWithSource:@"kernel void f() {}" options:nil error:&error] == nil);
    CHECK([error code] == MTLLibraryErrorCompileFailure);
  }
}

TEST_CASE("31 threads, a queue each, with events to one another: every value is the sequential one") {
  @autoreleasepool {
    constexpr int kThreads = 31;
    constexpr int kRounds = 40;
    Gpu gpu;
    seed(7);
    const id<MTLBuffer> total = [[gpu.device
        newBufferWithLength:sizeof(long) * kThreads
                    options:MTLResourceStorageModeShared | MTLResourceHazardTrackingModeUntracked]
        autorelease];
    std::vector<std::thread> threads;
    std::atomic<int> handled{0};
    std::atomic<int>* const handled_at = &handled;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        @autoreleasepool {
          const id<MTLCommandQueue> queue = [[gpu.device newCommandQueue] autorelease];
          const id<MTLSharedEvent> event = [[gpu.device newSharedEvent] autorelease];
          const NSRange mine = NSMakeRange(sizeof(long) * static_cast<size_t>(t), sizeof(long));
          for (int i = 1; i <= kRounds; ++i) {
            @autoreleasepool {
              const id<MTLCommandBuffer> buffer = [queue commandBuffer];
              [buffer encodeWaitForEvent:event value:static_cast<uint64_t>(i - 1)];
              append(buffer, {PassKind::kGraph, {{total, true, mine}}, [i](const PassBytes& bytes) {
                                *reinterpret_cast<long*>(bytes[0].data()) += i;
                                return PassResult{};
                              }});
              [buffer encodeSignalEvent:event value:static_cast<uint64_t>(i)];
              [buffer addCompletedHandler:^(id<MTLCommandBuffer>) {
                ++*handled_at;
              }];
              [buffer commit];
              if (i == kRounds) [buffer waitUntilCompleted];
            }
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (int t = 0; t < kThreads; ++t) {
      CHECK(static_cast<long*>([total contents])[t] == kRounds * (kRounds + 1) / 2);
    }
    CHECK(handled == kThreads * kRounds);
    CHECK(count(Count::kCompletions) == kThreads * kRounds);
  }
}
