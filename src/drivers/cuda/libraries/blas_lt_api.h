// blas_lt_api.h: the functions of cuBLASLt that we call, found at run time.
//
//   What       BlasLtApi is a table of them, with the types and values of cublasLt.h that they take.
//              tests/cuda_double has a table of its own.
//   Threads    Any: a table never changes once it is made.
//   Errors     unavailable, naming the file and the function that it lacks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "drivers/cuda/driver/driver_api.h"
#include "drivers/cuda/libraries/library_search.h"

namespace heddle::cuda {

using BlasCode = int;          // cublasStatus_t
using BlasHandle = void*;      // cublasLtHandle_t
using BlasOperation = void*;   // cublasLtMatmulDesc_t
using BlasLayout = void*;      // cublasLtMatrixLayout_t
using BlasPreference = void*;  // cublasLtMatmulPreference_t
using BlasAttribute = int;     // of these three
inline constexpr BlasCode kBlasSuccess = 0, kBlasInvalidValue = 7, kBlasNotSupported = 15;
inline constexpr int kBlasF32 = 0, kBlasF16 = 2, kBlasBF16 = 14;  // cudaDataType_t
// cublasComputeType_t: sums are of f32, operands of f32 as they are, or rounded to 10, 10 and 7 bits.
inline constexpr int kBlasComputeF32 = 68, kBlasComputeF16 = 74, kBlasComputeBF16 = 75, kBlasComputeTF32 = 77;
inline constexpr BlasAttribute kBlasTurnA = 3, kBlasTurnB = 4, kBlasEpilogue = 7, kBlasBias = 8;
inline constexpr uint32_t kBlasPlain = 1, kBlasRelu = 2, kBlasAddBias = 4;  // epilogues; the last two join
inline constexpr BlasAttribute kBlasBatches = 5, kBlasBatchStride = 6;
inline constexpr BlasAttribute kBlasMostWorkspace = 1, kBlasAlignmentOfA = 5;  // B, C and D follow

struct BlasAlgorithm {  // cublasLtMatmulAlgo_t
  uint64_t data[8];
};
struct BlasHeuristic {  // cublasLtMatmulHeuristicResult_t
  BlasAlgorithm algorithm;
  size_t workspace_bytes;
  BlasCode code;
  float waves;
  int reserved[4];
};
static_assert(sizeof(BlasHeuristic) == 96);

// name in the table, symbol in the library, arguments
#define HEDDLE_BLAS_LT_FUNCTIONS(X)                                                                      \
  X(create, "cublasLtCreate", (BlasHandle * handle))                                                     \
  X(destroy, "cublasLtDestroy", (BlasHandle handle))                                                     \
  X(operation_create, "cublasLtMatmulDescCreate", (BlasOperation * made, int compute, int scale_type))   \
  X(operation_destroy, "cublasLtMatmulDescDestroy", (BlasOperation operation))                           \
  X(operation_set, "cublasLtMatmulDescSetAttribute",                                                     \
    (BlasOperation operation, BlasAttribute attribute, const void* value, size_t bytes))                 \
  X(layout_create, "cublasLtMatrixLayoutCreate",                                                         \
    (BlasLayout * made, int type, uint64_t rows, uint64_t columns, int64_t line))                        \
  X(layout_destroy, "cublasLtMatrixLayoutDestroy", (BlasLayout layout))                                  \
  X(layout_set, "cublasLtMatrixLayoutSetAttribute",                                                      \
    (BlasLayout layout, BlasAttribute attribute, const void* value, size_t bytes))                       \
  X(preference_create, "cublasLtMatmulPreferenceCreate", (BlasPreference * made))                        \
  X(preference_destroy, "cublasLtMatmulPreferenceDestroy", (BlasPreference preference))                  \
  X(preference_set, "cublasLtMatmulPreferenceSetAttribute",                                              \
    (BlasPreference preference, BlasAttribute attribute, const void* value, size_t bytes))               \
  X(heuristics, "cublasLtMatmulAlgoGetHeuristic",                                                        \
    (BlasHandle handle, BlasOperation operation, BlasLayout a, BlasLayout b, BlasLayout c, BlasLayout d, \
     BlasPreference preference, int asked, BlasHeuristic* found, int* count))                            \
  X(algorithm_check, "cublasLtMatmulAlgoCheck",                                                          \
    (BlasHandle handle, BlasOperation operation, BlasLayout a, BlasLayout b, BlasLayout c, BlasLayout d, \
     const BlasAlgorithm* algorithm, BlasHeuristic* checked))                                            \
  X(multiply, "cublasLtMatmul",                                                                          \
    (BlasHandle handle, BlasOperation operation, const void* alpha, const void* a, BlasLayout a_layout,  \
     const void* b, BlasLayout b_layout, const void* beta, const void* c, BlasLayout c_layout, void* d,  \
     BlasLayout d_layout, const BlasAlgorithm* algorithm, void* workspace, size_t workspace_bytes,       \
     StreamHandle stream))

struct BlasLtApi {
#define HEDDLE_BLAS_LT_MEMBER(member, symbol, arguments) BlasCode(*member) arguments = nullptr;
  HEDDLE_BLAS_LT_FUNCTIONS(HEDDLE_BLAS_LT_MEMBER)
#undef HEDDLE_BLAS_LT_MEMBER
  size_t (*version)() = nullptr;  // major * 10000 + minor * 100 + patch
};

inline constexpr const char* kBlasLtNames[] = {"libcublasLt.so.13", "libcublasLt.so.12"};

Result<BlasLtApi> load_blas_lt(const FoundLibrary& library);

}  // namespace heddle::cuda
