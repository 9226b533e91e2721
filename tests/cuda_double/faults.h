// faults.h: what CUDA may answer when the machine, or another program on the GPU, fails; on request of tests.
//
//   Threads    Any.
#pragma once

#include "drivers/cuda/driver/driver_api.h"

namespace heddle::cuda_double {

enum class Call {
  kAllocate,
  kPin,
  kFree,
  kTrim,
  kLaunch,
  kEarlyLaunch,  // of them those that may begin before the one in front has ended
  kCopy,
  kWrite,
  kQuery,
  kSynchronize,
  kNode,
  kEdge,
  kInstantiate,
  kSetKernel,
  kGraphLaunch,
  kBeginCapture,
  kEndCapture,
  kLoadModule,
  kCompile,  // NVRTC's
  kCount
};

// After `after` more calls of the kind, `times` of them answer `code`; one that ends the context does.
void refuse(Call call, cuda::Code code, int after, int times);
// A kernel of anybody did what ends the device's context: its streams do nothing more, every call in it
// answers `code`, and nothing is freed, since a command that a stream has begun may use it.
void lose_context(cuda::Code code, int device = 0);
void forget_faults();  // all of the above

int calls_of(Call call);           // since forget_faults()
cuda::Code fails(Call call);       // by the functions of the double: counts, and says what to answer
bool is_context_lost(int device);  // streams ask it before each command

}  // namespace heddle::cuda_double
