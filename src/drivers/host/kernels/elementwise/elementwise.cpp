// The element-wise steps: single nodes and fused bodies are the same program.
#include <algorithm>
#include <utility>

#include "drivers/host/kernels/elementwise/chunks.h"
#include "drivers/host/kernels/elementwise/expression.h"
#include "drivers/host/kernels/reference/reference_step.h"
#include "drivers/host/lowering.h"
#include "ir/op.h"

namespace heddle::host {

namespace {

class ElementwiseStep final : public Step {
 public:
  ElementwiseStep(std::vector<BlockProgram> programs, std::vector<ir::Tensor> constants,
                  const Lowering& lowering)
      : programs_(std::move(programs)),
        constants_(std::move(constants)),
        replaceable_(alike(lowering)),
        width_(lowering.width) {}

  Status run(const RunContext& context) const override {
    for (const BlockProgram& program : programs_) {
      const int64_t scratch = program.scratch_bytes();
      split(context.caller, program.elements(), kBlock, program.work(), width_,
            [&](int64_t begin, int64_t end, int piece) {
              program.run(context, begin, end, context.arena + scratch_ + piece * scratch);
            });
    }
    return {};
  }

  uint64_t scratch_bytes() const override {
    int64_t most = 0;
    for (const BlockProgram& program : programs_) most = std::max(most, program.scratch_bytes());
    return static_cast<uint64_t>(most * width_ * kPiecesPerThread);
  }
  void set_scratch(uint64_t offset) override { scratch_ = offset; }
  bool may_write_over(size_t input) const override { return replaceable_[input]; }
  uint64_t resident_bytes() const override { return 1024 * programs_.size(); }
  Sharing sharing() const override {
    const auto heaviest = std::ranges::max_element(programs_, {}, &BlockProgram::work);
    return sharing_of_split(heaviest->elements(), kBlock, heaviest->work(), width_, "elements");
  }

 private:
  // Operands whose elements lie where those of the only result do. It is made by the last instruction.
  static std::vector<bool> alike(const Lowering& lowering) {
    const Operand& y = lowering.outputs[0];
    std::vector<bool> all;
    for (const Operand& x : lowering.inputs) {
      all.push_back(lowering.outputs.size() == 1 && x.present() && x.dtype == y.dtype &&
                    x.extents == y.extents && x.narrow == y.narrow && x.channels_last == y.channels_last);
    }
    return all;
  }

  std::vector<BlockProgram> programs_;
  std::vector<ir::Tensor> constants_;  // of a fused body; the programs point into them
  std::vector<bool> replaceable_;      // by operand
  int width_;
  uint64_t scratch_ = 0;
};

Operand constant_operand(const ir::Tensor& tensor) {
  Operand operand;
  operand.location = Operand::Location::kConstant;
  operand.dtype = tensor.dtype();
  operand.extents = tensor.extents();
  operand.constant = static_cast<const std::byte*>(tensor.data());
  return operand;
}

const ir::Tensor* known(const Lowering& lowering, size_t input) {
  const auto& constant = lowering.value(input).constant;
  return constant.has_value() ? &*constant : nullptr;
}

// Block programs compute integers as i64: for u64 the bits are right where they do not depend on the sign.
bool needs_sign(const Lowering& lowering) {
  const auto is_u64 = [](const Operand& operand) {
    return operand.present() && operand.dtype == ir::DType::kU64;
  };
  const auto is_float = [](const Operand& operand) {
    return operand.present() && ir::is_float(operand.dtype);
  };
  const auto any = [&](auto what) {
    return std::any_of(lowering.inputs.begin(), lowering.inputs.end(), what) ||
           std::any_of(lowering.outputs.begin(), lowering.outputs.end(), what);
  };
  if (!any(is_u64)) return false;
  for (const std::string_view alike : {"Add", "Sub", "Mul", "BitwiseAnd", "BitwiseOr", "BitwiseXor",
                                       "BitwiseNot", "Equal", "Where", "Identity"}) {
    if (lowering.node.is(alike)) return false;
  }
  return !lowering.node.is("Cast") || any(is_float);
}

Result<std::unique_ptr<Step>> lower_node(Lowering& lowering) {
  if (needs_sign(lowering)) return reference_step(lowering);
  BlockProgram program(lowering.outputs[0].extents);
  Expression expression(program);
  std::vector<Expression::Term> inputs;
  for (size_t i = 0; i < lowering.inputs.size(); ++i) {
    if (!lowering.inputs[i].present()) {
      inputs.emplace_back();
    } else {
      inputs.push_back(expression.operand(lowering.inputs[i], known(lowering, i)));
    }
  }
  HEDDLE_TRY_ASSIGN(const Expression::Term y, expression.node(lowering.node, inputs));
  expression.result(y, lowering.outputs[0]);
  program.finish();
  std::vector<BlockProgram> programs;
  programs.push_back(std::move(program));
  return std::unique_ptr<Step>(
      std::make_unique<ElementwiseStep>(std::move(programs), std::vector<ir::Tensor>{}, lowering));
}

// Values of a fused body, compiled when first asked for: a program holds only what its results need.
class Body {
 public:
  Body(const Lowering& lowering, const ir::Graph& graph, BlockProgram& program)
      : lowering_(lowering),
        graph_(graph),
        expression_(program),
        terms_(graph.values.size()),
        makers_(graph.producers()) {}

  Status result(ir::ValueId id, const Operand& output) {
    mark(id);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (needed_.size() > i && needed_[i] && !terms_[graph_.nodes[i].outputs[0]].present())
        HEDDLE_TRY(compile(graph_.nodes[i]));
    }
    HEDDLE_TRY_ASSIGN(const Expression::Term term, leaf(id));
    expression_.result(term, output);
    return {};
  }

 private:
  void mark(ir::ValueId id) {
    needed_.resize(graph_.nodes.size());
    if (makers_[id] < 0 || needed_[static_cast<size_t>(makers_[id])]) return;
    needed_[static_cast<size_t>(makers_[id])] = true;
    for (ir::ValueId input : graph_.nodes[static_cast<size_t>(makers_[id])].inputs) {
      if (input != ir::kNoValue) mark(input);
    }
  }

  Status compile(const ir::Node& node) {
    std::vector<Expression::Term> inputs;
    for (ir::ValueId input : node.inputs) {
      if (input == ir::kNoValue) {
        inputs.emplace_back();
        continue;
      }
      HEDDLE_TRY_ASSIGN(Expression::Term term, leaf(input));
      inputs.push_back(term);
    }
    Result<Expression::Term> made = expression_.node(node, inputs);
    if (!made.ok()) return made.status().with_context(node.describe());
    terms_[node.outputs[0]] = *made;
    return {};
  }

  Result<Expression::Term> leaf(ir::ValueId id) {
    if (terms_[id].present()) return terms_[id];
    const ir::Value& value = graph_.values[id];
    if (value.constant.has_value()) {
      terms_[id] = expression_.operand(constant_operand(*value.constant), &*value.constant);
      return terms_[id];
    }
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      if (graph_.inputs[i] != id) continue;
      terms_[id] = expression_.operand(lowering_.inputs[i], known(lowering_, i));
      return terms_[id];
    }
    return Status::internal("value '", value.name,
                            "' of a fused body is neither input, constant nor made by a node");
  }

  const Lowering& lowering_;
  const ir::Graph& graph_;
  Expression expression_;
  std::vector<Expression::Term> terms_;
  std::vector<int> makers_;
  std::vector<bool> needed_;
};

// Outputs of one shape share a program; a body may also hand out a value from before a broadcast.
Result<std::unique_ptr<Step>> lower_body(Lowering& lowering) {
  const std::shared_ptr<const ir::Graph> graph = lowering.node.attributes.graph("body");
  std::vector<BlockProgram> programs;
  std::vector<bool> done(lowering.outputs.size(), false);
  for (size_t first = 0; first < done.size(); ++first) {
    if (done[first]) continue;
    BlockProgram program(lowering.outputs[first].extents);
    Body body(lowering, *graph, program);
    for (size_t i = first; i < done.size(); ++i) {
      if (lowering.outputs[i].extents != lowering.outputs[first].extents) continue;
      HEDDLE_TRY(body.result(graph->outputs[i], lowering.outputs[i]));
      done[i] = true;
    }
    program.finish();
    programs.push_back(std::move(program));
  }
  std::vector<ir::Tensor> constants;
  for (const ir::Value& value : graph->values) {
    if (value.constant.has_value()) constants.push_back(*value.constant);
  }
  return std::unique_ptr<Step>(
      std::make_unique<ElementwiseStep>(std::move(programs), std::move(constants), lowering));
}

}  // namespace

std::span<const LoweringEntry> elementwise_lowerings() {
  static constexpr LoweringEntry kEntries[] = {
      {"Abs", lower_node},         {"Neg", lower_node},       {"Exp", lower_node},
      {"Log", lower_node},         {"Sqrt", lower_node},      {"Rsqrt", lower_node},
      {"Reciprocal", lower_node},  {"Square", lower_node},    {"Erf", lower_node},
      {"Tanh", lower_node},        {"Sigmoid", lower_node},   {"Relu", lower_node},
      {"Floor", lower_node},       {"Ceil", lower_node},      {"Round", lower_node},
      {"Sign", lower_node},        {"Sin", lower_node},       {"Cos", lower_node},
      {"Not", lower_node},         {"IsNaN", lower_node},     {"IsInf", lower_node},
      {"Softplus", lower_node},    {"Softsign", lower_node},  {"HardSigmoid", lower_node},
      {"HardSwish", lower_node},   {"LeakyRelu", lower_node}, {"Elu", lower_node},
      {"Silu", lower_node},        {"Gelu", lower_node},      {"Identity", lower_node},
      {"Cast", lower_node},        {"Clip", lower_node},      {"Add", lower_node},
      {"Sub", lower_node},         {"Mul", lower_node},       {"Div", lower_node},
      {"Pow", lower_node},         {"Mod", lower_node},       {"Min", lower_node},
      {"Max", lower_node},         {"Equal", lower_node},     {"Less", lower_node},
      {"LessOrEqual", lower_node}, {"Greater", lower_node},   {"GreaterOrEqual", lower_node},
      {"And", lower_node},         {"Or", lower_node},        {"Xor", lower_node},
      {"PRelu", lower_node},       {"Where", lower_node},     {"Elementwise", lower_body},
      {"Tan", lower_node},         {"Asin", lower_node},      {"Acos", lower_node},
      {"Atan", lower_node},        {"Sinh", lower_node},      {"Cosh", lower_node},
      {"Asinh", lower_node},       {"Acosh", lower_node},     {"Atanh", lower_node},
      {"BitwiseAnd", lower_node},  {"BitwiseOr", lower_node}, {"BitwiseXor", lower_node},
      {"BitwiseNot", lower_node},  {"BitShift", lower_node},
  };
  return kEntries;
}

}  // namespace heddle::host
