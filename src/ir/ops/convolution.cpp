// Conv, with bias, residual and activation fused onto it.
#include "ir/ops/convolution.h"

#include "ir/ops/activation.h"
#include "ir/ops/rules.h"
#include "ir/ops/tables.h"
#include "ir/ops/walk.h"
#include "ir/window.h"

namespace heddle::ir {

Result<std::vector<int64_t>> kernel_extents(const TensorType& w) {
  std::vector<int64_t> kernel;
  for (size_t i = 2; i < w.rank(); ++i) {
    if (!w.shape[i].is_static())
      return Status::unsupported("w is ", w, "; its kernel extents have to be numbers");
    kernel.push_back(w.shape[i].value());
  }
  return kernel;
}

Status check_groups(const Node& node, const TensorType& x, const TensorType& w) {
  const int64_t group = node.attributes.i64("group", 1);
  if (group < 1) return Status::invalid("attribute 'group' is ", group, "; it has to be 1 or more");
  if (!Dim::may_equal(x.shape[1], w.shape[1] * Dim(group))) {
    return Status::invalid("x is ", x, " with ", x.shape[1], " channels; w is ", w, " for ", w.shape[1],
                           " in each of ", group, " groups");
  }
  if (w.shape[0].is_static() && w.shape[0].value() % group != 0) {
    return Status::invalid("w is ", w, "; its ", w.shape[0],
                           " output channels have to be a multiple of group=", group);
  }
  return {};
}

namespace {

Inferred infer_conv(const Node& node, Operands in) {
  const TensorType& x = in[0]->type;
  const TensorType& w = in[1]->type;
  HEDDLE_TRY(activation_of(node));
  HEDDLE_TRY(accept(*in[0], "x", Accept::kFloat));
  HEDDLE_TRY(same_dtype(*in[0], "x", *in[1], "w"));
  HEDDLE_TRY(check_rank(*in[0], "x", 3));
  HEDDLE_TRY(check_rank(*in[1], "w", x.rank(), x.rank()));
  HEDDLE_TRY(check_groups(node, x, w));
  HEDDLE_TRY_ASSIGN(const std::vector<int64_t> kernel, kernel_extents(w));
  HEDDLE_TRY_ASSIGN(const Window window, Window::of(node, kernel.size(), kernel));
  if (window.kernel != kernel) {
    return Status::invalid("attribute 'kernel_shape' differs from w, which is ", w);
  }
  Shape shape = {x.shape[0], w.shape[0]};
  for (size_t i = 0; i < window.axes(); ++i) {
    HEDDLE_TRY_ASSIGN(Dim extent, window.out(i, x.shape[2 + i]));
    shape.push_back(std::move(extent));
  }
  HEDDLE_TRY(check_addend(in, 2, "b", {shape[1]}));
  HEDDLE_TRY(check_addend(in, 3, "residual", shape));
  return one(x.dtype, std::move(shape));
}

// y = activation(conv(x, w) + b + residual): the residual comes before the activation, as in ResNet (unlike
// Linear).
Status reference_conv(const Node& node, DataIn in, DataOut out) {
  HEDDLE_TRY_ASSIGN(const Activation activation, activation_of(node));
  HEDDLE_TRY_ASSIGN(const std::vector<int64_t> kernel, kernel_extents(in[1]->type()));
  HEDDLE_TRY_ASSIGN(const Window window, Window::of(node, kernel.size(), kernel));
  const Extents& x = in[0]->extents();
  const std::vector<double> input = doubles(*in[0]);
  const std::vector<double> weights = doubles(*in[1]);
  const int64_t group_in = in[1]->extents()[1];
  const int64_t group_out = out[0].extents()[1] / node.attributes.i64("group", 1);
  const Extents taps(kernel);
  const int64_t tap_count = taps.elements();
  std::vector<int64_t> begin;
  for (size_t i = 0; i < window.axes(); ++i) begin.push_back(window.pads(i, x[2 + i]).first);
  const Strides strides(x);
  const Tensor* bias = optional_input(in, 2);
  const Tensor* residual = optional_input(in, 3);
  walk(out[0].extents(), [&](const Index& index, int64_t flat) {
    double sum = bias == nullptr ? 0 : bias->get(index[1]);
    const int64_t first = group_out == 0 ? 0 : index[1] / group_out * group_in;
    walk(taps, [&](const Index& tap, int64_t tap_flat) {
      Index source{};
      source[0] = index[0];
      source[1] = first;
      for (size_t i = 0; i < window.axes(); ++i) {
        source[2 + i] = index[2 + i] * window.strides[i] + tap[i] * window.dilations[i] - begin[i];
        if (source[2 + i] < 0 || source[2 + i] >= x[2 + i]) return;
      }
      const int64_t at = strides.at(source);
      for (int64_t c = 0; c < group_in; ++c) {
        sum += input[static_cast<size_t>(at + c * strides[1])] *
               weights[static_cast<size_t>((index[1] * group_in + c) * tap_count + tap_flat)];
      }
    });
    out[0].set(flat, activate(activation, sum + (residual == nullptr ? 0 : residual->get(flat))));
  });
  return {};
}

}  // namespace

std::vector<OpDef> convolution_ops() {
  using enum AttributeKind;
  return {{"Conv",
           2,
           4,
           1,
           1,
           {{"kernel_shape", kInts},
            {"strides", kInts},
            {"pads", kInts},
            {"dilations", kInts},
            {"group", kInt},
            {"auto_pad", kString},
            {"activation", kString},
            {"activation_alpha", kFloat},
            {"activation_beta", kFloat}},
           infer_conv,
           reference_conv}};
}

}  // namespace heddle::ir
