// Normalisations and softmax.
#include <algorithm>
#include <cmath>

#include "ir/ops/rules.h"
#include "ir/ops/tables.h"
#include "ir/ops/walk.h"

namespace heddle::ir {

namespace {

// Parameters with one element per channel (axis 1).
Status check_channel_parameters(Operands in, std::initializer_list<std::string_view> names) {
  HEDDLE_TRY(accept(*in[0], "x", Accept::kFloat));
  HEDDLE_TRY(check_rank(*in[0], "x", 2));
  size_t i = 1;
  for (std::string_view name : names) {
    HEDDLE_TRY(accept(*in[i], name, Accept::kFloat));
    HEDDLE_TRY(check_shape(*in[i], name, {in[0]->type.shape[1]}));
    ++i;
  }
  return {};
}

Inferred infer_batch(const Node&, Operands in) {
  HEDDLE_TRY(check_channel_parameters(in, {"scale", "b", "mean", "var"}));
  return one(in[0]->type.dtype, in[0]->type.shape);
}

Status reference_batch(const Node& node, DataIn in, DataOut out) {
  const double epsilon = node.attributes.f64("epsilon", 1e-5);
  walk(out[0].extents(), [&](const Index& index, int64_t flat) {
    const int64_t c = index[1];
    const double scaled = (in[0]->get(flat) - in[3]->get(c)) / std::sqrt(in[4]->get(c) + epsilon);
    out[0].set(flat, scaled * in[1]->get(c) + in[2]->get(c));
  });
  return {};
}

struct Moments {
  double mean = 0;
  double variance = 0;
};
Moments moments(const Tensor& x, int64_t begin, int64_t count) {
  Moments m;
  for (int64_t i = 0; i < count; ++i) m.mean += x.get(begin + i);
  m.mean /= static_cast<double>(count);
  for (int64_t i = 0; i < count; ++i) m.variance += std::pow(x.get(begin + i) - m.mean, 2);
  m.variance /= static_cast<double>(count);
  return m;
}

Inferred infer_instance(const Node&, Operands in) {
  HEDDLE_TRY(check_channel_parameters(in, {"scale", "b"}));
  return one(in[0]->type.dtype, in[0]->type.shape);
}

Inferred infer_group(const Node& node, Operands in) {
  HEDDLE_TRY(check_channel_parameters(in, {"scale", "bias"}));
  const int64_t groups = node.attributes.i64("num_groups");
  const Dim& channels = in[0]->type.shape[1];
  if (groups < 1 || (channels.is_static() && channels.value() % groups != 0)) {
    return Status::invalid("attribute 'num_groups' is ", groups, "; it has to divide the ", channels,
                           " channels of ", in[0]->type);
  }
  return one(in[0]->type.dtype, in[0]->type.shape);
}

// Instance normalisation is group normalisation with one channel in each group.
Status reference_group(const Node& node, DataIn in, DataOut out) {
  const Extents& x = in[0]->extents();
  const int64_t channels = x[1];
  if (out[0].elements() == 0) return {};
  const int64_t groups = node.attributes.i64("num_groups", channels);
  const double epsilon = node.attributes.f64("epsilon", 1e-5);
  const int64_t size = in[0]->elements() / (x[0] * groups);
  const int64_t plane = size / (channels / groups);
  for (int64_t g = 0; g < x[0] * groups; ++g) {
    const Moments m = moments(*in[0], g * size, size);
    for (int64_t i = g * size; i < (g + 1) * size; ++i) {
      const int64_t c = i / plane % channels;
      const double normal = (in[0]->get(i) - m.mean) / std::sqrt(m.variance + epsilon);
      out[0].set(i, normal * in[1]->get(c) + in[2]->get(c));
    }
  }
  return {};
}

// Scale and bias broadcast over the axes from `axis` on.
Inferred infer_layer(const Node& node, Operands in) {
  const TensorType& x = in[0]->type;
  HEDDLE_TRY(accept(*in[0], "x", Accept::kFloat));
  HEDDLE_TRY_ASSIGN(const size_t axis, axis_of(node.attributes.i64("axis", -1), x));
  const Shape normal(x.shape.begin() + static_cast<int64_t>(axis), x.shape.end());
  const std::string_view names[] = {"x", "scale", "bias"};
  for (size_t i = 1; i < in.size(); ++i) {
    if (in[i] == nullptr) continue;
    HEDDLE_TRY(accept(*in[i], names[i], Accept::kFloat));
    const Result<Shape> joined = broadcast(normal, in[i]->type.shape);
    if (!joined.ok() || !may_equal(joined.value(), normal)) {
      return Status::invalid(names[i], " is ", in[i]->type, "; it has to broadcast to ", to_string(normal));
    }
  }
  return one(x.dtype, x.shape);
}

template <bool centred>
Status reference_layer(const Node& node, DataIn in, DataOut out) {
  const Extents& x = in[0]->extents();
  HEDDLE_TRY_ASSIGN(const size_t axis, axis_of(node.attributes.i64("axis", -1), in[0]->type()));
  const double epsilon = node.attributes.f64("epsilon", 1e-5);
  const Extents normal(x.span().subspan(axis));
  const int64_t size = normal.elements();
  const Tensor* bias = optional_input(in, 2);
  const Strides scale_at(in[1]->extents(), normal.rank());
  const Strides bias_at(bias == nullptr ? Extents() : bias->extents(), normal.rank());
  const int64_t rows = size == 0 ? 0 : in[0]->elements() / size;
  for (int64_t row = 0; row < rows; ++row) {
    Moments m = moments(*in[0], row * size, size);
    if (!centred) m = {0, m.variance + m.mean * m.mean};  // the mean of the squares
    walk(normal, [&](const Index& index, int64_t flat) {
      const double y = (in[0]->get(row * size + flat) - m.mean) / std::sqrt(m.variance + epsilon);
      const double shift = bias == nullptr ? 0 : bias->get(bias_at.at(index));
      out[0].set(row * size + flat, y * in[1]->get(scale_at.at(index)) + shift);
    });
  }
  return {};
}

Inferred infer_softmax(const Node& node, Operands in) {
  HEDDLE_TRY(accept(*in[0], "x", Accept::kFloat));
  HEDDLE_TRY(axis_of(node.attributes.i64("axis", -1), in[0]->type));
  return one(in[0]->type.dtype, in[0]->type.shape);
}

template <bool logarithm>
Status reference_softmax(const Node& node, DataIn in, DataOut out) {
  HEDDLE_TRY_ASSIGN(const size_t axis, axis_of(node.attributes.i64("axis", -1), in[0]->type()));
  const Lanes lanes(in[0]->extents(), axis);
  for (int64_t o = 0; o < lanes.outer; ++o) {
    for (int64_t i = 0; i < lanes.inner; ++i) {
      double greatest = -INFINITY;
      for (int64_t a = 0; a < lanes.extent; ++a) greatest = std::max(greatest, in[0]->get(lanes.at(o, a, i)));
      double sum = 0;
      for (int64_t a = 0; a < lanes.extent; ++a) sum += std::exp(in[0]->get(lanes.at(o, a, i)) - greatest);
      for (int64_t a = 0; a < lanes.extent; ++a) {
        const double x = in[0]->get(lanes.at(o, a, i)) - greatest;
        out[0].set(lanes.at(o, a, i), logarithm ? x - std::log(sum) : std::exp(x) / sum);
      }
    }
  }
  return {};
}

}  // namespace

std::vector<OpDef> normalization_ops() {
  using enum AttributeKind;
  return {
      {"BatchNormalization", 5, 5, 1, 1, {{"epsilon", kFloat}}, infer_batch, reference_batch},
      {"InstanceNormalization", 3, 3, 1, 1, {{"epsilon", kFloat}}, infer_instance, reference_group},
      {"GroupNormalization",
       3,
       3,
       1,
       1,
       {{"num_groups", kInt, true}, {"epsilon", kFloat}},
       infer_group,
       reference_group},
      {"LayerNormalization",
       2,
       3,
       1,
       1,
       {{"axis", kInt}, {"epsilon", kFloat}},
       infer_layer,
       reference_layer<true>},
      {"RMSNormalization",
       2,
       2,
       1,
       1,
       {{"axis", kInt}, {"epsilon", kFloat}},
       infer_layer,
       reference_layer<false>},
      {"Softmax", 1, 1, 1, 1, {{"axis", kInt}}, infer_softmax, reference_softmax<false>},
      {"LogSoftmax", 1, 1, 1, 1, {{"axis", kInt}}, infer_softmax, reference_softmax<true>},
  };
}

}  // namespace heddle::ir
