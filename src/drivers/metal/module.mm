#include "drivers/metal/module.h"

#include <algorithm>

#include "drivers/metal/lowering/graph_work.h"
#include "drivers/metal/program.h"
#include "plan/memory_plan.h"

namespace heddle::metal {
namespace {

plan::PlannedNode line_of(const ir::Graph& graph, const ir::Node& node) {
  plan::PlannedNode line;
  line.op = node.op->name;
  for (const ir::ValueId id : node.outputs) {
    if (id == ir::kNoValue) continue;
    if (line.outputs.empty()) line.name = graph.values[id].name;
    line.outputs.push_back({graph.type(id).dtype, *graph.type(id).extents()});
  }
  return line;
}

// What the node makes for other nodes; the caller's results are the caller's memory.
uint64_t bytes_between(const ir::Graph& graph, const ir::Node& node) {
  int64_t bytes = 0;
  for (const ir::ValueId id : node.outputs) {
    const bool result = std::find(graph.outputs.begin(), graph.outputs.end(), id) != graph.outputs.end();
    if (id == ir::kNoValue || result) continue;
    bytes += graph.type(id).extents()->elements() * ir::size_of(graph.type(id).dtype);
  }
  return static_cast<uint64_t>(bytes);
}

}  // namespace

// What lies between nodes is MPSGraph's, which does not say how much it is.
Result<Ref<const device::Program>> MetalModule::lower(const ir::Graph& specialised, uint64_t bytes_max,
                                                      NoLocksHeld) const {
  HEDDLE_TRY(plan::check_memory(specialised, 0, weight_bytes(), bytes_max));
  return MetalProgram::make(specialised, weights_, open_, half_);
}

Result<plan::ProgramPlan> MetalModule::describe(const ir::Graph& specialised, uint64_t bytes_max,
                                                NoLocksHeld none) const {
  // What cannot be compiled has no plan.
  HEDDLE_TRY(lower(specialised, bytes_max, none).status());
  plan::ProgramPlan planned;
  uint64_t steps = 0;
  @autoreleasepool {
    for (const ir::Node& node : specialised.nodes) {
      HEDDLE_TRY_ASSIGN(const Choice choice, choose(specialised, node));
      plan::PlannedNode line = line_of(specialised, node);
      line.path = described(specialised, node, choice, half_);
      if (choice.fate == Fate::emitted) {
        line.step = ++steps;
        line.cost = plan::cost(specialised, node);
        planned.arena_bytes_apart += bytes_between(specialised, node);
      }
      planned.nodes.push_back(std::move(line));
    }
  }
  return planned;
}

}  // namespace heddle::metal
