// If and Loop. A loop that is still there has a known number of iterations and carries tensors of fixed
// shapes.
#include "ir/ops/control.h"
#include "drivers/metal/lowering/repeat.h"

namespace heddle::metal {
namespace {

// Both branches are computed and one is taken: they are pure, and mistakes of the other are not reported.
Status lower_if(Lowering& l) {
  const Emit& e = l.emit;
  Tensor condition = e.reshape(l.inputs[0], {1});
  std::vector<Tensor> results[2];
  for (const bool taken : {false, true}) {
    const ir::Branch branch = ir::branch_of(l.node, taken);
    if (branch.graph == nullptr) return ir::refused(branch, taken);
    const size_t before = l.work.flags().size();
    HEDDLE_TRY_ASSIGN(results[taken],
                      l.work.emit_graph(*branch.graph, {l.inputs.begin() + 1, l.inputs.end()}));
    for (size_t i = before; i < l.work.flags().size(); ++i) {
      Flags& flags = l.work.flags()[i];
      Tensor none = e.whole(0, ir::DType::kI32);
      flags.tensor =
          taken ? e.choose(condition, flags.tensor, none) : e.choose(condition, none, flags.tensor);
    }
  }
  for (size_t i = 0; i < l.outputs.size(); ++i) {
    if (results[0][i] != nil) l.outputs[i] = e.choose(condition, results[1][i], results[0][i]);
  }
  return {};
}

Status lower_loop(Lowering& l) {
  const Emit& e = l.emit;
  const ir::LoopForm form = ir::loop_form(l.node);
  const auto trips = ir::known_number(l.value(0));
  if (!trips || *trips <= 0) return Status::internal("its trip count should be a number above 0");
  const auto rest = l.inputs.begin() + 2 + static_cast<std::ptrdiff_t>(form.carried);
  const IterationBody body = [&](Tensor number, const std::vector<Tensor>& carried) -> Result<Iteration> {
    std::vector<Tensor> inputs{e.cast(number, ir::DType::kI64), e.scalar(1, ir::DType::kBool)};
    inputs.insert(inputs.end(), carried.begin(), carried.end());
    inputs.insert(inputs.end(), rest, l.inputs.end());
    HEDDLE_TRY_ASSIGN(const std::vector<Tensor> made, l.work.emit_graph(*form.body, inputs));
    const auto scans = made.begin() + 1 + static_cast<std::ptrdiff_t>(form.carried);
    return Iteration{{made.begin() + 1, scans}, {scans, made.end()}};
  };
  HEDDLE_TRY_ASSIGN(const Iteration iteration, repeat(l.work, e, *trips, {l.inputs.begin() + 2, rest}, body));
  l.outputs = iteration.carried;
  l.outputs.insert(l.outputs.end(), iteration.stacked.begin(), iteration.stacked.end());
  return {};
}

}  // namespace

std::span<const PathEntry> control_paths() {
  using enum Path;
  static constexpr PathEntry kEntries[] = {
      {"If", composed, lower_if, kTakesEmpty, "both branches are computed and one taken: they are pure"},
      {"Loop", composed, lower_loop, kTakesEmpty, "MPSGraph's for loop; up to 64 iterations one by one"},
  };
  return kEntries;
}

}  // namespace heddle::metal
