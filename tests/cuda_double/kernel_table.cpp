#include "tests/cuda_double/kernel_table.h"

#include <array>
#include <utility>
#include <vector>

#include "tests/cuda_double/contexts.h"

namespace heddle::cuda_double {
namespace {

using Loaded = std::array<std::vector<LoadedKernel>, kMostDevices>;

template <size_t... Shares>
Loaded load_all(std::index_sequence<Shares...>) {
  Loaded all;
  const auto load = [&](std::span<const HostKernel> share) {
    for (const HostKernel& each : share) {
      for (int device = 0; each.run != nullptr && device < kMostDevices; ++device)
        all[static_cast<size_t>(device)].push_back({&each, device});
    }
  };
  (load(kernels_with_share<Shares>()), ...);
  return all;
}

}  // namespace

const LoadedKernel* find_kernel(std::string_view symbol, int device) {
  static const auto* const loaded = new Loaded(load_all(std::make_index_sequence<kKernelShares>()));
  for (const LoadedKernel& each : (*loaded)[static_cast<size_t>(device)]) {
    if (each.kernel->name == symbol) return &each;
  }
  return nullptr;
}

}  // namespace heddle::cuda_double
