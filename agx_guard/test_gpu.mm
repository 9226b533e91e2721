#include "test_gpu.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <cstdio>

namespace agx_guard_test {

Gpu::Gpu()
    : device(MTLCreateSystemDefaultDevice()),
      queue([device newCommandQueue]),
      pipeline([device newComputePipelineStateWithFunction:(id)device error:nullptr]),
      target([device newBufferWithLength:64 options:MTLResourceStorageModeShared]),
      fence([device newFence]) {
  agx_double_set(AGX_DOUBLE_VARIANT, 0);
}

Gpu::~Gpu() {
  drain();
  [fence release];
  [target release];
  [pipeline release];
  [queue release];
  [device release];
}

void Gpu::encode_add(id<MTLComputeCommandEncoder> encoder, int step) {
  [encoder setComputePipelineState:pipeline];
  [encoder setBuffer:target offset:0 atIndex:0];
  [encoder setBytes:&step length:sizeof step atIndex:1];
  [encoder dispatchThreads:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
}

void Gpu::run(id<MTLCommandBuffer> buffer) {
  [buffer commit];
  [buffer waitUntilCompleted];
}

void Gpu::drain() {
  @autoreleasepool {
    run([queue commandBuffer]);
  }
}

agx_guard_statistics statistics() {
  agx_guard_statistics read{};
  agx_guard_read(&read, sizeof read);
  return read;
}

std::string report() {
  std::string text(agx_guard_report(nullptr, 0) + 1, '\0');
  text.resize(agx_guard_report(text.data(), text.size()));
  return text;
}

agx_double_counts counts() {
  agx_double_counts read{};
  agx_double_read(&read);
  return read;
}

std::string folder() {
  Dl_info info{};
  dladdr(reinterpret_cast<void*>(&agx_guard_read), &info);
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/') + 1);
}

Child run_child(const std::string& environment, const std::string& command, bool guarded) {
  // The time limit comes first: an instrumented library may not be preloaded into programs of the system.
  std::string line =
      "ulimit -c 0; timeout -s KILL 60 env -u AGX_GUARD_RECENT -u AGX_GUARD_WARN_MS " + environment;
  // A sanitizer reports a crash better than the stress does; a report of leaks would start the symbolizer
  // with the guard preloaded, and it cannot bear that.
  if (kSanitized) line += " STRESS_NO_HANDLER=1 ASAN_OPTIONS=\"$ASAN_OPTIONS:detect_leaks=0\"";
  if (guarded) line += " LD_PRELOAD=" + folder() + "libagx_guard.so";
  line += " " + command + " 2>&1";
  Child child{};
  FILE* const pipe = popen(line.c_str(), "r");
  char text[4096];
  while (const size_t size = fread(text, 1, sizeof text, pipe)) child.output.append(text, size);
  const int status = pclose(pipe);
  child.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return child;
}

const std::vector<Factory>& factories() {
  static const std::vector<Factory> all = {
      {"computeCommandEncoder", [](id<MTLCommandBuffer> b) -> id { return [b computeCommandEncoder]; }},
      {"computeCommandEncoderWithDispatchType:",
       [](id<MTLCommandBuffer> b) -> id {
         return [b computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
       }},
      {"computeCommandEncoderWithDescriptor:",
       [](id<MTLCommandBuffer> b) -> id { return [b computeCommandEncoderWithDescriptor:(id)b]; }},
      {"blitCommandEncoder", [](id<MTLCommandBuffer> b) -> id { return [b blitCommandEncoder]; }},
      {"blitCommandEncoderWithDescriptor:",
       [](id<MTLCommandBuffer> b) -> id { return [b blitCommandEncoderWithDescriptor:(id)b]; }},
      {"renderCommandEncoderWithDescriptor:",
       [](id<MTLCommandBuffer> b) -> id { return [b renderCommandEncoderWithDescriptor:(id)b]; }},
      {"parallelRenderCommandEncoderWithDescriptor:",
       [](id<MTLCommandBuffer> b) -> id { return [b parallelRenderCommandEncoderWithDescriptor:(id)b]; }},
      {"resourceStateCommandEncoder",
       [](id<MTLCommandBuffer> b) -> id { return [b resourceStateCommandEncoder]; }},
      {"resourceStateCommandEncoderWithDescriptor:",
       [](id<MTLCommandBuffer> b) -> id { return [b resourceStateCommandEncoderWithDescriptor:(id)b]; }},
      {"accelerationStructureCommandEncoder",
       [](id<MTLCommandBuffer> b) -> id { return [b accelerationStructureCommandEncoder]; }},
      {"accelerationStructureCommandEncoderWithDescriptor:",
       [](id<MTLCommandBuffer> b) -> id {
         return [b accelerationStructureCommandEncoderWithDescriptor:(id)b];
       }},
  };
  return all;
}

}  // namespace agx_guard_test
