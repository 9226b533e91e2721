#include "drivers/host/onednn/linear.h"

#include <algorithm>
#include <utility>

#include "drivers/host/onednn/bf16_linear.h"
#include "drivers/host/onednn/division.h"
#include "drivers/host/onednn/few_rows.h"
#include "drivers/host/onednn/half_linear.h"
#include "drivers/host/onednn/linear_weight.h"
#include "drivers/host/onednn/pieces.h"
#include "drivers/host/onednn/product_choice.h"
#include "drivers/host/onednn/turned_product.h"

namespace heddle::host {
namespace {

class LinearStep final : public Step {
 public:
  static Result<std::unique_ptr<Step>> make(const Lowering& lowering, const ProductProblem& problem) {
    auto step = std::make_unique<LinearStep>();
    step->x_ = lowering.inputs[0];
    step->w_ = lowering.inputs[1];
    if (problem.bias) step->bias_ = lowering.inputs[2];
    if (problem.residual) step->residual_ = lowering.inputs[3];
    step->y_ = lowering.outputs[0];
    HEDDLE_TRY_ASSIGN(const Ref<const LinearWeight> weight, weight_of(lowering, problem));
    HEDDLE_TRY_ASSIGN(step->alone_, product_alone(lowering.weights.engine(), problem, weight));
    if (lowering.width > 1 && 2 * problem.m * problem.k * problem.n >= kWorthSharing) {
      step->width_ = lowering.width;
      HEDDLE_TRY_ASSIGN(step->shared_,
                        product_shared(lowering.weights.engine(), problem, weight, lowering.width));
    }
    return std::unique_ptr<Step>(std::move(step));
  }

  Status run(const RunContext& context) const override {
    const ProductMemory memory = {context.read(x_), context.read(w_), context.read<float>(bias_),
                                  context.read(residual_), context.write(y_)};
    std::byte* const scratch = context.arena + scratch_;
    if (shared_.product == nullptr || context.caller.share() == 1) {
      for (size_t i = 0; i < alone_.product->pieces(); ++i)
        HEDDLE_TRY(alone_.product->run_piece(memory, i, scratch));
      return {};
    }
    return for_each_piece(context, shared_.product->pieces(), "a matrix product", [&](size_t i) {
      return shared_.product->run_piece(memory, i, scratch + i * shared_.product->scratch_bytes());
    });
  }

  uint64_t scratch_bytes() const override {
    const uint64_t shared =
        shared_.product == nullptr ? 0 : shared_.product->scratch_bytes() * shared_.product->pieces();
    return std::max(alone_.product->scratch_bytes(), shared);
  }
  void set_scratch(uint64_t offset) override { scratch_ = offset; }
  uint64_t resident_bytes() const override {
    const size_t shared = shared_.product == nullptr ? 0 : shared_.product->primitives().size();
    return 512 + (alone_.product->primitives().size() + shared) * Primitive::kResidentBytes;
  }
  std::string path() const override {
    if (shared_.product == nullptr) return path_of(alone_.product->primitives(), 1);
    return path_of(shared_.product->primitives(), shared_.product->pieces());
  }
  std::string way() const override {
    const std::string alone = to_string(alone_);
    return width_ == 1 ? alone : text("alone ", alone, "; by ", width_, " threads ", to_string(shared_));
  }

 private:
  static Result<Ref<const LinearWeight>> weight_of(const Lowering& lowering, const ProductProblem& p) {
    const bool transposed = lowering.node.attributes.i64("trans_w") != 0;
    const Operand& w = lowering.inputs[1];
    if (w.location != Operand::Location::kConstant) return plain_linear_weight(p.k, p.n, transposed);
    return lowering.weights.get<LinearWeight>(
        w.constant, text("linear ", p.k, "x", p.n, transposed ? "t" : ""),
        [&] { return pack_linear_weight(lowering.weights, w.constant, p.k, p.n, transposed); });
  }

  Operand x_, w_, bias_, residual_, y_;
  ChosenProduct alone_;   // for a caller that no thread helps
  ChosenProduct shared_;  // no product: not worth sharing
  int width_ = 1;         // threads that share it
  uint64_t scratch_ = 0;
};

}  // namespace

Result<std::unique_ptr<Step>> lower_linear(Lowering& lowering) {
  const auto& inputs = lowering.inputs;
  const Operand& y = lowering.outputs[0];
  ProductProblem p;
  p.n = y.extents[y.extents.rank() - 1];
  p.k = inputs[0].extents[inputs[0].extents.rank() - 1];
  p.m = y.elements() / p.n;
  p.bias = inputs.size() > 2 && inputs[2].present();
  p.residual = inputs.size() > 3 && inputs[3].present();
  p.narrow_x = inputs[0].narrow;
  p.narrow_y = y.narrow;
  p.narrow_residual = p.residual && inputs[3].narrow;
  HEDDLE_TRY_ASSIGN(p.activation, ir::activation_of(lowering.node));
  if (p.residual && !(inputs[3].extents == y.extents)) {
    return Status::unsupported("the residual is ", inputs[3].extents, "; it has to have the output's shape ",
                               y.extents);
  }
  const bool transposed = lowering.node.attributes.i64("trans_w") != 0;
  const FewRows plain{p.m, p.k, p.n, transposed, inputs[0], inputs[1], p.bias ? inputs[2] : Operand(), y};
  const Engine& engine = lowering.weights.engine();
  if (inputs[0].half) return bf16_linear_step(engine, plain, lowering.width);
  if (inputs[1].half) return half_linear_step(engine, plain, lowering.width);
  const bool bare = p.activation.kind == ir::ActivationKind::kNone && !p.residual;
  const bool as_it_lies =
      bare && engine.row_bits == nullptr && lowering.is_model_input(1) && !inputs[0].narrow && !y.narrow;
  if (as_it_lies && p.m <= kMostFewRows) return few_rows_step(plain, lowering.width);
  if (as_it_lies && transposed && !engine.bf16 && p.m <= kMostTurnedRows) {
    HEDDLE_TRY_ASSIGN(std::unique_ptr<Step> turned, turned_product_step(engine, plain, lowering.width));
    if (turned != nullptr) return turned;
  }
  return LinearStep::make(lowering, p);
}

}  // namespace heddle::host
