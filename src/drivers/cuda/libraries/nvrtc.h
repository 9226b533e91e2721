// nvrtc.h: sources to code for one GPU, by NVRTC.
//
//   Threads    Any; several compile beside each other.
//   Blocks     compile(): a chain takes it two to four tenths of a second.
//   Errors     exhausted: NVRTC has no memory. internal: what it says of the source, or of itself.
#pragma once

#include <string>

#include "drivers/cuda/libraries/nvrtc_api.h"

namespace heddle::cuda {

class Nvrtc {
 public:
  // `capability`: the GPU's, as 90 of 9.0.
  static Result<Nvrtc> make(const NvrtcApi& api, int capability);

  const std::string& version() const { return version_; }
  // What decides the code beside the source: NVRTC, its options with the GPU's architecture, our headers.
  std::string identity() const;
  Result<std::string> compile(const std::string& source) const;

 private:
  Nvrtc(const NvrtcApi& api, int capability, std::string version)
      : api_(api), architecture_(text("--gpu-architecture=sm_", capability)), version_(std::move(version)) {}
  Status check(NvrtcCode code, std::string_view what) const;
  std::string first_of_log(NvrtcProgram program) const;

  NvrtcApi api_;
  std::string architecture_, version_;
};

}  // namespace heddle::cuda
