// Activation functions written with others, and operators on bits.
#include <string>
#include <vector>

#include "onnx/operators.h"
#include "onnx/operators/parts.h"
#include "onnx/proto.h"

namespace heddle::onnx {
namespace {

using ir::ValueId;

// gamma * (x > 0 ? x : alpha * (exp(x) - 1))
Status selu(Call& call) {
  HEDDLE_TRY_ASSIGN(const ir::TensorType x, call.type(0));
  HEDDLE_TRY_ASSIGN(const double alpha, call.take_f64("alpha", 1.67326319217681884765625));
  HEDDLE_TRY_ASSIGN(const double gamma, call.take_f64("gamma", 1.05070102214813232421875));
  Parts parts(call);
  const ValueId elu = parts.node("Elu", {call.input(0)}, {{"alpha", alpha}});
  return parts.emit(parts.pair("Mul", elu, parts.number(x.dtype, gamma)));
}

// max(0, x) + min(0, alpha * (exp(x / alpha) - 1)), which is alpha times Elu of x / alpha.
Status celu(Call& call) {
  HEDDLE_TRY_ASSIGN(const ir::TensorType x, call.type(0));
  HEDDLE_TRY_ASSIGN(const double alpha, call.take_f64("alpha", 1));
  if (alpha == 0) return call.invalid("attribute 'alpha' is 0; it has to be another number");
  Parts parts(call);
  const ValueId factor = parts.number(x.dtype, alpha);
  const ValueId elu = parts.node("Elu", {parts.pair("Div", call.input(0), factor)}, {{"alpha", 1.0}});
  return parts.emit(parts.pair("Mul", elu, factor));
}

Status thresholded_relu(Call& call) {
  HEDDLE_TRY_ASSIGN(const ir::TensorType x, call.type(0));
  HEDDLE_TRY_ASSIGN(const double alpha, call.take_f64("alpha", 1));
  Parts parts(call);
  const ValueId above = parts.pair("Greater", call.input(0), parts.number(x.dtype, alpha));
  return parts.emit(parts.node("Where", {above, call.input(0), parts.number(x.dtype, 0)}));
}

Status shrink(Call& call) {
  HEDDLE_TRY_ASSIGN(const ir::TensorType type, call.type(0));
  HEDDLE_TRY_ASSIGN(const double lambda, call.take_f64("lambd", 0.5));
  HEDDLE_TRY_ASSIGN(const double bias, call.take_f64("bias", 0));
  Parts parts(call);
  const ValueId x = call.input(0);
  const auto number = [&](double value) { return parts.number(type.dtype, value); };
  const ValueId above = parts.pair("Greater", x, number(lambda));
  const ValueId high = parts.node("Where", {above, parts.pair("Sub", x, number(bias)), number(0)});
  const ValueId below = parts.pair("Less", x, number(-lambda));
  return parts.emit(parts.node("Where", {below, parts.pair("Add", x, number(bias)), high}));
}

// 1 at the first greatest element, 0 elsewhere. Before opset 13 the axes from `axis` on are taken together.
Status hardmax(Call& call) {
  HEDDLE_TRY_ASSIGN(const ir::TensorType type, call.type(0));
  const bool joined = call.opset() < 13;
  HEDDLE_TRY_ASSIGN(int64_t axis, call.take_i64("axis", joined ? 1 : -1));
  Parts parts(call);
  const ValueId x = call.input(0);
  const ValueId rows = joined ? parts.node("Flatten", {x}, {{"axis", axis}}) : x;
  if (joined) axis = 1;
  const size_t rank = joined ? 2 : type.rank();
  const Result<size_t> normal = ir::normalize_axis(axis, rank);
  if (!normal.ok()) return call.invalid(normal.status().message(), " of ", type);
  const ValueId best = parts.node("ArgMax", {rows}, {{"axis", axis}, {"keepdims", int64_t{0}}});
  const double lit[] = {0, 1};
  const ValueId values = parts.constant(ir::Tensor::of<double>(type.dtype, {2}, lit));
  const ValueId hot = parts.node("OneHot", {best, parts.extent(rows, *normal), values}, {{"axis", axis}});
  return parts.emit(joined ? parts.node("Reshape", {hot, parts.extents(x, 0, type.rank())}) : hot);
}

Status swiglu(Call& call) {
  HEDDLE_TRY_ASSIGN(const double alpha, call.take_f64("alpha", 1));
  HEDDLE_TRY_ASSIGN(const ir::TensorType type, call.type(0));
  HEDDLE_TRY(call.required(1));
  Parts parts(call);
  const ValueId x = call.input(0);
  const ValueId gate =
      alpha == 1 ? parts.node("Silu", {x})
                 : parts.pair("Mul", x,
                              parts.node("Sigmoid", {parts.pair("Mul", x, parts.number(type.dtype, alpha))}));
  return parts.emit(parts.pair("Mul", gate, call.input(1)));
}

Status bit_cast(Call& call) {
  HEDDLE_TRY_ASSIGN(const int64_t to, call.take_i64("to", proto::TensorProto::UNDEFINED));
  const int data_type = to >= 0 && to <= 255 ? static_cast<int>(to) : proto::TensorProto::UNDEFINED;
  const auto dtype = dtype_of(data_type);
  if (!dtype) return call.unsupported("cannot read bits as ", data_type_name(data_type));
  HEDDLE_TRY_ASSIGN(const ValueId x, call.required(0));
  return call.emit("BitCast", {x}, {{"to", std::string(ir::name(*dtype))}});
}

}  // namespace

std::span<const Operator> activation_operators() {
  static constexpr Operator kTable[] = {
      {"Acos", 7, convert_same},
      {"Acosh", 9, convert_same},
      {"Asin", 7, convert_same},
      {"Asinh", 9, convert_same},
      {"Atan", 7, convert_same},
      {"Atanh", 9, convert_same},
      {"BitCast", 26, bit_cast},
      {"BitShift", 11, convert_same},
      {"BitwiseAnd", 18, convert_same},
      {"BitwiseNot", 18, convert_same},
      {"BitwiseOr", 18, convert_same},
      {"BitwiseXor", 18, convert_same},
      {"Celu", 12, celu},
      {"Cosh", 9, convert_same},
      {"Hardmax", 1, hardmax},
      {"Selu", 6, selu},
      {"Shrink", 9, shrink},
      {"Sinh", 9, convert_same},
      {"SwiGLU", 28, swiglu},
      {"Tan", 7, convert_same},
      {"ThresholdedRelu", 10, thresholded_relu},
  };
  return kTable;
}

}  // namespace heddle::onnx
