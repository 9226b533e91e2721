// Reductions, and what looks for the largest or smallest.
#include <limits>
#include <string_view>
#include <vector>

#include "onnx/operators.h"

namespace heddle::onnx {
namespace {

using ir::ValueId;

// Axes are an attribute before opset 18 (ReduceSum: 13).
Status reduce(Call& call) {
  HEDDLE_TRY_ASSIGN(auto inputs, attribute_to_input(call, "axes", 1));
  return call.emit(call.op(), std::move(inputs), call.attributes());
}

Status reduce_l1(Call& call) {
  HEDDLE_TRY_ASSIGN(auto inputs, attribute_to_input(call, "axes", 1));
  HEDDLE_TRY_ASSIGN(const ValueId x, call.required(0));
  HEDDLE_TRY_ASSIGN(inputs[0], call.add("Abs", {x}, {}, "abs"));
  return call.emit("ReduceSum", std::move(inputs), call.attributes());
}

Status reduce_log_sum(Call& call) {
  HEDDLE_TRY_ASSIGN(auto inputs, attribute_to_input(call, "axes", 1));
  HEDDLE_TRY_ASSIGN(const ValueId sum, call.add("ReduceSum", std::move(inputs), call.attributes(), "sum"));
  return call.emit("Log", {sum}, {});
}

// log(sum(exp(x - m))) + m, with m the largest, held finite so that rows of infinities do not become NaN.
Status reduce_log_sum_exp(Call& call) {
  HEDDLE_TRY_ASSIGN(const auto inputs, attribute_to_input(call, "axes", 1));
  HEDDLE_TRY_ASSIGN(const ir::TensorType type, call.type(0));
  const double bound = type.dtype == ir::DType::kF16 ? 65504.0 : 3.0e38;
  const ValueId low = call.scalar(type.dtype, -bound, "low"), high = call.scalar(type.dtype, bound, "high");
  const auto largest = [&](ir::Attributes attributes, std::string_view purpose) -> Result<ValueId> {
    HEDDLE_TRY_ASSIGN(const ValueId m, call.add("ReduceMax", inputs, std::move(attributes), purpose));
    return call.add("Clip", {m, low, high}, {}, text(purpose, "_finite"));
  };
  ir::Attributes kept = call.attributes();
  kept.set("keepdims", int64_t{1});
  HEDDLE_TRY_ASSIGN(const ValueId m, largest(std::move(kept), "largest"));
  HEDDLE_TRY_ASSIGN(const ValueId shifted, call.add("Sub", {inputs[0], m}, {}, "shifted"));
  std::vector<ValueId> operands = inputs;
  HEDDLE_TRY_ASSIGN(operands[0], call.add("Exp", {shifted}, {}, "exp"));
  HEDDLE_TRY_ASSIGN(const ValueId sum, call.add("ReduceSum", std::move(operands), call.attributes(), "sum"));
  HEDDLE_TRY_ASSIGN(const ValueId log, call.add("Log", {sum}, {}, "log"));
  HEDDLE_TRY_ASSIGN(const ValueId back, largest(call.attributes(), "back"));
  return call.emit("Add", {log, back}, {});
}

Status top_k(Call& call) { return call.emit("TopK", call.inputs(), call.attributes(), 2); }

}  // namespace

std::span<const Operator> reduction_operators() {
  static constexpr Operator kTable[] = {
      {"ArgMax", 1, convert_same},
      {"ArgMin", 1, convert_same},
      {"ReduceL1", 1, reduce_l1},
      {"ReduceL2", 1, reduce},
      {"ReduceLogSum", 1, reduce_log_sum},
      {"ReduceLogSumExp", 1, reduce_log_sum_exp},
      {"ReduceMax", 1, reduce},
      {"ReduceMean", 1, reduce},
      {"ReduceMin", 1, reduce},
      {"ReduceProd", 1, reduce},
      {"ReduceSum", 1, reduce},
      {"ReduceSumSquare", 1, reduce},
      {"TopK", 10, top_k},
  };
  return kTable;
}

}  // namespace heddle::onnx
