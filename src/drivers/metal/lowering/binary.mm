// Operands that broadcast together, as MPSGraph's do: from the right.
#include "drivers/metal/lowering/lowering.h"

namespace heddle::metal {
namespace {

template <auto f>  // Emit::f(x, y)
Status two(Lowering& l) {
  l.outputs[0] = (l.emit.*f)(l.inputs[0], l.inputs[1]);
  return {};
}

// min and max of any number.
template <auto f>
Status fold(Lowering& l) {
  Tensor result = l.inputs[0];
  for (size_t i = 1; i < l.inputs.size(); ++i) result = (l.emit.*f)(result, l.inputs[i]);
  l.outputs[0] = result;
  return {};
}

// Comparisons of bool are those of 0 and 1.
template <auto f>
Status compare(Lowering& l) {
  const auto number = [&](Tensor x) {
    return dtype_of(x) == ir::DType::kBool ? l.emit.cast(x, ir::DType::kI32) : x;
  };
  l.outputs[0] = (l.emit.*f)(number(l.inputs[0]), number(l.inputs[1]));
  return {};
}

Status lower_div(Lowering& l) {
  const bool floats = ir::is_float(dtype_of(l.inputs[0]));
  l.outputs[0] =
      floats ? l.emit.div(l.inputs[0], l.inputs[1]) : l.emit.divide_whole(l.inputs[0], l.inputs[1]);
  return {};
}

// The remainder of C's division; unless fmod=1, with the divisor's sign.
Status lower_mod(Lowering& l) {
  const Emit& e = l.emit;
  Tensor x = l.inputs[0], y = l.inputs[1];
  Tensor rest = ir::is_float(dtype_of(x)) ? e.fmod(x, y) : e.remainder_whole(x, y);
  if (l.attributes().i64("fmod") == 0) {
    Tensor zero = e.like(0, rest);
    Tensor signs = e.differ(e.less(rest, zero), e.less(y, e.like(0, y)));
    rest = e.choose(e.both(signs, e.not_equal(rest, zero)), e.add(rest, y), rest);
  }
  l.outputs[0] = rest;
  return {};
}

// By squaring, as far as the exponent's bits go: exact, and wraps as products do.
Tensor integer_power(const Emit& e, Tensor base, Tensor exponent) {
  const ir::DType dtype = dtype_of(base);
  const int bits = static_cast<int>(8 * ir::size_of(dtype)) - (dtype == ir::DType::kU8 ? 0 : 1);
  exponent = e.cast(exponent, dtype);
  Tensor one = e.like(1, base), zero = e.like(0, base);
  Tensor rest = e.max(exponent, zero), result = one, square = base;
  for (int bit = 0; bit < bits; ++bit) {
    Tensor half = e.shift_right(rest, one);
    Tensor odd = e.greater(e.bit_and(rest, one), zero);
    result = e.mul(result, e.choose(odd, square, one));
    square = e.mul(square, square);
    rest = half;
  }
  if (dtype == ir::DType::kU8) return result;
  // To a negative power: 1 stays, -1 alternates, the rest is below 1.
  Tensor minus = e.like(-1, base);
  Tensor even = e.equal(e.bit_and(exponent, one), zero);
  Tensor below =
      e.choose(e.equal(base, one), one, e.choose(e.equal(base, minus), e.choose(even, one, minus), zero));
  return e.choose(e.less(exponent, zero), below, result);
}

Status lower_pow(Lowering& l) {
  const Emit& e = l.emit;
  Tensor x = l.inputs[0], y = l.inputs[1];
  const ir::DType dtype = dtype_of(x);
  if (ir::is_integer(dtype) && ir::is_integer(dtype_of(y))) {
    if (ir::size_of(dtype_of(y)) > ir::size_of(dtype))
      return Status::unsupported("the exponent is ", dtype_of(y), ", wider than the base's ", dtype);
    l.outputs[0] = integer_power(e, x, y);
    return {};
  }
  l.outputs[0] = e.cast(e.power(e.cast(x, ir::DType::kF32), e.cast(y, ir::DType::kF32)), dtype);
  return {};
}

Status lower_prelu(Lowering& l) {
  Tensor x = l.inputs[0];
  l.outputs[0] = l.emit.choose(l.emit.less(x, l.emit.like(0, x)), l.emit.mul(x, l.inputs[1]), x);
  return {};
}

Status lower_where(Lowering& l) {
  l.outputs[0] = l.emit.choose(l.inputs[0], l.inputs[1], l.inputs[2]);
  return {};
}

// By the width and more, or by less than nothing, only what the sign fills in is left; MPSGraph, as the
// hardware, takes the shift modulo the width.
Status lower_shift(Lowering& l) {
  const Emit& e = l.emit;
  Tensor x = l.inputs[0], by = l.inputs[1];
  const int64_t width = 8 * ir::size_of(dtype_of(x));
  const auto number = [&](int64_t value) { return e.whole(value, dtype_of(x)); };
  Tensor within = e.both(e.greater_equal(by, number(0)), e.less(by, number(width)));
  Tensor safe = e.choose(within, by, number(0));
  if (l.attributes().str("direction") == "LEFT") {
    l.outputs[0] = e.choose(within, e.shift_left(x, safe), number(0));
  } else {
    Tensor rest =
        dtype_of(x) == ir::DType::kU8 ? number(0) : e.choose(e.less(x, number(0)), number(-1), number(0));
    l.outputs[0] = e.choose(within, e.shift_right(x, safe), rest);
  }
  return {};
}

}  // namespace

std::span<const PathEntry> binary_paths() {
  using enum Path;
  static constexpr PathEntry kEntries[] = {
      {"Add", graph, two<&Emit::add>, kWide, kNarrow},
      {"Sub", graph, two<&Emit::sub>, kWide, kNarrow},
      {"Mul", graph, two<&Emit::mul>, kWide, kNarrow},
      {"Div", composed, lower_div, kWide, "integers: x / 0 is 0, which the hardware leaves undefined"},
      {"Mod", composed, lower_mod, kWide, "MPSGraph's floorModulo of floats divides first and rounds"},
      {"Pow", composed, lower_pow, kWide, "integers: by squaring, exactly; MPSGraph's goes through floats"},
      {"Min", graph, fold<&Emit::min>, kWide, "the operator that keeps NaN"},
      {"Max", graph, fold<&Emit::max>, kWide, "the operator that keeps NaN"},
      {"Equal", graph, compare<&Emit::equal>, kWide, kNarrow},
      {"Less", graph, compare<&Emit::less>, kWide, kNarrow},
      {"LessOrEqual", graph, compare<&Emit::less_equal>, kWide, kNarrow},
      {"Greater", graph, compare<&Emit::greater>, kWide, kNarrow},
      {"GreaterOrEqual", graph, compare<&Emit::greater_equal>, kWide, kNarrow},
      {"And", graph, two<&Emit::both>},
      {"Or", graph, two<&Emit::either>},
      {"Xor", graph, two<&Emit::differ>},
      {"BitwiseAnd", graph, two<&Emit::bit_and>},
      {"BitwiseOr", graph, two<&Emit::bit_or>},
      {"BitwiseXor", graph, two<&Emit::bit_xor>},
      {"BitShift", composed, lower_shift, kPlain, "the hardware takes the shift modulo the width"},
      {"PRelu", composed, lower_prelu, kWide, "MPSGraph's leakyReLU takes one slope"},
      {"Where", graph, lower_where},
  };
  return kEntries;
}

}  // namespace heddle::metal
