// compiled_kernels.h: kernels that are compiled while programs are made, for one device.
//
//   What       find() gives the kernel heddle_chain of a source. NVRTC compiles it once, however many ask;
//              other processes take the code from a file (kernel_files.h). Whoever gets none runs the
//              interpreter (kernels/chain.h), which gives the same bits.
//   Errors     Those by which the device is lost. Others are told to `warn`, the first of them; a source that
//              NVRTC does not take is not tried again.
//   Limits     kMost kernels: they stay loaded for as long as the device, since graphs may name them.
//   Threads    Any.
//   Blocks     find(): as long as NVRTC compiles. Never on the way of a run.
#pragma once

#include "base/once_map.h"
#include "drivers/cuda/driver/open_device.h"
#include "drivers/cuda/libraries/algorithm_store.h"
#include "drivers/cuda/libraries/kernel_files.h"
#include "drivers/cuda/libraries/library_call.h"
#include "drivers/cuda/libraries/nvrtc.h"

namespace heddle::cuda {

class CompiledKernels {
 public:
  static constexpr size_t kMost = 1024;

  struct Found {
    const Kernel* kernel = nullptr;  // lives as long as this
    const char* why = "";            // there is none
  };

  // `api`: or why there is none.
  CompiledKernels(const Result<NvrtcApi>& api, Ref<const OpenDevice> device, const LibraryTuning& tuning);
  CompiledKernels(const CompiledKernels&) = delete;
  CompiledKernels& operator=(const CompiledKernels&) = delete;

  // `name`: for people; it stays with the kernel.
  Result<Found> find(const char* name, const std::string& source, size_t params_bytes) const;

  const Result<Nvrtc>& nvrtc() const { return nvrtc_; }
  std::string describe_files() const { return files_.describe(); }

 private:
  // A kernel, or why NVRTC takes no such source.
  struct Compiled {
    Kernel kernel;
    Status refused;
  };
  Result<Ref<const Compiled>> make(const Kernel& as, const std::string& source) const;
  Status load(const std::string& code, Kernel& kernel) const;

  const Result<Nvrtc> nvrtc_;
  const Ref<const OpenDevice> device_;
  const KernelFiles files_;
  const Trouble trouble_;
  mutable OnceMap<std::string, Compiled> kernels_;
};

}  // namespace heddle::cuda
