#include "drivers/cuda/libraries/nvrtc_api.h"

#include <dlfcn.h>

#include <filesystem>

namespace heddle::cuda {
namespace {

// Where it is not there, NVRTC says so when it compiles.
void load_builtins(const NvrtcApi& api) {
  int major = 0, minor = 0;
  if (api.version(&major, &minor) != kNvrtcSuccess) return;
  const std::filesystem::path folder =
      std::filesystem::path(file_of(reinterpret_cast<const void*>(api.version))).parent_path();
  const std::string file = (folder / text("libnvrtc-builtins.so.", major, '.', minor)).string();
  dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
}

}  // namespace

Result<NvrtcApi> load_nvrtc(const FoundLibrary& library) {
  NvrtcApi api;
#define HEDDLE_NVRTC_LOAD(member, symbol, arguments)                                                        \
  api.member = reinterpret_cast<decltype(api.member)>(dlsym(library.handle, symbol));                       \
  if (api.member == nullptr) {                                                                              \
    return Status::unavailable(library.file, " has no ", symbol, ": it is not the NVRTC of CUDA 12 or 13"); \
  }
  HEDDLE_NVRTC_FUNCTIONS(HEDDLE_NVRTC_LOAD)
#undef HEDDLE_NVRTC_LOAD
  load_builtins(api);
  return api;
}

}  // namespace heddle::cuda
