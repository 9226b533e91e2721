// Steps that run graphs: If chooses between two programs, Loop runs one again and again. They are prepared
// when the graph around them is, and every run shares them; what a run changes lies in its own arena.
#include <algorithm>
#include <cstring>

#include "drivers/host/lowering.h"
#include "drivers/host/machine/aligned_bytes.h"
#include "drivers/host/program.h"
#include "ir/ops/control.h"

namespace heddle::host {
namespace {

uint64_t bytes_of(const Operand& o) { return static_cast<uint64_t>(o.elements() * ir::size_of(o.dtype)); }

// Scratch of a step that runs programs: the addresses of their inputs and outputs, then their arena.
class Frame {
 public:
  Frame(size_t inputs, size_t outputs) : inputs_(inputs), outputs_(outputs) {}
  uint64_t bytes(uint64_t arena) const { return table_bytes() + arena; }

  const std::byte** inputs(std::byte* scratch) const { return reinterpret_cast<const std::byte**>(scratch); }
  std::byte** outputs(std::byte* scratch) const {
    return reinterpret_cast<std::byte**>(scratch + inputs_ * sizeof(std::byte*));
  }
  std::byte* arena(std::byte* scratch) const { return scratch + table_bytes(); }

 private:
  uint64_t table_bytes() const { return aligned((inputs_ + outputs_) * sizeof(std::byte*)); }

  size_t inputs_;
  size_t outputs_;
};

class IfStep final : public Step {
 public:
  IfStep(Lowering& lowering, Ref<const HostProgram> yes, Ref<const HostProgram> no)
      : inputs_(lowering.inputs),
        outputs_(lowering.outputs),
        frame_(inputs_.size() - 1, outputs_.size()),
        yes_(std::move(yes)),
        no_(std::move(no)) {}

  Status run(const RunContext& context) const override {
    const HostProgram& chosen = *context.read<uint8_t>(inputs_[0]) != 0 ? *yes_ : *no_;
    std::byte* scratch = context.arena + scratch_;
    const std::byte** inputs = frame_.inputs(scratch);
    std::byte** outputs = frame_.outputs(scratch);
    for (size_t i = 1; i < inputs_.size(); ++i) inputs[i - 1] = context.read(inputs_[i]);
    for (size_t i = 0; i < outputs_.size(); ++i) outputs[i] = context.write(outputs_[i]);
    return chosen.run_steps(context.inside(frame_.arena(scratch), inputs, outputs));
  }

  uint64_t scratch_bytes() const override {
    return frame_.bytes(std::max(yes_->arena_bytes(), no_->arena_bytes()));
  }
  void set_scratch(uint64_t offset) override { scratch_ = offset; }
  uint64_t resident_bytes() const override { return yes_->resident_bytes() + no_->resident_bytes() + 512; }
  std::string path() const override { return text("then ", yes_->path(), ", else ", no_->path()); }

 private:
  std::vector<Operand> inputs_;
  std::vector<Operand> outputs_;
  Frame frame_;
  Ref<const HostProgram> yes_;
  Ref<const HostProgram> no_;
  uint64_t scratch_ = 0;
};

// Carried values go back and forth between the outputs and a copy in the scratch, so that the last iteration
// writes the outputs. Each iteration writes its own part of a stacked output.
class LoopStep final : public Step {
 public:
  LoopStep(Lowering& lowering, size_t carried, int64_t trips, Ref<const HostProgram> body)
      : inputs_(lowering.inputs),
        outputs_(lowering.outputs),
        carried_(carried),
        trips_(trips),
        frame_(inputs_.size(), outputs_.size() + 1),
        body_(std::move(body)) {
    for (size_t k = 0; k < carried_; ++k) {
      copies_.push_back(copy_bytes_);
      copy_bytes_ += aligned(bytes_of(outputs_[k]));
    }
  }

  Status run(const RunContext& context) const override {
    std::byte* scratch = context.arena + scratch_;
    std::byte* counter = scratch;
    std::byte* condition = scratch + 64;
    std::byte* copies = scratch + 128;
    std::byte* frame = copies + copy_bytes_;
    const std::byte** inputs = frame_.inputs(frame);
    std::byte** outputs = frame_.outputs(frame);
    inputs[0] = counter;
    inputs[1] = condition;
    outputs[0] = condition + 32;
    *condition = std::byte{1};
    for (size_t i = 2; i < inputs_.size(); ++i) inputs[i] = context.read(inputs_[i]);
    for (int64_t i = 0; i < trips_; ++i) {
      std::memcpy(counter, &i, sizeof(i));
      for (size_t k = 0; k < carried_; ++k) {
        const bool last_or_every_other = (trips_ - 1 - i) % 2 == 0;
        outputs[1 + k] = last_or_every_other ? context.write(outputs_[k]) : copies + copies_[k];
      }
      for (size_t k = carried_; k < outputs_.size(); ++k) {
        const uint64_t part = bytes_of(outputs_[k]) / static_cast<uint64_t>(trips_);
        outputs[1 + k] = context.write(outputs_[k]) + static_cast<uint64_t>(i) * part;
      }
      HEDDLE_TRY(body_->run_steps(context.inside(frame_.arena(frame), inputs, outputs)));
      for (size_t k = 0; k < carried_; ++k) inputs[2 + k] = outputs[1 + k];
    }
    return {};
  }

  uint64_t scratch_bytes() const override { return 128 + copy_bytes_ + frame_.bytes(body_->arena_bytes()); }
  void set_scratch(uint64_t offset) override { scratch_ = offset; }
  uint64_t resident_bytes() const override { return body_->resident_bytes() + 512; }
  std::string path() const override { return body_->path(); }

 private:
  std::vector<Operand> inputs_;
  std::vector<Operand> outputs_;
  size_t carried_;
  int64_t trips_;
  Frame frame_;
  Ref<const HostProgram> body_;
  std::vector<uint64_t> copies_;
  uint64_t copy_bytes_ = 0;
  uint64_t scratch_ = 0;
};

Result<Ref<const HostProgram>> prepare(Lowering& lowering, const ir::Graph& graph, std::string_view name) {
  auto program = HostProgram::prepare(graph, lowering.weights, lowering.width, lowering.bytes_left);
  if (!program.ok()) return program.status().with_context(name);
  return Ref<const HostProgram>(*std::move(program));
}

Result<std::unique_ptr<Step>> lower_if(Lowering& lowering) {
  Ref<const HostProgram> programs[2];
  for (const bool taken : {false, true}) {
    const ir::Branch branch = ir::branch_of(lowering.node, taken);
    if (branch.graph == nullptr) return ir::refused(branch, taken);
    HEDDLE_TRY_ASSIGN(programs[taken],
                      prepare(lowering, *branch.graph, taken ? "then_branch" : "else_branch"));
  }
  return std::unique_ptr<Step>(
      std::make_unique<IfStep>(lowering, std::move(programs[1]), std::move(programs[0])));
}

Result<std::unique_ptr<Step>> lower_loop(Lowering& lowering) {
  const ir::LoopForm form = ir::loop_form(lowering.node);
  const auto trips = ir::known_number(lowering.value(0));
  if (!trips || *trips <= 0) return Status::internal("its trip count should be a number above 0");
  HEDDLE_TRY_ASSIGN(auto body, prepare(lowering, *form.body, "body"));
  return std::unique_ptr<Step>(std::make_unique<LoopStep>(lowering, form.carried, *trips, std::move(body)));
}

}  // namespace

std::span<const LoweringEntry> control_lowerings() {
  static constexpr LoweringEntry kEntries[] = {{"If", lower_if}, {"Loop", lower_loop}};
  return kEntries;
}

}  // namespace heddle::host
