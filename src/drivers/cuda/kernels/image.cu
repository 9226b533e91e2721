// image.cu: every kernel as a function of the GPU; nvcc makes the image of it that the driver loads.
#include "drivers/cuda/kernels/all.h"

#define HEDDLE_KERNEL(name, ...)                                                            \
  extern "C" __global__ void __launch_bounds__(heddle::cuda::most_threads<__VA_ARGS__>(),   \
                                               heddle::cuda::blocks_at_once<__VA_ARGS__>()) \
      heddle_##name(const __grid_constant__ __VA_ARGS__ kernel) {                           \
    heddle::cuda::GpuBlock block;                                                           \
    heddle::cuda::start(kernel, block);                                                     \
  }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define HEDDLE_TENSOR_KERNEL(name, ...)  // a driver that takes code for older GPUs finds none of these
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
// Never launched: the driver asks what the code was compiled for.
#define HEDDLE_CLUSTER_KERNEL(name, ...) \
  extern "C" __global__ void heddle_##name(const __grid_constant__ __VA_ARGS__ kernel) {}
#else
#define HEDDLE_CLUSTER_KERNEL(name, ...)                                                     \
  extern "C" __global__ void __cluster_dims__(heddle::cuda::cluster_of<__VA_ARGS__>(), 1, 1) \
      __launch_bounds__(heddle::cuda::most_threads<__VA_ARGS__>(),                           \
                        heddle::cuda::blocks_at_once<__VA_ARGS__>())                         \
          heddle_##name(const __grid_constant__ __VA_ARGS__ kernel) {                        \
    heddle::cuda::GpuBlock block;                                                            \
    heddle::cuda::start(kernel, block);                                                      \
  }
#endif
using namespace heddle::cuda;  // NOLINT: the list names structs
#include "drivers/cuda/kernels/list.inc"
