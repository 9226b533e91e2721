// kernel_table.h: every kernel of the driver as a function of the host.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "base/clock.h"
#include "drivers/cuda/kernels/block.h"

namespace heddle::cuda_double {

using RunKernel = void (*)(const void* params, cuda::HostBlock& block);
struct HostKernel {
  const char* name;  // the image's: "heddle_" and that of list.inc
  size_t params_bytes;
  int most_threads;        // of a block
  int cluster;             // blocks of one
  RunKernel run;           // null: it is in another share
  bool everywhere = true;  // as the driver's Kernel
};
// All kernels, with those that kernel_share.cpp was compiled for (HEDDLE_KERNEL_SHARE).
inline constexpr size_t kKernelShares = HEDDLE_KERNEL_SHARES;
template <size_t Share>
std::span<const HostKernel> kernels_with_share();

struct LoadedKernel {  // what a CUfunction names
  const HostKernel* kernel = nullptr;
  int device = 0;  // of the context whose module it is of
};
const LoadedKernel* find_kernel(std::string_view symbol, int device);  // null: there is none

// By blas_lt_clock().
void spend(Duration time);
void spend_time_of(const HostKernel& kernel);

}  // namespace heddle::cuda_double
