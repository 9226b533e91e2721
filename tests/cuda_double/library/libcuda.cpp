// The double as libcuda.so.1: what NVIDIA's library exports of which drivers/cuda finds the rest.
#include <string_view>

#include "tests/cuda_double/cuda_double.h"
#include "tests/cuda_double/faults.h"
#include "tests/cuda_double/library/in_its_place.h"
#include "tests/cuda_double/nvrtc_double.h"

const heddle::cuda::BlasLtApi* heddle_double_blas_lt() { return &heddle::cuda_double::blas_lt(); }
const heddle::cuda::NvrtcApi* heddle_double_nvrtc() { return &heddle::cuda_double::nvrtc(); }

extern "C" __attribute__((visibility("default"))) heddle::cuda::Code cuGetProcAddress_v2(const char* name,
                                                                                         void** function,
                                                                                         int version,
                                                                                         uint64_t, int*) {
  using namespace heddle;  // NOLINT: the list names types of cuda
  using namespace cuda;    // NOLINT
  *function = nullptr;
  if (version != kInterface && version != kNewerInterface) return kInvalidValue;
  const DriverApi& api = cuda_double::api();
#define HEDDLE_CUDA_FIND(member, symbol, arguments) \
  if (std::string_view(name) == symbol) *function = reinterpret_cast<void*>(api.member);
  if (version == kInterface) {
    HEDDLE_CUDA_FUNCTIONS(HEDDLE_CUDA_FIND)
  } else {
    HEDDLE_CUDA_NEWER_FUNCTIONS(HEDDLE_CUDA_FIND)
  }
#undef HEDDLE_CUDA_FIND
  return *function == nullptr ? kNotFound : kSuccess;
}

// For programs that stand on the double: somebody else's kernel ends the device's context (tests/gpu).
extern "C" __attribute__((visibility("default"))) void heddle_cuda_double_lose_context(
    heddle::cuda::Code code, int device) {
  heddle::cuda_double::lose_context(code, device);
}
