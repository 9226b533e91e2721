// cuda_device.h: an NVIDIA GPU.
//
//   Threads    Any.
//   Blocks     make_cuda_device(): as long as CUDA needs to make a context and load the kernels.
//   Errors     unavailable, naming the file or the version that is missing: no driver, one too old, no GPU, a
//              build without the kernels' image. unsupported: a GPU before compute capability 7.0.
#pragma once

#include "device/device.h"
#include "drivers/cuda/driver/driver_api.h"

namespace heddle::cuda {

struct CudaOptions {
  int ordinal = 0;
  const DriverApi* api = nullptr;  // null: NVIDIA's; tests give the double's
  const void* image = nullptr;     // null: the one that was built in
};

Result<Ref<device::Device>> make_cuda_device(const CudaOptions& options = {});

// The kernels for GPUs that nvcc made; null in a build without nvcc.
const void* built_in_image();

}  // namespace heddle::cuda
