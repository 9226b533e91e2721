// test_gpu.h: what the guard's tests share: a device of the AGX double, the guard's numbers, child processes.
#pragma once

#import <Metal/Metal.h>

#include "agx_guard.h"
#include "tests/metal_double/agx/agx_double.h"

#include <string>
#include <vector>

namespace agx_guard_test {

struct Gpu {
  Gpu();
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  // Adds to the int in `target` on the GPU, when all of it is encoded.
  void encode_add(id<MTLComputeCommandEncoder> encoder, int step);
  void run(id<MTLCommandBuffer> buffer);  // commits and waits
  void drain();                           // until all of the queue has run
  int value() const { return *static_cast<int*>([target contents]); }

  id<MTLDevice> device;
  id<MTLCommandQueue> queue;
  id<MTLComputePipelineState> pipeline;
  id<MTLBuffer> target;
  id<MTLFence> fence;
};

agx_guard_statistics statistics();
std::string report();
agx_double_counts counts();

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define AGX_GUARD_SANITIZED 1
#endif
#endif
#ifdef AGX_GUARD_SANITIZED
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

struct Child {
  int status;  // 128 + signal after a signal
  std::string output;
};
// Runs `command` with `environment` ("A=1 B=2") and the guard inserted when asked.
Child run_child(const std::string& environment, const std::string& command, bool guarded);

// Where the guard, its stress and its bench lie.
std::string folder();

// A method of each kind of encoder that does work on `target`, and how it is made.
struct Factory {
  const char* name;
  id (*make)(id<MTLCommandBuffer> buffer);
};
const std::vector<Factory>& factories();

}  // namespace agx_guard_test
