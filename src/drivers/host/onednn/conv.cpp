#include "drivers/host/onednn/conv.h"

#include <algorithm>
#include <array>

#include "drivers/host/aligned_bytes.h"
#include "drivers/host/kernels/narrow.h"
#include "drivers/host/narrow_values.h"
#include "drivers/host/onednn/channels.h"
#include "drivers/host/onednn/float_steps.h"
#include "drivers/host/onednn/packed_weight.h"
#include "drivers/host/onednn/pieces.h"
#include "drivers/host/onednn/window_pieces.h"
#include "ir/window.h"

namespace heddle::host {
namespace {

using Tag = dnnl::memory::format_tag;
using ConvDesc = dnnl::convolution_forward::primitive_desc;

using Division = WindowDivision<ConvDesc>;

// y = activation(conv(x, w) + b + residual), channels last.
class ConvStep final : public Step {
 public:
  static Result<std::unique_ptr<Step>> make(const Lowering& lowering) {
    auto step = std::make_unique<ConvStep>();
    HEDDLE_TRY(step->prepare(lowering));
    return std::unique_ptr<Step>(std::move(step));
  }

  Status run(const RunContext& context) const override {
    HEDDLE_TRY(x_.run(context, base_));
    HEDDLE_TRY(weight_.run(context, base_));
    if (has_residual_) HEDDLE_TRY(residual_.run(context, base_));
    HEDDLE_TRY(for_each_piece(context, pieces_.size(), "a convolution",
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
  WindowPiece whole(const Lowering& lowering) const;
  std::vector<WindowPiece> cut_rows(const WindowPiece& image, int pieces) const;
  Result<Division> divide(const Lowering& lowering) const;
  Result<ConvDesc> describe(const Engine& engine, const WindowPiece& piece,
                            const dnnl::memory::desc& weights) const;
  Status prepare_pieces(const Engine& engine, Division division);

  bool narrows() const { return bf16_ && !x_.narrow(); }  // the operand has to be rounded

  Status run_piece(const RunContext& context, const WindowPiece& piece) const {
    std::array<const void*, 6> addresses{};
    size_t count = 0;
    const std::byte* x = x_.address(context, base_) + piece.x_offset * x_.element_bytes();
    addresses[count++] = x;
    if (narrows()) {
      auto* narrow = reinterpret_cast<uint16_t*>(context.arena + base_ + piece.narrow);
      f32_to_bf16(reinterpret_cast<const float*>(x), narrow, elements_of(piece.x));
      addresses[0] = narrow;
    }
    addresses[count++] = weight_.address(context, base_);
    addresses[count++] = y_.address(context, base_) + piece.y_offset * y_.element_bytes();
    if (bias_.present()) addresses[count++] = context.read(bias_);
    if (has_residual_) {
      addresses[count++] = residual_.address(context, base_) + piece.y_offset * residual_.element_bytes();
    }
    addresses[count++] = context.arena + base_ + piece.scratch;
    return primitives_[piece.kind]->run(addresses);
  }

  ir::Window window_;
  Dims weight_dims_;  // [group, M / group, C / group, k..], without the first when group is 1
  ir::Activation activation_;
  Operand bias_;
  bool has_residual_ = false;
  bool bf16_ = false;
  Turned x_, y_, residual_;
  WeightOperand weight_;
  std::vector<WindowPiece> pieces_;
  std::vector<Ref<const Primitive>> primitives_;  // by kind of piece
  uint64_t scratch_ = 0;
  uint64_t base_ = 0;
};

Status ConvStep::prepare(const Lowering& lowering) {
  const std::vector<Operand>& in = lowering.inputs;
  const ir::Node& node = lowering.node;
  const Engine& engine = lowering.weights.engine();
  const size_t spatial = in[0].extents.rank() - 2;
  Dims kernel = to_dims(in[1].extents);
  HEDDLE_TRY_ASSIGN(window_, ir::Window::of(node, spatial, {kernel.begin() + 2, kernel.end()}));
  weight_dims_ = kernel;
  if (const int64_t group = node.attributes.i64("group", 1); group > 1) {
    weight_dims_[0] /= group;
    weight_dims_.insert(weight_dims_.begin(), group);
  }
  HEDDLE_TRY_ASSIGN(activation_, ir::activation_of(node));
  if (in.size() > 2) bias_ = in[2];
  has_residual_ = in.size() > 3 && in[3].present();
  bf16_ = engine.bf16 && convolves_in_bf16(node, in[0].extents, in[1].extents);
  HEDDLE_TRY_ASSIGN(x_, Turned::make(engine, in[0], Turned::Way::kInput, scratch_, bf16_));
  HEDDLE_TRY_ASSIGN(y_, Turned::make(engine, lowering.outputs[0], Turned::Way::kOutput, scratch_));
  if (has_residual_) {
    HEDDLE_TRY_ASSIGN(residual_, Turned::make(engine, in[3], Turned::Way::kInput, scratch_));
  }
  HEDDLE_TRY_ASSIGN(Division division, divide(lowering));
  HEDDLE_TRY_ASSIGN(const dnnl::memory::desc plain,
                    caught("describing a weight", [&] { return f32_desc(weight_dims_); }));
  HEDDLE_TRY_ASSIGN(
      weight_, WeightOperand::make(lowering.weights, "conv", in[1], plain, division.weights(), scratch_));
  return prepare_pieces(engine, std::move(division));
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

// Empty when it cannot be cut into so many pieces.
std::vector<WindowPiece> ConvStep::cut_rows(const WindowPiece& image, int pieces) const {
  if (pieces == 1) return {image};
  const int64_t x_row = elements_of(image.x) / image.x[2], y_row = elements_of(image.y) / image.y[2];
  const int64_t rows = image.y[2];
  std::vector<WindowPiece> cut;
  for (int64_t i = 0; i < pieces; ++i) {
    WindowPiece piece = image;
    const int64_t first = rows * i / pieces, last = rows * (i + 1) / pieces;
    const int64_t from = first * window_.strides[0] - image.begin[0];
    const int64_t to = (last - 1) * window_.strides[0] + window_.reach(0) - image.begin[0];
    const int64_t begin = std::clamp<int64_t>(from, 0, image.x[2]),
                  end = std::clamp<int64_t>(to, begin, image.x[2]);
    if (begin == end) return {};  // nothing but padding
    piece.begin[0] = begin - from;
    piece.end[0] = to - end;
    piece.x[2] = end - begin;
    piece.y[2] = last - first;
    piece.x_offset = begin * x_row;
    piece.y_offset = first * y_row;
    cut.push_back(std::move(piece));
  }
  return cut;
}

Result<Division> ConvStep::divide(const Lowering& lowering) const {
  HEDDLE_TRY_ASSIGN(const dnnl::memory::desc any, caught("describing a weight", [&] {
                      return dnnl::memory::desc(weight_dims_, float_type(bf16_), Tag::any);
                    }));
  const WindowPiece all = whole(lowering);
  int64_t work = 2 * elements_of(all.y);
  for (size_t i = 1; i < lowering.inputs[1].extents.rank(); ++i) work *= lowering.inputs[1].extents[i];
  const int64_t images = all.y[0], rows = all.y[2], width = lowering.width;
  const bool divides = images > 1 ? images % width == 0 : rows >= 2 * width;
  return divide_window<ConvDesc>(
      divides && work >= kWorthSharing ? lowering.width : 1, any,
      [&](int n) { return images > 1 ? cut_images(all, n) : cut_rows(all, n); },
      [&](const WindowPiece& piece, const dnnl::memory::desc& weights) {
        return describe(lowering.weights.engine(), piece, weights);
      });
}

Result<ConvDesc> ConvStep::describe(const Engine& engine, const WindowPiece& piece,
                                    const dnnl::memory::desc& weights) const {
  dnnl::post_ops ops;
  HEDDLE_TRY_ASSIGN(const dnnl::memory::desc y, caught("describing an operand", [&] {
                      return channels_last_desc(piece.y, float_type(y_.narrow()));
                    }));
  if (has_residual_) {
    HEDDLE_TRY(status_of(caught("adding a residual", [&] {
      ops.append_binary(dnnl::algorithm::binary_add,
                        channels_last_desc(piece.y, float_type(residual_.narrow())));
      return true;
    })));
  }
  HEDDLE_TRY(append_activation(activation_, ops));
  return caught("preparing a convolution", [&] {
    dnnl::primitive_attr attr = engine.attributes();
    attr.set_post_ops(ops);
    Dims dilations = window_.dilations;
    for (int64_t& d : dilations) --d;
    const dnnl::memory::desc bias = bias_.present() ? f32_desc(to_dims(bias_.extents)) : dnnl::memory::desc();
    return ConvDesc(engine.cpu, dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct,
                    channels_last_desc(piece.x, float_type(bf16_)), weights, bias, y, window_.strides,
                    dilations, piece.begin, piece.end, attr);
  });
}

Status ConvStep::prepare_pieces(const Engine& engine, Division division) {
  for (const ConvDesc& desc : division.kinds) {
    std::vector<Primitive::Argument> arguments = {{DNNL_ARG_SRC, desc.src_desc()},
                                                  {DNNL_ARG_WEIGHTS, desc.weights_desc()},
                                                  {DNNL_ARG_DST, desc.dst_desc()}};
    if (bias_.present()) arguments.push_back({DNNL_ARG_BIAS, desc.bias_desc()});
    if (has_residual_) {
      HEDDLE_TRY_ASSIGN(auto residual, caught("describing a residual", [&] {
                          return channels_last_desc(desc.dst_desc().get_dims(),
                                                    float_type(residual_.narrow()));
                        }));
      arguments.push_back({DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, std::move(residual)});
    }
    HEDDLE_TRY_ASSIGN(auto primitive, (Primitive::make<ConvDesc, dnnl::convolution_forward>(
                                          engine, desc, std::move(arguments))));
    primitives_.push_back(std::move(primitive));
  }
  pieces_ = std::move(division.pieces);
  for (WindowPiece& piece : pieces_) {
    if (narrows()) {
      piece.narrow = scratch_;
      scratch_ += aligned(static_cast<uint64_t>(elements_of(piece.x)) * sizeof(uint16_t));
    }
    piece.scratch = scratch_;
    scratch_ += aligned(primitives_[piece.kind]->scratch_bytes());
  }
  return {};
}

ir::Extents without_last(const ir::Extents& extents) {
  return ir::Extents(extents.span().first(extents.rank() - 1));
}

// The last spatial axis is one place wide everywhere, as when a sequence is written as an image of width 1.
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

constexpr LoweringEntry kEntries[] = {
    {"Conv", [](Lowering& l) { return lower_floats(l, lower_conv_f32); }},
    {"ConvTranspose", [](Lowering& l) { return lower_floats(l, lower_conv_transpose); }},
    {"MaxPool", [](Lowering& l) { return lower_floats(l, lower_max_pool); }},
    {"AveragePool", [](Lowering& l) { return lower_floats(l, lower_average_pool); }},
    {"GlobalAveragePool", [](Lowering& l) { return lower_floats(l, lower_average_pool); }},
    {"GlobalMaxPool", [](Lowering& l) { return lower_floats(l, lower_max_pool); }},
    {"BatchNormalization", [](Lowering& l) { return lower_floats(l, lower_batch_normalization); }},
};

}  // namespace

std::span<const LoweringEntry> conv_lowerings() { return kEntries; }

}  // namespace heddle::host
