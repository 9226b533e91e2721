// Normalisations, Softmax and LogSoftmax.
#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "onnx/operators.h"

namespace heddle::onnx {
namespace {

using ir::DType;
using ir::TensorType;
using ir::ValueId;

constexpr double kEpsilon = 1e-5;

void set_default_epsilon(Call& call) {
  if (!call.attributes().has("epsilon")) call.attributes().set("epsilon", kEpsilon);
}

// Scale, bias, mean and variance may be of another float type than x; kernels read them as x or as f32.
Result<ValueId> parameter(Call& call, size_t input, DType x) {
  HEDDLE_TRY_ASSIGN(const ValueId id, call.required(input));
  const DType own = call.value(id).type.dtype;
  if (own == x || x == DType::kF64 || !ir::is_float(own)) return id;
  return call.cast(id, DType::kF32, text("input", input));
}

Status batch_normalization(Call& call) {
  HEDDLE_TRY_ASSIGN(const int64_t training, call.take_i64("training_mode", 0));
  if (training != 0) return call.unsupported("training_mode must be 0; export the model for inference");
  call.attributes().erase("momentum");
  set_default_epsilon(call);
  HEDDLE_TRY_ASSIGN(const TensorType x, call.type(0));
  std::vector<ValueId> inputs = call.inputs();
  for (size_t i = 1; i < 5; ++i) {
    HEDDLE_TRY_ASSIGN(const ValueId id, parameter(call, i, x.dtype));
    inputs[i] = id;
  }
  if (x.rank() != 1) return call.emit("BatchNormalization", std::move(inputs), call.attributes());
  // A vector is a batch of examples with one channel.
  const ValueId axis = call.constant(ir::Tensor::of_i64({1}), "channel_axis");
  HEDDLE_TRY_ASSIGN(inputs[0], call.add("Unsqueeze", {inputs[0], axis}, {}, "column"));
  HEDDLE_TRY_ASSIGN(const ValueId column,
                    call.add("BatchNormalization", std::move(inputs), call.attributes(), "normal"));
  return call.emit("Squeeze", {column, axis}, {});
}

// stash_type is the type the statistics are computed in: f32 or better here, whatever it says.
Status normalization(Call& call) {
  call.attributes().erase("stash_type");
  set_default_epsilon(call);
  return convert_same(call);
}

Result<std::vector<int64_t>> axes_from(Call& call, const TensorType& x, int64_t axis) {
  const auto rank = static_cast<int64_t>(x.rank());
  const int64_t first = axis < 0 ? axis + rank : axis;
  if (first < 0 || first >= rank) {
    return call.invalid("axis ", axis, " is outside [", -rank, ", ", rank - 1, "] of ", x);
  }
  std::vector<int64_t> axes(static_cast<size_t>(rank - first));
  std::iota(axes.begin(), axes.end(), first);
  return axes;
}

struct Centred {
  ValueId mean, offset, variance;
};

Result<Centred> centred(Call& call, ValueId x, const std::vector<int64_t>& over) {
  const ValueId axes = call.constant(ir::Tensor::of_i64(over), "axes");
  const ir::Attributes keep = {{"keepdims", int64_t{1}}};
  Centred out{};
  HEDDLE_TRY_ASSIGN(out.mean, call.add("ReduceMean", {x, axes}, keep, "mean"));
  HEDDLE_TRY_ASSIGN(out.offset, call.add("Sub", {x, out.mean}, {}, "centred"));
  HEDDLE_TRY_ASSIGN(const ValueId square, call.add("Mul", {out.offset, out.offset}, {}, "square"));
  HEDDLE_TRY_ASSIGN(out.variance, call.add("ReduceMean", {square, axes}, keep, "variance"));
  return out;
}

// The statistics, where they are outputs, are in the type they are computed in: stash_type, f32.
Status layer_normalization(Call& call) {
  const double epsilon = call.attributes().f64("epsilon", kEpsilon);
  const int64_t axis = call.attributes().i64("axis", -1);
  HEDDLE_TRY(normalization(call));
  if (call.output_count() < 2) return {};
  HEDDLE_TRY_ASSIGN(const TensorType type, call.type(0));
  HEDDLE_TRY_ASSIGN(const std::vector<int64_t> axes, axes_from(call, type, axis));
  HEDDLE_TRY_ASSIGN(const ValueId x, call.cast(call.input(0), DType::kF32, "stash"));
  HEDDLE_TRY_ASSIGN(const Centred moments, centred(call, x, axes));
  const ValueId small = call.scalar(DType::kF32, epsilon, "epsilon");
  HEDDLE_TRY_ASSIGN(const ValueId held, call.add("Add", {moments.variance, small}, {}, "held"));
  HEDDLE_TRY_ASSIGN(const ValueId deviation, call.add("Sqrt", {held}, {}, "deviation"));
  HEDDLE_TRY_ASSIGN(const ValueId inverse, call.add("Reciprocal", {deviation}, {}, "inverse"));
  call.bind(1, moments.mean);
  call.bind(2, inverse);
  return {};
}

Status mean_variance_normalization(Call& call) {
  HEDDLE_TRY_ASSIGN(const auto given, call.take_ints("axes"));
  HEDDLE_TRY_ASSIGN(const TensorType x, call.type(0));
  HEDDLE_TRY_ASSIGN(const Centred moments,
                    centred(call, call.input(0), given.value_or(std::vector<int64_t>{0, 2, 3})));
  const ValueId small = call.scalar(x.dtype, 1e-9, "epsilon");
  HEDDLE_TRY_ASSIGN(const ValueId deviation, call.add("Sqrt", {moments.variance}, {}, "deviation"));
  HEDDLE_TRY_ASSIGN(const ValueId held, call.add("Add", {deviation, small}, {}, "held"));
  return call.emit("Div", {moments.offset, held}, call.attributes());
}

// Rows of zeros stay zeros.
Status lp_normalization(Call& call) {
  HEDDLE_TRY_ASSIGN(const int64_t p, call.take_i64("p", 2));
  HEDDLE_TRY_ASSIGN(const int64_t axis, call.take_i64("axis", -1));
  if (p != 1 && p != 2) return call.invalid("p is ", p, "; it must be 1 or 2");
  HEDDLE_TRY_ASSIGN(const TensorType type, call.type(0));
  ValueId x = call.input(0);
  if (p == 1) {
    HEDDLE_TRY_ASSIGN(x, call.add("Abs", {x}, {}, "abs"));
  }
  const ValueId axes = call.constant(ir::Tensor::of_i64({axis}), "axes");
  HEDDLE_TRY_ASSIGN(const ValueId norm, call.add(p == 1 ? "ReduceSum" : "ReduceL2", {x, axes},
                                                 {{"keepdims", int64_t{1}}}, "norm"));
  const ValueId zero = call.scalar(type.dtype, 0, "zero"), one = call.scalar(type.dtype, 1, "one");
  HEDDLE_TRY_ASSIGN(const ValueId nothing, call.add("Equal", {norm, zero}, {}, "nothing"));
  HEDDLE_TRY_ASSIGN(const ValueId divisor, call.add("Where", {nothing, one, norm}, {}, "divisor"));
  return call.emit("Div", {call.input(0), divisor}, call.attributes());
}

// x / (bias + alpha * mean of the squares of `size` channels around)^beta: channels become an axis to pool
// over, and padding counts, since the sum is always divided by `size`.
Status local_response_normalization(Call& call) {
  HEDDLE_TRY_ASSIGN(const int64_t size, call.take_i64("size", 0));
  HEDDLE_TRY_ASSIGN(const double alpha, call.take_f64("alpha", 1e-4));
  HEDDLE_TRY_ASSIGN(const double beta, call.take_f64("beta", 0.75));
  HEDDLE_TRY_ASSIGN(const double bias, call.take_f64("bias", 1.0));
  HEDDLE_TRY_ASSIGN(const TensorType x, call.type(0));
  if (size < 1) return call.invalid("size is ", size, "; it must be 1 or more");
  if (x.rank() < 2) return call.invalid("the input is ", x, "; its rank must be 2 or more");
  std::vector<int64_t> kernel(x.rank() - 1, 1), pads(2 * (x.rank() - 1), 0);
  kernel[0] = size;
  pads[0] = (size - 1) / 2;
  pads[x.rank() - 1] = size - 1 - pads[0];
  const ValueId axis = call.constant(ir::Tensor::of_i64({1}), "channel_axis");
  HEDDLE_TRY_ASSIGN(const ValueId square, call.add("Mul", {call.input(0), call.input(0)}, {}, "square"));
  HEDDLE_TRY_ASSIGN(const ValueId planes, call.add("Unsqueeze", {square, axis}, {}, "planes"));
  HEDDLE_TRY_ASSIGN(
      const ValueId means,
      call.add("AveragePool", {planes},
               {{"kernel_shape", kernel}, {"pads", pads}, {"count_include_pad", int64_t{1}}}, "means"));
  HEDDLE_TRY_ASSIGN(const ValueId mean, call.add("Squeeze", {means, axis}, {}, "mean"));
  HEDDLE_TRY_ASSIGN(const ValueId scaled,
                    call.add("Mul", {mean, call.scalar(x.dtype, alpha, "alpha")}, {}, "scaled"));
  HEDDLE_TRY_ASSIGN(const ValueId raised,
                    call.add("Add", {scaled, call.scalar(x.dtype, bias, "bias")}, {}, "raised"));
  HEDDLE_TRY_ASSIGN(const ValueId divisor,
                    call.add("Pow", {raised, call.scalar(x.dtype, beta, "beta")}, {}, "divisor"));
  return call.emit("Div", {call.input(0), divisor}, call.attributes());
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
  HEDDLE_TRY_ASSIGN(const TensorType x, call.type(0));
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
  HEDDLE_TRY_ASSIGN(const TensorType x, call.type(0));
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

}  // namespace

std::span<const Operator> normalization_operators() {
  static constexpr Operator kTable[] = {
      {"BatchNormalization", 7, batch_normalization},
      {"GroupNormalization", 18, group_normalization},
      {"InstanceNormalization", 6, normalization},
      {"LRN", 1, local_response_normalization},
      {"LayerNormalization", 17, layer_normalization},
      {"LogSoftmax", 1, softmax},
      {"LpNormalization", 1, lp_normalization},
      {"MeanVarianceNormalization", 9, mean_variance_normalization},
      {"RMSNormalization", 23, normalization},
      {"Softmax", 1, softmax},
  };
  return kTable;
}

}  // namespace heddle::onnx
