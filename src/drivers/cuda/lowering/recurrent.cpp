// RNN, GRU and LSTM: one product for the inputs of all steps, then a launch or two for each step.
#include "drivers/cuda/kernels/recurrent.h"

#include <algorithm>

#include "drivers/cuda/lowering/lowering.h"
#include "ir/recurrent.h"

namespace heddle::cuda {
namespace {

static_assert(static_cast<int>(Cell::kSoftplus) == static_cast<int>(ir::CellFunction::kSoftplus));

enum CellInput : size_t { kX, kW, kR, kB, kLengths, kH0, kC0, kP };

class Cells {
 public:
  Cells(Lowering& l, const ir::Recurrent& rec)
      : l_(l),
        rec_(rec),
        steps_(l.inputs[kX].extents[0]),
        batch_(l.inputs[kX].extents[1]),
        hidden_(l.inputs[kR].extents[2]),
        computed_(l.inputs[kX].dtype == ir::DType::kF64 ? ir::DType::kF64 : ir::DType::kF32) {}

  Status lower() {
    const ir::Extents state{rec_.directions, batch_, hidden_};
    Operand states[2];
    for (Operand& each : states) each = l_.emit.scratch(computed_, state);
    const Operand cell = l_.emit.scratch(computed_, state), left = l_.emit.scratch(computed_, state);
    sums_ = l_.emit.scratch(computed_, {steps_, batch_, rec_.directions * rec_.gates * hidden_});
    HEDDLE_TRY(begin(kH0, states[0]));
    if (rec_.cell == ir::Cell::kLstm) HEDDLE_TRY(begin(kC0, cell));
    HEDDLE_TRY(multiply_inputs());
    CellStepParams params = common();
    for (params.step = 0; params.step < steps_; ++params.step) {
      const Operand &before = states[params.step % 2], &after = states[(params.step + 1) % 2];
      if (rec_.cell == ir::Cell::kGru && !rec_.linear_before_reset) {
        HEDDLE_TRY(launch(params, StepKind::kGruGates, 2, before, before, after, cell, left));
        HEDDLE_TRY(launch(params, StepKind::kGruState, 1, left, before, after, cell, left));
        continue;
      }
      const StepKind kind = rec_.cell == ir::Cell::kRnn   ? StepKind::kRnn
                            : rec_.cell == ir::Cell::kGru ? StepKind::kGru
                                                          : StepKind::kLstm;
      HEDDLE_TRY(launch(params, kind, static_cast<int>(rec_.gates), before, before, after, cell, left));
    }
    HEDDLE_TRY(end(1, states[steps_ % 2]));
    return end(2, cell);
  }

 private:
  Operand input(size_t i) const { return l_.has(i) ? l_.inputs[i] : Operand(); }
  Status begin(size_t input, const Operand& state) const {
    return l_.has(input) ? l_.cast(l_.inputs[input], state) : l_.fill(state, 0);
  }
  Status end(size_t output, const Operand& state) const {
    const bool wanted = output < l_.outputs.size() && l_.outputs[output].present();
    return wanted ? l_.cast(state, l_.outputs[output]) : Status();
  }

  Status multiply_inputs() const {
    GateSumsParams params;
    params.rows = steps_ * batch_;
    params.gates = rec_.gates * hidden_;
    params.columns = rec_.directions * params.gates;
    params.inputs = l_.inputs[kX].extents[2];
    using Kernel = GateSums<Type::kF64>;  // the largest
    constexpr int64_t kSide = Kernel::kSide, kMostBlocks = 1 << 16;
    const int64_t tiles = ((params.rows + kSide - 1) / kSide) * ((params.columns + kSide - 1) / kSide);
    if (tiles == 0) return {};
    return l_.launch(text("gate_sums_", ir::name(l_.inputs[kX].dtype)), params,
                     {names(params.x, input(kX)), names(params.w, input(kW)), names(params.bias, input(kB)),
                      names(params.out, sums_)},
                     {std::min(tiles, kMostBlocks), Kernel::kThreads, Kernel::kSharedBytes});
  }

  CellStepParams common() const {
    CellStepParams params;
    params.length_type = type_of(input(kLengths).dtype);
    params.first_backward = rec_.first_backward ? 1 : 0;
    params.input_forget = rec_.input_forget ? 1 : 0;
    params.gates = static_cast<int32_t>(rec_.gates);
    params.steps = steps_;
    params.batch = batch_;
    params.hidden = hidden_;
    params.directions = rec_.directions;
    params.clip = rec_.clip;
    for (int64_t d = 0; d < rec_.directions; ++d) {
      for (size_t i = 0; i < rec_.functions(); ++i) {
        const ir::CellActivation& given = rec_.activation(d, i);
        params.functions[d][i] = {static_cast<Cell>(given.function), {given.alpha, given.beta}};
      }
    }
    if (l_.has(kLengths)) params.flags = l_.flags(kLengths, text("a length is outside [0, ", steps_, "]"));
    return params;
  }

  // Multiplies `products` gates; those of kGruState are the last.
  Status launch(CellStepParams params, StepKind kind, int products, const Operand& from,
                const Operand& before, const Operand& after, const Operand& cell, const Operand& left) const {
    using Kernel = CellStep<Type::kF32, 1>;
    params.kind = kind;
    params.first_gate = kind == StepKind::kGruState ? 2 : 0;
    const int64_t units = (hidden_ + Kernel::kUnits - 1) / Kernel::kUnits;
    const int64_t examples = (batch_ + Kernel::kExamples - 1) / Kernel::kExamples;
    constexpr int64_t kMostBlocks = 1 << 16;
    const Grid grid{std::min(rec_.directions * units * examples, kMostBlocks), Kernel::kThreads,
                    products * Kernel::kSharedBytes * (computed_ == ir::DType::kF64 ? 2 : 1)};
    const Bind binds[] = {names(params.sums, sums_),       names(params.r, input(kR)),
                          names(params.bias, input(kB)),   names(params.peepholes, input(kP)),
                          names(params.from, from),        names(params.lengths, input(kLengths)),
                          names(params.before, before),    names(params.after, after),
                          names(params.cell, cell),        names(params.left, left),
                          names(params.out, l_.outputs[0])};
    const std::string name = text("cell_step_", products, "_", ir::name(l_.inputs[kX].dtype));
    return l_.emit.launch(name, &params, sizeof params, binds, l_.has(kLengths) ? &params.flags : nullptr,
                          grid);
  }

  Lowering& l_;
  const ir::Recurrent& rec_;
  const int64_t steps_, batch_, hidden_;
  const ir::DType computed_;
  Operand sums_;
};

Status lower_recurrent(Lowering& l) {
  HEDDLE_TRY_ASSIGN(const ir::Recurrent rec, ir::Recurrent::of(l.node));
  return Cells(l, rec).lower();
}

}  // namespace

std::span<const LoweringEntry> recurrent_lowerings() {
  static constexpr LoweringEntry kEntries[] = {
      {"RNN", lower_recurrent}, {"GRU", lower_recurrent}, {"LSTM", lower_recurrent}};
  return kEntries;
}

}  // namespace heddle::cuda
