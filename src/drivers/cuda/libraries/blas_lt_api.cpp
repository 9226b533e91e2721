#include "drivers/cuda/libraries/blas_lt_api.h"

#include <dlfcn.h>

namespace heddle::cuda {

Result<BlasLtApi> load_blas_lt(const FoundLibrary& library) {
  BlasLtApi api;
  const auto missing = [&](const char* symbol) {
    return Status::unavailable(library.file, " has no ", symbol, ": it is not the cuBLASLt of CUDA 12 or 13");
  };
  api.version = reinterpret_cast<decltype(api.version)>(dlsym(library.handle, "cublasLtGetVersion"));
  if (api.version == nullptr) return missing("cublasLtGetVersion");
#define HEDDLE_BLAS_LT_LOAD(member, symbol, arguments)                                \
  api.member = reinterpret_cast<decltype(api.member)>(dlsym(library.handle, symbol)); \
  if (api.member == nullptr) return missing(symbol);
  HEDDLE_BLAS_LT_FUNCTIONS(HEDDLE_BLAS_LT_LOAD)
#undef HEDDLE_BLAS_LT_LOAD
  return api;
}

}  // namespace heddle::cuda
