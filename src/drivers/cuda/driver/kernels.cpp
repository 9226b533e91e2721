#include "drivers/cuda/driver/kernels.h"

#include "drivers/cuda/kernels/all.h"

namespace heddle::cuda {
namespace {

constexpr Kernel kAll[] = {
#define HEDDLE_KERNEL(name, ...) \
  {#name, sizeof(__VA_ARGS__), cluster_of<__VA_ARGS__>(), is_everywhere<__VA_ARGS__>()},
#include "drivers/cuda/kernels/list.inc"
};

}  // namespace

Result<Kernels> Kernels::load(const DriverApi& api, const void* image) {
  Kernels kernels;
  HEDDLE_TRY(status_of(api, api.module_load(&kernels.module_, image), "cuModuleLoadData of the kernels"));
  for (const Kernel& kernel : kAll) {
    Kernel found = kernel;
    const std::string symbol = text("heddle_", kernel.name);
    const Code code = api.module_function(&found.function, kernels.module_, symbol.c_str());
    if (code == kNotFound && !kernel.everywhere) continue;
    if (code != kSuccess) {
      api.module_unload(kernels.module_);
      return status_of(api, code, symbol);
    }
    // Intermediate code of older GPUs has none, whatever this one is; nor does a driver before 11.8.
    int cluster = 1;
    kernels.clusters_ =
        kernels.clusters_ && (kernel.cluster == 1 ||
                              (api.function_attribute(&cluster, kClusterOfCode, found.function) == kSuccess &&
                               cluster == kernel.cluster));
    kernels.by_name_.emplace(kernel.name, found);
  }
  kernels.moves_ = {kernels.find("move_1"), kernels.find("move_2"), kernels.find("move_4"),
                    kernels.find("move_8")};
  kernels.pause_ = kernels.find("pause");
  kernels.copy_and_tell_ = kernels.find("copy_and_tell");
  return kernels;
}

const Kernel* Kernels::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &found->second;
}

}  // namespace heddle::cuda
