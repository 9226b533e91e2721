// block_loops.h: from a functor on elements to an instruction on blocks.
//
//   What       unary<Op, In, Out>, binary<...>: one loop each. Op::of takes plain elements, or elements and
//              (alpha, beta).
//   Threads    Pure functions.
#pragma once

#include <type_traits>

#include "drivers/host/kernels/elementwise/blocks.h"
#include "drivers/host/kernels/elementwise/vectorised.h"

namespace heddle::host {

template <class T>
inline constexpr bool kFloating = std::is_floating_point_v<T>;

template <class T>
constexpr Kind kind_for() {
  if constexpr (sizeof(T) == 1)
    return Kind::kBool;
  else if constexpr (sizeof(T) == 4)
    return Kind::kF32;
  else if constexpr (T(0.5) == T(0))
    return Kind::kI64;
  else
    return Kind::kF64;
}

template <class Op, class In, class Out>
HEDDLE_VECTORISED void unary_loop(const BlockArgs& args) {
  const In* a = static_cast<const In*>(args.a);
  Out* d = static_cast<Out*>(args.d);
  const int64_t n = args.count;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) d[i] = static_cast<Out>(Op::of(a[i]));
}

template <class Op, class In, class Out>
HEDDLE_VECTORISED void tuned_loop(const BlockArgs& args) {
  const In* a = static_cast<const In*>(args.a);
  Out* d = static_cast<Out*>(args.d);
  const In alpha = static_cast<In>(args.alpha), beta = static_cast<In>(args.beta);
  const int64_t n = args.count;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) d[i] = static_cast<Out>(Op::of(a[i], alpha, beta));
}

template <class Op, class In, class Out>
HEDDLE_VECTORISED void binary_loop(const BlockArgs& args) {
  const In* a = static_cast<const In*>(args.a);
  const In* b = static_cast<const In*>(args.b);
  Out* d = static_cast<Out*>(args.d);
  const int64_t n = args.count;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) d[i] = static_cast<Out>(Op::of(a[i], b[i]));
}

template <class Op, class In, class Out = In>
constexpr BlockEntry unary(std::string_view op) {
  return {op, kind_for<In>(), kind_for<Out>(), &unary_loop<Op, In, Out>};
}
template <class Op, class In, class Out = In>
constexpr BlockEntry tuned(std::string_view op) {
  return {op, kind_for<In>(), kind_for<Out>(), &tuned_loop<Op, In, Out>};
}
template <class Op, class In, class Out = In>
constexpr BlockEntry binary(std::string_view op) {
  return {op, kind_for<In>(), kind_for<Out>(), &binary_loop<Op, In, Out>};
}

}  // namespace heddle::host
