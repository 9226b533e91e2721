// Operators on shapes, and those that only move elements.
#include <string>
#include <vector>

#include "onnx/operators.h"

namespace heddle::onnx {
namespace {

using ir::ValueId;

// Squeeze and Unsqueeze: axes are an attribute before opset 13.
Status axes_form(Call& call) {
  HEDDLE_TRY_ASSIGN(auto inputs, attribute_to_input(call, "axes", 1));
  return call.emit(call.op(), std::move(inputs), call.attributes());
}

// The sizes are an attribute before opset 13; num_outputs says from 18 on what the node's outputs say anyway.
Status split(Call& call) {
  HEDDLE_TRY_ASSIGN(auto inputs, attribute_to_input(call, "split", 1));
  const auto outputs = static_cast<int64_t>(call.output_count());
  HEDDLE_TRY_ASSIGN(const int64_t count, call.take_i64("num_outputs", outputs));
  if (count != outputs) {
    return call.invalid("num_outputs is ", count, ", but the node has ", outputs, " outputs");
  }
  if (inputs.size() < 2) call.attributes().set("num_outputs", outputs);
  return call.emit("Split", std::move(inputs), call.attributes(), call.output_count());
}

// Opset 2 has amounts and value as attributes.
Status pad(Call& call) {
  if (call.opset() >= 11) return convert_same(call);
  HEDDLE_TRY_ASSIGN(const ir::TensorType type, call.type(0));
  HEDDLE_TRY_ASSIGN(const double value, call.take_f64("value", 0));
  HEDDLE_TRY_ASSIGN(auto inputs, attribute_to_input(call, "pads", 1));
  inputs.push_back(call.scalar(type.dtype, value, "value"));
  return call.emit("Pad", std::move(inputs), call.attributes());
}

}  // namespace

std::span<const Operator> movement_operators() {
  static constexpr Operator kTable[] = {
      {"Concat", 4, convert_same},
      {"ConstantOfShape", 9, convert_same},
      {"CumSum", 11, convert_same},
      {"Expand", 8, convert_same},
      {"Flatten", 1, convert_same},
      {"Gather", 1, convert_same},
      {"GatherElements", 11, convert_same},
      {"GatherND", 11, convert_same},
      {"OneHot", 9, convert_same},
      {"Pad", 2, pad},
      {"Range", 11, convert_same},
      {"Reshape", 5, convert_same},
      {"Shape", 1, convert_same},
      {"Size", 1, convert_same},
      {"Slice", 10, convert_same},
      {"Split", 2, split},
      {"Squeeze", 1, axes_form},
      {"Tile", 6, convert_same},
      {"Transpose", 1, convert_same},
      {"Trilu", 14, convert_same},
      {"Unsqueeze", 1, axes_form},
  };
  return kTable;
}

}  // namespace heddle::onnx
