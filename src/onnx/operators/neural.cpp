// Linear algebra, convolution, pooling, normalisation. Attention has a file of its own.
#include <algorithm>
#include <string>
#include <vector>

#include "onnx/operators.h"
#include "onnx/operators/attention.h"

namespace heddle::onnx {
namespace {

using ir::Attributes;
using ir::ValueId;

constexpr double kEpsilon = 1e-5;

// NOTSET means that pads are given, which is what an absent auto_pad means too.
Status windowed(Call& call) {
  HEDDLE_TRY_ASSIGN(const std::string padding, call.take_str("auto_pad", "NOTSET"));
  if (padding != "NOTSET" && !padding.empty()) call.attributes().set("auto_pad", padding);
  call.attributes().erase("storage_order");  // the order of MaxPool's indices, which are not computed
  return convert_same(call);
}

void set_default_epsilon(Call& call) {
  if (!call.attributes().has("epsilon")) call.attributes().set("epsilon", kEpsilon);
}

Status batch_normalization(Call& call) {
  HEDDLE_TRY_ASSIGN(const int64_t training, call.take_i64("training_mode", 0));
  if (training != 0) return call.unsupported("training_mode must be 0; export the model for inference");
  call.attributes().erase("momentum");
  set_default_epsilon(call);
  return convert_same(call);
}

// stash_type is the type the statistics are computed in: f32 or better here, whatever it says.
Status normalization(Call& call) {
  call.attributes().erase("stash_type");
  set_default_epsilon(call);
  return convert_same(call);
}

// One factor per group, as before opset 21, becomes one per channel.
Result<ValueId> per_channel(Call& call, size_t input, int64_t groups, int64_t channels,
                            std::string_view purpose) {
  HEDDLE_TRY_ASSIGN(const ValueId factors, call.required(input));
  const ValueId column = call.constant(ir::Tensor::of_i64({groups, 1}), text(purpose, "_column"));
  const ValueId matrix =
      call.constant(ir::Tensor::of_i64({groups, channels / groups}), text(purpose, "_matrix"));
  const ValueId flat = call.constant(ir::Tensor::of_i64({channels}), text(purpose, "_flat"));
  HEDDLE_TRY_ASSIGN(const ValueId rows, call.add("Reshape", {factors, column}, {}, text(purpose, "_rows")));
  HEDDLE_TRY_ASSIGN(const ValueId wide, call.add("Expand", {rows, matrix}, {}, text(purpose, "_wide")));
  return call.add("Reshape", {wide, flat}, {}, purpose);
}

Status group_normalization(Call& call) {
  if (call.opset() >= 21) return normalization(call);
  HEDDLE_TRY_ASSIGN(const ir::TensorType x, call.type(0));
  HEDDLE_TRY_ASSIGN(const int64_t groups, call.take_i64("num_groups", 0));
  if (x.rank() < 2 || !x.shape[1].is_static()) {
    return call.unsupported("before opset 21 the number of channels must be known; the input is ", x);
  }
  const int64_t channels = x.shape[1].value();
  if (groups <= 0 || channels % groups != 0) {
    return call.invalid("num_groups is ", groups, "; it must divide the ", channels, " channels");
  }
  call.attributes().set("num_groups", groups);
  call.attributes().erase("stash_type");
  set_default_epsilon(call);
  HEDDLE_TRY_ASSIGN(const ValueId scale, per_channel(call, 1, groups, channels, "scale"));
  HEDDLE_TRY_ASSIGN(const ValueId bias, per_channel(call, 2, groups, channels, "bias"));
  return call.emit("GroupNormalization", {call.input(0), scale, bias}, call.attributes());
}

// Before opset 13 the axes from `axis` on are taken together, and `axis` is 1 unless given.
Status softmax(Call& call) {
  if (call.opset() >= 13) return convert_same(call);
  HEDDLE_TRY_ASSIGN(const ir::TensorType x, call.type(0));
  HEDDLE_TRY_ASSIGN(const int64_t axis, call.take_i64("axis", 1));
  const auto rank = static_cast<int64_t>(x.rank());
  const int64_t first = axis < 0 ? axis + rank : axis;
  if (first < 0 || first >= std::max<int64_t>(rank, 1)) {
    return call.invalid("axis ", axis, " is outside [", -rank, ", ", rank - 1, "] of ", x);
  }
  if (first == rank - 1) return call.emit(call.op(), {call.input(0)}, {{"axis", int64_t{-1}}});
  HEDDLE_TRY_ASSIGN(const ValueId flat, call.add("Flatten", {call.input(0)}, {{"axis", first}}, "flat"));
  HEDDLE_TRY_ASSIGN(const ValueId rows, call.add(call.op(), {flat}, {{"axis", int64_t{1}}}, "rows"));
  HEDDLE_TRY_ASSIGN(const ValueId shape, call.add("Shape", {call.input(0)}, {}, "shape"));
  return call.emit("Reshape", {rows, shape}, {});
}

constexpr Operator kTable[] = {
    {"Attention", 23, convert_attention},
    {"AveragePool", 7, windowed},
    {"BatchNormalization", 9, batch_normalization},
    {"Conv", 1, windowed},
    {"Gemm", 11, convert_same},
    {"GlobalAveragePool", 1, convert_same},
    {"GlobalMaxPool", 1, convert_same},
    {"GroupNormalization", 18, group_normalization},
    {"InstanceNormalization", 6, normalization},
    {"LayerNormalization", 17, normalization},
    {"LogSoftmax", 1, softmax},
    {"MatMul", 1, convert_same},
    {"MaxPool", 8, windowed},
    {"RMSNormalization", 23, normalization},
    {"Softmax", 1, softmax},
};

}  // namespace

std::span<const Operator> neural_operators() { return kTable; }

}  // namespace heddle::onnx
