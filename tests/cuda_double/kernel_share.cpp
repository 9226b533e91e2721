// kernel_share.cpp: compiled once for each share of the kernels, so that several processors do it.
#include <cstddef>
#include <iterator>

#include "drivers/cuda/kernels/all.h"
#include "tests/cuda_double/kernel_table.h"

namespace heddle::cuda_double {
namespace {

using namespace cuda;  // NOLINT: the list names structs

template <class K>
void run(const void* params, HostBlock& block) {
  start(*static_cast<const K*>(params), block);
}

constexpr int kFirst = __COUNTER__ + 1;
// In turn: kernels of one family, which take about as long to compile, are spread over all shares.
template <int Number, class K>
constexpr RunKernel run_in_share() {
  if constexpr (Number % kKernelShares == HEDDLE_KERNEL_SHARE) {
    return run<K>;
  } else {
    return nullptr;
  }
}

constexpr HostKernel kAll[] = {
#define HEDDLE_KERNEL(name, ...)                      \
  {"heddle_" #name,                                   \
   sizeof(__VA_ARGS__),                               \
   most_threads<__VA_ARGS__>(),                       \
   cluster_of<__VA_ARGS__>(),                         \
   run_in_share<__COUNTER__ - kFirst, __VA_ARGS__>(), \
   is_everywhere<__VA_ARGS__>()},
#include "drivers/cuda/kernels/list.inc"
};

}  // namespace

template <>
std::span<const HostKernel> kernels_with_share<HEDDLE_KERNEL_SHARE>() {
  return kAll;
}

}  // namespace heddle::cuda_double
