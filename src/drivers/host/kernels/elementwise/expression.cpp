#include "drivers/host/kernels/elementwise/expression.h"

#include <string>

#include "ir/op.h"

namespace heddle::host {

namespace {

struct Tuning {
  std::string_view op;
  double alpha;
  double beta;
};
// ONNX's defaults.
constexpr Tuning kTunings[] = {{"HardSigmoid", 0.2, 0.5}, {"LeakyRelu", 0.01, 0}, {"Elu", 1, 0}};

}  // namespace

Expression::Term Expression::operand(const Operand& operand, const ir::Tensor* constant) {
  const bool single = constant != nullptr && constant->elements() == 1;
  Operand lined_up = operand;
  if (operand.elements() == 1) lined_up.extents = {};  // Clip's limits may be [1] where x is a scalar
  return {program_.source(lined_up), operand.dtype, single ? constant : nullptr, true};
}

Expression::Term Expression::whole(Term term) {
  if (term.whole || ir::is_float(term.dtype)) return term;
  term.value = program_.emit(wrap_block(term.dtype), term.value);
  term.whole = true;
  return term;
}

Expression::Term Expression::cast(Term term, ir::DType to) {
  term = whole(term);
  const Kind from_kind = kind_of(term.dtype), to_kind = kind_of(to);
  const BlockKernel rounding = wrap_block(to);
  if (from_kind != to_kind) term.value = program_.emit(cast_block(from_kind, to_kind), term.value);
  if (rounding != nullptr && ir::is_float(to)) term.value = program_.emit(rounding, term.value);
  return {term.value, to, nullptr, rounding == nullptr || ir::is_float(to)};
}

Result<Expression::Term> Expression::apply(std::string_view op, std::vector<Term> inputs, double alpha,
                                           double beta) {
  for (Term& term : inputs) term = whole(term);
  Kind kind = kind_of(inputs.back().dtype);
  const BlockKernel run = find_block(op, kind, &kind);
  if (run == nullptr)
    return Status::unsupported("the host has no kernel for ", op, " of ", inputs.back().dtype);
  const auto value = [&](size_t i) { return i < inputs.size() ? inputs[i].value : -1; };
  const ir::DType dtype = kind == Kind::kBool ? ir::DType::kBool : inputs.back().dtype;
  return Term{program_.emit(run, value(0), value(1), value(2), alpha, beta), dtype, nullptr,
              wrap_block(dtype) == nullptr};
}

Result<Expression::Term> Expression::fold(std::string_view op, const std::vector<Term>& inputs) {
  if (inputs.size() == 1) return apply("Identity", {inputs[0]});
  Term sum = inputs[0];
  for (size_t i = 1; i < inputs.size(); ++i) {
    HEDDLE_TRY_ASSIGN(sum, apply(op, {sum, inputs[i]}));
  }
  return sum;
}

Result<Expression::Term> Expression::clip(const std::vector<Term>& inputs) {
  Term x = inputs[0];
  const bool low = inputs.size() > 1 && inputs[1].present();
  const bool high = inputs.size() > 2 && inputs[2].present();
  if (low) {
    HEDDLE_TRY_ASSIGN(x, apply("Max", {x, inputs[1]}));
  }
  if (high) {
    HEDDLE_TRY_ASSIGN(x, apply("Min", {x, inputs[2]}));
  }
  if (low || high) return x;
  return apply("Identity", {x});
}

Result<Expression::Term> Expression::power(const std::vector<Term>& inputs) {
  const Term& base = inputs[0];
  const Term& exponent = inputs[1];
  if (ir::is_float(base.dtype)) {
    const double known = exponent.constant == nullptr ? 0 : exponent.constant->get(0);
    if (known == 2) return apply("Square", {base});
    if (known == 3) return apply("Pow:3", {base});
    if (known == 0.5) return apply("Pow:0.5", {base});
    if (known == 1) return apply("Identity", {base});
    return apply("Pow",
                 {base, cast(exponent, base.dtype == ir::DType::kF64 ? ir::DType::kF64 : ir::DType::kF32)});
  }
  if (!ir::is_float(exponent.dtype)) {
    HEDDLE_TRY_ASSIGN(Term y, apply("Pow", {cast(base, ir::DType::kI64), cast(exponent, ir::DType::kI64)}));
    return cast(y, base.dtype);
  }
  HEDDLE_TRY_ASSIGN(Term y, apply("Pow", {cast(base, ir::DType::kF64), cast(exponent, ir::DType::kF64)}));
  return cast(y, base.dtype);
}

Result<Expression::Term> Expression::node(const ir::Node& node, const std::vector<Term>& inputs) {
  const std::string_view op = node.op->name;
  const ir::Attributes& attributes = node.attributes;
  if (op == "Min" || op == "Max") return fold(op, inputs);
  if (op == "Clip") return clip(inputs);
  if (op == "Pow") return power(inputs);
  if (op == "Cast")
    return cast(inputs[0], ir::dtype_from_name(attributes.str("to")).value_or(inputs[0].dtype));
  if (op == "Gelu") return apply(attributes.str("approximate") == "tanh" ? "Gelu:tanh" : "Gelu", inputs);
  if (op == "BitShift")
    return apply(attributes.str("direction") == "LEFT" ? "BitShift:LEFT" : "BitShift:RIGHT", inputs);
  if (op == "Mod") return apply(attributes.i64("fmod") != 0 ? "Mod:fmod" : "Mod", inputs);
  if (op == "IsInf") {
    return apply(op, inputs, static_cast<double>(attributes.i64("detect_positive", 1)),
                 static_cast<double>(attributes.i64("detect_negative", 1)));
  }
  for (const Tuning& tuning : kTunings) {
    if (tuning.op != op) continue;
    return apply(op, inputs, attributes.f64("alpha", tuning.alpha), attributes.f64("beta", tuning.beta));
  }
  return apply(op, inputs);
}

}  // namespace heddle::host
