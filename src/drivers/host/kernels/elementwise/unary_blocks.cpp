#include <cmath>

#include "drivers/host/kernels/elementwise/block_loops.h"
#include "drivers/host/kernels/elementwise/vector_math.h"

namespace heddle::host {

namespace {

// Integers wrap: arithmetic is done on the unsigned type.
struct Abs {
  template <class T>
  static HEDDLE_INLINE T of(T x) {
    if constexpr (kFloating<T>)
      return std::fabs(x);
    else
      return x < 0 ? static_cast<T>(0 - static_cast<uint64_t>(x)) : x;
  }
};
struct Neg {
  template <class T>
  static HEDDLE_INLINE T of(T x) {
    if constexpr (kFloating<T>)
      return -x;
    else
      return static_cast<T>(0 - static_cast<uint64_t>(x));
  }
};
struct Square {
  template <class T>
  static HEDDLE_INLINE T of(T x) {
    if constexpr (kFloating<T>)
      return x * x;
    else
      return static_cast<T>(static_cast<uint64_t>(x) * static_cast<uint64_t>(x));
  }
};
struct Sign {
  template <class T>
  static HEDDLE_INLINE T of(T x) {
    const T s = static_cast<T>(static_cast<T>(x > 0) - static_cast<T>(x < 0));
    return x == x ? s : x;
  }
};
struct Relu {
  template <class T>
  static HEDDLE_INLINE T of(T x) {
    return x < 0 ? T(0) : x;  // NaN stays
  }
};
struct Copy {
  template <class T>
  static HEDDLE_INLINE T of(T x) {
    return x;
  }
};
struct Exp {
  static HEDDLE_INLINE float of(float x) { return vexp(x); }
  static HEDDLE_INLINE double of(double x) { return std::exp(x); }
};
struct Log {
  static HEDDLE_INLINE float of(float x) { return vlog(x); }
  static HEDDLE_INLINE double of(double x) { return std::log(x); }
};
struct Tanh {
  static HEDDLE_INLINE float of(float x) { return vtanh(x); }
  static HEDDLE_INLINE double of(double x) { return std::tanh(x); }
};
struct Erf {
  static HEDDLE_INLINE float of(float x) { return verf(x); }
  static HEDDLE_INLINE double of(double x) { return std::erf(x); }
};
struct Sigmoid {
  static HEDDLE_INLINE float of(float x) { return vsigmoid(x); }
  static HEDDLE_INLINE double of(double x) { return 1.0 / (1.0 + std::exp(-x)); }
};
struct Sqrt {
  template <class T>
  static HEDDLE_INLINE T of(T x) {
    return std::sqrt(x);
  }
};
struct PowHalf {  // pow(x, 0.5), which differs from sqrt at -inf and -0
  template <class T>
  static HEDDLE_INLINE T of(T x) {
    constexpr T kInfinity = std::numeric_limits<T>::infinity();
    return x == -kInfinity ? kInfinity : std::sqrt(x) + T(0);
  }
};
struct Cube {
  template <class T>
  static HEDDLE_INLINE T of(T x) {
    return x * x * x;
  }
};
struct Rsqrt {
  template <class T>
  static HEDDLE_INLINE T of(T x) {
    return T(1) / std::sqrt(x);
  }
};
struct Reciprocal {
  template <class T>
  static HEDDLE_INLINE T of(T x) {
    return T(1) / x;
  }
};
struct Floor {
  template <class T>
  static HEDDLE_INLINE T of(T x) {
    return std::floor(x);
  }
};
struct Ceil {
  template <class T>
  static HEDDLE_INLINE T of(T x) {
    return std::ceil(x);
  }
};
struct Round {  // halves to even: the rounding mode is the default one throughout
  template <class T>
  static HEDDLE_INLINE T of(T x) {
    return std::nearbyint(x);
  }
};
struct Sin {
  template <class T>
  static HEDDLE_INLINE T of(T x) {
    return std::sin(x);
  }
};
struct Cos {
  template <class T>
  static HEDDLE_INLINE T of(T x) {
    return std::cos(x);
  }
};
struct Softplus {  // log(1 + exp(x)) without overflow
  template <class T>
  static HEDDLE_INLINE T of(T x) {
    const T e = Exp::of(-std::fabs(x));
    // Below 2^-11 the second term of the series is enough, and log(1 + e) would lose e's digits.
    const T low = e < T(4.8828125e-4) ? e - T(0.5) * e * e : Log::of(T(1) + e);
    return (x < 0 ? T(0) : x) + low;
  }
};
struct Softsign {
  template <class T>
  static HEDDLE_INLINE T of(T x) {
    return x / (T(1) + std::fabs(x));
  }
};
struct Silu {
  template <class T>
  static HEDDLE_INLINE T of(T x) {
    return x * Sigmoid::of(x);
  }
};
struct Gelu {
  static HEDDLE_INLINE float of(float x) { return vgelu(x); }
  static HEDDLE_INLINE double of(double x) { return 0.5 * x * (1.0 + std::erf(x * 0.70710678118654752440)); }
};
struct GeluTanh {
  static HEDDLE_INLINE float of(float x) { return vgelu_tanh(x); }
  static HEDDLE_INLINE double of(double x) {
    return 0.5 * x * (1.0 + std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
  }
};
struct HardSigmoid {
  template <class T>
  static HEDDLE_INLINE T of(T x, T alpha, T beta) {
    const T y = alpha * x + beta;
    const T low = y < 0 ? T(0) : y;
    return low > 1 ? T(1) : low;
  }
};
struct HardSwish {
  template <class T>
  static HEDDLE_INLINE T of(T x) {
    return x * HardSigmoid::of(x, T(1.0 / 6), T(0.5));
  }
};
struct LeakyRelu {
  template <class T>
  static HEDDLE_INLINE T of(T x, T alpha, T) {
    return x < 0 ? alpha * x : x;
  }
};
struct Elu {
  static HEDDLE_INLINE float of(float x, float alpha, float) {
    // Near zero exp(x) - 1 would lose x's digits.
    const float low = x > -0.34f ? expm1_small(x) : vexp(x) - 1.0f;
    return x < 0 ? alpha * low : x;
  }
  static HEDDLE_INLINE double of(double x, double alpha, double) { return x < 0 ? alpha * std::expm1(x) : x; }
};
struct IsNan {
  template <class T>
  static HEDDLE_INLINE uint8_t of(T x) {
    return x != x;
  }
};
struct IsInf {
  template <class T>
  static HEDDLE_INLINE uint8_t of(T x, T positive, T negative) {
    constexpr T kInfinity = std::numeric_limits<T>::infinity();
    return (x == kInfinity && positive != 0) || (x == -kInfinity && negative != 0);
  }
};
struct Not {
  static HEDDLE_INLINE uint8_t of(uint8_t x) { return x == 0; }
};

template <class Op>
constexpr BlockEntry f32(std::string_view op) {
  return unary<Op, float>(op);
}
template <class Op>
constexpr BlockEntry f64(std::string_view op) {
  return unary<Op, double>(op);
}

constexpr BlockEntry kUnary[] = {
    f32<Abs>("Abs"),
    f64<Abs>("Abs"),
    unary<Abs, int64_t>("Abs"),
    f32<Neg>("Neg"),
    f64<Neg>("Neg"),
    unary<Neg, int64_t>("Neg"),
    f32<Square>("Square"),
    f64<Square>("Square"),
    unary<Square, int64_t>("Square"),
    f32<Sign>("Sign"),
    f64<Sign>("Sign"),
    unary<Sign, int64_t>("Sign"),
    f32<Relu>("Relu"),
    f64<Relu>("Relu"),
    unary<Relu, int64_t>("Relu"),
    f32<Copy>("Identity"),
    f64<Copy>("Identity"),
    unary<Copy, int64_t>("Identity"),
    unary<Copy, uint8_t>("Identity"),
    f32<Exp>("Exp"),
    f64<Exp>("Exp"),
    f32<Log>("Log"),
    f64<Log>("Log"),
    f32<Sqrt>("Sqrt"),
    f64<Sqrt>("Sqrt"),
    f32<Rsqrt>("Rsqrt"),
    f64<Rsqrt>("Rsqrt"),
    f32<PowHalf>("Pow:0.5"),
    f64<PowHalf>("Pow:0.5"),
    f32<Cube>("Pow:3"),
    f64<Cube>("Pow:3"),
    f32<Reciprocal>("Reciprocal"),
    f64<Reciprocal>("Reciprocal"),
    f32<Erf>("Erf"),
    f64<Erf>("Erf"),
    f32<Tanh>("Tanh"),
    f64<Tanh>("Tanh"),
    f32<Sigmoid>("Sigmoid"),
    f64<Sigmoid>("Sigmoid"),
    f32<Floor>("Floor"),
    f64<Floor>("Floor"),
    f32<Ceil>("Ceil"),
    f64<Ceil>("Ceil"),
    f32<Round>("Round"),
    f64<Round>("Round"),
    f32<Sin>("Sin"),
    f64<Sin>("Sin"),
    f32<Cos>("Cos"),
    f64<Cos>("Cos"),
    f32<Softplus>("Softplus"),
    f64<Softplus>("Softplus"),
    f32<Softsign>("Softsign"),
    f64<Softsign>("Softsign"),
    tuned<HardSigmoid, float>("HardSigmoid"),
    tuned<HardSigmoid, double>("HardSigmoid"),
    f32<HardSwish>("HardSwish"),
    f64<HardSwish>("HardSwish"),
    tuned<LeakyRelu, float>("LeakyRelu"),
    tuned<LeakyRelu, double>("LeakyRelu"),
    tuned<Elu, float>("Elu"),
    tuned<Elu, double>("Elu"),
    f32<Silu>("Silu"),
    f64<Silu>("Silu"),
    f32<Gelu>("Gelu"),
    f64<Gelu>("Gelu"),
    f32<GeluTanh>("Gelu:tanh"),
    f64<GeluTanh>("Gelu:tanh"),
    unary<IsNan, float, uint8_t>("IsNaN"),
    unary<IsNan, double, uint8_t>("IsNaN"),
    tuned<IsInf, float, uint8_t>("IsInf"),
    tuned<IsInf, double, uint8_t>("IsInf"),
    unary<Not, uint8_t>("Not"),
};

}  // namespace

std::span<const BlockEntry> unary_blocks() { return kUnary; }

}  // namespace heddle::host
