#include "drivers/host/onednn/window_step.h"

#include <algorithm>
#include <array>

#include "drivers/host/kernels/elementwise/narrow.h"
#include "drivers/host/machine/aligned_bytes.h"
#include "drivers/host/onednn/pieces.h"

namespace heddle::host {

Status WindowStep::run(const RunContext& context) const {
  HEDDLE_TRY(x_.run(context, base_));
  HEDDLE_TRY(weight_.run(context, base_));
  if (has_residual_) HEDDLE_TRY(residual_.run(context, base_));
  HEDDLE_TRY(for_each_piece(context, tasks_, "a convolution", [&](size_t task) -> Status {
    const uint64_t scratch = base_ + tasks_scratch_ + task * task_bytes_;
    for (size_t i = runs() * task / tasks_; i < runs() * (task + 1) / tasks_; ++i)
      HEDDLE_TRY(run_piece(context, i, scratch));
    return {};
  }));
  return y_.run(context, base_);
}

Status WindowStep::run_piece(const RunContext& context, size_t index, uint64_t scratch) const {
  const WindowPiece& piece = pieces_[index % pieces_.size()];
  const auto image = static_cast<int64_t>(index / pieces_.size());
  const int64_t y_offset = piece.y_offset + image * y_image_;
  std::array<const void*, 6> addresses{};
  size_t count = 0;
  const std::byte* x = x_.address(context, base_) + (piece.x_offset + image * x_image_) * x_.element_bytes();
  addresses[count++] = x;
  if (narrows()) {
    auto* narrow = reinterpret_cast<uint16_t*>(context.arena + scratch);
    f32_to_bf16(reinterpret_cast<const float*>(x), narrow, elements_of(piece.x));
    addresses[0] = narrow;
  }
  addresses[count++] = weight_.address(context, base_);
  addresses[count++] = y_.address(context, base_) + y_offset * y_.element_bytes();
  if (bias_.present()) addresses[count++] = context.read(bias_);
  if (has_residual_)
    addresses[count++] = residual_.address(context, base_) + y_offset * residual_.element_bytes();
  addresses[count++] = context.arena + scratch + narrow_bytes_;
  return primitives_[piece.kind]->run(addresses);
}

Status WindowStep::prepare(const Lowering& lowering, const ir::Window& window, Problem problem) {
  const std::vector<Operand>& in = lowering.inputs;
  const Engine& engine = lowering.weights.engine();
  if (in.size() > 2) bias_ = in[2];
  has_residual_ = in.size() > 3 && in[3].present();
  bf16_ = problem.bf16;
  HEDDLE_TRY_ASSIGN(x_, Turned::make(engine, in[0], Turned::Way::kInput, scratch_, bf16_));
  HEDDLE_TRY_ASSIGN(y_, Turned::make(engine, lowering.outputs[0], Turned::Way::kOutput, scratch_));
  if (has_residual_) {
    HEDDLE_TRY_ASSIGN(residual_, Turned::make(engine, in[3], Turned::Way::kInput, scratch_));
  }
  HEDDLE_TRY_ASSIGN(WindowDivision division, divide(lowering, window, problem));
  HEDDLE_TRY_ASSIGN(const dnnl::memory::desc plain, caught("describing a weight", [&] {
                      return f32_desc(problem.weight_dims, problem.weight_strides);
                    }));
  HEDDLE_TRY_ASSIGN(weight_, WeightOperand::make(lowering.weights, problem.kind, in[1], plain,
                                                 division.weights(), scratch_));
  return prepare_pieces(engine, std::move(division));
}

Result<WindowDivision> WindowStep::divide(const Lowering& lowering, const ir::Window& window,
                                          const Problem& problem) {
  HEDDLE_TRY_ASSIGN(const dnnl::memory::desc any, caught("describing a weight", [&] {
                      return dnnl::memory::desc(problem.weight_dims, float_type(bf16_),
                                                dnnl::memory::format_tag::any);
                    }));
  WindowPiece whole = problem.whole;
  int64_t work = problem.work;
  if (lowering.weights.engine().exact) {
    repeats_ = static_cast<size_t>(whole.y[0]);
    work /= whole.y[0];
    whole.x[0] = whole.y[0] = 1;
    x_image_ = elements_of(whole.x);
    y_image_ = elements_of(whole.y);
  }
  const int64_t images = whole.y[0], rows = whole.y[2], width = lowering.width;
  const bool divides = images > 1 ? images % width == 0 : rows >= 2 * width;
  HEDDLE_TRY_ASSIGN(WindowDivision division,
                    divide_window(
                        divides && work >= kWorthSharing ? lowering.width : 1, any,
                        [&](int n) { return images > 1 ? cut_images(whole, n) : cut_rows(whole, n); },
                        [&](const WindowPiece& piece, const dnnl::memory::desc& weights) {
                          return describe_piece(lowering, window, piece, weights);
                        }));
  const size_t runs = division.pieces.size() * repeats_;
  tasks_ = problem.work >= kWorthSharing ? std::min(runs, static_cast<size_t>(width)) : 1;
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
                     bias_.present() ? f32_desc(to_dims(bias_.extents)) : dnnl::memory::desc(),
                     channels_last_desc(piece.y, float_type(y_.narrow())), window.strides,
                     std::move(dilations), attributes});
  });
}

Status WindowStep::prepare_pieces(const Engine& engine, WindowDivision division) {
  uint64_t primitive_bytes = 0;
  for (const dnnl::primitive_desc& desc : division.kinds) {
    std::vector<Primitive::Argument> arguments = {{DNNL_ARG_SRC, desc.src_desc()},
                                                  {DNNL_ARG_WEIGHTS, desc.weights_desc()},
                                                  {DNNL_ARG_DST, desc.dst_desc()}};
    if (bias_.present()) arguments.push_back({DNNL_ARG_BIAS, desc.weights_desc(1)});
    if (has_residual_) {
      HEDDLE_TRY_ASSIGN(auto residual, caught("describing a residual", [&] {
                          return channels_last_desc(desc.dst_desc().get_dims(),
                                                    float_type(residual_.narrow()));
                        }));
      arguments.push_back({DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, std::move(residual)});
    }
    HEDDLE_TRY_ASSIGN(auto primitive, (Primitive::make<dnnl::primitive_desc, dnnl::primitive>(
                                          engine, desc, std::move(arguments))));
    primitive_bytes = std::max(primitive_bytes, aligned(primitive->scratch_bytes()));
    primitives_.push_back(std::move(primitive));
  }
  pieces_ = std::move(division.pieces);
  for (const WindowPiece& piece : pieces_) {
    if (narrows()) {
      narrow_bytes_ =
          std::max(narrow_bytes_, aligned(static_cast<uint64_t>(elements_of(piece.x)) * sizeof(uint16_t)));
    }
  }
  tasks_scratch_ = scratch_;
  task_bytes_ = narrow_bytes_ + primitive_bytes;
  scratch_ += task_bytes_ * tasks_;
  return {};
}

}  // namespace heddle::host
