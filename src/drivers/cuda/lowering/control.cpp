// Nodes that hold graphs: branches and loops.
#include "ir/ops/control.h"

#include "drivers/cuda/lowering/lowering.h"
#include "ir/op.h"

namespace heddle::cuda {
namespace {

// out = kernel(in...), of one bool each.
Status decide(Lowering& l, std::string_view kernel, std::initializer_list<Operand> in, const Operand& out) {
  MapParams params = flat_params(1);
  params.out_type = type_of(out.dtype);
  std::vector<Bind> binds{names(params.out, out)};
  for (const Operand& each : in) {
    MapSource& source = params.in[binds.size() - 1];
    source.type = type_of(each.dtype);
    binds.push_back(names(source.data, each));
  }
  return l.emit.launch(kernel, &params, sizeof params, binds, nullptr, {1, 1});
}

// `condition` ? yes : no, element by element.
Status choose(Lowering& l, const Operand& condition, const Operand& yes, const Operand& no,
              const Operand& out) {
  MapParams params = flat_params(out.elements());
  if (params.count == 0) return {};
  params.in[1].strides[0] = params.in[2].strides[0] = 1;
  return l.launch(text("choose", by_bytes(out.element_bytes())), params,
                  {names(params.in[0].data, condition), names(params.in[1].data, yes),
                   names(params.in[2].data, no), names(params.out, out)},
                  l.grid(params.count));
}

std::vector<Operand> scratch_like(Lowering& l, std::span<const Operand> like) {
  std::vector<Operand> made;
  for (const Operand& each : like) made.push_back(l.emit.scratch(each.dtype, each.extents));
  return made;
}

// Both branches are computed and one is taken: they are pure, and mistakes of the other do not count.
Status lower_if(Lowering& l) {
  const std::vector<Operand> inputs(l.inputs.begin() + 1, l.inputs.end());
  const std::optional<Operand> outer = l.emit.enabled;
  std::vector<Operand> results[2];
  for (const bool taken : {false, true}) {
    const ir::Branch branch = ir::branch_of(l.node, taken);
    if (branch.graph == nullptr) return ir::refused(branch, taken);
    Operand counts = l.emit.scratch(ir::DType::kBool, {});
    HEDDLE_TRY(decide(l, taken ? "same_i64" : "not_i64", {l.inputs[0]}, counts));
    if (outer.has_value()) HEDDLE_TRY(decide(l, "bitwise_and_i64", {counts, *outer}, counts));
    results[taken] = scratch_like(l, l.outputs);
    l.emit.enabled = counts;
    const Status status = l.emit.graph(*branch.graph, inputs, results[taken]);
    l.emit.enabled = outer;
    HEDDLE_TRY(status);
  }
  for (size_t i = 0; i < l.outputs.size(); ++i)
    HEDDLE_TRY(choose(l, l.inputs[0], results[1][i], results[0][i], l.outputs[i]));
  return {};
}

// The launches of the body, once for each iteration. What is carried goes to and fro between two places.
Status lower_loop(Lowering& l) {
  const ir::LoopForm form = ir::loop_form(l.node);
  const std::optional<int64_t> trips = ir::known_number(l.value(0));
  if (!trips.has_value() || *trips <= 0) return Status::internal("its trip count should be a number above 0");
  const auto first = l.inputs.begin() + 2, rest = first + static_cast<std::ptrdiff_t>(form.carried);
  const std::span<const Operand> last(l.outputs.data(), form.carried);
  const std::vector<Operand> places[2] = {scratch_like(l, last), scratch_like(l, last)};
  const Operand number = l.emit.scratch(ir::DType::kI64, {}), goes_on = l.emit.scratch(ir::DType::kBool, {}),
                said = l.emit.scratch(ir::DType::kBool, {});
  HEDDLE_TRY(l.fill(goes_on, 1));
  std::vector<Operand> carried(first, rest);
  for (int64_t i = 0; i < *trips; ++i) {
    HEDDLE_TRY(l.fill(number, static_cast<double>(i)));
    std::vector<Operand> inputs{number, goes_on};
    inputs.insert(inputs.end(), carried.begin(), carried.end());
    inputs.insert(inputs.end(), rest, l.inputs.end());
    if (i + 1 == *trips) {
      carried.assign(last.begin(), last.end());
    } else {
      carried = places[i % 2];
    }
    std::vector<Operand> outputs{said};
    outputs.insert(outputs.end(), carried.begin(), carried.end());
    for (size_t k = form.carried; k < l.outputs.size(); ++k)
      outputs.push_back(l.outputs[k].from(i * (l.outputs[k].elements() / *trips)));
    HEDDLE_TRY(l.emit.graph(*form.body, inputs, outputs));
  }
  return {};
}

}  // namespace

std::span<const LoweringEntry> control_lowerings() {
  static constexpr LoweringEntry kEntries[] = {{"If", lower_if}, {"Loop", lower_loop}};
  return kEntries;
}

}  // namespace heddle::cuda
