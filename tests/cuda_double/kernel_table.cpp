#include "tests/cuda_double/kernel_table.h"

#include <array>

#include "drivers/cuda/kernels/all.h"
#include "tests/cuda_double/contexts.h"

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

using Loaded = std::array<LoadedKernel, std::size(kAll)>;
constexpr Loaded loaded_on(int device) {
  Loaded all{};
  for (size_t i = 0; i < all.size(); ++i) all[i] = {&kAll[i], device};
  return all;
}
constexpr std::array<Loaded, kMostDevices> kLoaded = {loaded_on(0), loaded_on(1)};

}  // namespace

const LoadedKernel* find_kernel(std::string_view symbol, int device) {
  for (const LoadedKernel& each : kLoaded[static_cast<size_t>(device)]) {
    if (each.kernel->name == symbol) return &each;
  }
  return nullptr;
}

}  // namespace heddle::cuda_double
