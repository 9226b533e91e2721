// arithmetic.cpp: sums, products, quotients, remainders and powers, and what is made of them.
#include "term.h"

namespace heddle::torch_backend {
namespace {

// ---- sums and products; of bools: or, and

Term plus(const Term& a, const Term& b) { return a.boolean() ? a | b : a + b; }
Term minus(const Term& a, const Term& b) { return a - b; }
Term times(const Term& a, const Term& b) { return a.boolean() ? a & b : a * b; }

Term weighted(const Term& x, int alpha) {
  return x.call().is(alpha, 1) ? x : times(x, number(x.call(), alpha));
}

// With the factor alpha, which is argument 2; PyTorch rounds before and after it.
Term addend(const Term& x) { return x.call().is(2, 1) ? rounded(x) : rounded(weighted(rounded(x), 2)); }

template <Term (*f)(const Term&, const Term&), Scalar scalar = Scalar::none>
Results with_alpha(Call& call) {
  const Term other = scalar == Scalar::right ? number(call, 1) : operand(call, 1);
  return Value(f(operand(call, 0), addend(other)));
}

template <Scalar scalar = Scalar::none>
Results reversed_minus(Call& call) {
  const Term other = scalar == Scalar::right ? number(call, 1) : operand(call, 1);
  return Value(rounded(other) - addend(operand(call, 0)));
}

// ---- quotients

Term divided(const Term& a, const Term& b) { return a / b; }

// The quotient that belongs to the remainder with b's sign, not floor(a / b), whose division rounds.
Term floor_divided(const Term& a, const Term& b) {
  if (!a.real()) {
    const Term quotient = a / b;
    const Term rest = a - quotient * b;
    const Term below = (rest != 0) & (rest < 0).with("Xor", b < 0);
    return select(below, quotient - 1, quotient);
  }
  const Term rest = a.with("Mod", b, {{"fmod", int64_t{1}}});
  const Term whole = (a - rest) / b;
  const Term below = (rest != 0) & (rest < 0).with("Xor", b < 0);
  const Term quotient = select(below, whole - 1, whole);
  const Term low = floor(quotient);
  const Term nearest = select(quotient - low > 0.5, low + 1, low);
  const Term zero = copy_sign(quotient * 0, a / b);
  return select(b == 0, a / b, select(quotient == 0, zero, nearest));
}

Term trunc_divided(const Term& a, const Term& b) { return a.real() ? trunc(rounded(a / b)) : a / b; }

template <Scalar scalar = Scalar::none>
Results rounded_division(Call& call) {
  if (!call.has(2)) return of_operands<divided, scalar>(call);
  const std::string_view mode = call.text(2);
  if (mode == "floor") return of_operands<floor_divided, scalar>(call);
  if (mode == "trunc") return of_operands<trunc_divided, scalar>(call);
  call.unsupported("rounding_mode has to be None, 'trunc' or 'floor'");
}

// fmod 0: with the sign of b, 1: of a.
template <int fmod>
Term remainder(const Term& a, const Term& b) {
  return rounded(a).with("Mod", rounded(b), {{"fmod", int64_t{fmod}}});
}

// ---- powers

Term power(const Term& a, const Term& b) {
  if (!a.boolean()) return pow(a, a.real() ? rounded(b) : b);
  return pow(a.cast(DType::i64), b.cast(DType::i64)).cast(DType::boolean);
}

// The exponents that have an operator of their own: attention scales, norms.
Results power_of_number(Call& call) {
  const Term x = operand(call, 0);
  const double exponent = call.known(1);
  if (exponent == 1) return Value(x.apply("Identity"));
  if (exponent == 2 && !x.boolean()) return Value(x * x);
  if (exponent == 3 && !x.boolean()) return Value(x * x * x);
  if (!x.real()) return of_operands<power, Scalar::right>(call);
  if (exponent == 0.5) return Value(sqrt(x));
  if (exponent == -0.5) return Value(x.apply("Rsqrt"));
  if (exponent == -1) return Value(x.apply("Reciprocal"));
  if (exponent == -2) return Value((x * x).apply("Reciprocal"));
  return of_operands<power, Scalar::right>(call);
}

// ---- of three

Results add_scaled_product(Call& call) {  // self, tensor1, tensor2, value
  return Value(plus(operand(call, 0), times(weighted(operand(call, 1), 3), operand(call, 2))));
}

Results add_quotient(Call& call) {
  return Value(operand(call, 0) + weighted(operand(call, 1), 3) / operand(call, 2));
}

// From the nearer end.
Term between(const Term& start, const Term& end, const Term& weight) {
  const Term span = end - start;
  return select(abs(weight) < 0.5, start + weight * span, end - span * (1 - weight));
}

Results lerp_tensor(Call& call) {
  return Value(between(operand(call, 0), operand(call, 1), operand(call, 2)));
}
Results lerp_scalar(Call& call) {
  return Value(between(operand(call, 0), operand(call, 1), number(call, 2)));
}

}  // namespace

std::span<const Entry> arithmetic_entries() {
  static constexpr Entry kEntries[] = {
      {"aten::add.Tensor", with_alpha<plus>},
      {"aten::add.Scalar", with_alpha<plus, kRight>},
      {"aten::sub.Tensor", with_alpha<minus>},
      {"aten::sub.Scalar", with_alpha<minus, kRight>},
      {"aten::rsub.Tensor", reversed_minus<>},
      {"aten::rsub.Scalar", reversed_minus<kRight>},
      {"aten::mul.Tensor", of_operands<times>},
      {"aten::mul.Scalar", of_operands<times, kRight>},
      {"aten::div.Tensor", of_operands<divided>},
      {"aten::div.Scalar", of_operands<divided, kRight>},
      {"aten::div.Tensor_mode", rounded_division<>},
      {"aten::div.Scalar_mode", rounded_division<kRight>},
      {"aten::floor_divide", of_operands<floor_divided>},
      {"aten::floor_divide.Scalar", of_operands<floor_divided, kRight>},
      {"aten::remainder.Tensor", of_operands<remainder<0>>},
      {"aten::remainder.Scalar", of_operands<remainder<0>, kRight>},
      {"aten::remainder.Scalar_Tensor", of_operands<remainder<0>, kLeft>},
      {"aten::fmod.Tensor", of_operands<remainder<1>>},
      {"aten::fmod.Scalar", of_operands<remainder<1>, kRight>},
      {"aten::pow.Tensor_Tensor", of_operands<power>},
      {"aten::pow.Tensor_Scalar", power_of_number, Numbers::known},
      {"aten::pow.Scalar", of_operands<power, kLeft>},
      {"aten::addcmul", add_scaled_product},
      {"aten::addcdiv", add_quotient},
      {"aten::lerp.Tensor", lerp_tensor},
      {"aten::lerp.Scalar", lerp_scalar},
  };
  return kEntries;
}

}  // namespace heddle::torch_backend
