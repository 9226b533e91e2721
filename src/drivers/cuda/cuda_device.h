// cuda_device.h: an NVIDIA GPU.
//
//   Threads    Any.
//   Blocks     make_cuda_device(): as long as CUDA needs to make a context and load the kernels.
//   Errors     unavailable, naming the file or the version that is missing: no driver, one too old, no GPU, a
//              build without the kernels' image. unsupported: a GPU before compute capability 7.0. invalid:
//              a file of kernels that cannot be read.
#pragma once

#include "device/device.h"
#include "drivers/cuda/libraries/blas_lt.h"
#include "drivers/cuda/libraries/cudnn.h"
#include "drivers/cuda/libraries/nvrtc_api.h"

namespace heddle::cuda {

struct CudaOptions {
  int ordinal = 0;
  const DriverApi* api = nullptr;  // null: NVIDIA's; tests give the double's
  const void* image = nullptr;     // null: image_file's
  std::string image_file = {};     // "": the image that was built in
  // null: NVIDIA's, where it is found and `api` is NVIDIA's too; else products are the kernels' alone.
  const BlasLtApi* blas = nullptr;
  const CudnnApi* cudnn = nullptr;                // likewise, of convolutions
  const NvrtcApi* nvrtc = nullptr;                // likewise; without it chains are interpreted
  bool compiles_chains = true;                    // false: they are interpreted anyway
  std::vector<std::string> library_folders = {};  // where NVIDIA's libraries are looked for first
  LibraryTuning tuning = {};                      // how algorithms are chosen, and kept
  int lookers = 0;                                // callers that look for a while before they sleep
  uint64_t graph_bytes = uint64_t{64} << 20;      // of graphs to keep (graphs.h); 0: none is made
  // Graphs of programs that call a library are made also where others of the process use CUDA.
  bool capture_beside_others = false;
  bool (*others_use_cuda)() = runtime_is_loaded;  // tests say
};

Result<Ref<device::Device>> make_cuda_device(const CudaOptions& options = {});

// ok where a device can be looked for: the driver's library is there, and so are kernels. Starts nothing of
// CUDA's, so that a process which only asks may fork.
Status check_installed(const CudaOptions& options = {});

// How many the driver knows, which starts.
Result<int> count_devices(const CudaOptions& options = {});

// The kernels for GPUs that nvcc made; null in a build without nvcc.
const void* built_in_image();

}  // namespace heddle::cuda
