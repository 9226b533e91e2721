#include "tests/cuda_double/kernel_table.h"

#include "drivers/cuda/kernels/all.h"

namespace heddle::cuda_double {
namespace {

using namespace cuda;  // NOLINT: the list names structs

template <class K>
void run(const void* params, HostBlock& block) {
  (*static_cast<const K*>(params))(block);
}

constexpr HostKernel kAll[] = {
#define HEDDLE_KERNEL(name, ...) \
  {"heddle_" #name, sizeof(__VA_ARGS__), most_threads<__VA_ARGS__>(), run<__VA_ARGS__>},
#include "drivers/cuda/kernels/list.inc"
};

}  // namespace

const HostKernel* find_kernel(std::string_view symbol) {
  for (const HostKernel& kernel : kAll) {
    if (kernel.name == symbol) return &kernel;
  }
  return nullptr;
}

}  // namespace heddle::cuda_double
