// Operators that work element by element, and constants.
#include <cmath>
#include <string>
#include <vector>

#include "onnx/operators.h"
#include "onnx/proto.h"

namespace heddle::onnx {
namespace {

using ir::DType;
using ir::ValueId;

Status cast_to(Call& call, DType dtype) {
  // Both speak of 8-bit floats only.
  call.attributes().erase("saturate");
  call.attributes().erase("round_mode");
  call.attributes().set("to", std::string(ir::name(dtype)));
  HEDDLE_TRY_ASSIGN(const ValueId x, call.required(0));
  return call.emit("Cast", {x}, call.attributes());
}

Status cast(Call& call) {
  HEDDLE_TRY_ASSIGN(const int64_t to, call.take_i64("to", proto::TensorProto::UNDEFINED));
  const int data_type = to >= 0 && to <= 255 ? static_cast<int>(to) : proto::TensorProto::UNDEFINED;
  const auto dtype = dtype_of(data_type);
  if (!dtype) return call.unsupported("cannot cast to ", data_type_name(data_type));
  return cast_to(call, *dtype);
}

Status cast_like(Call& call) {
  HEDDLE_TRY_ASSIGN(const ir::TensorType like, call.type(1));
  return cast_to(call, like.dtype);
}

Status is_inf(Call& call) {
  HEDDLE_TRY_ASSIGN(const int64_t negative, call.take_i64("detect_negative", 1));
  HEDDLE_TRY_ASSIGN(const int64_t positive, call.take_i64("detect_positive", 1));
  HEDDLE_TRY_ASSIGN(const ir::TensorType type, call.type(0));
  const ValueId x = call.input(0);
  if (negative != 0 && positive != 0) return call.emit("IsInf", {x}, call.attributes());
  // One sign only: infinite, and beyond 0 on that side. Nothing is beyond infinity, when neither is wanted.
  const bool neither = negative == 0 && positive == 0;
  const ValueId bound = call.scalar(type.dtype, neither ? INFINITY : 0.0, "bound");
  HEDDLE_TRY_ASSIGN(const ValueId infinite, call.add("IsInf", {x}, call.attributes(), "infinite"));
  HEDDLE_TRY_ASSIGN(const ValueId sign, call.add(negative != 0 ? "Less" : "Greater", {x, bound}, {}, "sign"));
  return call.emit("And", {infinite, sign}, {});
}

Status pow(Call& call) {
  HEDDLE_TRY_ASSIGN(const ir::TensorType x, call.type(0));
  HEDDLE_TRY_ASSIGN(const ir::TensorType y, call.type(1));
  if (x.dtype == y.dtype) return convert_same(call);
  const auto cast_operand = [&](ValueId id, DType dtype) {
    return call.add("Cast", {id}, {{"to", std::string(ir::name(dtype))}}, "cast");
  };
  if (ir::is_float(x.dtype) || !ir::is_float(y.dtype)) {
    HEDDLE_TRY_ASSIGN(const ValueId exponent, cast_operand(call.input(1), x.dtype));
    return call.emit("Pow", {call.input(0), exponent}, call.attributes());
  }
  // An integer to the power of a fraction: computed in floats, and back.
  HEDDLE_TRY_ASSIGN(const ValueId base, cast_operand(call.input(0), y.dtype));
  HEDDLE_TRY_ASSIGN(const ValueId power, call.add("Pow", {base, call.input(1)}, call.attributes(), "power"));
  return call.emit("Cast", {power}, {{"to", std::string(ir::name(x.dtype))}});
}

Result<ValueId> add_all(Call& call) {
  HEDDLE_TRY_ASSIGN(ValueId total, call.required(0));
  for (size_t i = 1; i < call.inputs().size(); ++i) {
    HEDDLE_TRY_ASSIGN(const ValueId next, call.required(i));
    HEDDLE_TRY_ASSIGN(total, call.add("Add", {total, next}, {}, text("sum", i)));
  }
  return total;
}

Status sum(Call& call) {
  HEDDLE_TRY_ASSIGN(const ValueId total, add_all(call));
  return call.emit("Identity", {total}, call.attributes());
}

Status mean(Call& call) {
  HEDDLE_TRY_ASSIGN(const ValueId total, add_all(call));
  const auto count = static_cast<double>(call.inputs().size());
  const ValueId divisor = call.scalar(call.value(total).type.dtype, count, "count");
  return call.emit("Div", {total, divisor}, call.attributes());
}

Status swish(Call& call) {
  HEDDLE_TRY_ASSIGN(const double alpha, call.take_f64("alpha", 1.0));
  HEDDLE_TRY_ASSIGN(const ir::TensorType type, call.type(0));
  const ValueId x = call.input(0);
  if (alpha == 1.0) return call.emit("Silu", {x}, call.attributes());
  HEDDLE_TRY_ASSIGN(const ValueId scaled,
                    call.add("Mul", {x, call.scalar(type.dtype, alpha, "alpha")}, {}, "scaled"));
  HEDDLE_TRY_ASSIGN(const ValueId gate, call.add("Sigmoid", {scaled}, {}, "gate"));
  return call.emit("Mul", {x, gate}, call.attributes());
}

Status mish(Call& call) {
  HEDDLE_TRY_ASSIGN(const ValueId x, call.required(0));
  HEDDLE_TRY_ASSIGN(const ValueId soft, call.add("Softplus", {x}, {}, "softplus"));
  HEDDLE_TRY_ASSIGN(const ValueId gate, call.add("Tanh", {soft}, {}, "gate"));
  return call.emit("Mul", {x, gate}, call.attributes());
}

Result<ir::Tensor> constant_value(Call& call, const std::string& name, const ir::Attribute& value) {
  if (const auto* tensor = std::get_if<ir::Tensor>(&value); tensor && name == "value") return *tensor;
  if (const auto* number = std::get_if<double>(&value); number && name == "value_float") {
    return ir::Tensor::scalar(DType::kF32, *number);
  }
  if (const auto* list = std::get_if<std::vector<double>>(&value); list && name == "value_floats") {
    const ir::Extents extents{static_cast<int64_t>(list->size())};
    return ir::Tensor::of<double>(DType::kF32, extents, *list);
  }
  if (const auto* number = std::get_if<int64_t>(&value); number && name == "value_int") {
    return ir::Tensor::of_i64({*number}).reshaped({});
  }
  if (const auto* list = std::get_if<std::vector<int64_t>>(&value); list && name == "value_ints") {
    return ir::Tensor::of_i64(*list);
  }
  return call.unsupported(
      "attribute '", name,
      "' is not supported; it must be value, value_float(s) or value_int(s), of that kind");
}

Status constant(Call& call) {
  const auto first = call.attributes().begin();
  if (first == call.attributes().end() || std::next(first) != call.attributes().end() ||
      !call.inputs().empty()) {
    return call.invalid("a constant has no input and exactly one attribute, its value");
  }
  HEDDLE_TRY_ASSIGN(ir::Tensor tensor, constant_value(call, first->first, first->second));
  call.bind(0, call.constant(std::move(tensor), "value"));
  return {};
}

// Opset 6 has the bounds as attributes.
Status clip(Call& call) {
  if (call.opset() >= 11) return convert_same(call);
  HEDDLE_TRY_ASSIGN(const ir::TensorType type, call.type(0));
  std::vector<ValueId> inputs = {call.input(0)};
  for (const std::string_view bound : {"min", "max"}) {
    const bool given = call.attributes().has(bound);
    HEDDLE_TRY_ASSIGN(const double value, call.take_f64(bound, 0));
    inputs.push_back(given ? call.scalar(type.dtype, value, bound) : ir::kNoValue);
  }
  return call.emit("Clip", std::move(inputs), call.attributes());
}

Status dropout(Call& call) {
  if (call.has(2)) {
    const auto& training = call.value(call.input(2)).constant;
    if (!training || training->dtype() != DType::kBool || training->elements() != 1 ||
        training->get(0) != 0) {
      return call.unsupported("training_mode must be the constant false; export the model for inference");
    }
  }
  HEDDLE_TRY_ASSIGN(const ValueId x, call.required(0));
  call.bind(0, x);
  if (call.output_count() < 2) return {};
  // The mask says which elements were kept: all.
  HEDDLE_TRY_ASSIGN(const ValueId shape, call.add("Shape", {x}, {}, "shape"));
  const DType dtype = call.opset() < 10 ? call.value(x).type.dtype : DType::kBool;
  ir::Attributes kept = {{"value", ir::Tensor::scalar(dtype, 1).reshaped({1})}};
  HEDDLE_TRY_ASSIGN(const ValueId mask, call.add("ConstantOfShape", {shape}, std::move(kept), "mask"));
  call.bind(1, mask);
  return {};
}

}  // namespace

std::span<const Operator> elementwise_operators() {
  static constexpr Operator kTable[] = {
      {"Abs", 6, convert_same},
      {"Add", 7, convert_same},
      {"And", 7, convert_same},
      {"Cast", 6, cast},
      {"CastLike", 15, cast_like},
      {"Ceil", 6, convert_same},
      {"Clip", 6, clip},
      {"Constant", 1, constant},
      {"Cos", 7, convert_same},
      {"Div", 7, convert_same},
      {"Dropout", 7, dropout},
      {"Elu", 6, convert_same},
      {"Equal", 7, convert_same},
      {"Erf", 9, convert_same},
      {"Exp", 6, convert_same},
      {"Floor", 6, convert_same},
      {"Gelu", 20, convert_same},
      {"Greater", 7, convert_same},
      {"GreaterOrEqual", 12, convert_same},
      {"HardSigmoid", 6, convert_same},
      {"HardSwish", 14, convert_same},
      {"Identity", 1, convert_same},
      {"IsInf", 10, is_inf},
      {"IsNaN", 9, convert_same},
      {"LeakyRelu", 6, convert_same},
      {"Less", 7, convert_same},
      {"LessOrEqual", 12, convert_same},
      {"Log", 6, convert_same},
      {"Max", 8, convert_same},
      {"Mean", 8, mean},
      {"Min", 8, convert_same},
      {"Mish", 18, mish},
      {"Mod", 10, convert_same},
      {"Mul", 7, convert_same},
      {"Neg", 6, convert_same},
      {"Not", 1, convert_same},
      {"Or", 7, convert_same},
      {"PRelu", 7, convert_same},
      {"Pow", 7, pow},
      {"Reciprocal", 6, convert_same},
      {"Relu", 6, convert_same},
      {"Round", 11, convert_same},
      {"Sigmoid", 6, convert_same},
      {"Sign", 9, convert_same},
      {"Sin", 7, convert_same},
      {"Softplus", 1, convert_same},
      {"Softsign", 1, convert_same},
      {"Sqrt", 6, convert_same},
      {"Sub", 7, convert_same},
      {"Sum", 8, sum},
      {"Swish", 24, swish},
      {"Tanh", 6, convert_same},
      {"Where", 9, convert_same},
      {"Xor", 7, convert_same},
  };
  return kTable;
}

}  // namespace heddle::onnx
