// Element-wise operators: a kernel for each, over operands that are broadcast against each other.
#include "drivers/cuda/lowering/lowering.h"
#include "ir/op.h"

namespace heddle::cuda {
namespace {

using ir::DType;

// The launch's parameters for operands that are broadcast to the output; the caller binds them.
MapParams map_params(std::span<const Operand> in, const Operand& out) {
  std::vector<std::vector<int64_t>> strides;
  for (const Operand& operand : in) strides.push_back(broadcast_strides(operand.extents, out.extents.rank()));
  const Walk walk = walk_of(out.extents.span(), strides);
  MapParams params;
  params.count = walk.count;
  params.axes = walk.axes;
  params.out_type = type_of(out.dtype);
  for (size_t i = 0; i < in.size(); ++i) {
    params.in[i].type = type_of(in[i].dtype);
    std::copy(walk.strides[i].begin(), walk.strides[i].end(), params.in[i].strides);
  }
  return params;
}

Status map(Lowering& l, std::string_view kernel, DType computed, std::span<const Operand> in,
           const Operand& out, const Numbers& numbers = {}) {
  MapParams params = map_params(in, out);
  params.numbers = numbers;
  std::vector<Bind> binds{names(params.out, out)};
  for (size_t i = 0; i < in.size(); ++i) binds.push_back(names(params.in[i].data, in[i]));
  return l.emit.launch(text(kernel, computed_in(computed)), &params, sizeof params, binds, nullptr,
                       l.grid(params.count));
}

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

Status lower_plain(Lowering& l) {
  for (const Plain& plain : kPlain) {
    if (plain.op != l.node.op->name) continue;
    const DType dtype = plain.wraps ? as_i64(l.inputs[0].dtype) : l.inputs[0].dtype;
    return map(l, plain.kernel, dtype, l.inputs, l.outputs[0]);
  }
  return Status::internal("it is no plain operator");
}

Status lower_swapped(Lowering& l) {
  const Operand swapped[] = {l.inputs[1], l.inputs[0]};
  const bool strict = l.node.is("Greater");
  return map(l, strict ? "less" : "less_or_equal", l.inputs[0].dtype, swapped, l.outputs[0]);
}

Status lower_with_numbers(Lowering& l) {
  const ir::Attributes& a = l.attributes();
  const auto with = [&](std::string_view kernel, double x, double y) {
    return map(l, kernel, l.inputs[0].dtype, l.inputs, l.outputs[0], {x, y});
  };
  if (l.node.is("HardSigmoid")) return with("hard_sigmoid", a.f64("alpha", 0.2), a.f64("beta", 0.5));
  if (l.node.is("LeakyRelu")) return with("leaky_relu", a.f64("alpha", 0.01), 0);
  if (l.node.is("Elu")) return with("elu", a.f64("alpha", 1), 0);
  if (l.node.is("Gelu")) return with(a.str("approximate") == "tanh" ? "gelu_tanh" : "gelu", 0, 0);
  if (l.node.is("Mod")) return with(a.i64("fmod") != 0 ? "rest" : "mod", 0, 0);
  const auto positive = static_cast<double>(a.i64("detect_positive", 1));
  return with("is_inf", positive, static_cast<double>(a.i64("detect_negative", 1)));
}

Status lower_shift(Lowering& l) {
  const bool left = l.attributes().str("direction") == "LEFT";
  const DType dtype = left ? as_i64(l.inputs[0].dtype) : l.inputs[0].dtype;
  return map(l, left ? "shift_left" : "shift_right", dtype, l.inputs, l.outputs[0]);
}

// The base's type is the result's. Mixed operands compute as the reference does: integers only where both
// are, else in floats.
Status lower_pow(Lowering& l) {
  const DType base = l.inputs[0].dtype, exponent = l.inputs[1].dtype;
  if (ir::is_integer(base) && ir::is_integer(exponent)) {
    const DType wide = exponent == DType::kU64 ? DType::kU64 : DType::kI64;
    return map(l, "pow", wide, l.inputs, l.outputs[0]);
  }
  const bool wide = !ir::is_float(base) || base == DType::kF64 || exponent == DType::kF64;
  return map(l, "pow", wide ? DType::kF64 : DType::kF32, l.inputs, l.outputs[0]);
}

// Any number of operands, from the left.
Status lower_extreme(Lowering& l) {
  const std::string_view kernel = l.node.is("Min") ? "min" : "max";
  const DType dtype = l.inputs[0].dtype;
  if (l.inputs.size() == 1) return map(l, "same", dtype, l.inputs, l.outputs[0]);
  Operand so_far = l.inputs[0];
  for (size_t i = 1; i < l.inputs.size(); ++i) {
    const Operand pair[] = {so_far, l.inputs[i]};
    HEDDLE_TRY(map(l, kernel, dtype, pair, l.outputs[0]));
    so_far = l.outputs[0];  // each element is read by the thread that writes it
  }
  return {};
}

Status lower_clip(Lowering& l) {
  Operand in[3] = {l.inputs[0], l.inputs[0], l.inputs[0]};
  Numbers there;
  for (size_t i = 1; i < 3; ++i) {
    if (!l.has(i)) continue;
    in[i] = l.inputs[i];
    (i == 1 ? there.a : there.b) = 1;
  }
  // A bound of shape [1] broadcasts to a scalar's output, too.
  for (size_t i = 1; i < 3; ++i) {
    if (in[i].extents.rank() > l.outputs[0].extents.rank()) in[i] = in[i].as({});
  }
  return map(l, "clip", l.inputs[0].dtype, in, l.outputs[0], there);
}

Status lower_where(Lowering& l) {
  const MapParams params = map_params(l.inputs, l.outputs[0]);
  return l.launch(text("choose", by_bytes(l.outputs[0].element_bytes())), params,
                  {names(params.in[0].data, l.inputs[0]), names(params.in[1].data, l.inputs[1]),
                   names(params.in[2].data, l.inputs[2]), names(params.out, l.outputs[0])},
                  l.grid(params.count));
}

// A bool is 0 or 1 wherever bits come from.
Status lower_bit_cast(Lowering& l) {
  Operand from = l.inputs[0];
  if (l.outputs[0].dtype != DType::kBool) from.dtype = l.outputs[0].dtype;
  if (l.outputs[0].dtype == DType::kBool) return l.cast(from, l.outputs[0]);
  const std::vector<int64_t> all(1, from.elements()), one(1, 1);
  return l.move(from, one, l.outputs[0], one, all);
}

}  // namespace

std::span<const LoweringEntry> elementwise_lowerings() {
  static const std::vector<LoweringEntry> kEntries = [] {
    std::vector<LoweringEntry> entries = {
        {"Greater", lower_swapped},
        {"GreaterOrEqual", lower_swapped},
        {"HardSigmoid", lower_with_numbers},
        {"LeakyRelu", lower_with_numbers},
        {"Elu", lower_with_numbers},
        {"Gelu", lower_with_numbers},
        {"IsInf", lower_with_numbers},
        {"Mod", lower_with_numbers},
        {"BitShift", lower_shift},
        {"Pow", lower_pow},
        {"Min", lower_extreme},
        {"Max", lower_extreme},
        {"Clip", lower_clip},
        {"Where", lower_where},
        {"BitCast", lower_bit_cast},
    };
    for (const Plain& plain : kPlain) entries.push_back({plain.op, lower_plain});
    return entries;
  }();
  return kEntries;
}

}  // namespace heddle::cuda
