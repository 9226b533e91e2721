#include <cmath>
#include <utility>

#include "plan/passes/passes.h"
#include "plan/passes/rewrite.h"
#include "plan/patterns/epilogue.h"

namespace heddle::plan {

using ir::kNoValue;
using ir::Node;
using ir::Tensor;
using ir::ValueId;

namespace {

// A Conv, or a ConvTranspose of one group, that only `reader` reads.
const Node* absorbable(const Rewriter& rw, ValueId id, const Node& reader) {
  const Node* conv = rw.maker(id);
  if (conv == nullptr || !conv->attributes.str("activation").empty()) return nullptr;
  const bool turned = conv->is("ConvTranspose") && conv->attributes.i64("group", 1) == 1;
  if (!turned && !conv->is("Conv")) return nullptr;
  return rw.closed({conv}, reader) ? conv : nullptr;
}

const Node* takes_residual(const Rewriter& rw, ValueId id, const Node& reader) {
  const Node* conv = absorbable(rw, id, reader);
  return conv != nullptr && conv->is("Conv") ? conv : nullptr;
}

// The axis of the weight that goes over output channels.
size_t output_axis(const Node& conv) { return conv.is("Conv") ? 0 : 1; }

const Tensor* constant(const Rewriter& rw, ValueId id) {
  return id != kNoValue && rw.value(id).is_constant() ? &*rw.value(id).constant : nullptr;
}

// One factor and one addend per output channel, into weights and bias. Computed in double, rounded once.
Status scale_and_shift(Rewriter& rw, const Node& node, const Node& conv, const std::vector<double>& scale,
                       const std::vector<double>& shift) {
  const Tensor& weight = *constant(rw, conv.inputs[kWeight]);
  const Tensor* bias = conv.has_input(kBias) ? constant(rw, conv.inputs[kBias]) : nullptr;
  const auto channels = static_cast<int64_t>(scale.size());
  Tensor new_weight = Tensor::zeros(weight.dtype(), weight.extents());
  Tensor new_bias = Tensor::zeros(weight.dtype(), {channels});
  int64_t inner = 1;  // elements of the weight between two output channels
  for (size_t i = output_axis(conv) + 1; i < weight.extents().rank(); ++i) inner *= weight.extents()[i];
  for (int64_t i = 0; i < weight.elements(); ++i)
    new_weight.set(i, weight.get(i) * scale[static_cast<size_t>(i / inner % channels)]);
  for (int64_t c = 0; c < channels; ++c) {
    const double factor = scale[static_cast<size_t>(c)];
    new_bias.set(c, (bias == nullptr ? 0 : bias->get(c)) * factor + shift[static_cast<size_t>(c)]);
  }
  std::vector<ValueId> inputs = four_inputs(conv);
  inputs[kWeight] = rw.constant(std::move(new_weight), node.name + "/weight");
  inputs[kBias] = rw.constant(std::move(new_bias), node.name + "/bias");
  return replace_product(rw, node, conv.op->name, std::move(inputs), conv.attributes);
}

bool constant_operands(const Rewriter& rw, const Node& conv) {
  return constant(rw, conv.inputs[kWeight]) != nullptr && !conv.has_input(kResidual) &&
         (!conv.has_input(kBias) || constant(rw, conv.inputs[kBias]) != nullptr);
}

Status absorb_batch_norm(Rewriter& rw, const Node& norm) {
  const Node* conv = absorbable(rw, norm.inputs[0], norm);
  if (conv == nullptr || !constant_operands(rw, *conv)) return {};
  const Tensor* given[4];  // scale, bias, mean, variance
  for (size_t i = 0; i < 4; ++i) {
    given[i] = constant(rw, norm.inputs[i + 1]);
    if (given[i] == nullptr) return {};
  }
  const int64_t channels = given[0]->elements();
  if (constant(rw, conv->inputs[kWeight])->extents()[output_axis(*conv)] != channels) return {};
  const double epsilon = norm.attributes.f64("epsilon", 1e-5);
  std::vector<double> scale;
  std::vector<double> shift;
  for (int64_t c = 0; c < channels; ++c) {
    scale.push_back(given[0]->get(c) / std::sqrt(given[3]->get(c) + epsilon));
    shift.push_back(given[1]->get(c) - given[2]->get(c) * scale.back());
  }
  return scale_and_shift(rw, norm, *conv, scale, shift);
}

// The elements of a constant [c, 1, ..] or [1, c, 1, ..], one per channel of a value of `rank` axes.
std::optional<std::vector<double>> per_channel(const Rewriter& rw, ValueId id, int64_t channels,
                                               size_t rank) {
  const Tensor* t = constant(rw, id);
  if (t == nullptr || t->extents().rank() > rank) return std::nullopt;
  const size_t lead = rank - t->extents().rank();
  for (size_t i = 0; i < t->extents().rank(); ++i) {
    const int64_t extent = t->extents()[i];
    if (extent != 1 && (i + lead != 1 || extent != channels)) return std::nullopt;
  }
  std::vector<double> out(static_cast<size_t>(channels), 0);
  for (int64_t c = 0; c < channels; ++c) out[static_cast<size_t>(c)] = t->get(t->elements() == 1 ? 0 : c);
  return out;
}

Status absorb_constant(Rewriter& rw, const Node& node) {
  for (size_t i : {size_t{0}, size_t{1}}) {
    const Node* conv = absorbable(rw, node.inputs[i], node);
    if (conv == nullptr || !constant_operands(rw, *conv)) continue;
    const int64_t channels = constant(rw, conv->inputs[kWeight])->extents()[output_axis(*conv)];
    const auto given = per_channel(rw, node.inputs[1 - i], channels, rw.shape(node.inputs[i]).size());
    if (!given) continue;
    const std::vector<double> neutral(given->size(), node.is("Add") ? 1 : 0);
    return node.is("Add") ? scale_and_shift(rw, node, *conv, neutral, *given)
                          : scale_and_shift(rw, node, *conv, *given, neutral);
  }
  return {};
}

}  // namespace

Result<ir::Graph> fuse_conv(ir::Graph graph) {
  Rewriter rewriter(std::move(graph));
  return rewriter.run([](Rewriter& rw, const Node& node) -> Status {
    if (node.is("BatchNormalization")) return absorb_batch_norm(rw, node);
    if (node.is("Mul")) return absorb_constant(rw, node);
    if (node.is("Add")) {
      HEDDLE_TRY(absorb_constant(rw, node));
      return rw.replaced() ? Status() : absorb_residual(rw, node, takes_residual);
    }
    const auto activation = activation_attributes(rw, node);
    if (!activation) return {};
    const Node* conv = absorbable(rw, node.inputs[0], node);
    return conv == nullptr ? Status() : absorb_activation(rw, node, *conv, *activation);
  });
}

}  // namespace heddle::plan
