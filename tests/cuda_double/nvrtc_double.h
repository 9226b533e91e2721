// nvrtc_double.h: an NVRTC that compiles chains for the host, by the compiler that compiled this.
//
//   What       Its code names a shared object, which the double's cuModuleLoadData loads. What was compiled
//              once lies in the build folder, for other tests.
//   Checks     It ends the process where a source is compiled for another architecture than the double's GPU.
//   Faults     Call::kCompile of faults.h, with NVRTC's codes.
//   Threads    Any.
#pragma once

#include <string>
#include <vector>

#include "drivers/cuda/libraries/nvrtc_api.h"

namespace heddle::cuda_double {

const cuda::NvrtcApi& nvrtc();
int compiled_so_far();  // sources that it was asked to compile, and did not refuse

// While it lives, sources are refused for want of memory and kept. compile() then compiles all of them at
// once, which takes a small part of the time that one by one take.
class GatheredChains {
 public:
  GatheredChains();
  ~GatheredChains();
  GatheredChains(const GatheredChains&) = delete;
  GatheredChains& operator=(const GatheredChains&) = delete;
  void compile();
  std::vector<std::string> sources() const;
};

// The kernel of such a code, by cuModuleLoadData; null: it is none.
struct HostKernel;
const HostKernel* load_chain(const void* code);

}  // namespace heddle::cuda_double
