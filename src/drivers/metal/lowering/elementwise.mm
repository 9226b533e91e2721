// One operand: activations, roots, trigonometry, casts; and chains of element-wise operators.
#include <cmath>

#include "drivers/metal/lowering/graph_work.h"
#include "plan/specialize.h"

namespace heddle::metal {
namespace {

template <auto f>  // Emit::f(x)
Status one(Lowering& l) {
  l.outputs[0] = (l.emit.*f)(l.inputs[0]);
  return {};
}

template <class F>
Status with(Lowering& l, F&& f) {
  l.outputs[0] = f(l.emit, l.inputs[0]);
  return {};
}

template <ir::ActivationKind kind>
Status activated(Lowering& l) {
  l.outputs[0] = l.emit.activate(l.inputs[0], {kind});
  return {};
}

// MPSGraph's sign of NaN is 0, and it has none of i64.
Status lower_sign(Lowering& l) {
  return with(l, [](const Emit& e, Tensor x) {
    if (dtype_of(x) == ir::DType::kI64 && !e.limits().i64_signs) {
      Tensor zero = e.like(0, x), one = e.like(1, x);
      return e.choose(e.greater(x, zero), one, e.choose(e.less(x, zero), e.like(-1, x), zero));
    }
    return ir::is_float(dtype_of(x)) ? e.choose(e.is_nan(x), x, e.sign(x)) : e.sign(x);
  });
}

// log1p(exp(-|x|)) + max(x, 0): exp cannot overflow.
Status lower_softplus(Lowering& l) {
  return with(l, [](const Emit& e, Tensor x) {
    return e.add(e.max(x, e.like(0, x)), e.log(e.add(e.like(1, x), e.exp(e.negate(e.abs(x))))));
  });
}

Status lower_softsign(Lowering& l) {
  return with(l, [](const Emit& e, Tensor x) { return e.div(x, e.add(e.like(1, x), e.abs(x))); });
}

Status lower_hard_sigmoid(Lowering& l) {
  const ir::Activation activation{ir::ActivationKind::kHardSigmoid, l.attributes().f64("alpha", 0.2),
                                  l.attributes().f64("beta", 0.5)};
  l.outputs[0] = l.emit.activate(l.inputs[0], activation);
  return {};
}

Status lower_leaky_relu(Lowering& l) {
  l.outputs[0] =
      l.emit.activate(l.inputs[0], {ir::ActivationKind::kLeakyRelu, l.attributes().f64("alpha", 0.01), 0});
  return {};
}

Status lower_elu(Lowering& l) {
  const double alpha = l.attributes().f64("alpha", 1);
  return with(l, [&](const Emit& e, Tensor x) {
    Tensor below = e.mul(e.like(alpha, x), e.sub(e.exp(e.min(x, e.like(0, x))), e.like(1, x)));
    return e.choose(e.less(x, e.like(0, x)), below, x);
  });
}

Status lower_gelu(Lowering& l) {
  l.outputs[0] = l.emit.gelu(l.inputs[0], l.attributes().str("approximate") == "tanh");
  return {};
}

Status lower_is_inf(Lowering& l) {
  const bool positive = l.attributes().i64("detect_positive", 1) != 0;
  const bool negative = l.attributes().i64("detect_negative", 1) != 0;
  return with(l, [&](const Emit& e, Tensor x) {
    Tensor zero = e.like(0, x);
    if (positive && negative) return e.is_inf(x);
    if (positive) return e.both(e.is_inf(x), e.greater(x, zero));
    if (negative) return e.both(e.is_inf(x), e.less(x, zero));
    return e.not_equal(e.mul(e.cast(e.is_inf(x), ir::DType::kI32), e.whole(0, ir::DType::kI32)),
                       e.whole(0, ir::DType::kI32));
  });
}

// C's conversion, 0 where C has none: MPSGraph's is undefined there.
Tensor float_to_integer(const Emit& e, Tensor x, ir::DType to) {
  const int bits = static_cast<int>(8 * ir::size_of(to));
  const double high = to == ir::DType::kU8 ? 256 : std::ldexp(1.0, bits - 1);
  const double low = to == ir::DType::kU8 ? -1 : -high - (bits < 24 ? 1 : 0);
  Tensor wide = e.cast(x, ir::DType::kF32);
  Tensor above = bits < 24 ? e.greater(wide, e.like(low, wide)) : e.greater_equal(wide, e.like(low, wide));
  Tensor fits = e.both(above, e.less(wide, e.like(high, wide)));
  return e.cast(e.choose(fits, wide, e.like(0, wide)), to);
}

Status lower_cast(Lowering& l) {
  const ir::DType to = l.out_dtype();
  return with(l, [&](const Emit& e, Tensor x) {
    return ir::is_float(dtype_of(x)) && ir::is_integer(to) ? float_to_integer(e, x, to) : e.cast(x, to);
  });
}

Status lower_clip(Lowering& l) {
  Tensor x = l.inputs[0];
  for (size_t i = 1; i < l.inputs.size(); ++i) {
    if (!l.has(i)) continue;
    Tensor bound = l.emit.reshape(l.inputs[i], {1});
    x = i == 1 ? l.emit.max(x, bound) : l.emit.min(x, bound);
  }
  l.outputs[0] = x;
  return {};
}

// MPSGraph's compiler fuses what a chain holds. The body was fused while shapes were symbolic.
Status lower_chain(Lowering& l) {
  std::vector<ir::Extents> inputs;
  for (size_t i = 0; i < l.inputs.size(); ++i) inputs.push_back(l.extents(i));
  HEDDLE_TRY_ASSIGN(const ir::Graph body, plan::specialize(*l.attributes().graph("body"), inputs));
  HEDDLE_TRY_ASSIGN(l.outputs, l.work.emit_graph(body, l.inputs));
  return {};
}

Status lower_bit_cast(Lowering& l) {
  const ir::DType to = l.out_dtype();
  return with(l, [&](const Emit& e, Tensor x) {
    if (dtype_of(x) == ir::DType::kBool) x = e.cast(x, ir::DType::kU8);
    return to == ir::DType::kBool ? e.cast(e.reinterpret(x, ir::DType::kU8), to) : e.reinterpret(x, to);
  });
}

constexpr std::string_view kNoOperator = "MPSGraph has no such operator";
constexpr std::string_view kNaN = "MPSGraph's own loses NaN";

}  // namespace

std::span<const PathEntry> elementwise_paths() {
  using enum Path;
  using enum ir::ActivationKind;
  static constexpr PathEntry kEntries[] = {
      {"Abs", graph, one<&Emit::abs>, kWide, kNarrow},
      {"Neg", graph, one<&Emit::negate>, kWide, kNarrow},
      {"Sign", composed, lower_sign, kWide, kNaN},
      {"Relu", composed, activated<kRelu>, kWide, kNaN},
      {"Square", graph, one<&Emit::square>, kWide, kNarrow},
      {"Exp", graph, one<&Emit::exp>, kWide, kNarrow},
      {"Log", graph, one<&Emit::log>, kWide, kNarrow},
      {"Sqrt", graph, one<&Emit::sqrt>, kWide, kNarrow},
      {"Rsqrt", graph, one<&Emit::rsqrt>, kWide, kNarrow},
      {"Reciprocal", graph, one<&Emit::reciprocal>, kWide, kNarrow},
      {"Erf", graph, one<&Emit::erf>, kWide, kNarrow},
      {"Tanh", graph, one<&Emit::tanh>, kWide, kNarrow},
      {"Sigmoid", graph, one<&Emit::sigmoid>, kWide, kNarrow},
      {"Floor", graph, one<&Emit::floor>, kWide, kNarrow},
      {"Ceil", graph, one<&Emit::ceil>, kWide, kNarrow},
      {"Round", graph, one<&Emit::round>, kWide, "rint: halves to even, which MPSGraph's round does not do"},
      {"Sin", graph, one<&Emit::sin>, kWide, kNarrow},
      {"Cos", graph, one<&Emit::cos>, kWide, kNarrow},
      {"Tan", graph, one<&Emit::tan>, kWide, kNarrow},
      {"Sinh", graph, one<&Emit::sinh>, kWide, kNarrow},
      {"Cosh", graph, one<&Emit::cosh>, kWide, kNarrow},
      {"Asin", graph, one<&Emit::asin>, kWide, kNarrow},
      {"Acos", graph, one<&Emit::acos>, kWide, kNarrow},
      {"Atan", graph, one<&Emit::atan>, kWide, kNarrow},
      {"Asinh", graph, one<&Emit::asinh>, kWide, kNarrow},
      {"Acosh", graph, one<&Emit::acosh>, kWide, kNarrow},
      {"Atanh", graph, one<&Emit::atanh>, kWide, kNarrow},
      {"Softplus", composed, lower_softplus, kWide, kNoOperator},
      {"Softsign", composed, lower_softsign, kWide, kNoOperator},
      {"HardSwish", composed, activated<kHardSwish>, kWide, kNoOperator},
      {"Silu", composed, activated<kSilu>, kWide, kNoOperator},
      {"HardSigmoid", composed, lower_hard_sigmoid, kWide, kNoOperator},
      {"LeakyRelu", composed, lower_leaky_relu, kWide, kNaN},
      {"Elu", composed, lower_elu, kWide, kNoOperator},
      {"Gelu", composed, lower_gelu, kWide, kNoOperator},
      {"Not", graph, one<&Emit::logical_not>},
      {"BitwiseNot", graph, one<&Emit::bit_not>},
      {"BitCast", composed, lower_bit_cast, kPlain, "a bool is made 0 or 1 wherever its bits come from"},
      {"IsNaN", graph, one<&Emit::is_nan>, kWide, kNarrow},
      {"IsInf", composed, lower_is_inf, kWide, "MPSGraph's does not tell the signs apart"},
      {"Identity", graph, one<&Emit::identity>},
      {"Cast", composed, lower_cast, kPlain, "what does not fit becomes 0; MPSGraph leaves it undefined"},
      {"Clip", composed, lower_clip, kWide, kNaN},
      {"Elementwise", composed, lower_chain, kPlain, "operator by operator: MPSGraph's compiler fuses them"},
  };
  return kEntries;
}

}  // namespace heddle::metal
