// in_its_place.h: what the double's libcuda.so.1 exports for its libcublasLt.so.13 and libnvrtc.so.13, beside
// NVIDIA's names.
//
//   Threads    Any.
#pragma once

#include "drivers/cuda/libraries/blas_lt_api.h"
#include "drivers/cuda/libraries/nvrtc_api.h"

extern "C" __attribute__((visibility("default"))) const heddle::cuda::BlasLtApi* heddle_double_blas_lt();
extern "C" __attribute__((visibility("default"))) const heddle::cuda::NvrtcApi* heddle_double_nvrtc();
