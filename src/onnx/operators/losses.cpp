// Loss functions, forward: values that a model which was exported with its loss also returns.
#include <optional>
#include <string>
#include <vector>

#include "onnx/operators.h"
#include "onnx/operators/parts.h"

namespace heddle::onnx {
namespace {

using ir::DType;
using ir::ValueId;

struct LossForm {
  std::string reduction;
  std::optional<int64_t> ignored;  // targets of this class count for nothing
};

Result<LossForm> take_form(Call& call) {
  LossForm form;
  if (call.attributes().has("ignore_index")) {
    HEDDLE_TRY_ASSIGN(form.ignored, call.take_i64("ignore_index", 0));
  }
  HEDDLE_TRY_ASSIGN(form.reduction, call.take_str("reduction", "mean"));
  if (form.reduction != "none" && form.reduction != "sum" && form.reduction != "mean") {
    return call.invalid("attribute 'reduction' is '", form.reduction,
                        "'; it has to be 'none', 'sum' or 'mean'");
  }
  HEDDLE_TRY_ASSIGN(const ir::TensorType scores, call.type(0));
  HEDDLE_TRY_ASSIGN(const ir::TensorType targets, call.type(1));
  if (scores.rank() < 2 || targets.rank() + 1 != scores.rank() || !ir::is_integer(targets.dtype)) {
    return call.invalid("the scores are ", scores, " and the targets ", targets,
                        "; scores have to have rank 2 or more with classes along axis 1, and targets have to "
                        "be integers of the same shape without that axis");
  }
  return form;
}

// loss = -weight[target] * log_probability[target], 0 where the target is the ignored class; the mean is over
// the weights. An ignored target may lie outside the classes, so class 0 is read in its place.
ValueId negative_log_likelihood(Parts& parts, ValueId log_probabilities, ValueId targets, ValueId weights,
                                const LossForm& form) {
  const DType dtype = parts.type(log_probabilities).dtype;
  ValueId classes = parts.cast(targets, DType::kI64), ignored = ir::kNoValue, weight = ir::kNoValue;
  if (form.ignored) {
    ignored = parts.pair("Equal", classes, parts.number(DType::kI64, static_cast<double>(*form.ignored)));
    classes = parts.node("Where", {ignored, parts.number(DType::kI64, 0), classes});
  }
  const ValueId picked = parts.node("GatherElements", {log_probabilities, parts.unsqueeze(classes, {1})},
                                    {{"axis", int64_t{1}}});
  ValueId loss = parts.node("Neg", {parts.squeeze(picked, {1})});
  if (weights != ir::kNoValue) {
    weight = parts.node("Gather", {weights, classes}, {{"axis", int64_t{0}}});
    loss = parts.pair("Mul", loss, weight);
  }
  if (ignored != ir::kNoValue) {
    const ValueId zero = parts.number(dtype, 0);
    loss = parts.node("Where", {ignored, zero, loss});
    weight = parts.node("Where", {ignored, zero, weight != ir::kNoValue ? weight : parts.number(dtype, 1)});
  }
  if (form.reduction == "none") return loss;
  const auto sum = [&](ValueId x) { return parts.node("ReduceSum", {x}, {{"keepdims", int64_t{0}}}); };
  if (form.reduction == "sum") return sum(loss);
  if (weight == ir::kNoValue) return parts.node("ReduceMean", {loss}, {{"keepdims", int64_t{0}}});
  return parts.pair("Div", sum(loss), sum(weight));
}

Status negative_log_likelihood_loss(Call& call) {
  HEDDLE_TRY_ASSIGN(const LossForm form, take_form(call));
  Parts parts(call);
  return parts.emit(negative_log_likelihood(parts, call.input(0), call.input(1), call.input(2), form));
}

Status softmax_cross_entropy_loss(Call& call) {
  HEDDLE_TRY_ASSIGN(const LossForm form, take_form(call));
  Parts parts(call);
  const ValueId log = parts.node("LogSoftmax", {call.input(0)}, {{"axis", int64_t{1}}});
  HEDDLE_TRY(parts.emit(negative_log_likelihood(parts, log, call.input(1), call.input(2), form)));
  return call.output_count() > 1 ? parts.emit(log, 1) : Status();
}

}  // namespace

std::span<const Operator> loss_operators() {
  static constexpr Operator kTable[] = {
      {"NegativeLogLikelihoodLoss", 12, negative_log_likelihood_loss},
      {"SoftmaxCrossEntropyLoss", 12, softmax_cross_entropy_loss},
  };
  return kTable;
}

}  // namespace heddle::onnx
