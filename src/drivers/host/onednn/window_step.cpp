#include "drivers/host/onednn/window_step.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <utility>

#include "drivers/host/kernels/elementwise/narrow.h"
#include "drivers/host/machine/aligned_bytes.h"
#include "drivers/host/onednn/pieces.h"

namespace heddle::host {

Status WindowStep::run(const RunContext& context) const {
  HEDDLE_TRY(x_.run(context, base_));
  HEDDLE_TRY(weight_.run(context, base_));
  if (has_residual_) HEDDLE_TRY(residual_.run(context, base_));
  const uint64_t scratch = base_ + tasks_scratch_;
  if (whole_primitive_ != nullptr && context.caller.share() == 1) {
    const WeightOperand& weight = whole_weight_ ? *whole_weight_ : weight_;
    HEDDLE_TRY(run_piece(context, whole_, *whole_primitive_, weight.address(context, base_), 0, scratch));
  } else if (tasks_ == 1) {
    HEDDLE_TRY(run_pieces(context, 0, runs(), scratch));
  } else {
    HEDDLE_TRY(for_each_piece(context, tasks_, "a convolution", [&](size_t task) {
      return run_pieces(context, runs() * task / tasks_, runs() * (task + 1) / tasks_,
                        scratch + task * task_bytes_);
    }));
  }
  return y_.run(context, base_);
}

Status WindowStep::run_pieces(const RunContext& context, size_t first, size_t last, uint64_t scratch) const {
  for (size_t i = first; i < last; ++i) {
    const WindowPiece& piece = pieces_[i % pieces_.size()];
    const auto image = static_cast<int64_t>(i / pieces_.size());
    const std::byte* weight = weight_.address(context, base_) + layout_.bytes_to(piece.channel);
    HEDDLE_TRY(run_piece(context, piece, *primitives_[piece.kind], weight, image, scratch));
  }
  return {};
}

Status WindowStep::run_piece(const RunContext& context, const WindowPiece& piece, const Primitive& primitive,
                             const std::byte* weight, int64_t image, uint64_t scratch) const {
  std::byte* own = context.arena + scratch;
  std::array<const void*, 6> addresses{};
  size_t count = 0;
  const std::byte* x = x_.address(context, base_) + (piece.x_offset + image * x_image_) * x_.element_bytes();
  addresses[count++] = x;
  if (narrows()) {
    auto* narrow = reinterpret_cast<uint16_t*>(std::exchange(own, own + narrow_bytes(piece)));
    f32_to_bf16(reinterpret_cast<const float*>(x), narrow, elements_of(piece.x));
    addresses[0] = narrow;
  }
  addresses[count++] = weight;
  const int64_t at = piece.y_offset + image * y_image_ + piece.channel;
  std::byte* const y = y_.address(context, base_) + at * y_.element_bytes();
  std::byte* const written = is_apart(piece) ? std::exchange(own, own + apart_bytes(y_, piece)) : y;
  addresses[count++] = written;
  if (bias_.present()) addresses[count++] = context.read<float>(bias_) + piece.channel;
  if (has_residual_) {
    const std::byte* residual = residual_.address(context, base_) + at * residual_.element_bytes();
    if (is_apart(piece)) {
      std::byte* const mine = std::exchange(own, own + apart_bytes(residual_, piece));
      copy_panel(piece, residual, mine, residual_.element_bytes(), true);
      residual = mine;
    }
    addresses[count++] = residual;
  }
  addresses[count++] = own;
  HEDDLE_TRY(primitive.run(addresses));
  if (is_apart(piece)) copy_panel(piece, written, y, y_.element_bytes(), false);
  return {};
}

// Between a panel that lies apart and its place among all channels.
void WindowStep::copy_panel(const WindowPiece& piece, const std::byte* from, std::byte* to, int64_t element,
                            bool into_panel) const {
  const int64_t panel = piece.y[1] * element, all = channels_ * element;
  const int64_t positions = elements_of(piece.y) / piece.y[1];
  for (int64_t i = 0; i < positions; ++i, from += into_panel ? all : panel, to += into_panel ? panel : all)
    std::memcpy(to, from, static_cast<size_t>(panel));
}

uint64_t WindowStep::narrow_bytes(const WindowPiece& piece) const {
  return narrows() ? aligned(static_cast<uint64_t>(elements_of(piece.x)) * sizeof(uint16_t)) : 0;
}

uint64_t WindowStep::apart_bytes(const Turned& operand, const WindowPiece& piece) const {
  return is_apart(piece) ? aligned(static_cast<uint64_t>(elements_of(piece.y) * operand.element_bytes())) : 0;
}

uint64_t WindowStep::scratch_of(const WindowPiece& piece, const Primitive& primitive) const {
  return narrow_bytes(piece) + apart_bytes(y_, piece) + (has_residual_ ? apart_bytes(residual_, piece) : 0) +
         aligned(primitive.scratch_bytes());
}

Status WindowStep::prepare(const Lowering& lowering, const ir::Window& window, Problem problem) {
  const std::vector<Operand>& in = lowering.inputs;
  const Engine& engine = lowering.weights.engine();
  const int width = lowering.width;
  if (in.size() > 2) bias_ = in[2];
  has_residual_ = in.size() > 3 && in[3].present();
  bf16_ = problem.bf16;
  channels_ = problem.whole.y[1];
  HEDDLE_TRY_ASSIGN(x_, Turned::make(engine, in[0], Turned::Way::kInput, scratch_, width, bf16_));
  HEDDLE_TRY_ASSIGN(y_, Turned::make(engine, lowering.outputs[0], Turned::Way::kOutput, scratch_, width));
  if (has_residual_) {
    HEDDLE_TRY_ASSIGN(residual_, Turned::make(engine, in[3], Turned::Way::kInput, scratch_, width));
  }
  HEDDLE_TRY_ASSIGN(WindowDivision division, divide(lowering, window, problem));
  HEDDLE_TRY_ASSIGN(const dnnl::memory::desc plain, caught("describing a weight", [&] {
                      return dnnl::memory::desc(problem.weight_dims, float_type(in[1].half),
                                                problem.weight_strides);
                    }));
  HEDDLE_TRY_ASSIGN(weight_, WeightOperand::make(lowering.weights, problem.kind, in[1], plain,
                                                 division.layout.whole(), scratch_, width));
  layout_ = division.layout;
  HEDDLE_TRY(prepare_pieces(engine, division));
  if (division.cut.pieces() > 1 && !engine.exact) HEDDLE_TRY(prepare_whole(lowering, window, problem, plain));
  scratch_ += task_bytes_ * tasks_;
  return {};
}

std::vector<WindowPiece> WindowStep::pieces_of(const WindowPiece& whole, const WindowCut& cut,
                                               int64_t block) const {
  std::vector<WindowPiece> pieces;
  for (const WindowPiece& images : cut_images(whole, cut.images)) {
    std::vector<WindowPiece> rows = cut_rows(images, static_cast<int>(cut.rows));
    if (rows.empty()) return {};
    std::ranges::move(rows, std::back_inserter(pieces));
  }
  return cut_panels(pieces, cut.panels, block);
}

Result<WindowDivision> WindowStep::divide(const Lowering& lowering, const ir::Window& window,
                                          const Problem& problem) {
  const bool grouped = problem.weight_dims.size() > problem.whole.y.size();
  const bool constant = lowering.inputs[1].location == Operand::Location::kConstant;
  WindowProblem p{problem.whole, {}, problem.weight_dims, grouped, float_type(bf16_), constant, 1};
  whole_ = problem.whole;
  int64_t operations = problem.work;
  if (lowering.weights.engine().exact) {
    repeats_ = static_cast<size_t>(whole_.y[0]);
    operations /= whole_.y[0];
    p.whole.x[0] = p.whole.y[0] = 1;
    x_image_ = elements_of(p.whole.x);
    y_image_ = elements_of(p.whole.y);
  }
  const int64_t element = bf16_ ? 2 : 4;
  p.work = {p.whole.y[0],
            p.whole.y[2],
            channels_,
            operations,
            elements_of(p.whole.x) * element,
            elements_of(p.whole.y) * y_.element_bytes(),
            elements_of(problem.weight_dims) * element};
  if (operations + p.work.weight_bytes >= kWorthSharing) p.width = lowering.width;
  const auto pieces = [&](const WindowCut& cut, int64_t block) { return pieces_of(p.whole, cut, block); };
  const auto described = [&](const WindowPiece& piece, const dnnl::memory::desc& weights) {
    return describe_piece(lowering, window, piece, weights);
  };
  HEDDLE_TRY_ASSIGN(WindowDivision division, WindowDivider(p, pieces, described).divide());
  const size_t runs = division.pieces.size() * repeats_;
  const bool shared = runs > 1 && problem.work + p.work.weight_bytes >= kWorthSharing;
  constexpr int kTasksPerCore = 4;
  tasks_ = shared ? std::min(runs, static_cast<size_t>(kTasksPerCore * lowering.width)) : 1;
  if (lowering.width == 1) return division;
  if (tasks_ == 1) {
    sharing_ = Sharing::whole();
    return division;
  }
  WindowCut cut = division.cut;
  cut.images *= static_cast<int64_t>(repeats_);
  WindowWork all = p.work;
  all.images *= static_cast<int64_t>(repeats_);
  sharing_ = Sharing::divided(cut.pieces(), balance_of(all, cut, division.layout.block(), lowering.width),
                              words_of(cut), lowering.width);
  return division;
}

Result<dnnl::primitive_desc> WindowStep::describe_piece(const Lowering& lowering, const ir::Window& window,
                                                        const WindowPiece& piece,
                                                        const dnnl::memory::desc& weights) const {
  const Engine& engine = lowering.weights.engine();
  HEDDLE_TRY_ASSIGN(const ir::Activation activation, ir::activation_of(lowering.node));
  dnnl::post_ops ops;
  if (has_residual_) {
    HEDDLE_TRY(status_of(caught("adding a residual", [&] {
      ops.append_binary(dnnl::algorithm::binary_add,
                        channels_last_desc(piece.y, float_type(residual_.narrow())));
      return true;
    })));
  }
  HEDDLE_TRY(append_activation(activation, ops));
  return caught("preparing a convolution", [&] {
    dnnl::primitive_attr attributes = engine.attributes();
    attributes.set_post_ops(ops);
    Dims dilations = window.dilations;
    for (int64_t& d : dilations) --d;
    return describe(engine, piece,
                    {channels_last_desc(piece.x, float_type(bf16_)), weights,
                     bias_.present() ? f32_desc({piece.y[1]}) : dnnl::memory::desc(),
                     channels_last_desc(piece.y, float_type(y_.narrow())), window.strides,
                     std::move(dilations), attributes});
  });
}

Result<Ref<const Primitive>> WindowStep::make_primitive(const Engine& engine,
                                                        const dnnl::primitive_desc& desc) const {
  std::vector<Primitive::Argument> arguments = {{DNNL_ARG_SRC, desc.src_desc()},
                                                {DNNL_ARG_WEIGHTS, desc.weights_desc()},
                                                {DNNL_ARG_DST, desc.dst_desc()}};
  if (bias_.present()) arguments.push_back({DNNL_ARG_BIAS, desc.weights_desc(1)});
  if (has_residual_) {
    HEDDLE_TRY_ASSIGN(auto residual, caught("describing a residual", [&] {
                        return channels_last_desc(desc.dst_desc().get_dims(), float_type(residual_.narrow()));
                      }));
    arguments.push_back({DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, std::move(residual)});
  }
  return Primitive::make<dnnl::primitive_desc, dnnl::primitive>(engine, desc, std::move(arguments));
}

Status WindowStep::prepare_pieces(const Engine& engine, const WindowDivision& division) {
  for (const dnnl::primitive_desc& desc : division.kinds) {
    HEDDLE_TRY_ASSIGN(auto primitive, make_primitive(engine, desc));
    primitives_.push_back(std::move(primitive));
  }
  pieces_ = division.pieces;
  for (const WindowPiece& piece : pieces_)
    task_bytes_ = std::max(task_bytes_, scratch_of(piece, *primitives_[piece.kind]));
  tasks_scratch_ = scratch_;
  return {};
}

// As oneDNN would have it, so that the pieces cost those nothing whom no thread helps. A weight that is no
// constant lies as the pieces have it; where only oneDNN's reference takes that, the pieces are faster.
Status WindowStep::prepare_whole(const Lowering& lowering, const ir::Window& window, const Problem& problem,
                                 const dnnl::memory::desc& plain) {
  const Operand& weight = lowering.inputs[1];
  const bool constant = weight.location == Operand::Location::kConstant;
  HEDDLE_TRY_ASSIGN(const dnnl::memory::desc any, caught("describing a weight", [&] {
                      return dnnl::memory::desc(problem.weight_dims, float_type(bf16_),
                                                dnnl::memory::format_tag::any);
                    }));
  const Result<dnnl::primitive_desc> desc =
      describe_piece(lowering, window, problem.whole, constant ? any : layout_.whole());
  if (desc.status().code() == Code::unsupported) return {};
  HEDDLE_TRY(desc.status());
  if (is_reference(desc->impl_info_str()) && !is_reference(primitives_[0]->implementation())) return {};
  if (desc->weights_desc() != layout_.whole()) {
    HEDDLE_TRY_ASSIGN(whole_weight_, WeightOperand::make(lowering.weights, problem.kind, weight, plain,
                                                         desc->weights_desc(), scratch_, lowering.width));
  }
  HEDDLE_TRY_ASSIGN(whole_primitive_, make_primitive(lowering.weights.engine(), *desc));
  task_bytes_ = std::max(task_bytes_, aligned((scratch_of(whole_, *whole_primitive_) + tasks_ - 1) / tasks_));
  return {};
}

}  // namespace heddle::host
