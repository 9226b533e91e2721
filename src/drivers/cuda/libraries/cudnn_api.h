// cudnn_api.h: the functions of cuDNN 9 that we call, found at run time.
//
//   What       CudnnApi is a table of them, with the values of cudnn_ops.h and cudnn_cnn.h that they take:
//              the imperative API, which needs no headers of NVIDIA's and no graphs of its own.
//              tests/cuda_double has a table of its own.
//   Threads    Any: a table never changes once it is made.
//   Errors     unavailable, naming the file and the function that it lacks.
#pragma once

#include <cstddef>

#include "drivers/cuda/driver/driver_api.h"
#include "drivers/cuda/libraries/library_search.h"

namespace heddle::cuda {

using CudnnCode = int;          // cudnnStatus_t
using CudnnHandle = void*;      // cudnnHandle_t
using CudnnTensor = void*;      // cudnnTensorDescriptor_t
using CudnnFilter = void*;      // cudnnFilterDescriptor_t
using CudnnWindow = void*;      // cudnnConvolutionDescriptor_t
using CudnnActivation = void*;  // cudnnActivationDescriptor_t
inline constexpr CudnnCode kCudnnSuccess = 0, kCudnnBadParameter = 2000, kCudnnNotSupported = 3000;
inline constexpr int kCudnnF32 = 0, kCudnnF16 = 2, kCudnnBF16 = 9;  // cudnnDataType_t
inline constexpr int kCudnnNCHW = 0, kCudnnNHWC = 1;                // cudnnTensorFormat_t
inline constexpr int kCudnnCrossCorrelation = 1;
// cudnnMathType_t: TF32 allowed, tensor cores as types are, f32 may become f16, no tensor cores.
inline constexpr int kCudnnDefaultMath = 0, kCudnnTensorMath = 1, kCudnnConvertingMath = 2, kCudnnFmaMath = 3;
inline constexpr int kCudnnRelu = 1, kCudnnIdentity = 5, kCudnnPropagateNan = 1;
// cudnnConvolutionFwdAlgo_t, those without a transform: an infinity stays where it is.
inline constexpr int kCudnnImplicitGemm = 0, kCudnnPrecomputedGemm = 1;

// name in the table, symbol in the library, arguments
#define HEDDLE_CUDNN_FUNCTIONS(X)                                                                            \
  X(create, "cudnnCreate", (CudnnHandle * made))                                                             \
  X(destroy, "cudnnDestroy", (CudnnHandle handle))                                                           \
  X(set_stream, "cudnnSetStream", (CudnnHandle handle, StreamHandle stream))                                 \
  X(tensor_create, "cudnnCreateTensorDescriptor", (CudnnTensor * made))                                      \
  X(tensor_destroy, "cudnnDestroyTensorDescriptor", (CudnnTensor tensor))                                    \
  X(tensor_set, "cudnnSetTensorNdDescriptor",                                                                \
    (CudnnTensor tensor, int type, int rank, const int* extents, const int* strides))                        \
  X(filter_create, "cudnnCreateFilterDescriptor", (CudnnFilter * made))                                      \
  X(filter_destroy, "cudnnDestroyFilterDescriptor", (CudnnFilter filter))                                    \
  X(filter_set, "cudnnSetFilterNdDescriptor",                                                                \
    (CudnnFilter filter, int type, int format, int rank, const int* extents))                                \
  X(window_create, "cudnnCreateConvolutionDescriptor", (CudnnWindow * made))                                 \
  X(window_destroy, "cudnnDestroyConvolutionDescriptor", (CudnnWindow window))                               \
  X(window_set, "cudnnSetConvolutionNdDescriptor",                                                           \
    (CudnnWindow window, int axes, const int* padding, const int* strides, const int* dilations, int mode,   \
     int compute_type))                                                                                      \
  X(window_set_groups, "cudnnSetConvolutionGroupCount", (CudnnWindow window, int groups))                    \
  X(window_set_math, "cudnnSetConvolutionMathType", (CudnnWindow window, int math))                          \
  X(activation_create, "cudnnCreateActivationDescriptor", (CudnnActivation * made))                          \
  X(activation_destroy, "cudnnDestroyActivationDescriptor", (CudnnActivation activation))                    \
  X(activation_set, "cudnnSetActivationDescriptor",                                                          \
    (CudnnActivation activation, int mode, int nan, double number))                                          \
  X(workspace_of, "cudnnGetConvolutionForwardWorkspaceSize",                                                 \
    (CudnnHandle handle, CudnnTensor x, CudnnFilter w, CudnnWindow window, CudnnTensor y, int algorithm,     \
     size_t* bytes))                                                                                         \
  X(convolve, "cudnnConvolutionForward",                                                                     \
    (CudnnHandle handle, const void* alpha, CudnnTensor x_tensor, const void* x, CudnnFilter w_filter,       \
     const void* w, CudnnWindow window, int algorithm, void* workspace, size_t workspace_bytes,              \
     const void* beta, CudnnTensor y_tensor, void* y))                                                       \
  X(convolve_and_finish, "cudnnConvolutionBiasActivationForward",                                            \
    (CudnnHandle handle, const void* alpha, CudnnTensor x_tensor, const void* x, CudnnFilter w_filter,       \
     const void* w, CudnnWindow window, int algorithm, void* workspace, size_t workspace_bytes,              \
     const void* alpha_of_z, CudnnTensor z_tensor, const void* z, CudnnTensor bias_tensor, const void* bias, \
     CudnnActivation activation, CudnnTensor y_tensor, void* y))

struct CudnnApi {
#define HEDDLE_CUDNN_MEMBER(member, symbol, arguments) CudnnCode(*member) arguments = nullptr;
  HEDDLE_CUDNN_FUNCTIONS(HEDDLE_CUDNN_MEMBER)
#undef HEDDLE_CUDNN_MEMBER
  size_t (*version)() = nullptr;  // major * 10000 + minor * 100 + patch
  const char* (*error_text)(CudnnCode code) = nullptr;
};

inline constexpr const char* kCudnnNames[] = {"libcudnn.so.9"};

Result<CudnnApi> load_cudnn(const FoundLibrary& library);

}  // namespace heddle::cuda
