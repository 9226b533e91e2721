// ConvTranspose, with bias and activation fused onto it. w is [C, M / group, k..].
#include "ir/ops/activation.h"
#include "ir/ops/convolution.h"
#include "ir/ops/rules.h"
#include "ir/ops/tables.h"
#include "ir/ops/walk.h"
#include "ir/transposed_window.h"

namespace heddle::ir {

namespace {

Inferred infer_transposed(const Node& node, Operands in) {
  const TensorType& x = in[0]->type;
  const TensorType& w = in[1]->type;
  HEDDLE_TRY(activation_of(node));
  HEDDLE_TRY(accept(*in[0], "x", Accept::kFloat));
  HEDDLE_TRY(same_dtype(*in[0], "x", *in[1], "w"));
  HEDDLE_TRY(check_rank(*in[0], "x", 3));
  HEDDLE_TRY(check_rank(*in[1], "w", x.rank(), x.rank()));
  const int64_t group = node.attributes.i64("group", 1);
  const Dim& channels = x.shape[1];
  if (group < 1 || (channels.is_static() && channels.value() % group != 0)) {
    return Status::invalid("attribute 'group' is ", group, "; it has to divide the ", channels,
                           " channels of ", x);
  }
  if (!Dim::may_equal(channels, w.shape[0])) {
    return Status::invalid("x is ", x, " with ", channels, " channels; w is ", w, " for ", w.shape[0]);
  }
  HEDDLE_TRY_ASSIGN(const std::vector<int64_t> kernel, kernel_extents(w));
  HEDDLE_TRY_ASSIGN(const TransposedWindow window, TransposedWindow::of(node, kernel.size(), kernel));
  if (window.window.kernel != kernel) {
    return Status::invalid("attribute 'kernel_shape' differs from w, which is ", w);
  }
  Shape shape = {x.shape[0], w.shape[1] * Dim(group)};
  for (size_t i = 0; i < window.axes(); ++i) {
    HEDDLE_TRY_ASSIGN(Dim extent, window.out(i, x.shape[2 + i]));
    shape.push_back(std::move(extent));
  }
  if (const Value* bias = optional_input(in, 2)) {
    HEDDLE_TRY(same_dtype(*in[0], "x", *bias, "b"));
    HEDDLE_TRY(check_shape(*bias, "b", {shape[1]}));
  }
  return one(x.dtype, std::move(shape));
}

Status reference_transposed(const Node& node, DataIn in, DataOut out) {
  HEDDLE_TRY_ASSIGN(const Activation activation, activation_of(node));
  HEDDLE_TRY_ASSIGN(const std::vector<int64_t> kernel, kernel_extents(in[1]->type()));
  HEDDLE_TRY_ASSIGN(const TransposedWindow window, TransposedWindow::of(node, kernel.size(), kernel));
  const Extents& x = in[0]->extents();
  const std::vector<double> input = doubles(*in[0]), weights = doubles(*in[1]);
  const int64_t group = node.attributes.i64("group", 1);
  const int64_t group_in = x[1] / group, group_out = in[1]->extents()[1];
  const Extents taps(kernel);
  const int64_t tap_count = taps.elements();
  const Strides strides(x);
  const Tensor* bias = optional_input(in, 2);
  walk(out[0].extents(), [&](const Index& index, int64_t flat) {
    double sum = bias == nullptr ? 0 : bias->get(index[1]);
    const int64_t first = index[1] / group_out * group_in;
    walk(taps, [&](const Index& tap, int64_t tap_flat) {
      Index source{};
      source[0] = index[0];
      source[1] = first;
      for (size_t i = 0; i < window.axes(); ++i) {
        const int64_t stride = window.window.strides[i];
        const int64_t at = index[2 + i] + window.begin(i, x[2 + i]) - tap[i] * window.window.dilations[i];
        source[2 + i] = at / stride;
        if (at < 0 || at % stride != 0 || source[2 + i] >= x[2 + i]) return;
      }
      const int64_t at = strides.at(source);
      for (int64_t c = 0; c < group_in; ++c) {
        sum += input[static_cast<size_t>(at + c * strides[1])] *
               weights[static_cast<size_t>(((first + c) * group_out + index[1] % group_out) * tap_count +
                                           tap_flat)];
      }
    });
    out[0].set(flat, activate(activation, sum));
  });
  return {};
}

}  // namespace

std::vector<OpDef> convolution_transpose_ops() {
  using enum AttributeKind;
  return {{"ConvTranspose",
           2,
           3,
           1,
           1,
           {{"kernel_shape", kInts},
            {"strides", kInts},
            {"pads", kInts},
            {"dilations", kInts},
            {"group", kInt},
            {"auto_pad", kString},
            {"output_padding", kInts},
            {"output_shape", kInts},
            {"activation", kString},
            {"activation_alpha", kFloat},
            {"activation_beta", kFloat}},
           infer_transposed,
           reference_transposed}};
}

}  // namespace heddle::ir
