// elements.h: one element type at a time, for kernels that are not block programs.
//
//   What       Codec<dtype>: how an element lies in memory and as what it is computed: floats as double,
//              integers as i64 (Number); how it is compared: NaN above all numbers. with_codec() turns a
//              run-time dtype into a compile-time one.
//   Threads    Pure functions.
#pragma once

#include <cstdint>
#include <type_traits>

#include "drivers/host/kernels/elementwise/half.h"
#include "ir/dtype.h"

namespace heddle::host {

template <class Memory_, class Number_>
struct PlainCodec {
  using Memory = Memory_;
  using Number = Number_;
  static HEDDLE_INLINE Number get(Memory x) { return static_cast<Number>(x); }
  static HEDDLE_INLINE Memory put(Number x) { return static_cast<Memory>(x); }
};
struct F16Codec {
  using Memory = uint16_t;
  using Number = double;
  static HEDDLE_INLINE double get(uint16_t x) { return static_cast<double>(from_f16(x)); }
  static HEDDLE_INLINE uint16_t put(double x) { return to_f16(static_cast<float>(x)); }
};
struct Bf16Codec {
  using Memory = uint16_t;
  using Number = double;
  static HEDDLE_INLINE double get(uint16_t x) { return static_cast<double>(from_bf16(x)); }
  static HEDDLE_INLINE uint16_t put(double x) { return to_bf16(static_cast<float>(x)); }
};
struct BoolCodec : PlainCodec<uint8_t, int64_t> {
  static HEDDLE_INLINE uint8_t put(int64_t x) { return x != 0; }
};

template <class F>
auto with_codec(ir::DType dtype, F f) {
  switch (dtype) {
    case ir::DType::kF32:
      return f(PlainCodec<float, double>());
    case ir::DType::kF16:
      return f(F16Codec());
    case ir::DType::kBF16:
      return f(Bf16Codec());
    case ir::DType::kF64:
      return f(PlainCodec<double, double>());
    case ir::DType::kI8:
      return f(PlainCodec<int8_t, int64_t>());
    case ir::DType::kU8:
      return f(PlainCodec<uint8_t, int64_t>());
    case ir::DType::kI16:
      return f(PlainCodec<int16_t, int64_t>());
    case ir::DType::kI32:
      return f(PlainCodec<int32_t, int64_t>());
    case ir::DType::kI64:
      return f(PlainCodec<int64_t, int64_t>());
    case ir::DType::kU16:
      return f(PlainCodec<uint16_t, int64_t>());
    case ir::DType::kU32:
      return f(PlainCodec<uint32_t, int64_t>());
    case ir::DType::kU64:
      return f(PlainCodec<uint64_t, uint64_t>());
    case ir::DType::kBool:
      return f(BoolCodec());
  }
  return f(BoolCodec());
}

template <class Number>
HEDDLE_INLINE bool exceeds(Number a, Number b) {
  if constexpr (std::is_floating_point_v<Number>)
    return a > b || (a != a && b == b);
  else
    return a > b;
}

// Integers wrap.
template <class Number>
HEDDLE_INLINE Number plus(Number a, Number b) {
  if constexpr (std::is_floating_point_v<Number>)
    return a + b;
  else
    return static_cast<Number>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
template <class Number>
HEDDLE_INLINE Number times(Number a, Number b) {
  if constexpr (std::is_floating_point_v<Number>)
    return a * b;
  else
    return static_cast<Number>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

}  // namespace heddle::host
