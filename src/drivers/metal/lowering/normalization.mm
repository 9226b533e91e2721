// Softmax and the normalisations. Narrow floats are computed in f32 throughout: a row's sum is long.
#include "drivers/metal/lowering/lowering.h"
#include "ir/tensor_type.h"

namespace heddle::metal {
namespace {

Axes axes_from(size_t first, size_t rank) {
  Axes axes;
  for (size_t i = first; i < rank; ++i) axes.push_back(static_cast<int64_t>(i));
  return axes;
}

// (x - mean) / sqrt(variance + epsilon) over `axes`.
Tensor centred_and_scaled(const Emit& e, Tensor x, const Axes& axes, double epsilon) {
  Tensor difference = e.sub(x, e.mean(x, axes));
  Tensor variance = e.mean(e.square(difference), axes);
  return e.mul(difference, e.rsqrt(e.add(variance, e.like(epsilon, x))));
}

Tensor per_channel(const Emit& e, Tensor x, size_t rank) {
  ir::Extents extents;
  for (size_t i = 0; i < rank; ++i) extents.push_back(i == 1 ? extents_of(x)[0] : 1);
  return e.reshape(x, extents);
}

// MPSGraph's fused normalisation is the Metal layer-norm kernel, wrong when four threads are in it.
Tensor normal_by_kernel(const Emit& e, Tensor x, const Axes& axes, Tensor scale, Tensor bias,
                        double epsilon) {
  Tensor mean = e.mean(x, axes);
  Tensor variance = [e.graph() varianceOfTensor:x meanTensor:mean axes:numbers(axes) name:nil];
  return [e.graph() normalizationWithTensor:x
                                 meanTensor:mean
                             varianceTensor:variance
                                gammaTensor:scale
                                 betaTensor:bias
                                    epsilon:static_cast<float>(epsilon)
                                       name:nil];
}

Status lower_layer_normalization(Lowering& l) {
  const Emit& e = l.emit;
  const double epsilon = l.attributes().f64("epsilon", 1e-5);
  HEDDLE_TRY_ASSIGN(const size_t axis,
                    ir::normalize_axis(l.attributes().i64("axis", -1), l.extents(0).rank()));
  const Axes axes = axes_from(axis, l.extents(0).rank());
  Tensor bias = l.has(2) ? l.inputs[2] : nil;
  if (!l.defences.norms_by_graph) {
    l.outputs[0] = normal_by_kernel(e, l.inputs[0], axes, l.inputs[1], bias, epsilon);
    return {};
  }
  Tensor y = e.mul(centred_and_scaled(e, l.inputs[0], axes, epsilon), l.inputs[1]);
  l.outputs[0] = bias == nil ? y : e.add(y, bias);
  return {};
}

Status lower_rms_normalization(Lowering& l) {
  const Emit& e = l.emit;
  Tensor x = l.inputs[0];
  HEDDLE_TRY_ASSIGN(const size_t axis,
                    ir::normalize_axis(l.attributes().i64("axis", -1), l.extents(0).rank()));
  Tensor squares = e.mean(e.square(x), axes_from(axis, l.extents(0).rank()));
  Tensor root = e.rsqrt(e.add(squares, e.like(l.attributes().f64("epsilon", 1e-5), x)));
  l.outputs[0] = e.mul(e.mul(x, root), l.inputs[1]);
  return {};
}

Status lower_batch_normalization(Lowering& l) {
  const Emit& e = l.emit;
  const size_t rank = l.extents(0).rank();
  const auto of_channel = [&](size_t input) { return per_channel(e, l.inputs[input], rank); };
  Tensor variance = of_channel(4);
  Tensor root = e.rsqrt(e.add(variance, e.like(l.attributes().f64("epsilon", 1e-5), variance)));
  Tensor y = e.mul(e.sub(l.inputs[0], of_channel(3)), e.mul(root, of_channel(1)));
  l.outputs[0] = e.add(y, of_channel(2));
  return {};
}

// Instance normalisation has one channel in each group.
Status lower_group_normalization(Lowering& l) {
  const Emit& e = l.emit;
  const ir::Extents x = l.extents(0);
  const int64_t groups = l.attributes().i64("num_groups", x[1]);
  const ir::Extents grouped{x[0], groups, x.elements() / (x[0] * groups)};
  Tensor y = centred_and_scaled(e, e.reshape(l.inputs[0], grouped), {2}, l.attributes().f64("epsilon", 1e-5));
  y = e.mul(e.reshape(y, x), per_channel(e, l.inputs[1], x.rank()));
  l.outputs[0] = e.add(y, per_channel(e, l.inputs[2], x.rank()));
  return {};
}

Status lower_softmax(Lowering& l) {
  HEDDLE_TRY_ASSIGN(const size_t axis,
                    ir::normalize_axis(l.attributes().i64("axis", -1), l.extents(0).rank()));
  l.outputs[0] = l.emit.softmax(l.inputs[0], axis);
  return {};
}

Status lower_log_softmax(Lowering& l) {
  const Emit& e = l.emit;
  HEDDLE_TRY_ASSIGN(const size_t axis,
                    ir::normalize_axis(l.attributes().i64("axis", -1), l.extents(0).rank()));
  const Axes axes{static_cast<int64_t>(axis)};
  Tensor below = e.sub(l.inputs[0], e.greatest(l.inputs[0], axes));
  l.outputs[0] = e.sub(below, e.log(e.sum(e.exp(below), axes)));
  return {};
}

}  // namespace

std::span<const PathEntry> normalization_paths() {
  using enum Path;
  constexpr std::string_view kLayer =
      "by mean, square and root: the layer-norm kernel is wrong from 4 threads on";
  static constexpr PathEntry kEntries[] = {
      {"LayerNormalization", composed, lower_layer_normalization, kWide, kLayer},
      {"RMSNormalization", composed, lower_rms_normalization, kWide, "MPSGraph has no such operator"},
      {"BatchNormalization", composed, lower_batch_normalization, kWide, kLayer},
      {"InstanceNormalization", composed, lower_group_normalization, kWide, kLayer},
      {"GroupNormalization", composed, lower_group_normalization, kWide, kLayer},
      {"Softmax", graph, lower_softmax, kWide, "f16 and bf16 are computed in f32"},
      {"LogSoftmax", composed, lower_log_softmax, kWide, "the logarithm of a softmax loses small numbers"},
  };
  return kEntries;
}

}  // namespace heddle::metal
