// The kernels' image of a build with nvcc, as cmake/HeddleCuda.cmake has it made.
#include "drivers/cuda/cuda_device.h"

#if defined(HEDDLE_CUDA_IMAGE)
asm(".pushsection .rodata\n"
    ".balign 64\n"
    ".hidden heddle_cuda_image\n"
    ".globl heddle_cuda_image\n"
    "heddle_cuda_image:\n"
    ".incbin \"" HEDDLE_CUDA_IMAGE
    "\"\n"
    ".popsection\n");
extern "C" const unsigned char heddle_cuda_image[];
#endif

namespace heddle::cuda {

const void* built_in_image() {
#if defined(HEDDLE_CUDA_IMAGE)
  return heddle_cuda_image;
#else
  return nullptr;
#endif
}

}  // namespace heddle::cuda
