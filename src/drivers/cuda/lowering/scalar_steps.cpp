#include "drivers/cuda/lowering/scalar_steps.h"

#include "ir/op.h"

namespace heddle::cuda {
namespace {

using ir::DType;
using DTypes = std::vector<DType>;
using Steps = std::vector<ScalarStep>;

// u64 goes by its bits where they are the same.
DType as_i64(DType dtype) { return dtype == DType::kU64 ? DType::kI64 : dtype; }

struct Plain {
  std::string_view op, kernel;
  bool wraps = false;  // of integers: the bits of u64 are those of i64
};
constexpr Plain kPlain[] = {
    {"Abs", "abs"},
    {"Neg", "neg", true},
    {"Sign", "sign"},
    {"Relu", "relu"},
    {"Square", "square", true},
    {"Exp", "exp"},
    {"Log", "log"},
    {"Sqrt", "sqrt"},
    {"Rsqrt", "rsqrt"},
    {"Reciprocal", "reciprocal"},
    {"Erf", "erf"},
    {"Tanh", "tanh"},
    {"Sigmoid", "sigmoid"},
    {"Floor", "floor"},
    {"Ceil", "ceil"},
    {"Round", "round"},
    {"Sin", "sin"},
    {"Cos", "cos"},
    {"Tan", "tan"},
    {"Asin", "asin"},
    {"Acos", "acos"},
    {"Atan", "atan"},
    {"Sinh", "sinh"},
    {"Cosh", "cosh"},
    {"Asinh", "asinh"},
    {"Acosh", "acosh"},
    {"Atanh", "atanh"},
    {"Softplus", "softplus"},
    {"Softsign", "softsign"},
    {"HardSwish", "hard_swish"},
    {"Silu", "silu"},
    {"Not", "not"},
    {"Identity", "same"},
    {"IsNaN", "is_nan"},
    {"BitwiseNot", "bitwise_not", true},
    {"Cast", "same"},
    {"Add", "add", true},
    {"Sub", "sub", true},
    {"Mul", "mul", true},
    {"Div", "div"},
    {"Equal", "equal"},
    {"Less", "less"},
    {"LessOrEqual", "less_or_equal"},
    {"And", "bitwise_and"},
    {"Or", "bitwise_or"},
    {"Xor", "bitwise_xor"},
    {"BitwiseAnd", "bitwise_and", true},
    {"BitwiseOr", "bitwise_or", true},
    {"BitwiseXor", "bitwise_xor", true},
    {"PRelu", "prelu"},
};

// The base's type is the result's. Mixed operands compute as the reference does: integers only where both
// are, else in floats.
DType power_of(DType base, DType exponent) {
  if (ir::is_integer(base) && ir::is_integer(exponent))
    return exponent == DType::kU64 ? DType::kU64 : DType::kI64;
  const bool wide = !ir::is_float(base) || base == DType::kF64 || exponent == DType::kF64;
  return wide ? DType::kF64 : DType::kF32;
}

// Any number of operands, from the left.
Steps extreme(std::string_view kernel, const DTypes& in) {
  if (in.size() == 1) return {{"same", in[0], {0}}};
  Steps steps;
  for (int i = 1; i < static_cast<int>(in.size()); ++i)
    steps.push_back({kernel, in[0], {i == 1 ? 0 : ScalarStep::kBefore, i}});
  return steps;
}

Steps clip(const ir::Node& node, const DTypes& in) {
  ScalarStep step{"clip", in[0], {0, 0, 0}};
  if (node.has_input(1)) step.operands[1] = 1;
  if (node.has_input(2)) step.operands[2] = 2;
  step.numbers = {node.has_input(1) ? 1.0 : 0.0, node.has_input(2) ? 1.0 : 0.0};
  return {step};
}

Steps shift(const ir::Node& node, const DTypes& in) {
  const bool left = node.attributes.str("direction") == "LEFT";
  return {{left ? "shift_left" : "shift_right", left ? as_i64(in[0]) : in[0], {0, 1}}};
}

Steps with(std::string_view kernel, const DTypes& in, double a = 0, double b = 0) {
  return {{kernel, in[0], {0}, {a, b}}};
}

struct Rule {
  std::string_view op;
  Steps (*steps)(const ir::Node& node, const DTypes& in);
};
constexpr Rule kRules[] = {
    {"Greater", [](const ir::Node&, const DTypes& in) { return Steps{{"less", in[0], {1, 0}}}; }},
    {"GreaterOrEqual",
     [](const ir::Node&, const DTypes& in) { return Steps{{"less_or_equal", in[0], {1, 0}}}; }},
    {"Mod",
     [](const ir::Node& node, const DTypes& in) {
       return Steps{{node.attributes.i64("fmod") != 0 ? "rest" : "mod", in[0], {0, 1}}};
     }},
    {"Pow", [](const ir::Node&, const DTypes& in) { return Steps{{"pow", power_of(in[0], in[1]), {0, 1}}}; }},
    {"Where", [](const ir::Node&, const DTypes& in) { return Steps{{kChoose, in[1], {0, 1, 2}}}; }},
    {"Min", [](const ir::Node&, const DTypes& in) { return extreme("min", in); }},
    {"Max", [](const ir::Node&, const DTypes& in) { return extreme("max", in); }},
    {"Clip", clip},
    {"BitShift", shift},
    {"HardSigmoid",
     [](const ir::Node& node, const DTypes& in) {
       const ir::Attributes& a = node.attributes;
       return with("hard_sigmoid", in, a.f64("alpha", 0.2), a.f64("beta", 0.5));
     }},
    {"LeakyRelu",
     [](const ir::Node& node, const DTypes& in) {
       return with("leaky_relu", in, node.attributes.f64("alpha", 0.01));
     }},
    {"Elu",
     [](const ir::Node& node, const DTypes& in) { return with("elu", in, node.attributes.f64("alpha", 1)); }},
    {"Gelu",
     [](const ir::Node& node, const DTypes& in) {
       return with(node.attributes.str("approximate") == "tanh" ? "gelu_tanh" : "gelu", in);
     }},
    {"IsInf",
     [](const ir::Node& node, const DTypes& in) {
       const ir::Attributes& a = node.attributes;
       return with("is_inf", in, static_cast<double>(a.i64("detect_positive", 1)),
                   static_cast<double>(a.i64("detect_negative", 1)));
     }},
};

}  // namespace

std::vector<std::string_view> scalar_operators() {
  std::vector<std::string_view> names;
  for (const Plain& plain : kPlain) names.push_back(plain.op);
  for (const Rule& rule : kRules) names.push_back(rule.op);
  return names;
}

std::vector<ScalarStep> scalar_steps(const ir::Node& node, const std::vector<ir::DType>& in) {
  for (const Plain& plain : kPlain) {
    if (plain.op != node.op->name) continue;
    ScalarStep step{plain.kernel, plain.wraps ? as_i64(in[0]) : in[0], {0}};
    if (in.size() == 2) step.operands.push_back(1);
    return {step};
  }
  for (const Rule& rule : kRules) {
    if (rule.op == node.op->name) return rule.steps(node, in);
  }
  return {};
}

}  // namespace heddle::cuda
