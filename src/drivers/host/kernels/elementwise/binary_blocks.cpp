#include <cmath>

#include "drivers/host/kernels/elementwise/block_loops.h"
#include "drivers/host/kernels/elementwise/vector_math.h"

namespace heddle::host {

namespace {

HEDDLE_INLINE uint64_t bits(int64_t x) { return static_cast<uint64_t>(x); }

struct Add {
  template <class T>
  static HEDDLE_INLINE T of(T a, T b) {
    if constexpr (kFloating<T>)
      return a + b;
    else
      return static_cast<T>(bits(a) + bits(b));
  }
};
struct Sub {
  template <class T>
  static HEDDLE_INLINE T of(T a, T b) {
    if constexpr (kFloating<T>)
      return a - b;
    else
      return static_cast<T>(bits(a) - bits(b));
  }
};
struct Mul {
  template <class T>
  static HEDDLE_INLINE T of(T a, T b) {
    if constexpr (kFloating<T>)
      return a * b;
    else
      return static_cast<T>(bits(a) * bits(b));
  }
};
struct Div {  // integers truncate; x / 0 is 0, and the one overflow wraps, where the machine would trap
  template <class T>
  static HEDDLE_INLINE T of(T a, T b) {
    if constexpr (kFloating<T>)
      return a / b;
    else if (b == 0)
      return 0;
    else
      return b == -1 ? static_cast<T>(0 - bits(a)) : a / b;
  }
};
struct Mod {  // the sign of the divisor, as in Python
  template <class T>
  static HEDDLE_INLINE T of(T a, T b) {
    if constexpr (kFloating<T>) {
      const T r = std::fmod(a, b);
      return r == 0 ? std::copysign(r, b) : (r < 0) != (b < 0) ? r + b : r;
    } else {
      if (b == 0 || b == -1) return 0;
      const T r = a % b;
      return r != 0 && (r < 0) != (b < 0) ? r + b : r;
    }
  }
};
struct Fmod {  // the sign of the dividend, as in C
  template <class T>
  static HEDDLE_INLINE T of(T a, T b) {
    if constexpr (kFloating<T>)
      return std::fmod(a, b);
    else
      return b == 0 || b == -1 ? 0 : a % b;
  }
};
struct Pow {
  static HEDDLE_INLINE float of(float a, float b) { return std::pow(a, b); }
  static HEDDLE_INLINE double of(double a, double b) { return std::pow(a, b); }
  static HEDDLE_INLINE int64_t of(int64_t a, int64_t b) {
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 == 0 ? 1 : -1) : 0;
    uint64_t power = 1, base = bits(a);
    for (uint64_t e = bits(b); e != 0; e >>= 1) {
      if (e & 1) power *= base;
      base *= base;
    }
    return static_cast<int64_t>(power);
  }
};
struct Min {  // a NaN on either side wins
  template <class T>
  static HEDDLE_INLINE T of(T a, T b) {
    const T least = b < a ? b : a;
    return b == b ? least : b;
  }
};
struct Max {
  template <class T>
  static HEDDLE_INLINE T of(T a, T b) {
    const T most = b > a ? b : a;
    return b == b ? most : b;
  }
};
struct PRelu {
  template <class T>
  static HEDDLE_INLINE T of(T x, T slope) {
    return x < 0 ? Mul::of(x, slope) : x;
  }
};
struct Equal {
  template <class T>
  static HEDDLE_INLINE uint8_t of(T a, T b) {
    return a == b;
  }
};
struct Less {
  template <class T>
  static HEDDLE_INLINE uint8_t of(T a, T b) {
    return a < b;
  }
};
struct LessOrEqual {
  template <class T>
  static HEDDLE_INLINE uint8_t of(T a, T b) {
    return a <= b;
  }
};
struct Greater {
  template <class T>
  static HEDDLE_INLINE uint8_t of(T a, T b) {
    return a > b;
  }
};
struct GreaterOrEqual {
  template <class T>
  static HEDDLE_INLINE uint8_t of(T a, T b) {
    return a >= b;
  }
};
struct And {
  static HEDDLE_INLINE uint8_t of(uint8_t a, uint8_t b) { return a & b; }
};
struct Or {
  static HEDDLE_INLINE uint8_t of(uint8_t a, uint8_t b) { return a | b; }
};
struct Xor {
  static HEDDLE_INLINE uint8_t of(uint8_t a, uint8_t b) { return a ^ b; }
};

template <class T>
HEDDLE_VECTORISED void where_loop(const BlockArgs& args) {
  const uint8_t* condition = static_cast<const uint8_t*>(args.a);
  const T* x = static_cast<const T*>(args.b);
  const T* y = static_cast<const T*>(args.c);
  T* d = static_cast<T*>(args.d);
  const int64_t n = args.count;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const T yes = x[i], no = y[i];
    d[i] = condition[i] ? yes : no;
  }
}

template <class T>
constexpr BlockEntry where() {
  return {"Where", kind_for<T>(), kind_for<T>(), &where_loop<T>};
}

constexpr BlockEntry kBinary[] = {
    binary<Add, float>("Add"),
    binary<Add, double>("Add"),
    binary<Add, int64_t>("Add"),
    binary<Sub, float>("Sub"),
    binary<Sub, double>("Sub"),
    binary<Sub, int64_t>("Sub"),
    binary<Mul, float>("Mul"),
    binary<Mul, double>("Mul"),
    binary<Mul, int64_t>("Mul"),
    binary<Div, float>("Div"),
    binary<Div, double>("Div"),
    binary<Div, int64_t>("Div"),
    binary<Mod, float>("Mod"),
    binary<Mod, double>("Mod"),
    binary<Mod, int64_t>("Mod"),
    binary<Fmod, float>("Mod:fmod"),
    binary<Fmod, double>("Mod:fmod"),
    binary<Fmod, int64_t>("Mod:fmod"),
    binary<Pow, float>("Pow"),
    binary<Pow, double>("Pow"),
    binary<Pow, int64_t>("Pow"),
    binary<Min, float>("Min"),
    binary<Min, double>("Min"),
    binary<Min, int64_t>("Min"),
    binary<Max, float>("Max"),
    binary<Max, double>("Max"),
    binary<Max, int64_t>("Max"),
    binary<PRelu, float>("PRelu"),
    binary<PRelu, double>("PRelu"),
    binary<PRelu, int64_t>("PRelu"),
    binary<Equal, float, uint8_t>("Equal"),
    binary<Equal, double, uint8_t>("Equal"),
    binary<Equal, int64_t, uint8_t>("Equal"),
    binary<Equal, uint8_t, uint8_t>("Equal"),
    binary<Less, float, uint8_t>("Less"),
    binary<Less, double, uint8_t>("Less"),
    binary<Less, int64_t, uint8_t>("Less"),
    binary<LessOrEqual, float, uint8_t>("LessOrEqual"),
    binary<LessOrEqual, double, uint8_t>("LessOrEqual"),
    binary<LessOrEqual, int64_t, uint8_t>("LessOrEqual"),
    binary<Greater, float, uint8_t>("Greater"),
    binary<Greater, double, uint8_t>("Greater"),
    binary<Greater, int64_t, uint8_t>("Greater"),
    binary<GreaterOrEqual, float, uint8_t>("GreaterOrEqual"),
    binary<GreaterOrEqual, double, uint8_t>("GreaterOrEqual"),
    binary<GreaterOrEqual, int64_t, uint8_t>("GreaterOrEqual"),
    binary<And, uint8_t>("And"),
    binary<Or, uint8_t>("Or"),
    binary<Xor, uint8_t>("Xor"),
    where<float>(),
    where<double>(),
    where<int64_t>(),
    where<uint8_t>(),
};

}  // namespace

std::span<const BlockEntry> binary_blocks() { return kBinary; }

}  // namespace heddle::host
