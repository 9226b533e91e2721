// portable.h: what lets one source be a kernel of a GPU and a function of the host.
//
//   What       nvcc compiles the kernels for the GPU; g++ and clang compile the same text for
//              tests/cuda_double, which runs it on threads of the host.
//   Memory     Kernels name memory by Address and reach it by global<T>(). The double's device addresses
//              carry a mark that only this function takes away: the host cannot touch what they name.
//              There it also tells on_touch, where the double looks at what a kernel reads and writes.
#pragma once

#include <cstdint>
#include <type_traits>

#if defined(__CUDACC__)
#define HEDDLE_DEVICE __device__ __forceinline__
#define HEDDLE_ANYWHERE constexpr __host__ __device__
#define HEDDLE_ROLLED _Pragma("unroll 1")
#define HEDDLE_UNROLL _Pragma("unroll")  // registers have no index: a loop over an array of them is unrolled
#define HEDDLE_UNROLL_BY(count) _Pragma(HEDDLE_TEXT(unroll count))
#define HEDDLE_TEXT(...) #__VA_ARGS__
#else
#define HEDDLE_DEVICE inline
#define HEDDLE_ANYWHERE constexpr
#define HEDDLE_ROLLED
#define HEDDLE_UNROLL
#define HEDDLE_UNROLL_BY(count)
#endif

namespace heddle::cuda {

inline constexpr uint64_t kDoubleMark = uint64_t{1} << 62;
#if !defined(__CUDACC__)
// Told of each address that a kernel takes, and whether it may write there; null: nobody looks. Atomic
// because blocks that one thread runs are those of several for the thread sanitizer.
using OnTouch = void (*)(uint64_t address, uint64_t bytes, bool writes);
#if defined(HEDDLE_LOADED)
// Code that was loaded while the process runs is told where the process has that of the thread.
inline OnTouch* (*on_touch_of_thread)() = nullptr;
#else
inline thread_local constinit OnTouch on_touch = nullptr;
inline OnTouch* on_touch_of_thread() { return &on_touch; }
#endif
// Called before a kernel lets the host see what came before it; null: nobody looks.
using OnTell = void (*)();
inline thread_local constinit OnTell on_tell = nullptr;
#endif

template <class T>
HEDDLE_DEVICE T* global(uint64_t address) {
#if defined(__CUDACC__)
  return reinterpret_cast<T*>(address);
#else
  const OnTouch tell = __atomic_load_n(on_touch_of_thread(), __ATOMIC_RELAXED);
  if (tell != nullptr) tell(address, sizeof(T), !std::is_const_v<T>);
  return reinterpret_cast<T*>(address & ~kDoubleMark);
#endif
}

// The same, and the compiler knows that it is not shared memory, so that a store there need not wait for a
// load here. Only for what is read or written at once: where such pointers go along in loops, as in TopK and
// in ConvolutionTile, nvcc 13.0 does not come to an end.
template <class T>
HEDDLE_DEVICE T* unshared(uint64_t address) {
#if defined(__CUDACC__)
  return static_cast<T*>(__cvta_global_to_generic(address));
#else
  return global<T>(address);
#endif
}

}  // namespace heddle::cuda
