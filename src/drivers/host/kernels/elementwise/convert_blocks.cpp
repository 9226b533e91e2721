#include <cstring>
#include <type_traits>

#include "drivers/host/kernels/elementwise/block_loops.h"
#include "drivers/host/kernels/elementwise/half.h"
#include "drivers/host/kernels/elementwise/narrow.h"

namespace heddle::host {

namespace {

struct Convert {
  template <class T>
  static HEDDLE_INLINE T of(T x) {
    return x;
  }
};
struct NotZero {
  template <class T>
  static HEDDLE_INLINE uint8_t of(T x) {
    return x != 0;
  }
};
struct ToInteger {  // towards zero; what no i64 holds becomes 0
  template <class T>
  static HEDDLE_INLINE int64_t of(T x) {
    const bool fits = x >= T(-9223372036854775808.0) && x < T(9223372036854775808.0);
    const T safe = fits ? x : T(0);
    const int64_t y = static_cast<int64_t>(safe);
    return y;
  }
};
struct FromBf16 {
  static HEDDLE_INLINE float of(uint16_t x) { return from_bf16(x); }
};
struct ToBf16 {
  static HEDDLE_INLINE uint16_t of(float x) { return to_bf16(x); }
};
struct ThroughBf16 {
  static HEDDLE_INLINE float of(float x) { return from_bf16(to_bf16(x)); }
};
template <class Narrow>
struct Wrap {
  static HEDDLE_INLINE int64_t of(int64_t x) { return static_cast<Narrow>(x); }
};

template <auto kConvert, class In, class Out>
void converted(const BlockArgs& args) {
  kConvert(static_cast<const In*>(args.a), static_cast<Out*>(args.d), args.count);
}

template <class T>
void copy(const BlockArgs& args) {
  if (args.d == args.a) return;
  std::memcpy(args.d, args.a, static_cast<size_t>(args.count) * sizeof(T));
}

}  // namespace

Kind kind_of(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::kF32:
    case ir::DType::kF16:
    case ir::DType::kBF16:
      return Kind::kF32;
    case ir::DType::kF64:
      return Kind::kF64;
    case ir::DType::kBool:
      return Kind::kBool;
    default:
      return Kind::kI64;
  }
}

bool is_native(ir::DType dtype) {
  return dtype == ir::DType::kF32 || dtype == ir::DType::kF64 || dtype == ir::DType::kI64 ||
         dtype == ir::DType::kU64 || dtype == ir::DType::kBool;
}

BlockKernel load_block(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::kF32:
      return copy<float>;
    case ir::DType::kF16:
      return converted<f16_to_f32, uint16_t, float>;
    case ir::DType::kBF16:
      return unary_loop<FromBf16, uint16_t, float>;
    case ir::DType::kF64:
      return copy<double>;
    case ir::DType::kI8:
      return unary_loop<Convert, int8_t, int64_t>;
    case ir::DType::kU8:
      return unary_loop<Convert, uint8_t, int64_t>;
    case ir::DType::kI16:
      return unary_loop<Convert, int16_t, int64_t>;
    case ir::DType::kI32:
      return unary_loop<Convert, int32_t, int64_t>;
    case ir::DType::kU16:
      return unary_loop<Convert, uint16_t, int64_t>;
    case ir::DType::kU32:
      return unary_loop<Convert, uint32_t, int64_t>;
    case ir::DType::kI64:
    case ir::DType::kU64:
      return copy<int64_t>;
    case ir::DType::kBool:
      return copy<uint8_t>;
  }
  return nullptr;
}

BlockKernel store_block(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::kF16:
      return converted<f32_to_f16, float, uint16_t>;
    case ir::DType::kBF16:
      return unary_loop<ToBf16, float, uint16_t>;
    case ir::DType::kI8:
      return unary_loop<Convert, int64_t, int8_t>;
    case ir::DType::kU8:
      return unary_loop<Convert, int64_t, uint8_t>;
    case ir::DType::kI16:
      return unary_loop<Convert, int64_t, int16_t>;
    case ir::DType::kI32:
      return unary_loop<Convert, int64_t, int32_t>;
    case ir::DType::kU16:
      return unary_loop<Convert, int64_t, uint16_t>;
    case ir::DType::kU32:
      return unary_loop<Convert, int64_t, uint32_t>;
    default:
      return load_block(dtype);
  }
}

BlockKernel wrap_block(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::kF16:
      return converted<round_to_f16, float, float>;
    case ir::DType::kBF16:
      return unary_loop<ThroughBf16, float, float>;
    case ir::DType::kI8:
      return unary_loop<Wrap<int8_t>, int64_t, int64_t>;
    case ir::DType::kU8:
      return unary_loop<Wrap<uint8_t>, int64_t, int64_t>;
    case ir::DType::kI16:
      return unary_loop<Wrap<int16_t>, int64_t, int64_t>;
    case ir::DType::kI32:
      return unary_loop<Wrap<int32_t>, int64_t, int64_t>;
    case ir::DType::kU16:
      return unary_loop<Wrap<uint16_t>, int64_t, int64_t>;
    case ir::DType::kU32:
      return unary_loop<Wrap<uint32_t>, int64_t, int64_t>;
    default:
      return nullptr;
  }
}

BlockKernel cast_block(Kind from, Kind to) {
  static constexpr BlockKernel kTable[4][4] = {
      // to f32, f64, i64, bool
      {copy<float>, unary_loop<Convert, float, double>, unary_loop<ToInteger, float, int64_t>,
       unary_loop<NotZero, float, uint8_t>},
      {unary_loop<Convert, double, float>, copy<double>, unary_loop<ToInteger, double, int64_t>,
       unary_loop<NotZero, double, uint8_t>},
      {unary_loop<Convert, int64_t, float>, unary_loop<Convert, int64_t, double>, copy<int64_t>,
       unary_loop<NotZero, int64_t, uint8_t>},
      {unary_loop<Convert, uint8_t, float>, unary_loop<Convert, uint8_t, double>,
       unary_loop<Convert, uint8_t, int64_t>, copy<uint8_t>},
  };
  return kTable[static_cast<size_t>(from)][static_cast<size_t>(to)];
}

BlockKernel find_block(std::string_view op, Kind operand, Kind* result) {
  for (std::span<const BlockEntry> table :
       {unary_blocks(), binary_blocks(), trigonometry_blocks(), bit_blocks()}) {
    for (const BlockEntry& entry : table) {
      if (entry.op == op && entry.operand == operand) {
        *result = entry.result;
        return entry.run;
      }
    }
  }
  return nullptr;
}

}  // namespace heddle::host
