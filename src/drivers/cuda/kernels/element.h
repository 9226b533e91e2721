// element.h: elements of any type, read and written in the type that a kernel computes in.
//
//   What       A kernel computes in float (f32, f16, bf16), double, int64_t (integers and bool) or uint64_t
//              (u64). load() and store() convert; what lies in memory is known at run time, by a Type.
//   Casts      Float to integer as C converts, 0 where C has no result; to bool: whether it is not 0.
#pragma once

#include <cmath>
#include <cstring>
#include <type_traits>

#include "drivers/cuda/kernels/portable.h"

namespace heddle::cuda {

// As ir::DType, which lowering.cpp compares.
enum class Type : uint8_t { kF32, kF16, kBF16, kF64, kI8, kU8, kI16, kI32, kI64, kU16, kU32, kU64, kBool };

template <class To, class From>
HEDDLE_DEVICE To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

HEDDLE_DEVICE float from_f16(uint16_t bits) {
#if defined(__CUDA_ARCH__)
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
#else
  const uint32_t sign = uint32_t(bits & 0x8000u) << 16, rest = bits & 0x7fffu;
  if (rest >= 0x7c00u) return bits_as<float>(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  if (rest >= 0x400u) return bits_as<float>(sign | ((rest << 13) + (112u << 23)));
  const float tiny = float(rest) * 5.9604644775390625e-08f;  // 2^-24
  return bits_as<float>(sign | bits_as<uint32_t>(tiny));
#endif
}

HEDDLE_DEVICE uint16_t to_f16(float value) {
#if defined(__CUDA_ARCH__)
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#else
  const uint32_t all = bits_as<uint32_t>(value), sign = (all >> 16) & 0x8000u, rest = all & 0x7fffffffu;
  if (rest > 0x7f800000u) return uint16_t(sign | 0x7e00u);
  if (rest >= 0x47800000u) return uint16_t(sign | 0x7c00u);
  if (rest < 0x38800000u) {  // below the least normal one: the sum rounds to multiples of 2^-24
    const float shifted = bits_as<float>(rest) + 0.5f;
    return uint16_t(sign | (bits_as<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t rounded = rest + 0xfffu + ((rest >> 13) & 1u);
  return uint16_t(sign | (rounded - (112u << 23)) >> 13);
#endif
}

HEDDLE_DEVICE float from_bf16(uint16_t bits) { return bits_as<float>(uint32_t(bits) << 16); }

HEDDLE_DEVICE uint16_t to_bf16(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint16_t rounded;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(value));
  return rounded;
#else
  const uint32_t bits = bits_as<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return uint16_t((bits >> 16) | 0x40u);
  return uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#endif
}

// A double goes to 16 bits by way of a float that was rounded to odd, so that it is rounded once.
HEDDLE_DEVICE float to_odd(double value) {
  const float nearest = float(value);
  uint32_t bits = bits_as<uint32_t>(nearest);
  if (value != value || double(nearest) == value || (bits & 1u) != 0) return nearest;
  const bool beyond = (nearest < 0 ? -double(nearest) : double(nearest)) > (value < 0 ? -value : value);
  return bits_as<float>(beyond ? bits - 1u : bits + 1u);
}
HEDDLE_DEVICE float to_odd(float value) { return value; }

template <class C>
HEDDLE_DEVICE int64_t to_i64(C value) {
  if constexpr (std::is_floating_point_v<C>) {
    return value >= C(-9223372036854775808.0) && value < C(9223372036854775808.0) ? int64_t(value) : 0;
  } else {
    return int64_t(value);
  }
}
template <class C>
HEDDLE_DEVICE uint64_t to_u64(C value) {
  if constexpr (std::is_floating_point_v<C>) {
    if (value >= C(9223372036854775808.0) && value < C(18446744073709551616.0)) return uint64_t(value);
    return uint64_t(to_i64(value));
  } else {
    return uint64_t(value);
  }
}

// What lies in memory: an element's word, and what it is as a number that is computed in.
template <class T>
struct As {
  using Word = T;
  template <class C>
  static HEDDLE_DEVICE C read(Word word) {
    return C(word);
  }
  template <class C>
  static HEDDLE_DEVICE Word write(C value) {
    if constexpr (std::is_floating_point_v<T>) {
      return T(value);
    } else if constexpr (std::is_same_v<T, uint64_t>) {
      return to_u64(value);
    } else {
      return T(to_i64(value));
    }
  }
};
template <float (*kRead)(uint16_t), uint16_t (*kWrite)(float)>
struct AsHalf {
  using Word = uint16_t;
  template <class C>
  static HEDDLE_DEVICE C read(Word word) {
    return C(kRead(word));
  }
  template <class C>
  static HEDDLE_DEVICE Word write(C value) {
    return kWrite(to_odd(std::conditional_t<std::is_same_v<C, float>, float, double>(value)));
  }
};
struct AsBool {
  using Word = uint8_t;
  template <class C>
  static HEDDLE_DEVICE C read(Word word) {
    return C(word != 0 ? 1 : 0);
  }
  template <class C>
  static HEDDLE_DEVICE Word write(C value) {
    return value != C(0) ? 1 : 0;
  }
};

// f(As...()) of the type.
template <class F>
HEDDLE_DEVICE void as_type(Type type, F f) {
  switch (type) {
    case Type::kF32:
      return f(As<float>());
    case Type::kF16:
      return f(AsHalf<from_f16, to_f16>());
    case Type::kBF16:
      return f(AsHalf<from_bf16, to_bf16>());
    case Type::kF64:
      return f(As<double>());
    case Type::kI8:
      return f(As<int8_t>());
    case Type::kU8:
      return f(As<uint8_t>());
    case Type::kI16:
      return f(As<int16_t>());
    case Type::kI32:
      return f(As<int32_t>());
    case Type::kI64:
      return f(As<int64_t>());
    case Type::kU16:
      return f(As<uint16_t>());
    case Type::kU32:
      return f(As<uint32_t>());
    case Type::kU64:
      return f(As<uint64_t>());
    case Type::kBool:
      return f(AsBool());
  }
}

// The types that a kernel can meet, for templates.
struct AllTypes {
  template <class F>
  static HEDDLE_DEVICE void as_type(Type type, F f) {
    cuda::as_type(type, f);
  }
};
struct NarrowFloats {  // f32, f16, bf16
  template <class F>
  static HEDDLE_DEVICE void as_type(Type type, F f) {
    if (type == Type::kF32) return f(As<float>());
    if (type == Type::kF16) return f(AsHalf<from_f16, to_f16>());
    f(AsHalf<from_bf16, to_bf16>());
  }
};

template <class C, class Types = AllTypes>
HEDDLE_DEVICE C load(uint64_t from, Type type, int64_t i) {
  C value = 0;
  Types::as_type(type, [&](auto as) {
    using A = decltype(as);
    value = A::template read<C>(global<const typename A::Word>(from)[i]);
  });
  return value;
}

template <class C>
HEDDLE_DEVICE void store(uint64_t to, Type type, int64_t i, C value) {
  as_type(type, [&](auto as) {
    using A = decltype(as);
    global<typename A::Word>(to)[i] = A::template write<C>(value);
  });
}

}  // namespace heddle::cuda
