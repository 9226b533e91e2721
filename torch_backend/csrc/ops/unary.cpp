// unary.cpp: functions of one tensor, element by element, without parameters. Those with: activation.cpp.
#include <cmath>
#include <numbers>

#include "term.h"

namespace heddle::torch_backend {
namespace {

constexpr double kLn2 = std::numbers::ln2;

// ---- numbers, whole ones too

template <Name op>
Term number_map(const Term& x) {
  return x.boolean() ? x : x.apply(op.text);
}

// Whole numbers are their own floor.
template <Term (*f)(const Term&)>
Term real_only(const Term& x) {
  return x.real() ? f(x) : x;
}

Term sign(const Term& x) {
  const Term direction = number_map<"Sign">(x);
  return x.real() ? select(is_nan(x), 0, direction) : direction;
}

Term fraction(const Term& x) { return x - trunc(x); }

// ---- floats; whole numbers come as f32

Term exp2(const Term& x) { return pow(x.like(2), x); }
Term log2(const Term& x) { return log(x) * (1 / kLn2); }
Term log10(const Term& x) { return log(x) * (1 / std::numbers::ln10); }
Term degrees(const Term& x) { return x * (180 / std::numbers::pi); }
Term radians(const Term& x) { return x * (std::numbers::pi / 180); }

Term sinc(const Term& x) {
  const Term angle = x * std::numbers::pi;
  return select(x == 0, 1, angle.apply("Sin") / angle);
}

// Where 1 - erf(x) would lose its digits: Gelu(z) / z is half of erfc(-z / sqrt(2)).
Term erfc(const Term& x) {
  const Term held = Term(x.call(), x.call().node("Clip", {x, x.like(0.5), x.like(20)}));
  const Term z = held * -std::numbers::sqrt2;
  return select(x < 0.5, 1 - x.apply("Erf"), 2 * z.apply("Gelu") / z);
}

// Winitzki's approximation, and Newton's method in f64: near 1 the slope of erf has few digits in f32.
Term erfinv(const Term& given) {
  constexpr double kShape = 0.147;
  const Term x = given.cast(DType::f64);
  const Term held = Term(x.call(), x.call().node("Clip", {x, x.like(-1 + 1e-15), x.like(1 - 1e-15)}));
  const Term curve = log((1 - held) * (1 + held));
  const Term middle = curve * 0.5 + 2 / (std::numbers::pi * kShape);
  const Term size = sqrt(sqrt(middle * middle - curve * (1 / kShape)) - middle);
  Term root = copy_sign(size, held);
  for (int step = 0; step < 4; ++step) {
    const Term slope = exp(-(root * root)) * (2 * std::numbers::inv_sqrtpi);
    root = root - (root.apply("Erf") - held) / slope;
  }
  const Term one = abs(x);
  const Term outside = select(one == 1, x * INFINITY, NAN);
  return select(one < 1, root, outside).cast(given.dtype());
}

Term entropy(const Term& x) {
  return select(x > 0, -x * log(x), select(x == 0, 0, select(is_nan(x), x, -INFINITY)));
}

// ---- to bool

// Whole numbers are never infinite nor NaN; f32 holds their range.
Term as_real(Call& call) {
  const Term x = given(call, 0);
  return x.real() ? x : x.cast(DType::f32);
}

template <Name op>
Results real_test(Call& call) {
  return Value(as_real(call).apply(op.text));
}

template <int positive>
Results infinite_test(Call& call) {
  const Term x = as_real(call);
  return Value(is_infinite(x) & (positive != 0 ? x > 0 : x < 0));
}

Results sign_test(Call& call) {
  const Term x = given(call, 0);
  if (x.boolean()) return Value(x & !x);
  return Value(x.real() ? sign_bit(x) : x < 0);
}

Results logical_not(Call& call) { return Value(!given(call, 0).cast(DType::boolean)); }

Results bitwise_not(Call& call) {
  const Term x = given(call, 0);
  return Value(x.apply(x.boolean() ? "Not" : "BitwiseNot"));
}

// ---- others

Results round_decimals(Call& call) {
  const Term x = operand(call, 0);
  const int64_t decimals = call.integer(1);
  if (!x.real()) {
    if (decimals < 0) call.unsupported("whole numbers are not rounded to tens; make them floats");
    return Value(x);
  }
  const double power = std::pow(10.0, static_cast<double>(std::abs(decimals)));
  if (decimals == 0) return Value(x.apply("Round"));
  if (decimals > 0) return Value((x * power).apply("Round") / power);
  return Value((x / power).apply("Round") * power);
}

Results copy(Call& call) { return Value(given(call, 0).apply("Identity")); }

Results convert(Call& call) {
  if (call.dtype(call.tensor(0)) == call.result_dtype()) return copy(call);
  return Value(given(call, 0).cast(call.result_dtype()));
}

}  // namespace

std::span<const Entry> unary_entries() {
  static constexpr Entry kEntries[] = {
      {"aten::abs", of_operand<number_map<"Abs">>},
      {"aten::neg", of_operand<number_map<"Neg">>},
      {"aten::sign", of_operand<sign>},
      {"aten::sgn", of_operand<sign>},
      {"aten::ceil", of_operand<real_only<map<"Ceil">>>},
      {"aten::floor", of_operand<real_only<map<"Floor">>>},
      {"aten::round", of_operand<real_only<map<"Round">>>},
      {"aten::trunc", of_operand<real_only<trunc>>},
      {"aten::round.decimals", round_decimals},
      {"aten::frac", of_operand<fraction>},
      {"aten::sigmoid", of_operand<map<"Sigmoid">>},
      {"aten::tanh", of_operand<map<"Tanh">>},
      {"aten::exp", of_operand<map<"Exp">>},
      {"aten::exp2", of_operand<exp2>},
      {"aten::expm1", of_operand<expm1>},
      {"aten::log", of_operand<map<"Log">>},
      {"aten::log2", of_operand<log2>},
      {"aten::log10", of_operand<log10>},
      {"aten::log1p", of_operand<log1p>},
      {"aten::sqrt", of_operand<map<"Sqrt">>},
      {"aten::rsqrt", of_operand<map<"Rsqrt">>},
      {"aten::reciprocal", of_operand<map<"Reciprocal">>},
      {"aten::sin", of_operand<map<"Sin">>},
      {"aten::cos", of_operand<map<"Cos">>},
      {"aten::tan", of_operand<map<"Tan">>},
      {"aten::asin", of_operand<map<"Asin">>},
      {"aten::acos", of_operand<map<"Acos">>},
      {"aten::atan", of_operand<map<"Atan">>},
      {"aten::sinh", of_operand<map<"Sinh">>},
      {"aten::cosh", of_operand<map<"Cosh">>},
      {"aten::asinh", of_operand<map<"Asinh">>},
      {"aten::acosh", of_operand<map<"Acosh">>},
      {"aten::atanh", of_operand<map<"Atanh">>},
      {"aten::erf", of_operand<map<"Erf">>},
      {"aten::erfc", of_operand<erfc>},
      {"aten::erfinv", of_operand<erfinv>},
      {"aten::sinc", of_operand<sinc>},
      {"aten::special_entr", of_operand<entropy>},
      {"aten::rad2deg", of_operand<degrees>},
      {"aten::deg2rad", of_operand<radians>},
      {"aten::isnan", real_test<"IsNaN">},
      {"aten::isinf", real_test<"IsInf">},
      {"aten::isposinf", infinite_test<1>},
      {"aten::isneginf", infinite_test<0>},
      {"aten::signbit", sign_test},
      {"aten::logical_not", logical_not},
      {"aten::bitwise_not", bitwise_not},
      {"aten::clone", copy},
      {"aten::alias", copy},
      {"aten::detach", copy},
      {"aten::lift_fresh", copy},
      {"aten::lift_fresh_copy", copy},
      {"aten::_to_copy", convert},
  };
  return kEntries;
}

}  // namespace heddle::torch_backend
