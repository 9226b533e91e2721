#include <algorithm>
#include <array>

#include "drivers/host/aligned_bytes.h"
#include "drivers/host/onednn/channels.h"
#include "drivers/host/onednn/conv.h"
#include "drivers/host/onednn/float_steps.h"
#include "drivers/host/onednn/packed_weight.h"
#include "drivers/host/onednn/pieces.h"
#include "drivers/host/onednn/window_pieces.h"
#include "drivers/host/storage.h"
#include "ir/transposed_window.h"

namespace heddle::host {
namespace {

using DeconvDesc = dnnl::deconvolution_forward::primitive_desc;

using Division = WindowDivision<DeconvDesc>;

// y = activation(transposed conv(x, w) + b), channels last.
class ConvTransposeStep final : public Step {
 public:
  static Result<std::unique_ptr<Step>> make(const Lowering& lowering) {
    auto step = std::make_unique<ConvTransposeStep>();
    HEDDLE_TRY(step->prepare(lowering));
    return std::unique_ptr<Step>(std::move(step));
  }

  Status run(const RunContext& context) const override {
    HEDDLE_TRY(x_.run(context, base_));
    HEDDLE_TRY(weight_.run(context, base_));
    HEDDLE_TRY(for_each_piece(context, pieces_.size(), "a transposed convolution",
                              [&](size_t i) { return run_piece(context, pieces_[i]); }));
    return y_.run(context, base_);
  }

  uint64_t scratch_bytes() const override { return scratch_; }
  void set_scratch(uint64_t offset) override { base_ = offset; }
  uint64_t resident_bytes() const override {
    return 1024 + primitives_.size() * Primitive::kResidentBytes + weight_.resident_bytes();
  }
  std::string path() const override { return path_of(primitives_, pieces_.size()); }

 private:
  Status prepare(const Lowering& lowering);
  void describe_weight(const Lowering& lowering);
  WindowPiece whole(const Lowering& lowering) const;
  std::vector<WindowPiece> cut_rows(const WindowPiece& image, int pieces) const;
  Result<Division> divide(const Lowering& lowering) const;
  Result<DeconvDesc> describe(const Engine& engine, const WindowPiece& piece,
                              const dnnl::memory::desc& weights) const;
  Status prepare_pieces(const Engine& engine, Division division);

  Status run_piece(const RunContext& context, const WindowPiece& piece) const {
    std::array<const void*, 5> addresses{};
    size_t count = 0;
    addresses[count++] = x_.address(context, base_) + piece.x_offset * x_.element_bytes();
    addresses[count++] = weight_.address(context, base_);
    addresses[count++] = y_.address(context, base_) + piece.y_offset * y_.element_bytes();
    if (bias_.present()) addresses[count++] = context.read(bias_);
    addresses[count++] = context.arena + base_ + piece.scratch;
    return primitives_[piece.kind]->run(addresses);
  }

  ir::TransposedWindow window_;
  Dims weight_dims_, weight_strides_;  // [group, M / group, C / group, k..] over [C, M / group, k..]
  ir::Activation activation_;
  Operand bias_;
  Turned x_, y_;
  WeightOperand weight_;
  std::vector<WindowPiece> pieces_;
  std::vector<Ref<const Primitive>> primitives_;  // by kind of piece
  uint64_t scratch_ = 0;
  uint64_t base_ = 0;
};

Status ConvTransposeStep::prepare(const Lowering& lowering) {
  const std::vector<Operand>& in = lowering.inputs;
  const Engine& engine = lowering.weights.engine();
  const Dims kernel = to_dims(in[1].extents);
  HEDDLE_TRY_ASSIGN(window_, ir::TransposedWindow::of(lowering.node, kernel.size() - 2,
                                                      {kernel.begin() + 2, kernel.end()}));
  HEDDLE_TRY_ASSIGN(activation_, ir::activation_of(lowering.node));
  if (in.size() > 2) bias_ = in[2];
  describe_weight(lowering);
  HEDDLE_TRY_ASSIGN(x_, Turned::make(engine, in[0], Turned::Way::kInput, scratch_));
  HEDDLE_TRY_ASSIGN(y_, Turned::make(engine, lowering.outputs[0], Turned::Way::kOutput, scratch_));
  HEDDLE_TRY_ASSIGN(Division division, divide(lowering));
  HEDDLE_TRY_ASSIGN(const dnnl::memory::desc plain,
                    caught("describing a weight", [&] { return f32_desc(weight_dims_, weight_strides_); }));
  HEDDLE_TRY_ASSIGN(weight_, WeightOperand::make(lowering.weights, "transposed", in[1], plain,
                                                 division.weights(), scratch_));
  return prepare_pieces(engine, std::move(division));
}

void ConvTransposeStep::describe_weight(const Lowering& lowering) {
  const Dims w = to_dims(lowering.inputs[1].extents);
  const int64_t group = lowering.node.attributes.i64("group", 1);
  Dims dense(w.size(), 1);
  for (size_t i = w.size(); i-- > 1;) dense[i - 1] = dense[i] * w[i];
  weight_dims_ = w;
  weight_strides_ = dense;
  weight_dims_[0] = w[1];
  weight_dims_[1] = w[0] / group;
  std::swap(weight_strides_[0], weight_strides_[1]);
  if (group == 1) return;
  weight_dims_.insert(weight_dims_.begin(), group);
  weight_strides_.insert(weight_strides_.begin(), w[0] / group * dense[0]);
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
    piece.x_offset = from * x_row;
    piece.y_offset = first * y_row;
    cut.push_back(std::move(piece));
  }
  return cut;
}

Result<Division> ConvTransposeStep::divide(const Lowering& lowering) const {
  HEDDLE_TRY_ASSIGN(const dnnl::memory::desc any,
                    caught("describing a weight", [&] { return f32_any(weight_dims_); }));
  const WindowPiece all = whole(lowering);
  int64_t work = 2 * elements_of(all.x);
  for (size_t i = 1; i < lowering.inputs[1].extents.rank(); ++i) work *= lowering.inputs[1].extents[i];
  const int64_t images = all.y[0], rows = all.y[2], width = lowering.width;
  const bool divides = images > 1 ? images % width == 0 : rows >= 2 * width;
  return divide_window<DeconvDesc>(
      divides && work >= kWorthSharing ? lowering.width : 1, any,
      [&](int n) { return images > 1 ? cut_images(all, n) : cut_rows(all, n); },
      [&](const WindowPiece& piece, const dnnl::memory::desc& weights) {
        return describe(lowering.weights.engine(), piece, weights);
      });
}

Result<DeconvDesc> ConvTransposeStep::describe(const Engine& engine, const WindowPiece& piece,
                                               const dnnl::memory::desc& weights) const {
  dnnl::post_ops ops;
  HEDDLE_TRY(append_activation(activation_, ops));
  return caught("preparing a transposed convolution", [&] {
    dnnl::primitive_attr attr = engine.attributes();
    attr.set_post_ops(ops);
    Dims dilations = window_.window.dilations;
    for (int64_t& d : dilations) --d;
    const dnnl::memory::desc bias = bias_.present() ? f32_desc(to_dims(bias_.extents)) : dnnl::memory::desc();
    return DeconvDesc(engine.cpu, dnnl::prop_kind::forward_inference, dnnl::algorithm::deconvolution_direct,
                      channels_last_desc(piece.x), weights, bias, channels_last_desc(piece.y),
                      window_.window.strides, dilations, piece.begin, piece.end, attr);
  });
}

Status ConvTransposeStep::prepare_pieces(const Engine& engine, Division division) {
  for (const DeconvDesc& desc : division.kinds) {
    std::vector<Primitive::Argument> arguments = {{DNNL_ARG_SRC, desc.src_desc()},
                                                  {DNNL_ARG_WEIGHTS, desc.weights_desc()},
                                                  {DNNL_ARG_DST, desc.dst_desc()}};
    if (bias_.present()) arguments.push_back({DNNL_ARG_BIAS, desc.bias_desc()});
    HEDDLE_TRY_ASSIGN(auto primitive, (Primitive::make<DeconvDesc, dnnl::deconvolution_forward>(
                                          engine, desc, std::move(arguments))));
    primitives_.push_back(std::move(primitive));
  }
  pieces_ = std::move(division.pieces);
  for (WindowPiece& piece : pieces_) {
    piece.scratch = scratch_;
    scratch_ += aligned(primitives_[piece.kind]->scratch_bytes());
  }
  return {};
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
