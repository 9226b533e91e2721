#include "drivers/metal/module.h"

#include <algorithm>
#include <set>

#include "drivers/metal/lowering/graph_work.h"
#include "drivers/metal/program.h"
#include "plan/batchable.h"
#include "plan/optimize.h"
#include "plan/specialize.h"

namespace heddle::metal {
namespace {

std::vector<device::Signature> signatures(const ir::Graph& graph, const std::vector<ir::ValueId>& ids) {
  std::vector<device::Signature> out;
  for (const ir::ValueId id : ids) out.push_back({graph.values[id].name, graph.type(id)});
  return out;
}

device::PlannedNode line_of(const ir::Graph& graph, const ir::Node& node) {
  device::PlannedNode line;
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

Result<Ref<const device::Module>> MetalModule::make(ir::Graph graph, const device::LoadOptions& options,
                                                    Ref<const OpenDevice> open) {
  if (options.precision != "f32" && options.precision != "f16") {
    return Status::unsupported("the Metal driver computes in precision f32 or f16, not '", options.precision,
                               "'");
  }
  HEDDLE_TRY_ASSIGN(ir::Graph optimised, plan::optimize(std::move(graph)));
  optimised = plan::mark_rows(std::move(optimised));
  auto module = std::make_shared<MetalModule>();
  HEDDLE_TRY_ASSIGN(module->weights_, Weights::make(open->device.get(), optimised));
  module->inputs_ = signatures(optimised, optimised.inputs);
  module->outputs_ = signatures(optimised, optimised.outputs);
  std::set<const void*> counted;  // branches share weights
  ir::each_constant(optimised, [&](const ir::Tensor& weight) {
    if (counted.insert(weight.data()).second) module->weight_bytes_ += static_cast<uint64_t>(weight.bytes());
  });
  module->graph_ = std::make_shared<const ir::Graph>(std::move(optimised));
  module->open_ = std::move(open);
  module->half_ = options.precision == "f16";
  return Ref<const device::Module>(std::move(module));
}

// What lies between nodes is MPSGraph's, which does not say how much it is.
Result<ir::Graph> MetalModule::specialise(std::span<const ir::Extents> inputs, uint64_t bytes_max) const {
  HEDDLE_TRY_ASSIGN(ir::Graph specialised, plan::specialize(*graph_, inputs, bytes_max));
  HEDDLE_TRY(device::check_memory(specialised, 0, weight_bytes_, bytes_max));
  return specialised;
}

Result<Ref<const device::Program>> MetalModule::compile(std::span<const ir::Extents> inputs,
                                                        uint64_t bytes_max, NoLocksHeld) const {
  HEDDLE_TRY_ASSIGN(const ir::Graph specialised, specialise(inputs, bytes_max));
  return MetalProgram::make(specialised, weights_, open_, half_);
}

Result<device::ProgramPlan> MetalModule::plan(std::span<const ir::Extents> inputs, uint64_t bytes_max,
                                              NoLocksHeld) const {
  HEDDLE_TRY_ASSIGN(const ir::Graph specialised, specialise(inputs, bytes_max));
  // What cannot be compiled has no plan.
  const auto program = MetalProgram::make(specialised, weights_, open_, half_);
  if (!program.ok()) return program.status();
  device::ProgramPlan planned;
  uint64_t steps = 0;
  @autoreleasepool {
    for (const ir::Node& node : specialised.nodes) {
      HEDDLE_TRY_ASSIGN(const Choice choice, choose(specialised, node));
      device::PlannedNode line = line_of(specialised, node);
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
