// Installing, classes that come late, uncommitted buffers, and the environment's switches.
#include "test_gpu.h"

#include <doctest/doctest.h>
#include <objc/runtime.h>

using namespace agx_guard_test;

namespace {

IMP implementation(const char* owner, const char* selector) {
  return class_getMethodImplementation((Class)objc_lookUpClass(owner), sel_registerName(selector));
}

void do_nothing(id, SEL) {}

}  // namespace

TEST_CASE("a subclass that calls super reaches each original once") {
  Gpu gpu;
  agx_double_set(AGX_DOUBLE_VARIANT, 1);
  @autoreleasepool {
    const id<MTLCommandBuffer> buffer = [gpu.queue commandBuffer];
    const id<MTLComputeCommandEncoder> encoder = [buffer computeCommandEncoder];
    REQUIRE(std::string(class_getName(object_getClass(encoder))) == "AGXG16XFamilyComputeContext_mtlnext");
    const uint64_t calls = statistics().calls;
    gpu.encode_add(encoder, 6);
    [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(2, 1, 1)];
    CHECK(statistics().calls == calls + 5);  // nested calls are part of the call they are in
    [encoder endEncoding];
    gpu.run(buffer);
  }
  CHECK(gpu.value() == 18);
}

TEST_CASE("a class that is made after the guard was installed is guarded with its first encoder") {
  Gpu gpu;
  agx_double_set(AGX_DOUBLE_VARIANT, 2);
  @autoreleasepool {
    const id<MTLCommandBuffer> buffer = [gpu.queue commandBuffer];
    const id<MTLComputeCommandEncoder> encoder = [buffer computeCommandEncoder];
    CHECK(report().find("-[AGXG17XFamilyComputeContext dispatchThreads:threadsPerThreadgroup:]") !=
          std::string::npos);
    gpu.encode_add(encoder, 6);
    [encoder endEncoding];
    gpu.encode_add(encoder, 1);
    gpu.run(buffer);
  }
  gpu.drain();
  CHECK(gpu.value() == 7);
}

TEST_CASE("an encoder that a parallel render encoder makes belongs to the same command buffer") {
  Gpu gpu;
  @autoreleasepool {
    const agx_guard_statistics before = statistics();
    const id<MTLCommandBuffer> buffer = [gpu.queue commandBuffer];
    const id<MTLParallelRenderCommandEncoder> parallel =
        [buffer parallelRenderCommandEncoderWithDescriptor:(id)buffer];
    for (int i = 0; i < 2; ++i) {
      @autoreleasepool {
        const id<MTLRenderCommandEncoder> child = [parallel renderCommandEncoder];
        [child setVertexBuffer:gpu.target offset:0 atIndex:0];
        [child drawPrimitives:MTLPrimitiveTypePoint vertexStart:0 vertexCount:8];
        [child endEncoding];
      }
    }
    [parallel endEncoding];
    CHECK(statistics().encoders_made_parallel == before.encoders_made_parallel + 2);
    CHECK(statistics().encoders_made == before.encoders_made + 3);
    CHECK(statistics().encoders_kept >= 3);
    gpu.run(buffer);
  }
  CHECK(gpu.value() == 16);
}

TEST_CASE("uncommitted buffers do not use up the queue") {
  Gpu gpu;
  const agx_guard_statistics before = statistics();
  for (int i = 0; i < 200; ++i) {  // the queue has 64
    @autoreleasepool {
      const id<MTLComputeCommandEncoder> encoder = [[gpu.queue commandBuffer] computeCommandEncoder];
      gpu.encode_add(encoder, 1);
      [encoder endEncoding];
    }
  }
  CHECK(statistics().buffers_abandoned - before.buffers_abandoned >= 200 - 64);
  CHECK(counts().live_command_buffers < 64);
  gpu.drain();
  CHECK(gpu.value() == 0);
}

TEST_CASE("uninstalling puts the originals back and installing again guards again") {
  Gpu gpu;
  const char* const owner = "AGXG16XFamilyComputeContext";
  const char* const selector = "setComputePipelineState:";
  const IMP hooked = implementation(owner, selector);
  REQUIRE(agx_guard_uninstall() == AGX_GUARD_INSTALLED);
  const IMP original = implementation(owner, selector);
  CHECK((original != hooked));
  CHECK(agx_guard_uninstall() == AGX_GUARD_NOT_INSTALLED);
  CHECK(agx_guard_is_active() == 0);
  CHECK(statistics().encoders_tracked == 0);
  CHECK(statistics().encoders_kept == 0);
  @autoreleasepool {
    const uint64_t calls = statistics().calls;
    const id<MTLCommandBuffer> buffer = [gpu.queue commandBuffer];
    const id<MTLComputeCommandEncoder> encoder = [buffer computeCommandEncoder];
    gpu.encode_add(encoder, 2);
    CHECK(statistics().calls == calls);
    CHECK(agx_guard_install() == AGX_GUARD_INSTALLED);
    CHECK((implementation(owner, selector) == hooked));
    const uint64_t adopted = statistics().encoders_adopted;
    gpu.encode_add(encoder, 3);  // made before: unknown, and neither dropped nor refused
    CHECK(statistics().encoders_adopted == adopted + 1);
    [encoder endEncoding];
    gpu.run(buffer);
  }
  CHECK(gpu.value() == 5);
}

TEST_CASE("a method that someone else has replaced since is found, and left to them when uninstalling") {
  Gpu gpu;
  const Class owner = (Class)objc_lookUpClass("AGXG16XFamilyComputeContext");
  const Method method = class_getInstanceMethod(owner, sel_registerName("memoryBarrierWithScope:"));
  const IMP hooked = method_setImplementation(method, reinterpret_cast<IMP>(do_nothing));
  CHECK(agx_guard_verify() == 1);
  CHECK(agx_guard_uninstall() == AGX_GUARD_INSTALLED);
  CHECK((method_getImplementation(method) == reinterpret_cast<IMP>(do_nothing)));
  CHECK(agx_guard_install() == AGX_GUARD_INSTALLED);
  CHECK((method_getImplementation(method) == hooked));
  CHECK(agx_guard_verify() == 0);
}

TEST_CASE("the numbers add up over one buffer's life") {
  Gpu gpu;
  const agx_guard_statistics before = statistics();
  @autoreleasepool {
    const id<MTLCommandBuffer> buffer = [gpu.queue commandBuffer];
    const id<MTLComputeCommandEncoder> encoder = [buffer computeCommandEncoder];
    CHECK(statistics().encoders_open == before.encoders_open + 1);
    gpu.encode_add(encoder, 1);
    [encoder endEncoding];
    CHECK(statistics().encoders_open == before.encoders_open);
    gpu.run(buffer);
  }
  const agx_guard_statistics after = statistics();
  CHECK(after.size == sizeof after);
  CHECK(after.calls == before.calls + 5);
  CHECK(after.lock_acquisitions == after.calls);
  CHECK(after.encoders_made == before.encoders_made + 1);
  CHECK(after.buffers_made == before.buffers_made + 1);
  CHECK(after.buffers_committed == before.buffers_committed + 1);
  CHECK(after.buffers_committed_open == before.buffers_committed_open);
  CHECK(after.encoders_kept_past_completion == before.encoders_kept_past_completion + 1);
  agx_guard_statistics part{};
  agx_guard_read(&part, 2 * sizeof(uint64_t));  // an older caller's struct
  CHECK(part.active == 1);
  CHECK(part.calls == 0);
}

TEST_CASE("AGX_GUARD=off leaves everything as it is, AGX_GUARD_VERBOSE says what is guarded") {
  const std::string stress = folder() + "agx_guard_stress null 1 20";
  const Child off = run_child("AGX_GUARD=off AGX_GUARD_VERBOSE=1", stress, true);
  CHECK(off.output.find("agx_guard:") == std::string::npos);
  CHECK(off.output.find("guard=on") == std::string::npos);
  const Child on = run_child("AGX_GUARD_VERBOSE=1", stress, true);
  INFO(on.output);
  CHECK(on.status == 0);
  CHECK(on.output.find("agx_guard: guarded class AGXG16XFamilyComputeContext\n") != std::string::npos);
  CHECK(on.output.find("guard=on ADDS UP") != std::string::npos);
  const Child odd = run_child("AGX_GUARD_WARN_MS=soon AGX_GUARD_WITHOUT=luck", stress, true);
  CHECK(odd.output.find("AGX_GUARD_WARN_MS=soon is not a number") != std::string::npos);
  CHECK(odd.output.find("only originals, keep and order can be left out") != std::string::npos);
}

TEST_CASE("AGX_GUARD_REPORT writes the report when the process exits") {
  const std::string file = folder() + "report_of_test.json";
  const Child child = run_child("AGX_GUARD_REPORT=" + file, folder() + "agx_guard_stress null 1 20", true);
  REQUIRE(child.status == 0);
  FILE* const written = fopen(file.c_str(), "r");
  REQUIRE(written);
  std::string text(1 << 16, '\0');
  text.resize(fread(text.data(), 1, text.size(), written));
  fclose(written);
  remove(file.c_str());
  CHECK(text.find("\"active\": 1") != std::string::npos);
  CHECK(text.find("\"calls_dropped\": 0") != std::string::npos);
}
