#include <algorithm>
#include <array>

#include "drivers/host/aligned_bytes.h"
#include "drivers/host/onednn/channels.h"
#include "drivers/host/onednn/conv.h"
#include "drivers/host/onednn/float_steps.h"
#include "drivers/host/onednn/packed_weight.h"
#include "drivers/host/onednn/pieces.h"
#include "drivers/host/storage.h"
#include "ir/transposed_window.h"

namespace heddle::host {
namespace {

using DeconvDesc = dnnl::deconvolution_forward::primitive_desc;

// A range of the output: whole images, or rows of one image, with the input rows that reach them.
struct Piece {
  int64_t x_offset = 0, y_offset = 0;  // elements
  Dims x, y, begin, end;               // begin, end: what is cut off
  Ref<const Primitive> primitive;
  uint64_t scratch = 0;
};

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
    return 1024 + pieces_.size() * Primitive::kResidentBytes + weight_.resident_bytes();
  }

 private:
  Status prepare(const Lowering& lowering);
  void describe_weight(const Lowering& lowering);
  void cut(const Lowering& lowering);
  bool cut_rows(const Lowering& lowering, const Piece& whole);
  Result<DeconvDesc> describe(const Engine& engine, const Piece& piece,
                              const dnnl::memory::desc& weights) const;
  Status prepare_piece(const Engine& engine, Piece& piece, const DeconvDesc& desc);

  Status run_piece(const RunContext& context, const Piece& piece) const {
    std::array<const void*, 5> addresses{};
    size_t count = 0;
    addresses[count++] = x_.place(context, base_) + piece.x_offset * x_.element_bytes();
    addresses[count++] = weight_.place(context, base_);
    addresses[count++] = y_.place(context, base_) + piece.y_offset * y_.element_bytes();
    if (bias_.present()) addresses[count++] = context.read(bias_);
    addresses[count++] = context.arena + base_ + piece.scratch;
    return piece.primitive->run(addresses);
  }

  ir::TransposedWindow window_;
  Dims weight_dims_, weight_strides_;  // [group, M / group, C / group, k..] over [C, M / group, k..]
  ir::Activation activation_;
  Operand bias_;
  Turned x_, y_;
  WeightOperand weight_;
  std::vector<Piece> pieces_;
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
  cut(lowering);
  HEDDLE_TRY_ASSIGN(const dnnl::memory::desc any,
                    caught("describing a weight", [&] { return f32_any(weight_dims_); }));
  HEDDLE_TRY_ASSIGN(const dnnl::memory::desc plain,
                    caught("describing a weight", [&] { return f32_desc(weight_dims_, weight_strides_); }));
  HEDDLE_TRY_ASSIGN(const DeconvDesc first, describe(engine, pieces_[0], any));
  HEDDLE_TRY_ASSIGN(weight_, WeightOperand::make(lowering.weights, "transposed", in[1], plain,
                                                 first.weights_desc(), scratch_));
  for (Piece& piece : pieces_) {
    HEDDLE_TRY_ASSIGN(const DeconvDesc desc, describe(engine, piece, first.weights_desc()));
    HEDDLE_TRY(prepare_piece(engine, piece, desc));
  }
  return {};
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

void ConvTransposeStep::cut(const Lowering& lowering) {
  const Dims x = to_dims(lowering.inputs[0].extents), y = to_dims(lowering.outputs[0].extents);
  Piece whole{0, 0, x, y, {}, {}, nullptr, 0};
  for (size_t i = 0; i < window_.axes(); ++i) {
    const int64_t begin = window_.begin(i, x[2 + i]);
    whole.begin.push_back(begin);
    whole.end.push_back((x[2 + i] - 1) * window_.window.strides[i] + window_.window.reach(i) - y[2 + i] -
                        begin);
  }
  int64_t work = 2 * lowering.inputs[0].elements();
  for (size_t i = 1; i < lowering.inputs[1].extents.rank(); ++i) work *= lowering.inputs[1].extents[i];
  const int64_t images = x[0];
  if (lowering.width > 1 && work >= kWorthSharing) {
    if (images % lowering.width == 0) {
      for (int64_t i = 0; i < lowering.width; ++i) {
        Piece piece = whole;
        piece.x[0] = piece.y[0] = images / lowering.width;
        piece.x_offset = lowering.inputs[0].elements() / lowering.width * i;
        piece.y_offset = lowering.outputs[0].elements() / lowering.width * i;
        pieces_.push_back(std::move(piece));
      }
      return;
    }
    if (images == 1 && cut_rows(lowering, whole)) return;
  }
  pieces_.assign(1, std::move(whole));
}

// False when a piece would have no input row, or would begin before its first one's reach.
bool ConvTransposeStep::cut_rows(const Lowering& lowering, const Piece& whole) {
  const int64_t stride = window_.window.strides[0], reach = window_.window.reach(0), pieces = lowering.width;
  const int64_t x_row = lowering.inputs[0].elements() / whole.x[2],
                y_row = lowering.outputs[0].elements() / whole.y[2];
  if (whole.y[2] < 2 * pieces) return false;
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t first = whole.y[2] * i / pieces, last = whole.y[2] * (i + 1) / pieces;
    // In what nothing is cut off, output o is reached by inputs (o - reach) / stride + 1 to o / stride.
    const int64_t from = std::max<int64_t>(0, (first + whole.begin[0] - reach + stride) / stride);
    const int64_t to = std::min(whole.x[2], (last - 1 + whole.begin[0]) / stride + 1);
    Piece piece = whole;
    piece.begin[0] = first + whole.begin[0] - from * stride;
    if (from >= to || piece.begin[0] < 0) {
      pieces_.clear();
      return false;
    }
    piece.x[2] = to - from;
    piece.y[2] = last - first;
    piece.end[0] = (piece.x[2] - 1) * stride + reach - piece.y[2] - piece.begin[0];
    piece.x_offset = from * x_row;
    piece.y_offset = first * y_row;
    pieces_.push_back(std::move(piece));
  }
  return true;
}

Result<DeconvDesc> ConvTransposeStep::describe(const Engine& engine, const Piece& piece,
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

Status ConvTransposeStep::prepare_piece(const Engine& engine, Piece& piece, const DeconvDesc& desc) {
  std::vector<Primitive::Argument> arguments = {{DNNL_ARG_SRC, desc.src_desc()},
                                                {DNNL_ARG_WEIGHTS, desc.weights_desc()},
                                                {DNNL_ARG_DST, desc.dst_desc()}};
  if (bias_.present()) arguments.push_back({DNNL_ARG_BIAS, desc.bias_desc()});
  HEDDLE_TRY_ASSIGN(piece.primitive, (Primitive::make<DeconvDesc, dnnl::deconvolution_forward>(
                                         engine, desc, std::move(arguments))));
  piece.scratch = scratch_;
  scratch_ += aligned(piece.primitive->scratch_bytes());
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
