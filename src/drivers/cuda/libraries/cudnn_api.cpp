#include "drivers/cuda/libraries/cudnn_api.h"

#include <dlfcn.h>

namespace heddle::cuda {

Result<CudnnApi> load_cudnn(const FoundLibrary& library) {
  CudnnApi api;
  Status missing;
  const auto find = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library.handle, symbol));
    if (function == nullptr && missing.ok())
      missing = Status::unavailable(library.file, " has no ", symbol, ": it is not the cuDNN of version 9");
  };
  find(api.version, "cudnnGetVersion");
  find(api.error_text, "cudnnGetErrorString");
#define HEDDLE_CUDNN_LOAD(member, symbol, arguments) find(api.member, symbol);
  HEDDLE_CUDNN_FUNCTIONS(HEDDLE_CUDNN_LOAD)
#undef HEDDLE_CUDNN_LOAD
  if (!missing.ok()) return missing;
  return api;
}

}  // namespace heddle::cuda
