#include <algorithm>

#include "drivers/host/layout/storage.h"
#include "drivers/host/onednn/conv.h"
#include "drivers/host/onednn/float_steps.h"
#include "drivers/host/onednn/window_step.h"
#include "ir/transposed_window.h"

namespace heddle::host {
namespace {

// y = activation(transposed conv(x, w) + b), channels last.
class ConvTransposeStep final : public WindowStep {
 public:
  static Result<std::unique_ptr<Step>> make(const Lowering& lowering) {
    auto step = std::make_unique<ConvTransposeStep>();
    HEDDLE_TRY(step->prepare(lowering));
    return std::unique_ptr<Step>(std::move(step));
  }

 private:
  Status prepare(const Lowering& lowering);
  WindowPiece whole(const Lowering& lowering) const;
  std::vector<WindowPiece> cut_rows(const WindowPiece& image, int pieces) const override;
  dnnl::primitive_desc describe(const Engine& engine, const WindowPiece& piece,
                                const Operands& o) const override {
    return dnnl::deconvolution_forward::primitive_desc(
        engine.cpu, dnnl::prop_kind::forward_inference, dnnl::algorithm::deconvolution_direct, o.x, o.weights,
        o.bias, o.y, o.strides, o.dilations, piece.begin, piece.end, o.attributes);
  }

  ir::TransposedWindow window_;
};

Status ConvTransposeStep::prepare(const Lowering& lowering) {
  const Operand &x = lowering.inputs[0], &weight = lowering.inputs[1];
  const Dims w = to_dims(weight.extents);
  HEDDLE_TRY_ASSIGN(window_, ir::TransposedWindow::of(lowering.node, w.size() - 2, {w.begin() + 2, w.end()}));
  // [group, M / group, C / group, k..] over [C, M / group, k..], without the first when group is 1.
  const int64_t group = lowering.node.attributes.i64("group", 1);
  Dims dims = w, strides = dense_strides(w);
  dims[0] = w[1];
  dims[1] = w[0] / group;
  std::swap(strides[0], strides[1]);
  if (group > 1) {
    dims.insert(dims.begin(), group);
    strides.insert(strides.begin(), w[0] / group * strides[1]);
  }
  const int64_t work = 2 * x.elements() * (weight.elements() / w[0]);
  return WindowStep::prepare(lowering, window_.window,
                             {"transposed", std::move(dims), std::move(strides), whole(lowering), work});
}

WindowPiece ConvTransposeStep::whole(const Lowering& lowering) const {
  WindowPiece whole;
  whole.x = to_dims(lowering.inputs[0].extents);
  whole.y = to_dims(lowering.outputs[0].extents);
  for (size_t i = 0; i < window_.axes(); ++i) {
    const int64_t begin = window_.begin(i, whole.x[2 + i]);
    whole.begin.push_back(begin);
    whole.end.push_back((whole.x[2 + i] - 1) * window_.window.strides[i] + window_.window.reach(i) -
                        whole.y[2 + i] - begin);
  }
  return whole;
}

// Pieces begin at multiples of the stride: oneDNN's kernels for strides want whole strides, and all pieces
// then want one layout of the weight. Empty when it cannot be cut into so many pieces: one would have no
// input row, or would begin before its first one's reach.
std::vector<WindowPiece> ConvTransposeStep::cut_rows(const WindowPiece& image, int pieces) const {
  if (pieces == 1) return {image};
  const int64_t stride = window_.window.strides[0], reach = window_.window.reach(0);
  const int64_t x_row = elements_of(image.x) / image.x[2], y_row = elements_of(image.y) / image.y[2];
  const int64_t strides = (image.y[2] + stride - 1) / stride;
  std::vector<WindowPiece> cut;
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t first = strides * i / pieces * stride;
    const int64_t last = std::min(strides * (i + 1) / pieces * stride, image.y[2]);
    if (first == last) return {};
    // In what nothing is cut off, output o is reached by inputs (o - reach) / stride + 1 to o / stride.
    const int64_t from = std::max<int64_t>(0, (first + image.begin[0] - reach + stride) / stride);
    const int64_t to = std::min(image.x[2], (last - 1 + image.begin[0]) / stride + 1);
    WindowPiece piece = image;
    piece.begin[0] = first + image.begin[0] - from * stride;
    if (from >= to || piece.begin[0] < 0) return {};
    piece.x[2] = to - from;
    piece.y[2] = last - first;
    piece.end[0] = (piece.x[2] - 1) * stride + reach - piece.y[2] - piece.begin[0];
    piece.x_offset = image.x_offset + from * x_row;
    piece.y_offset = image.y_offset + first * y_row;
    cut.push_back(std::move(piece));
  }
  return cut;
}

}  // namespace

Result<std::unique_ptr<Step>> lower_conv_transpose(Lowering& lowering) {
  const Operand& w = lowering.inputs[1];
  if (w.elements() == 0 || w.extents.rank() > 5) return reference_step(lowering);
  if (goes_beyond_reach(lowering.node, lowering.inputs[0].extents, w.extents, lowering.outputs[0].extents))
    return reference_step(lowering);
  return ConvTransposeStep::make(lowering);
}

}  // namespace heddle::host
