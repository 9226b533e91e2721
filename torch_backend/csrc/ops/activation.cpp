// activation.cpp: activations of one tensor, most of them with parameters.
#include <limits>

#include "term.h"

namespace heddle::torch_backend {
namespace {

Term clip(const Term& x, const Term& low, const Term& high) {
  return {x.call(), x.call().node("Clip", {x, low, high})};
}

Term mish(const Term& x) { return x * softplus(x).apply("Tanh"); }

Term hard_sigmoid(const Term& x) { return x.apply("HardSigmoid", {{"alpha", 1.0 / 6}, {"beta", 0.5}}); }

Results gelu(Call& call) {
  return Value(operand(call, 0).apply("Gelu", {{"approximate", std::string(call.text(1))}}));
}

// A number of an entry as a factor: itself where it is known to be 1.
Term scaled(Call& call, const Term& x, int factor) {
  return call.is(factor, 1) ? x : x * number(call, factor);
}

Results elu(Call& call) {  // self, alpha, scale, input_scale
  const Term x = operand(call, 0);
  const Term low = scaled(call, scaled(call, x, 3).apply("Elu"), 1);
  return Value(scaled(call, select(x > 0, x, low), 2));
}

Results celu(Call& call) {
  const Term x = operand(call, 0);
  if (call.is(1, 1)) return Value(x.apply("Elu"));
  const Term alpha = number(call, 1);
  return Value(select(x > 0, x, alpha * (x / alpha).apply("Elu")));
}

Results leaky_relu(Call& call) {
  return Value(operand(call, 0).apply("LeakyRelu", {{"alpha", call.known(1)}}));
}

Results prelu(Call& call) {
  const Term x = operand(call, 0);
  return Value(select(x > 0, x, x * operand(call, 1)));
}

Results hardtanh(Call& call) { return Value(clip(operand(call, 0), least(call, 1), greatest(call, 2))); }

Results softplus_above(Call& call) {  // self, beta, threshold
  const Term x = operand(call, 0);
  const Term z = scaled(call, x, 1);
  const Term soft = softplus(z);
  return Value(select(z > number(call, 2), x, call.is(1, 1) ? soft : soft / number(call, 1)));
}

Results softshrink(Call& call) {
  const Term x = operand(call, 0);
  const Term bound = number(call, 1);
  return Value(select(x > bound, x - bound, select(x < -bound, x + bound, x * 0)));
}

Results hardshrink(Call& call) {
  const Term x = operand(call, 0);
  const Term bound = number(call, 1);
  return Value(select((x >= -bound) & (x <= bound), 0, x));
}

Results threshold(Call& call) {
  const Term x = operand(call, 0);
  return Value(select(x <= number(call, 1), number(call, 2), x));
}

// The second result is for the backward pass; some devices leave it empty.
Results log_sigmoid(Call& call) {
  const Term x = operand(call, 0);
  const Value result = -softplus(-x);
  const Extents& kept = call.result_shape(1);
  if (kept.size() == 1 && kept[0] == 0) return {result, call.constant(Tensor::zeros(x.dtype(), {0}))};
  return {result, exp(-abs(x))};
}

Results logit(Call& call) {
  Term x = operand(call, 0);
  if (call.has(1)) {
    const Term low = x.like(call.real(1)), high = x.like(1 - call.real(1));
    // With eps above a half the bounds cross, and what is below both takes the lower one.
    x = call.real(1) <= 0.5 ? clip(x, low, high) : select(x < low, low, select(x > high, high, x));
  }
  return Value(log(rounded(x / rounded(1 - x))));
}

double greatest(DType dtype) {
  if (dtype == DType::f64) return std::numeric_limits<double>::max();
  if (dtype == DType::f16) return 65504;
  if (dtype == DType::bf16) return 0x1.fep127;
  return std::numeric_limits<float>::max();
}

Results nan_to_num(Call& call) {  // self, nan, posinf, neginf
  const Term x = operand(call, 0);
  if (!x.real()) return Value(x.apply("Identity"));
  const double most = greatest(call.result_dtype());
  const double high = call.has(2) ? call.real(2) : most;
  const double low = call.has(3) ? call.real(3) : -most;
  const Term bounded = select(is_infinite(x), select(x > 0, x.like(high), x.like(low)), x);
  return Value(select(is_nan(x), call.has(1) ? call.real(1) : 0, bounded));
}

Results glu(Call& call) {
  const Term x = operand(call, 0);
  const std::vector<Value> halves =
      call.nodes("Split", {x}, 2, {{"axis", call.integer(1)}, {"num_outputs", int64_t{2}}});
  return Value(Term(call, halves[0]) * Term(call, halves[1]).apply("Sigmoid"));
}

}  // namespace

std::span<const Entry> activation_entries() {
  // The plan joins activations with known parameters to the product before them.
  static constexpr Entry kEntries[] = {
      {"aten::relu", of_operand<map<"Relu">>},
      {"aten::gelu", gelu},
      {"aten::silu", of_operand<map<"Silu">>},
      {"aten::mish", of_operand<mish>},
      {"aten::elu", elu},
      {"aten::celu", celu},
      {"aten::leaky_relu", leaky_relu, Numbers::known},
      {"aten::_prelu_kernel", prelu},
      {"aten::hardtanh", hardtanh, Numbers::known},
      {"aten::hardswish", of_operand<map<"HardSwish">>},
      {"aten::hardsigmoid", of_operand<hard_sigmoid>},
      {"aten::softplus", softplus_above},
      {"aten::softshrink", softshrink},
      {"aten::hardshrink", hardshrink},
      {"aten::threshold", threshold},
      {"aten::log_sigmoid_forward", log_sigmoid},
      {"aten::logit", logit},
      {"aten::nan_to_num", nan_to_num},
      {"aten::glu", glu},
  };
  return kEntries;
}

}  // namespace heddle::torch_backend
