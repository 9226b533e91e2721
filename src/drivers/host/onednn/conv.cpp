#include "drivers/host/onednn/conv.h"

#include "drivers/host/layout/narrow_values.h"
#include "drivers/host/onednn/float_steps.h"
#include "drivers/host/onednn/window_step.h"

namespace heddle::host {
namespace {

// y = activation(conv(x, w) + b + residual), channels last. An x and a weight that a caller brings in bf16
// are multiplied as they are where the processor does so.
class ConvStep final : public WindowStep {
 public:
  static Result<std::unique_ptr<Step>> make(const Lowering& lowering) {
    auto step = std::make_unique<ConvStep>();
    HEDDLE_TRY(step->prepare(lowering));
    return std::unique_ptr<Step>(std::move(step));
  }

 private:
  Status prepare(const Lowering& lowering);
  WindowPiece whole(const Lowering& lowering) const;
  std::vector<WindowPiece> cut_rows(const WindowPiece& image, int pieces) const override;
  dnnl::primitive_desc describe(const Engine& engine, const WindowPiece& piece,
                                const Operands& o) const override {
    return dnnl::convolution_forward::primitive_desc(
        engine.cpu, dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct, o.x, o.weights,
        o.bias, o.y, o.strides, o.dilations, piece.begin, piece.end, o.attributes);
  }

  ir::Window window_;
};

Status ConvStep::prepare(const Lowering& lowering) {
  const ir::Node& node = lowering.node;
  const ir::Extents &x = lowering.inputs[0].extents, &w = lowering.inputs[1].extents;
  Dims weight_dims = to_dims(w);  // [group, M / group, C / group, k..], without the first when group is 1
  HEDDLE_TRY_ASSIGN(window_,
                    ir::Window::of(node, x.rank() - 2, {weight_dims.begin() + 2, weight_dims.end()}));
  if (const int64_t group = node.attributes.i64("group", 1); group > 1) {
    weight_dims[0] /= group;
    weight_dims.insert(weight_dims.begin(), group);
  }
  const bool brought = lowering.inputs[0].half == ir::DType::kBF16 && Engine::multiplies_bf16() &&
                       lowering.inputs[1].half == ir::DType::kBF16;
  const bool bf16 = (brought || lowering.weights.engine().bf16) && convolves_in_bf16(node, x, w);
  const int64_t work = 2 * lowering.outputs[0].elements() * (w.elements() / w[0]);
  return WindowStep::prepare(lowering, window_,
                             {"conv", weight_dims, dense_strides(weight_dims), whole(lowering), work, bf16});
}

WindowPiece ConvStep::whole(const Lowering& lowering) const {
  WindowPiece whole;
  whole.x = to_dims(lowering.inputs[0].extents);
  whole.y = to_dims(lowering.outputs[0].extents);
  for (size_t i = 0; i < window_.axes(); ++i) {
    const int64_t begin = window_.pads(i, whole.x[2 + i]).first;
    whole.begin.push_back(begin);
    whole.end.push_back((whole.y[2 + i] - 1) * window_.strides[i] + window_.reach(i) - whole.x[2 + i] -
                        begin);
  }
  return whole;
}

std::vector<WindowPiece> ConvStep::cut_rows(const WindowPiece& image, int pieces) const {
  return cut_window_rows(image, pieces, window_.strides[0], window_.reach(0));
}

ir::Extents without_last(const ir::Extents& extents) {
  return ir::Extents(extents.span().first(extents.rank() - 1));
}

// The last spatial axis is one element wide everywhere, as when a sequence is written as an image of width 1.
// oneDNN blocks along that axis, so it is several times as fast without it.
bool last_axis_idle(const Lowering& lowering) {
  const ir::Node& node = lowering.node;
  const size_t rank = lowering.inputs[0].extents.rank();
  const auto one = [&](const Operand& o) { return !o.present() || o.extents[rank - 1] == 1; };
  const bool residual = lowering.inputs.size() > 3;
  if (rank < 4 || !one(lowering.inputs[0]) || !one(lowering.inputs[1]) || !one(lowering.outputs[0]))
    return false;
  if (residual && !one(lowering.inputs[3])) return false;
  const std::vector<int64_t> pads = node.attributes.ints("pads");
  return pads.empty() || (pads[rank - 3] == 0 && pads.back() == 0);
}

Result<std::unique_ptr<Step>> lower_conv_f32(Lowering& lowering) {
  const size_t rank = lowering.inputs[0].extents.rank();
  if (lowering.inputs[1].elements() == 0 || rank > 5) return reference_step(lowering);
  if (!last_axis_idle(lowering)) return ConvStep::make(lowering);
  ir::Node node = lowering.node;
  for (const char* name : {"kernel_shape", "strides", "dilations", "pads"}) {
    std::vector<int64_t> numbers = node.attributes.ints(name);
    if (numbers.empty()) continue;
    numbers.pop_back();
    if (numbers.size() > rank - 2) numbers.erase(numbers.begin() + static_cast<std::ptrdiff_t>(rank - 3));
    node.attributes.set(name, std::move(numbers));
  }
  Lowering flat{lowering.graph,   node,           lowering.inputs, lowering.outputs,
                lowering.weights, lowering.width, lowering.turned};
  for (size_t i : {size_t{0}, size_t{1}, size_t{3}}) {
    if (i < flat.inputs.size() && flat.inputs[i].present())
      flat.inputs[i].extents = without_last(flat.inputs[i].extents);
  }
  flat.outputs[0].extents = without_last(flat.outputs[0].extents);
  return lower_conv_f32(flat);
}

}  // namespace

std::span<const LoweringEntry> conv_lowerings() {
  static constexpr LoweringEntry kEntries[] = {
      {"Conv", [](Lowering& l) { return lower_floats(l, lower_conv_f32); }},
      {"ConvTranspose", [](Lowering& l) { return lower_floats(l, lower_conv_transpose); }},
      {"MaxPool", [](Lowering& l) { return lower_floats(l, lower_max_pool); }},
      {"AveragePool", [](Lowering& l) { return lower_floats(l, lower_average_pool); }},
      {"GlobalAveragePool", [](Lowering& l) { return lower_floats(l, lower_average_pool); }},
      {"GlobalMaxPool", [](Lowering& l) { return lower_floats(l, lower_max_pool); }},
      {"BatchNormalization", [](Lowering& l) { return lower_floats(l, lower_batch_normalization); }},
  };
  return kEntries;
}

}  // namespace heddle::host
