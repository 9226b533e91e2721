// Element-wise operators, over operands that are broadcast against each other.
#include "base/made_once.h"
#include "drivers/cuda/lowering/chain_program.h"
#include "drivers/cuda/lowering/scalar_steps.h"
#include "ir/op.h"

namespace heddle::cuda {
namespace {

using ir::DType;

// The launch's parameters for operands that are broadcast to the output; the caller binds them.
MapParams map_params(std::span<const Operand> in, const Operand& out) {
  const Walk walk = walk_to(out, in);
  MapParams params;
  params.count = walk.count;
  params.axes = walk.axes;
  params.out_type = type_of(out.dtype);
  for (size_t i = 0; i < in.size(); ++i) {
    params.in[i].type = type_of(in[i].dtype);
    std::copy(walk.strides[i].begin(), walk.strides[i].end(), params.in[i].strides);
  }
  return params;
}

// As a chain of one operator, or else step by step.
Status lower_steps(Lowering& l) {
  if (const std::optional<ChainProgram> program = assemble_chain(l.graph, {&l.node, 1}))
    return launch_chain(l, l.graph, *program, l.node.inputs, l.node.outputs);
  std::vector<DType> dtypes;
  for (const Operand& operand : l.inputs) dtypes.push_back(operand.dtype);
  const Operand& out = l.outputs[0];
  for (const ScalarStep& step : scalar_steps(l.node, dtypes)) {
    std::vector<Operand> in;
    // Each element of what the step before made is read by the thread that writes it.
    for (const int i : step.operands)
      in.push_back(i == ScalarStep::kBefore ? out : l.inputs[static_cast<size_t>(i)]);
    MapParams params = map_params(in, out);
    params.numbers = step.numbers;
    std::vector<Bind> binds{names(params.out, out)};
    for (size_t i = 0; i < in.size(); ++i) binds.push_back(names(params.in[i].data, in[i]));
    const std::string_view family =
        step.kernel == kChoose ? by_bytes(out.element_bytes()) : computed_in(step.computed);
    HEDDLE_TRY(l.emit.launch(text(step.kernel, family), &params, sizeof params, binds, nullptr,
                             l.grid(params.count)));
  }
  return {};
}

// A bool is 0 or 1 wherever bits come from.
Status lower_bit_cast(Lowering& l) {
  Operand from = l.inputs[0];
  if (l.outputs[0].dtype != DType::kBool) from.dtype = l.outputs[0].dtype;
  if (l.outputs[0].dtype == DType::kBool) return l.cast(from, l.outputs[0]);
  const std::vector<int64_t> all(1, from.elements()), one(1, 1);
  return l.move(from, one, l.outputs[0], one, all);
}

}  // namespace

std::span<const LoweringEntry> elementwise_lowerings() {
  static constinit MadeOnce<const std::vector<LoweringEntry>> all;
  return all.get([] {
    std::vector<LoweringEntry> entries = {{"BitCast", lower_bit_cast}};
    for (const std::string_view op : scalar_operators()) entries.push_back({op, lower_steps});
    return entries;
  });
}

}  // namespace heddle::cuda
