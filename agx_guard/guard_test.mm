// The guard's mechanisms, one property each, on the double of Apple's driver.
#include "test_gpu.h"

#include <doctest/doctest.h>
#include <objc/runtime.h>

#include <atomic>
#include <thread>

using namespace agx_guard_test;

namespace {

// The environment of this program sets AGX_GUARD_RECENT to this.
constexpr uint64_t kRecent = 4;

uint64_t number_in(id encoder, const char* variable, size_t index = 0) {
  const Ivar ivar = class_getInstanceVariable(object_getClass(encoder), variable);
  return reinterpret_cast<uint64_t*>(reinterpret_cast<char*>((void*)encoder) + ivar_getOffset(ivar))[index];
}

std::string raised_by(void (^call)(void)) {
  @try {
    call();
  } @catch (NSException* exception) {
    return std::string([[exception name] UTF8String]) + ": " + [[exception reason] UTF8String];
  }
  return "nothing";
}

void wait_for_contention(uint64_t before) {
  while (statistics().lock_contentions == before) std::this_thread::yield();
}

}  // namespace

TEST_CASE("a class that the first device brings in is guarded, with every method of its protocols") {
  Gpu gpu;
  const std::string text = report();
  for (const char* name :
       {"Compute", "Blit", "Render", "ParallelRender", "ResourceState", "AccelerationStructure"}) {
    INFO(std::string(name));
    CHECK(text.find("\"AGXG16XFamily" + std::string(name) + "Context\"") != std::string::npos);
  }
  for (const char* method :
       {"-[AGXG16XFamilyComputeContext setBuffer:offset:atIndex:]",
        "-[AGXG16XFamilyComputeContext dispatchThreads:threadsPerThreadgroup:]",
        "-[AGXG16XFamilyBlitContext fillBuffer:range:value:]",
        "-[AGXG16XFamilyBlitContext copyFromTensor:sourceOrigin:sourceDimensions:toTensor:destinationOrigin:"
        "destinationDimensions:]",
        "-[IOGPUMetalCommandEncoder endEncoding]", "-[IOGPUMetalCommandEncoder destroyImpl]",
        "-[IOGPUMetalCommandEncoder dealloc]", "-[AGXG16XFamilyCommandBuffer commit]"}) {
    INFO(std::string(method));
    CHECK(text.find(method) != std::string::npos);
  }
  CHECK(text.find("\"unguarded\": []") != std::string::npos);
  CHECK(agx_guard_is_active() == 1);
  CHECK(agx_guard_install() == AGX_GUARD_ALREADY);
  CHECK(agx_guard_verify() == 0);
}

TEST_CASE(
    "the encoder of every factory is kept until its command buffer has completed, and then for a while") {
  Gpu gpu;
  for (const Factory& factory : factories()) {
    INFO(std::string(factory.name));
    const uint64_t made = statistics().encoders_made;
    @autoreleasepool {
      const id<MTLCommandBuffer> buffer = [gpu.queue commandBuffer];
      int64_t alive = 0;
      @autoreleasepool {
        const id<MTLCommandEncoder> encoder = factory.make(buffer);
        REQUIRE(encoder != nil);
        CHECK(statistics().encoders_made == made + 1);
        alive = counts().live_encoders;
        [encoder endEncoding];
      }
      CHECK(counts().live_encoders == alive);  // its pool has drained, and still
      gpu.run(buffer);
    }
    CHECK(statistics().encoders_kept <= kRecent + 1);
  }
  CHECK(counts().live_encoders <= int64_t(kRecent) + 1);
  CHECK(statistics().encoders_kept_past_completion >= factories().size());
}

TEST_CASE("weakness 1: a selector that several kinds have goes to the encoder's own class") {
  Gpu gpu;
  @autoreleasepool {
    const id<MTLCommandBuffer> buffer = [gpu.queue commandBuffer];
    const id<MTLComputeCommandEncoder> compute = [buffer computeCommandEncoder];
    [compute updateFence:gpu.fence];
    [compute endEncoding];
    const id<MTLBlitCommandEncoder> blit = [buffer blitCommandEncoder];
    [blit updateFence:gpu.fence];
    [blit waitForFence:gpu.fence];
    [blit waitForFence:gpu.fence];
    CHECK(number_in(blit, "_copies", 1) == 1);
    CHECK(number_in(blit, "_copies", 2) == 2);
    [blit endEncoding];
    const id<MTLResourceStateCommandEncoder> state = [buffer resourceStateCommandEncoder];
    [state waitForFence:gpu.fence];
    CHECK(number_in(state, "_mappings", 1) == 1);
    [state endEncoding];
    const id<MTLAccelerationStructureCommandEncoder> build = [buffer accelerationStructureCommandEncoder];
    [build updateFence:gpu.fence];
    CHECK(number_in(build, "_builds", 1) == 1);
    [build endEncoding];
    gpu.run(buffer);
  }
}

TEST_CASE("weakness 2: no kind's fields are looked into, wherever its _impl lies") {
  Gpu gpu;
  @autoreleasepool {
    const id<MTLCommandBuffer> buffer = [gpu.queue commandBuffer];
    const uint64_t late = statistics().late_calls;
    const id<MTLBlitCommandEncoder> blit = [buffer blitCommandEncoder];
    [blit fillBuffer:gpu.target range:NSMakeRange(0, 1) value:7];
    [blit endEncoding];
    const id<MTLRenderCommandEncoder> render = [buffer renderCommandEncoderWithDescriptor:(id)buffer];
    [render setVertexBuffer:gpu.target offset:0 atIndex:0];
    [render drawPrimitives:MTLPrimitiveTypePoint vertexStart:0 vertexCount:30];
    [render endEncoding];
    CHECK(statistics().late_calls == late);  // a null at the compute class's offset would look like the end
    [blit fillBuffer:gpu.target range:NSMakeRange(0, 1) value:5];
    CHECK(statistics().late_calls == late + 1);
    gpu.run(buffer);
  }
  gpu.drain();
  CHECK(gpu.value() == 42);
}

TEST_CASE(
    "weakness 3: a thread that holds an open encoder signals and waits for events without being held up") {
  Gpu gpu;
  @autoreleasepool {
    const agx_guard_statistics before = statistics();
    const id<MTLSharedEvent> event = [[gpu.device newSharedEvent] autorelease];
    const id<MTLCommandBuffer> held = [gpu.queue commandBuffer];
    const id<MTLComputeCommandEncoder> open = [held computeCommandEncoder];
    const id<MTLCommandBuffer> other = [gpu.queue commandBuffer];
    [other encodeSignalEvent:event value:1];
    [other encodeWaitForEvent:event value:1];
    gpu.run(other);
    CHECK([event signaledValue] == 1);
    CHECK(statistics().events_signalled == before.events_signalled + 1);
    CHECK(statistics().events_waited_for == before.events_waited_for + 1);
    CHECK(statistics().encoders_open == before.encoders_open + 1);
    gpu.encode_add(open, 3);
    [open endEncoding];
    gpu.run(held);
  }
  CHECK(gpu.value() == 3);
}

namespace {

// An encoder whose call stays inside until it is told to leave.
std::atomic<int> inside{0}, destroyed_while_inside{0};
std::atomic<bool> leave{false};

void stay(id, SEL, NSUInteger, NSUInteger) {
  inside++;
  while (!leave) std::this_thread::yield();
  inside--;
}

void end_and_look(id self, SEL selector) {
  destroyed_while_inside += inside.load();
  const IMP original = class_getMethodImplementation(class_getSuperclass(object_getClass(self)), selector);
  reinterpret_cast<void (*)(id, SEL)>(original)(self, selector);
}

Class blocking_class() {
  const Class parent = (Class)objc_lookUpClass("AGXG16XFamilyComputeContext");
  const Class made = objc_allocateClassPair(parent, "AGXTestBlockingContext", 0);
  const SEL slow = sel_registerName("setThreadgroupMemoryLength:atIndex:"),
            end = sel_registerName("destroyImpl");
  class_addMethod(made, slow, reinterpret_cast<IMP>(stay),
                  method_getTypeEncoding(class_getInstanceMethod(parent, slow)));
  class_addMethod(made, end, reinterpret_cast<IMP>(end_and_look),
                  method_getTypeEncoding(class_getInstanceMethod(parent, end)));
  objc_registerClassPair(made);
  return made;
}

}  // namespace

TEST_CASE("weakness 4: the original of destroyImpl runs in the encoder's turn, never beside a call on it") {
  Gpu gpu;
  @autoreleasepool {
    const Class slow = blocking_class();
    CHECK(agx_guard_uninstall() == AGX_GUARD_INSTALLED);
    CHECK(agx_guard_install() == AGX_GUARD_INSTALLED);  // finds the class made above
    const id<MTLCommandBuffer> buffer = [gpu.queue commandBuffer];
    const id<MTLComputeCommandEncoder> encoder = [buffer computeCommandEncoder];
    object_setClass(encoder, slow);
    const uint64_t contended = statistics().lock_contentions;
    std::thread user([&] { [encoder setThreadgroupMemoryLength:16 atIndex:0]; });
    while (inside == 0) std::this_thread::yield();
    std::thread ender([&] {
      @autoreleasepool {
        [encoder endEncoding];
      }
    });
    wait_for_contention(contended);
    leave = true;
    user.join();
    ender.join();
    CHECK(destroyed_while_inside == 0);
    gpu.run(buffer);
  }
}

TEST_CASE(
    "weakness 5: work on an encoder that another thread has ended is done, behind all it was encoded after") {
  Gpu gpu;
  const agx_guard_statistics before = statistics();
  @autoreleasepool {
    const id<MTLCommandBuffer> buffer = [gpu.queue commandBuffer];
    const id<MTLComputeCommandEncoder> encoder = [buffer computeCommandEncoder];
    [encoder setComputePipelineState:gpu.pipeline];
    [encoder setBuffer:gpu.target offset:0 atIndex:0];
    const int step = 5;
    [encoder setBytes:&step length:sizeof step atIndex:1];
    [encoder endEncoding];
    SUBCASE("before the commit") {
      // All that it needs was set before the end.
      [encoder dispatchThreads:MTLSizeMake(2, 1, 1) threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
      CHECK(gpu.value() == 0);  // it waits for the buffer it comes behind
      gpu.run(buffer);
    }
    SUBCASE("after the commit") {
      gpu.run(buffer);
      [encoder dispatchThreads:MTLSizeMake(2, 1, 1) threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
    }
    SUBCASE("half of it before, half after") {
      const int other = 10;
      [encoder setBytes:&other length:sizeof other atIndex:1];
      gpu.run(buffer);
      [encoder dispatchThreads:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
    }
  }
  gpu.drain();
  CHECK(gpu.value() == 10);
  const agx_guard_statistics after = statistics();
  CHECK(after.late_calls - before.late_calls == after.late_carried - before.late_carried);
  CHECK(after.late_buffers == before.late_buffers + 1);
  CHECK(after.calls_dropped == 0);
}

TEST_CASE("late calls of blit, resource-state and acceleration-structure encoders are carried over") {
  Gpu gpu;
  @autoreleasepool {
    const id<MTLCommandBuffer> buffer = [gpu.queue commandBuffer];
    const id<MTLBlitCommandEncoder> blit = [buffer blitCommandEncoder];
    [blit endEncoding];
    const id<MTLResourceStateCommandEncoder> state = [buffer resourceStateCommandEncoder];
    [state endEncoding];
    const id<MTLAccelerationStructureCommandEncoder> build = [buffer accelerationStructureCommandEncoder];
    [build endEncoding];
    const uint64_t carried = statistics().late_carried;
    [blit fillBuffer:gpu.target range:NSMakeRange(0, 1) value:9];
    [state updateFence:gpu.fence];
    [build useResource:gpu.target usage:MTLResourceUsageRead];
    [build updateFence:gpu.fence];
    CHECK(statistics().late_carried == carried + 4);
    gpu.run(buffer);
  }
  gpu.drain();
  CHECK(gpu.value() == 9);
}

TEST_CASE("a late call that cannot be carried over raises, and says which and why") {
  Gpu gpu;
  @autoreleasepool {
    const id<MTLCommandBuffer> buffer = [gpu.queue commandBuffer];
    const id<MTLRenderCommandEncoder> render = [buffer renderCommandEncoderWithDescriptor:(id)buffer];
    [render endEncoding];
    const std::string of_render = raised_by(^{
      [render drawPrimitives:MTLPrimitiveTypePoint vertexStart:0 vertexCount:1];
    });
    CHECK(of_render.find("NSInternalInconsistencyException: -[AGXG16XFamilyRenderContext "
                         "drawPrimitives:vertexStart:vertexCount:]") == 0);
    CHECK(of_render.find("needs a pass") != std::string::npos);

    const id<MTLComputeCommandEncoder> compute = [buffer computeCommandEncoder];
    gpu.encode_add(compute, 1);
    [compute endEncoding];
    gpu.run(buffer);
    const std::string of_compute = raised_by(^{
      [compute dispatchThreads:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
    });
    CHECK(of_compute.find("its settings were let go") != std::string::npos);
    gpu.encode_add(compute, 2);  // sets all it needs, so it can be done
  }
  gpu.drain();
  CHECK(gpu.value() == 3);
}

TEST_CASE("a second end and a late debug group have nothing to do") {
  Gpu gpu;
  @autoreleasepool {
    const id<MTLCommandBuffer> buffer = [gpu.queue commandBuffer];
    const id<MTLComputeCommandEncoder> encoder = [buffer computeCommandEncoder];
    gpu.encode_add(encoder, 4);
    [encoder endEncoding];
    const uint64_t nothing = statistics().late_nothing;
    [encoder endEncoding];
    [encoder pushDebugGroup:@"late"];
    CHECK(statistics().late_nothing == nothing + 2);
    gpu.run(buffer);
  }
  CHECK(gpu.value() == 4);
}
