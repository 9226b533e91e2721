// The double's cuBLASLt as libcublasLt.so.13. What it computes with is the double's in libcuda.so.1.
#include "tests/cuda_double/library/in_its_place.h"

using heddle::cuda::BlasAlgorithm;
using heddle::cuda::BlasCode;
using heddle::cuda::BlasHeuristic;
using heddle::cuda::StreamHandle;

#define HEDDLE_EXPORT extern "C" __attribute__((visibility("default")))
#define HEDDLE_FORWARD(member, symbol, parameters, arguments) \
  HEDDLE_EXPORT BlasCode symbol parameters { return heddle_double_blas_lt()->member arguments; }

HEDDLE_EXPORT size_t cublasLtGetVersion() { return heddle_double_blas_lt()->version(); }
HEDDLE_FORWARD(create, cublasLtCreate, (void** made), (made))
HEDDLE_FORWARD(destroy, cublasLtDestroy, (void* made), (made))
HEDDLE_FORWARD(operation_create, cublasLtMatmulDescCreate, (void** made, int compute, int scale),
               (made, compute, scale))
HEDDLE_FORWARD(operation_destroy, cublasLtMatmulDescDestroy, (void* made), (made))
HEDDLE_FORWARD(operation_set, cublasLtMatmulDescSetAttribute,
               (void* made, int attribute, const void* value, size_t bytes), (made, attribute, value, bytes))
HEDDLE_FORWARD(layout_create, cublasLtMatrixLayoutCreate,
               (void** made, int type, uint64_t rows, uint64_t columns, int64_t line),
               (made, type, rows, columns, line))
HEDDLE_FORWARD(layout_destroy, cublasLtMatrixLayoutDestroy, (void* made), (made))
HEDDLE_FORWARD(layout_set, cublasLtMatrixLayoutSetAttribute,
               (void* made, int attribute, const void* value, size_t bytes), (made, attribute, value, bytes))
HEDDLE_FORWARD(preference_create, cublasLtMatmulPreferenceCreate, (void** made), (made))
HEDDLE_FORWARD(preference_destroy, cublasLtMatmulPreferenceDestroy, (void* made), (made))
HEDDLE_FORWARD(preference_set, cublasLtMatmulPreferenceSetAttribute,
               (void* made, int attribute, const void* value, size_t bytes), (made, attribute, value, bytes))
HEDDLE_FORWARD(heuristics, cublasLtMatmulAlgoGetHeuristic,
               (void* library, void* operation, void* a, void* b, void* c, void* d, void* preference,
                int asked, BlasHeuristic* found, int* count),
               (library, operation, a, b, c, d, preference, asked, found, count))
HEDDLE_FORWARD(algorithm_check, cublasLtMatmulAlgoCheck,
               (void* library, void* operation, void* a, void* b, void* c, void* d,
                const BlasAlgorithm* algorithm, BlasHeuristic* checked),
               (library, operation, a, b, c, d, algorithm, checked))
HEDDLE_FORWARD(multiply, cublasLtMatmul,
               (void* library, void* operation, const void* alpha, const void* a, void* a_layout,
                const void* b, void* b_layout, const void* beta, const void* c, void* c_layout, void* d,
                void* d_layout, const BlasAlgorithm* algorithm, void* workspace, size_t workspace_bytes,
                StreamHandle stream),
               (library, operation, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout,
                algorithm, workspace, workspace_bytes, stream))
