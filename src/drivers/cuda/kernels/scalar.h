// scalar.h: element-wise operators on single numbers, as ir/ops defines them.
//
//   What       Each is a struct with `count` operands and apply(x, numbers); C is the type that it computes
//              in. Integers wrap.
#pragma once

#include "drivers/cuda/kernels/element.h"

namespace heddle::cuda {

struct Numbers {  // of attributes
  double a = 0, b = 0;
};

template <class C>
HEDDLE_DEVICE bool is_nan(C x) {
  return x != x;
}
// Wrapping arithmetic goes by unsigned numbers.
template <class C>
using Wrapping = std::conditional_t<std::is_floating_point_v<C>, C, uint64_t>;

// 2 to the power of x, to 2 units in the last place; 0 for what is below the least normal number.
HEDDLE_DEVICE float power_of_two(float x) {
#if defined(__CUDA_ARCH__)
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
#else
  return std::exp2(x);
#endif
}

// The chance that a normal variable is above x, which is not negative: (1 - erf(x / sqrt(2))) / 2, to 1e-7,
// and up to 4 to 5e-6 of itself. A polynomial, which was fitted up to 6.5, gives its logarithm to the base of
// 2; beyond, it goes to -infinity.
HEDDLE_DEVICE float normal_tail(float x) {
  constexpr float kPowers[] = {-3.2310993e-08f,
                               9.39704194e-07f,
                               -1.16944248e-05f,
                               7.96451714e-05f,
                               -0.000286581169f,
                               5.76862749e-06f,
                               0.00694970507f,
                               -0.0524490699f,
                               -0.459216624f,
                               -1.15110481f,
                               -1.0f};
  float logarithm = kPowers[0];
  HEDDLE_UNROLL
  for (int i = 1; i < 11; ++i) logarithm = fmaf(logarithm, x, kPowers[i]);
  return power_of_two(logarithm);
}

#define HEDDLE_SCALAR(name, operands, ...)                            \
  struct name {                                                       \
    static constexpr int count = operands;                            \
    template <class C>                                                \
    static HEDDLE_DEVICE C apply(const C* x, const Numbers& number) { \
      static_cast<void>(number);                                      \
      using W [[maybe_unused]] = Wrapping<C>;                         \
      __VA_ARGS__                                                     \
    }                                                                 \
  };

// Of floats.
HEDDLE_SCALAR(Exp, 1, return std::exp(x[0]);)
HEDDLE_SCALAR(Log, 1, return std::log(x[0]);)
HEDDLE_SCALAR(Sqrt, 1, return std::sqrt(x[0]);)
HEDDLE_SCALAR(Rsqrt, 1, return C(1) / std::sqrt(x[0]);)
HEDDLE_SCALAR(Reciprocal, 1, return C(1) / x[0];)
HEDDLE_SCALAR(Erf, 1, return std::erf(x[0]);)
HEDDLE_SCALAR(Tanh, 1, return std::tanh(x[0]);)
HEDDLE_SCALAR(Sigmoid, 1, return C(1) / (C(1) + std::exp(-x[0]));)
HEDDLE_SCALAR(Floor, 1, return std::floor(x[0]);)
HEDDLE_SCALAR(Ceil, 1, return std::ceil(x[0]);)
HEDDLE_SCALAR(Round, 1, return std::rint(x[0]);)  // halves to even
HEDDLE_SCALAR(Sin, 1, return std::sin(x[0]);)
HEDDLE_SCALAR(Cos, 1, return std::cos(x[0]);)
HEDDLE_SCALAR(Tan, 1, return std::tan(x[0]);)
HEDDLE_SCALAR(Asin, 1, return std::asin(x[0]);)
HEDDLE_SCALAR(Acos, 1, return std::acos(x[0]);)
HEDDLE_SCALAR(Atan, 1, return std::atan(x[0]);)
HEDDLE_SCALAR(Sinh, 1, return std::sinh(x[0]);)
HEDDLE_SCALAR(Cosh, 1, return std::cosh(x[0]);)
HEDDLE_SCALAR(Asinh, 1, return std::asinh(x[0]);)
HEDDLE_SCALAR(Acosh, 1, return std::acosh(x[0]);)
HEDDLE_SCALAR(Atanh, 1, return std::atanh(x[0]);)
HEDDLE_SCALAR(Softplus, 1,
              return (x[0] > 0       ? x[0]
                      : is_nan(x[0]) ? x[0]
                                     : C(0)) +
                     std::log1p(std::exp(-std::fabs(x[0])));)
HEDDLE_SCALAR(Softsign, 1, return x[0] / (C(1) + std::fabs(x[0]));)
HEDDLE_SCALAR(HardSigmoid, 1, const C y = C(number.a) * x[0] + C(number.b); return y < 0   ? C(0)
                                                                                   : y > 1 ? C(1)
                                                                                           : y;)
HEDDLE_SCALAR(HardSwish, 1, const C y = x[0] / C(6) + C(0.5); return x[0] * (y < 0   ? C(0)
                                                                             : y > 1 ? C(1)
                                                                                     : y);)
HEDDLE_SCALAR(LeakyRelu, 1, return x[0] < 0 ? C(number.a) * x[0] : x[0];)
HEDDLE_SCALAR(Elu, 1, return x[0] < 0 ? C(number.a) * std::expm1(x[0]) : x[0];)
HEDDLE_SCALAR(Silu, 1, return x[0] / (C(1) + std::exp(-x[0]));)
HEDDLE_SCALAR(
    Gelu, 1,
    if constexpr (std::is_same_v<C, float>) {
      const float tail = normal_tail(std::fabs(x[0]));
      return x[0] * (x[0] < 0 ? tail : 1 - tail);
    } else { return C(0.5) * x[0] * (C(1) + std::erf(x[0] * C(0.70710678118654752440))); })
HEDDLE_SCALAR(GeluTanh, 1,
              return C(0.5) * x[0] *
                     (C(1) +
                      std::tanh(C(0.79788456080286535588) * (x[0] + C(0.044715) * x[0] * x[0] * x[0])));)
HEDDLE_SCALAR(IsNaN, 1, return is_nan(x[0]) ? C(1) : C(0);)
HEDDLE_SCALAR(IsInf, 1, return std::isinf(x[0]) && (x[0] > 0 ? number.a : number.b) != 0 ? C(1) : C(0);)
HEDDLE_SCALAR(PRelu, 2, return x[0] < 0 ? x[0] * x[1] : x[0];)

// Of numbers.
HEDDLE_SCALAR(Same, 1, return x[0];)
HEDDLE_SCALAR(Abs, 1, return x[0] < 0 ? C(W(0) - W(x[0])) : x[0] == 0 ? C(0) : x[0];)
HEDDLE_SCALAR(Neg, 1, if constexpr (std::is_floating_point_v<C>) return -x[0]; else return C(W(0) - W(x[0]));)
HEDDLE_SCALAR(Sign, 1, return is_nan(x[0]) ? x[0] : C((x[0] > 0) - (x[0] < 0));)
HEDDLE_SCALAR(Relu, 1, return x[0] < 0 ? C(0) : x[0];)
HEDDLE_SCALAR(Square, 1, return C(W(x[0]) * W(x[0]));)
HEDDLE_SCALAR(Not, 1, return C(x[0] == 0 ? 1 : 0);)
HEDDLE_SCALAR(Add, 2, return C(W(x[0]) + W(x[1]));)
HEDDLE_SCALAR(Sub, 2, return C(W(x[0]) - W(x[1]));)
HEDDLE_SCALAR(Mul, 2, return C(W(x[0]) * W(x[1]));)
// As NumPy: x / 0 is 0 for integers, and so is x mod 0.
HEDDLE_SCALAR(
    Div, 2,
    if constexpr (std::is_floating_point_v<C>) {
      return x[0] / x[1];
    } else if constexpr (std::is_signed_v<C>) {
      return x[1] == 0 ? C(0) : x[1] == -1 ? C(W(0) - W(x[0])) : x[0] / x[1];
    } else { return x[1] == 0 ? C(0) : x[0] / x[1]; })
HEDDLE_SCALAR(
    Rest, 2,  // of the sign of the first
    if constexpr (std::is_floating_point_v<C>) {
      return std::fmod(x[0], x[1]);
    } else if constexpr (std::is_signed_v<C>) { return x[1] == 0 || x[1] == -1 ? C(0) : x[0] % x[1]; } else {
      return x[1] == 0 ? C(0) : x[0] % x[1];
    })
HEDDLE_SCALAR(
    Mod, 2,  // of the sign of the second
    const C rest = Rest::apply<C>(x, number);
    if constexpr (std::is_floating_point_v<C>) {
      if (rest == 0) return std::copysign(rest, x[1]);
    } if constexpr (std::is_unsigned_v<C>) { return rest; } else {
      return rest != 0 && (rest < 0) != (x[1] < 0) ? C(rest + x[1]) : rest;
    })
HEDDLE_SCALAR(
    Pow, 2, if constexpr (std::is_floating_point_v<C>) { return std::pow(x[0], x[1]); } else {
      if constexpr (std::is_signed_v<C>) {
        if (x[1] < 0) return x[0] == 1 ? C(1) : x[0] == -1 ? C(x[1] % 2 == 0 ? 1 : -1) : C(0);
      }
      W product = 1;
      W base = W(x[0]);
      for (uint64_t left = uint64_t(x[1]); left > 0; left >>= 1) {
        if ((left & 1) != 0) product *= base;
        base *= base;
      }
      return C(product);
    })
HEDDLE_SCALAR(Min, 2, return is_nan(x[0]) || x[0] < x[1] ? x[0] : x[1];)  // NaN wins
HEDDLE_SCALAR(Max, 2, return is_nan(x[0]) || x[0] > x[1] ? x[0] : x[1];)
HEDDLE_SCALAR(Equal, 2, return C(x[0] == x[1] ? 1 : 0);)
HEDDLE_SCALAR(Less, 2, return C(x[0] < x[1] ? 1 : 0);)
HEDDLE_SCALAR(LessOrEqual, 2, return C(x[0] <= x[1] ? 1 : 0);)
// `a` and `b` say which bounds there are.
HEDDLE_SCALAR(Clip, 3, const C low = number.a != 0 && x[0] < x[1] ? x[1] : x[0];
              return number.b != 0 && low > x[2] ? x[2] : low;)
HEDDLE_SCALAR(Select, 3, return x[0] != 0 ? x[1] : x[2];)

// Of integers and bools.
HEDDLE_SCALAR(BitwiseAnd, 2, return x[0] & x[1];)
HEDDLE_SCALAR(BitwiseOr, 2, return x[0] | x[1];)
HEDDLE_SCALAR(BitwiseXor, 2, return x[0] ^ x[1];)
HEDDLE_SCALAR(BitwiseNot, 1, return ~x[0];)
// By the width and more, or by less than nothing: only what the sign fills in is left.
HEDDLE_SCALAR(ShiftLeft, 2, return uint64_t(x[1]) > 63 ? C(0) : C(uint64_t(x[0]) << uint64_t(x[1]));)
HEDDLE_SCALAR(
    ShiftRight, 2,
    if constexpr (std::is_signed_v<C>) { return x[0] >> (uint64_t(x[1]) > 63 ? C(63) : x[1]); } else {
      return uint64_t(x[1]) > 63 ? C(0) : x[0] >> x[1];
    })

#undef HEDDLE_SCALAR

}  // namespace heddle::cuda
