// portable.h: what lets one source be a kernel of a GPU and a function of the host.
//
//   What       nvcc compiles the kernels for the GPU; g++ and clang compile the same text for
//              tests/cuda_double, which runs it on threads of the host.
//   Memory     Kernels name memory by Address and reach it by global<T>(). The double's device addresses
//              carry a mark that only this function takes away: the host cannot touch what they name.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define HEDDLE_DEVICE __device__ __forceinline__
#define HEDDLE_ROLLED _Pragma("unroll 1")
#define HEDDLE_UNROLL _Pragma("unroll")  // registers have no index: a loop over an array of them is unrolled
#else
#define HEDDLE_DEVICE inline
#define HEDDLE_ROLLED
#define HEDDLE_UNROLL
#endif

namespace heddle::cuda {

inline constexpr uint64_t kDoubleMark = uint64_t{1} << 62;

template <class T>
HEDDLE_DEVICE T* global(uint64_t address) {
#if defined(__CUDACC__)
  return reinterpret_cast<T*>(address);
#else
  return reinterpret_cast<T*>(address & ~kDoubleMark);
#endif
}

}  // namespace heddle::cuda
