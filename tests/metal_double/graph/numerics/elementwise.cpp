#include "tests/metal_double/graph/numerics/elementwise.h"

#include <algorithm>
#include <limits>

#include "tests/metal_double/graph/numerics/strided.h"

namespace heddle::metal_double::numerics {
namespace {

// To and From are the types in memory.
template <class To, class From, class F>
Array mapped(MPSDataType type, const Array& x, F f) {
  Array out = Array::zeros(type, x.shape());
  const From* from = x.read<From>();
  To* to = out.write<To>();
  for (int64_t i = 0; i < x.elements(); ++i) to[i] = static_cast<To>(f(static_cast<Computed<From>>(from[i])));
  return out;
}

constexpr auto kOfFloats = [](MPSDataType type, auto f) { return with_floats(type, f); };
constexpr auto kOfNumbers = [](MPSDataType type, auto f) { return with_numbers(type, f); };
constexpr auto kOfIntegers = [](MPSDataType type, auto f) { return with_integers(type, f); };

// `with` is one of those: the types that f is for.
template <class With, class F>
Array of_one(With with, const Array& x, F f) {
  return with(x.type(), [&](auto tag) {
    using T = decltype(tag);
    return mapped<T, T>(x.type(), x, f);
  });
}

template <class To, class From, class F>
Array joined(MPSDataType type, const Array& x, const Array& y, F f) {
  const bool plain = x.shape() == y.shape();
  const Shape shape = *broadcast_shape(x.shape(), y.shape());
  const Shape visited = plain ? Shape{x.elements()} : shape;
  Array out = Array::zeros(type, shape);
  const From *const a = x.read<From>(), *const b = y.read<From>();
  To* to = out.write<To>();
  const std::array<Strides, 2> strides = {plain ? Strides{1} : broadcast_strides(x.shape(), shape),
                                          plain ? Strides{1} : broadcast_strides(y.shape(), shape)};
  each_run<2>(visited, strides, {}, [&](const auto& at, int64_t count, const auto& step) {
    for (int64_t i = 0; i < count; ++i)
      *to++ = static_cast<To>(f(static_cast<Computed<From>>(a[at[0] + i * step[0]]),
                                static_cast<Computed<From>>(b[at[1] + i * step[1]])));
  });
  return out;
}

template <class With, class F>
Array of_two(With with, const Array& x, const Array& y, F f) {
  return with(x.type(), [&](auto tag) {
    using T = decltype(tag);
    return joined<T, T>(x.type(), x, y, f);
  });
}
template <class F>
Array compared(const Array& x, const Array& y, F f) {
  return with_numbers(x.type(),
                      [&](auto tag) { return joined<uint8_t, decltype(tag)>(MPSDataTypeBool, x, y, f); });
}

// Integers wrap: computed without a sign.
template <class T, class F>
T wrapping(T x, T y, F f) {
  if constexpr (std::is_floating_point_v<T>) {
    return f(x, y);
  } else {
    return static_cast<T>(f(static_cast<uint64_t>(x), static_cast<uint64_t>(y)));
  }
}

template <class T>
T quotient(T x, T y) {
  if constexpr (std::is_floating_point_v<T>) return x / y;
  if (y == 0) return static_cast<T>(-1);
  const T zero = 0;
  if (std::is_signed_v<T> && y == static_cast<T>(-1)) return wrapping(zero, x, std::minus<>());
  return static_cast<T>(x / y);
}

template <class T>
bool unordered(T x, T y) {
  if constexpr (std::is_floating_point_v<T>) return std::isunordered(x, y);
  return false;
}
template <class T>
T lesser(T x, T y) {
  return unordered(x, y) ? (x == x ? x : y) : std::min(x, y);
}
template <class T>
T larger(T x, T y) {
  return unordered(x, y) ? (x == x ? x : y) : std::max(x, y);
}

template <class T>
int modulo_width(T y) {
  return static_cast<int>(static_cast<uint64_t>(y) % (8 * sizeof(T)));
}

// What `select` does with elements of one size.
template <class Bits>
void choose(Array& out, const Array& predicate, const Array& yes, const Array& no) {
  const uint8_t* const which = predicate.read<uint8_t>();
  const Bits *const y = yes.read<Bits>(), *const n = no.read<Bits>();
  Bits* to = out.write<Bits>();
  const Shape& shape = out.shape();
  const std::array<Strides, 3> strides = {broadcast_strides(predicate.shape(), shape),
                                          broadcast_strides(yes.shape(), shape),
                                          broadcast_strides(no.shape(), shape)};
  each_run<3>(shape, strides, {}, [&](const auto& at, int64_t count, const auto& step) {
    for (int64_t i = 0; i < count; ++i)
      *to++ = which[at[0] + i * step[0]] != 0 ? y[at[1] + i * step[1]] : n[at[2] + i * step[2]];
  });
}

// From is a type in memory, or double.
template <class To, class From>
To converted(From from) {
  if constexpr (kFloats<To>) {
    return static_cast<To>(static_cast<float>(from));
  } else if constexpr (std::is_integral_v<From>) {
    return static_cast<To>(from);
  } else {
    const double x = std::trunc(static_cast<Computed<From>>(from));
    using Limits = std::numeric_limits<To>;
    const double high = std::ldexp(1.0, Limits::digits), low = std::is_signed_v<To> ? -high : 0;
    if (x >= low && x < high) return static_cast<To>(x);
    return std::is_signed_v<To> ? Limits::min() : Limits::max();
  }
}

template <class F>
auto with_all(MPSDataType type, F&& f) {
  return type == MPSDataTypeBFloat16 ? f(BFloat{}) : with_numbers(type, f);
}

}  // namespace

#define OF_FLOAT(name, expression)                                       \
  Array name(const Array& array) {                                       \
    return of_one(kOfFloats, array, [](float x) { return expression; }); \
  }
OF_FLOAT(exponent, std::exp(x))
OF_FLOAT(logarithm, std::log(x))
OF_FLOAT(square_root, std::sqrt(x))
OF_FLOAT(reciprocal, 1 / x)
OF_FLOAT(ceil, std::ceil(x))
OF_FLOAT(floor, std::floor(x))
OF_FLOAT(rint, std::nearbyint(x))
OF_FLOAT(sin, std::sin(x))
OF_FLOAT(cos, std::cos(x))
OF_FLOAT(tan, std::tan(x))
OF_FLOAT(sinh, std::sinh(x))
OF_FLOAT(cosh, std::cosh(x))
OF_FLOAT(asin, std::asin(x))
OF_FLOAT(acos, std::acos(x))
OF_FLOAT(atan, std::atan(x))
OF_FLOAT(asinh, std::asinh(x))
OF_FLOAT(acosh, std::acosh(x))
OF_FLOAT(atanh, std::atanh(x))
OF_FLOAT(tanh, std::tanh(x))
OF_FLOAT(erf, std::erf(x))
OF_FLOAT(sigmoid, 1 / (1 + std::exp(-x)))
#undef OF_FLOAT

#define TEST_OF_FLOAT(name, expression)                                                                  \
  Array name(const Array& array) {                                                                       \
    return with_floats(array.type(), [&](auto tag) {                                                     \
      return mapped<uint8_t, decltype(tag)>(MPSDataTypeBool, array, [](float x) { return expression; }); \
    });                                                                                                  \
  }
TEST_OF_FLOAT(is_infinite, std::isinf(x))
TEST_OF_FLOAT(is_nan, std::isnan(x))
#undef TEST_OF_FLOAT

Array modulo(const Array& x, const Array& y) {
  return of_two(kOfFloats, x, y, [](float a, float b) { return std::fmod(a, b); });
}
Array power(const Array& x, const Array& y) {
  return of_two(kOfFloats, x, y, [](float a, float b) { return std::pow(a, b); });
}

Array square(const Array& x) {
  return of_one(kOfNumbers, x, [](auto a) { return wrapping(a, a, std::multiplies<>()); });
}
Array absolute(const Array& x) {
  return of_one(kOfNumbers, x, [](auto a) {
    if constexpr (std::is_floating_point_v<decltype(a)>) return std::fabs(a);
    return a < 0 ? wrapping(decltype(a){}, a, std::minus<>()) : a;
  });
}
Array negative(const Array& x) {
  return of_one(kOfNumbers, x, [](auto a) {
    if constexpr (std::is_floating_point_v<decltype(a)>) return -a;
    return wrapping(decltype(a){}, a, std::minus<>());
  });
}
Array sign(const Array& x) {
  return of_one(kOfNumbers, x, [](auto a) {
    using T = decltype(a);
    if (a == 0) return a;  // with its own sign
    return static_cast<T>((a > 0) - (a < 0));
  });
}

#define OF_NUMBERS(name, expression)                                                   \
  Array name(const Array& left, const Array& right) {                                  \
    return of_two(kOfNumbers, left, right, [](auto x, auto y) { return expression; }); \
  }
OF_NUMBERS(add, wrapping(x, y, std::plus<>()))
OF_NUMBERS(subtract, wrapping(x, y, std::minus<>()))
OF_NUMBERS(multiply, wrapping(x, y, std::multiplies<>()))
OF_NUMBERS(divide, quotient(x, y))
OF_NUMBERS(minimum, lesser(x, y))
OF_NUMBERS(maximum, larger(x, y))
#undef OF_NUMBERS

Array minimum_with_nan(const Array& left, const Array& right) {
  return of_two(kOfFloats, left, right,
                [](float x, float y) { return unordered(x, y) ? x + y : std::min(x, y); });
}
Array maximum_with_nan(const Array& left, const Array& right) {
  return of_two(kOfFloats, left, right,
                [](float x, float y) { return unordered(x, y) ? x + y : std::max(x, y); });
}

#define COMPARED(name, operation)                                               \
  Array name(const Array& left, const Array& right) {                           \
    return compared(left, right, [](auto x, auto y) { return x operation y; }); \
  }
COMPARED(equal, ==)
COMPARED(not_equal, !=)
COMPARED(less, <)
COMPARED(less_or_equal, <=)
COMPARED(greater, >)
COMPARED(greater_or_equal, >=)
#undef COMPARED

#define OF_INTEGERS(name, expression)                                                   \
  Array name(const Array& left, const Array& right) {                                   \
    return of_two(kOfIntegers, left, right, [](auto x, auto y) { return expression; }); \
  }
OF_INTEGERS(bitwise_and, x& y)
OF_INTEGERS(bitwise_or, x | y)
OF_INTEGERS(bitwise_xor, x ^ y)
OF_INTEGERS(shift_left, static_cast<uint64_t>(x) << modulo_width(y))
OF_INTEGERS(shift_right, x >> modulo_width(y))
#undef OF_INTEGERS

Array bitwise_not(const Array& x) {
  return of_one(kOfIntegers, x, [](auto a) { return ~a; });
}
Array logical_not(const Array& x) {
  return mapped<uint8_t, uint8_t>(MPSDataTypeBool, x, [](uint8_t a) { return a == 0; });
}

Array identity(const Array& x) { return x; }

Array select(const Array& predicate, const Array& yes, const Array& no) {
  const Shape shape = *broadcast_shape(*broadcast_shape(predicate.shape(), yes.shape()), no.shape());
  Array out = Array::zeros(yes.type(), shape);
  const auto of_size = size_of(yes.type()) == 1   ? choose<uint8_t>
                       : size_of(yes.type()) == 2 ? choose<uint16_t>
                       : size_of(yes.type()) == 4 ? choose<uint32_t>
                                                  : choose<uint64_t>;
  of_size(out, predicate, yes, no);
  return out;
}

Array cast(const Array& x, MPSDataType type) {
  Array out = Array::zeros(type, x.shape());
  with_all(x.type(), [&](auto from) {
    with_all(type, [&](auto to) {
      for (int64_t i = 0; i < x.elements(); ++i) {
        out.write<decltype(to)>()[i] = converted<decltype(to)>(x.read<decltype(from)>()[i]);
      }
    });
  });
  return out;
}

Array scalar(MPSDataType type, double value) {
  Array out = Array::zeros(type, {1});
  with_all(type, [&](auto to) { *out.write<decltype(to)>() = converted<decltype(to)>(value); });
  return out;
}

}  // namespace heddle::metal_double::numerics
