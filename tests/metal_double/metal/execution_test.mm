// What the double does when it is used as Metal's documentation says.
#import <Metal/Metal.h>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include <unistd.h>

#include "tests/metal_double/control.h"
#import "tests/metal_double/metal/command_buffer.h"
#import "tests/metal_double/metal/queue.h"

using namespace heddle::metal_double;

namespace {

NSString* const kAdd =
    @"#include <metal_stdlib>\n"
     "// adds a to x\n"
     "kernel void add(device float* x [[buffer(0)]], constant float& a [[buffer(1)]],\n"
     "                uint i [[thread_position_in_grid]]) { x[i] += a; }\n"
     "kernel void sum(device const float* x [[buffer(0)]], device float* y [[buffer(1)]]) {}\n";

void add_kernel(const KernelCall& call) {
  for (float& x : call.at<float>(0)) x += call.value<float>(1);
}
void sum_kernel(const KernelCall& call) {
  float sum = 0;
  for (const float x : call.at<float>(0)) sum += x;
  call.at<float>(1)[0] = sum;
}

struct Gpu {
  Gpu() {
    reset();
    register_kernel("add", add_kernel);
    register_kernel("sum", sum_kernel);
    NSError* error = nil;
    const id<MTLLibrary> library = [device newLibraryWithSource:kAdd options:nil error:&error];
    add_pipeline = pipeline(library, @"add");
    sum_pipeline = pipeline(library, @"sum");
    [library release];
  }
  ~Gpu() {
    [add_pipeline release];
    [sum_pipeline release];
    [queue release];
    [device release];
  }
  id<MTLComputePipelineState> pipeline(id<MTLLibrary> library, NSString* name) {
    const id<MTLFunction> function = [library newFunctionWithName:name];
    const id<MTLComputePipelineState> made = [device newComputePipelineStateWithFunction:function error:nil];
    [function release];
    return made;
  }
  void add(id<MTLCommandBuffer> buffer, id<MTLBuffer> x, float a) {
    const id<MTLComputeCommandEncoder> encoder = [buffer computeCommandEncoder];
    [encoder setComputePipelineState:add_pipeline];
    [encoder setBuffer:x offset:0 atIndex:0];
    [encoder setBytes:&a length:sizeof a atIndex:1];
    [encoder dispatchThreads:MTLSizeMake([x length] / 4, 1, 1) threadsPerThreadgroup:MTLSizeMake(32, 1, 1)];
    [encoder endEncoding];
  }

  id<MTLDevice> device = MTLCreateSystemDefaultDevice();
  id<MTLCommandQueue> queue = [device newCommandQueue];
  id<MTLComputePipelineState> add_pipeline = nil;
  id<MTLComputePipelineState> sum_pipeline = nil;
};

id<MTLBuffer> floats(id<MTLDevice> device, size_t n,
                     MTLResourceOptions options = MTLResourceStorageModeShared) {
  return [[device newBufferWithLength:n * sizeof(float) options:options] autorelease];
}
float first(id<MTLBuffer> buffer) { return static_cast<float*>([buffer contents])[0]; }

// All of the double's objects go away once its threads have let go of them.
bool all_gone(int64_t before) {
  for (int i = 0; i < 2000 && live_objects() > before; ++i) {
    dispatch_semaphore_t const never = dispatch_semaphore_create(0);
    dispatch_semaphore_wait(never, dispatch_time(DISPATCH_TIME_NOW, NSEC_PER_MSEC));
    dispatch_release(never);
  }
  return live_objects() <= before;  // fewer: what earlier tests left behind has gone as well
}

}  // namespace

TEST_CASE("a kernel of an MSL source runs as the C++ function registered under its name") {
  @autoreleasepool {
    Gpu gpu;
    const id<MTLBuffer> x = floats(gpu.device, 4);
    const id<MTLBuffer> y = floats(gpu.device, 1);
    const id<MTLCommandBuffer> buffer = [gpu.queue commandBuffer];
    gpu.add(buffer, x, 2);
    const id<MTLComputeCommandEncoder> encoder = [buffer computeCommandEncoder];
    [encoder setComputePipelineState:gpu.sum_pipeline];
    [encoder setBuffer:x offset:4 atIndex:0];
    [encoder setBuffer:y offset:0 atIndex:1];
    [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
    [encoder endEncoding];
    [buffer commit];
    [buffer waitUntilCompleted];
    CHECK(first(y) == 6);
    CHECK([buffer status] == MTLCommandBufferStatusCompleted);
    CHECK([buffer error] == nil);
    CHECK([buffer GPUEndTime] >= [buffer GPUStartTime]);
    CHECK(count(Count::kKernels) == 2);
  }
}

TEST_CASE("a source that is no MSL and an unregistered kernel are errors with Metal's domain") {
  @autoreleasepool {
    Gpu gpu;
    struct Row {
      NSString* source;
      const char* says;
    };
    const Row rows[] = {{@"kernel void broken(", "expected a parameter list"},
                        {@"kernel void unknown() {}", "no C++ function registered for kernel 'unknown'"}};
    for (const Row& row : rows) {
      NSError* error = nil;
      const id<MTLLibrary> library = [gpu.device newLibraryWithSource:row.source options:nil error:&error];
      if (library) {
        const id<MTLFunction> function = [library newFunctionWithName:@"unknown"];
        CHECK([gpu.device newComputePipelineStateWithFunction:function error:&error] == nil);
        [function release];
        [library release];
      }
      REQUIRE(error != nil);
      CHECK([[error domain] isEqualToString:MTLLibraryErrorDomain]);
      CHECK([[error localizedDescription] containsString:[NSString stringWithUTF8String:row.says]]);
    }
  }
}

TEST_CASE("blits copy and fill, private memory included; contents of private memory is NULL") {
  @autoreleasepool {
    Gpu gpu;
    const id<MTLBuffer> hidden = floats(gpu.device, 4, MTLResourceStorageModePrivate);
    const id<MTLBuffer> seen = floats(gpu.device, 4);
    const id<MTLCommandBuffer> buffer = [gpu.queue commandBuffer];
    const id<MTLBlitCommandEncoder> blit = [buffer blitCommandEncoder];
    [blit fillBuffer:hidden range:NSMakeRange(4, 8) value:7];
    [blit copyFromBuffer:hidden sourceOffset:4 toBuffer:seen destinationOffset:0 size:8];
    [blit endEncoding];
    [buffer commit];
    [buffer waitUntilCompleted];
    CHECK([hidden contents] == nullptr);
    CHECK(static_cast<char*>([seen contents])[7] == 7);
    CHECK(static_cast<char*>([seen contents])[8] == 0);
  }
}

TEST_CASE("shared events order two queues and the CPU, and tell listeners on their own queue") {
  @autoreleasepool {
    Gpu gpu;
    const id<MTLCommandQueue> other = [[gpu.device newCommandQueue] autorelease];
    const id<MTLSharedEvent> event = [[gpu.device newSharedEvent] autorelease];
    const id<MTLBuffer> x = floats(gpu.device, 4);
    dispatch_queue_t const queue = dispatch_queue_create("listener", DISPATCH_QUEUE_SERIAL);
    MTLSharedEventListener* const listener =
        [[[MTLSharedEventListener alloc] initWithDispatchQueue:queue] autorelease];
    dispatch_semaphore_t const heard = dispatch_semaphore_create(0);
    __block uint64_t told = 0;
    [event notifyListener:listener
                  atValue:2
                    block:^(id<MTLSharedEvent>, uint64_t value) {
                      told = value;
                      dispatch_semaphore_signal(heard);
                    }];
    const id<MTLCommandBuffer> second = [other commandBuffer];
    [second encodeWaitForEvent:event value:1];
    gpu.add(second, x, 2);
    [second encodeSignalEvent:event value:2];
    [second commit];
    CHECK(dispatch_semaphore_wait(heard, dispatch_time(DISPATCH_TIME_NOW, 5 * int64_t{NSEC_PER_MSEC})) != 0);
    const id<MTLCommandBuffer> first_one = [gpu.queue commandBuffer];
    gpu.add(first_one, x, 1);
    [first_one encodeSignalEvent:event value:1];
    [first_one commit];
    dispatch_semaphore_wait(heard, DISPATCH_TIME_FOREVER);
    CHECK([event signaledValue] == 2);
    CHECK(told == 2);
    CHECK(first(x) == 3);
    [second waitUntilCompleted];
    dispatch_release(heard);
    dispatch_release(queue);
  }
}

TEST_CASE("the 65th command buffer of a queue waits for one of 64 to complete") {
  @autoreleasepool {
    Gpu gpu;
    std::vector<id<MTLCommandBuffer>> held;
    for (int i = 0; i < 64; ++i) held.push_back([gpu.queue commandBuffer]);
    CHECK(count(Count::kQueueWaits) == 0);
    std::atomic<bool> got{false};
    std::thread asker([&] {
      @autoreleasepool {
        [[gpu.queue commandBuffer] commit];
        got = true;
      }
    });
    while (count(Count::kQueueWaits) == 0) std::this_thread::yield();
    CHECK_FALSE(got);
    [held[0] commit];
    asker.join();
    CHECK(got);
    for (size_t i = 1; i < held.size(); ++i) [held[i] commit];
    [held.back() waitUntilCompleted];
  }
}

TEST_CASE("completion handlers run on another thread, once each, before waitUntilCompleted returns") {
  @autoreleasepool {
    Gpu gpu;
    for (int round = 0; round < 20; ++round) {
      @autoreleasepool {
        const id<MTLCommandBuffer> buffer = [gpu.queue commandBuffer];
        const std::thread::id here = std::this_thread::get_id();
        __block int calls = 0;
        __block bool elsewhere = false;
        [buffer addCompletedHandler:^(id<MTLCommandBuffer> done) {
          elsewhere = std::this_thread::get_id() != here && [done status] == MTLCommandBufferStatusCompleted;
          ++calls;
        }];
        [buffer commit];
        [buffer waitUntilCompleted];
        CHECK(calls == 1);
        CHECK(elsewhere);
      }
    }
    CHECK(count(Count::kHandlers) == 20);
  }
}

TEST_CASE("queues overlap, and each runs its buffers in the order in which they were enqueued") {
  @autoreleasepool {
    Gpu gpu;
    const id<MTLCommandQueue> other = [[gpu.device newCommandQueue] autorelease];
    std::atomic<int> inside{0};
    std::atomic<bool> met{false};
    const auto meeting = [&](const PassBytes&) {
      ++inside;
      while (inside < 2) std::this_thread::yield();
      met = true;
      return PassResult{};
    };
    std::vector<id<MTLCommandBuffer>> meetings;
    for (const id<MTLCommandQueue> queue : {gpu.queue, other}) {
      meetings.push_back([queue commandBuffer]);
      append(meetings.back(), {PassKind::kGraph, {}, meeting});
      [meetings.back() commit];
    }
    std::vector<int> order;
    const id<MTLCommandBuffer> a = [gpu.queue commandBuffer];
    const id<MTLCommandBuffer> b = [gpu.queue commandBuffer];
    append(a, {PassKind::kGraph, {}, [&](const PassBytes&) { return order.push_back(1), PassResult{}; }});
    append(b, {PassKind::kGraph, {}, [&](const PassBytes&) { return order.push_back(2), PassResult{}; }});
    [a enqueue];
    [b commit];
    [a commit];
    [b waitUntilCompleted];
    // Both read this frame until they are over.
    for (const id<MTLCommandBuffer> buffer : meetings) [buffer waitUntilCompleted];
    CHECK(met);
    CHECK(order == std::vector<int>{1, 2});
    CHECK(count(Count::kOverlaps) >= 1);
  }
}

// Passes of a fixed time on each of the queues, begun together; seconds until all are over.
double seconds_of_passes(Gpu& gpu, const std::vector<id<MTLCommandQueue>>& queues, int passes) {
  const auto begin = std::chrono::steady_clock::now();
  @autoreleasepool {
    std::vector<id<MTLBuffer>> memory;
    std::vector<id<MTLCommandBuffer>> buffers;
    for (const id<MTLCommandQueue> queue : queues) {
      memory.push_back(floats(gpu.device, 32));
      buffers.push_back([queue commandBuffer]);
      for (int pass = 0; pass < passes; ++pass) gpu.add(buffers.back(), memory.back(), 1);
      [buffers.back() commit];
    }
    for (size_t i = 0; i < queues.size(); ++i) {
      [buffers[i] waitUntilCompleted];
      CHECK(static_cast<float*>([memory[i] contents])[31] == static_cast<float>(passes));
    }
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST_CASE("passes take the time that is asked for, in order on a queue and at once on two") {
  Gpu gpu;
  const id<MTLCommandQueue> other = [gpu.device newCommandQueue];
  set_longest_delay_us(0);
  set_pass_time_us(20000);
  const double in_order = seconds_of_passes(gpu, {gpu.queue}, 8);
  const double at_once = seconds_of_passes(gpu, {gpu.queue, other}, 4);
  CHECK(in_order >= 8 * 20e-3);
  CHECK(at_once >= 4 * 20e-3);
  CHECK(at_once < in_order);
  [other release];
  reset();
}

TEST_CASE("memory: page-aligned borrowing without a copy, heaps, limits, and what is charged is given back") {
  @autoreleasepool {
    Gpu gpu;
    const NSUInteger before = [gpu.device currentAllocatedSize];
    const auto page = static_cast<NSUInteger>(getpagesize());
    void* const mine = aligned_alloc(page, page);
    __block int freed = 0;
    @autoreleasepool {
      const id<MTLBuffer> borrowed = [gpu.device newBufferWithBytesNoCopy:mine
                                                                   length:page
                                                                  options:MTLResourceStorageModeShared
                                                              deallocator:^(void* pointer, NSUInteger) {
                                                                free(pointer);
                                                                ++freed;
                                                              }];
      CHECK([borrowed contents] == mine);
      [borrowed release];
    }
    CHECK(freed == 1);
    @autoreleasepool {
      MTLHeapDescriptor* const descriptor = [[MTLHeapDescriptor new] autorelease];
      descriptor.size = 2 * page;
      descriptor.storageMode = MTLStorageModeShared;
      const id<MTLHeap> heap = [[gpu.device newHeapWithDescriptor:descriptor] autorelease];
      CHECK([gpu.device currentAllocatedSize] == before + 2 * page);
      const id<MTLBuffer> a = [[heap newBufferWithLength:page options:0] autorelease];
      const id<MTLBuffer> b = [[heap newBufferWithLength:1 options:0] autorelease];
      CHECK([a hazardTrackingMode] == MTLHazardTrackingModeUntracked);
      CHECK([heap newBufferWithLength:1 options:0] == nil);
      CHECK([heap usedSize] == 2 * page);
      CHECK([b heap] == heap);
      CHECK([gpu.device currentAllocatedSize] == before + 2 * page);
    }
    CHECK([gpu.device currentAllocatedSize] == before);
    set_memory({before + 8 * page, before + 16 * page});
    CHECK([gpu.device recommendedMaxWorkingSetSize] == before + 8 * page);
    CHECK([gpu.device newBufferWithLength:17 * page options:0] == nil);
    CHECK([gpu.device currentAllocatedSize] == before);
  }
}

TEST_CASE("equal seeds give each queue of the double equal decisions, whatever queues there were before") {
  const auto decisions = [](uint64_t value) {
    seed(value);
    const QueueState state;
    Schedule gpu = state.schedule, handlers = state.handler_schedule;
    std::vector<uint32_t> all;
    for (int i = 0; i < 100; ++i) {
      all.push_back(next_delay_us(gpu));
      all.push_back(next_delay_us(handlers));
    }
    return all;
  };
  const auto first = decisions(7);
  const QueueState another;
  CHECK(decisions(7) == first);
  CHECK(decisions(8) != first);
  reset();
}

TEST_CASE("capture and counters are absent, and say so") {
  @autoreleasepool {
    Gpu gpu;
    NSError* error = nil;
    MTLCaptureManager* const capture = [MTLCaptureManager sharedCaptureManager];
    CHECK_FALSE([capture supportsDestination:MTLCaptureDestinationGPUTraceDocument]);
    CHECK_FALSE([capture startCaptureWithDescriptor:[[MTLCaptureDescriptor new] autorelease] error:&error]);
    CHECK([error code] == MTLCaptureErrorNotSupported);
    CHECK([gpu.device counterSets] == nil);
    CHECK_FALSE([gpu.device supportsCounterSampling:MTLCounterSamplingPointAtStageBoundary]);
  }
}

TEST_CASE("autoreleased objects die when their pool drains, and nothing is left over") {
  const int64_t before = live_objects();
  @autoreleasepool {
    Gpu gpu;
    const id<MTLBuffer> x = floats(gpu.device, 4);
    for (int i = 0; i < 10; ++i) {
      @autoreleasepool {
        const int64_t outside = live_objects();
        const id<MTLCommandBuffer> buffer = [gpu.queue commandBuffer];
        CHECK(live_objects() > outside - 10);
        gpu.add(buffer, x, 1);
        [buffer commit];
      }
    }
    const id<MTLCommandBuffer> last = [gpu.queue commandBuffer];
    [last commit];
    [last waitUntilCompleted];
    CHECK(first(x) == 10);
  }
  CHECK(all_gone(before + (before == 0)));  // the device itself stays once it was made
}
