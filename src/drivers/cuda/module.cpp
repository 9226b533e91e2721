#include "drivers/cuda/module.h"

#include <algorithm>
#include <span>
#include <utility>

#include "drivers/cuda/lowering/lowering.h"
#include "ir/op.h"
#include "plan/memory_plan.h"

namespace heddle::cuda {
namespace {

std::vector<Operand> operands_of(const ir::Graph& graph, const std::vector<ir::ValueId>& ids,
                                 plan::Place::Kind kind) {
  std::vector<Operand> operands;
  for (size_t i = 0; i < ids.size(); ++i) {
    Operand operand;
    operand.place = {kind, i};
    operand.dtype = graph.type(ids[i]).dtype;
    operand.extents = *graph.type(ids[i]).extents();
    operands.push_back(operand);
  }
  return operands;
}

// What runs for a node: kernels in the order in which each runs first, and how often.
std::string path_of(std::span<const Step> steps) {
  std::vector<std::pair<std::string, int>> counted;
  for (size_t i = 0; i < steps.size(); ++i) {
    std::string name;
    if (const auto* library = std::get_if<LibraryStep>(&steps[i])) {
      name = library->call->library();
      for (uint32_t launch = 0; launch < library->launches; ++launch)
        name += text(launch == 0 ? ", else " : " and ", std::get<Launch>(steps[++i]).kernel->name);
    } else {
      const auto& launch = std::get<Launch>(steps[i]);
      name = text(launch.kernel->name, *launch.why == 0 ? "" : text(" (", launch.why, ')'));
    }
    const auto known =
        std::find_if(counted.begin(), counted.end(), [&](const auto& each) { return each.first == name; });
    if (known == counted.end()) {
      counted.emplace_back(name, 1);
    } else {
      ++known->second;
    }
  }
  std::string path;
  for (const auto& [name, count] : counted)
    path += text(path.empty() ? "" : "; ", count > 1 ? text(count, " x ") : "", name);
  return path;
}

plan::PlannedNode line_of(const ir::Graph& graph, const ir::Node& node, std::span<const Step> steps) {
  plan::PlannedNode line{std::string(node.op->name), {}, {}, 0, {}, path_of(steps)};
  for (const ir::ValueId id : node.outputs) {
    if (id == ir::kNoValue) continue;
    if (line.outputs.empty()) line.name = graph.values[id].name;
    line.outputs.push_back({graph.type(id).dtype, *graph.type(id).extents()});
  }
  if (steps.empty()) {
    if (!plan::renames(node)) line.path = "nothing runs: there is nothing to compute";
    return line;
  }
  line.cost = plan::cost(graph, node);
  if (line.op == "Elementwise")
    line.path += text(", a chain of ", node.attributes.graph("body")->nodes.size(), " operators");
  return line;
}

}  // namespace

struct CudaModule::Emitted {
  Lowered lowered;
  Outline outline;
  std::vector<Ref<const void>> keep;  // constants that it names
  uint64_t own_bytes = 0;             // of those, what no other program names
};

Result<CudaModule::Emitted> CudaModule::emit(const ir::Graph& specialised, uint64_t bytes_max) const {
  HEDDLE_TRY(plan::check_memory(specialised, 0, weight_bytes(), bytes_max));
  HEDDLE_TRY_ASSIGN(const Ref<const Weights> own,
                    Weights::make(device_, specialised, weights_.get(), *source_));
  Emitter emitter(device_, {weights_.get(), own.get()}, turned_, libraries_, *source_);
  HEDDLE_TRY(emitter.graph(specialised,
                           operands_of(specialised, specialised.inputs, plan::Place::Kind::kInput),
                           operands_of(specialised, specialised.outputs, plan::Place::Kind::kOutput)));
  HEDDLE_TRY_ASSIGN(Lowered lowered, emitter.take());
  HEDDLE_TRY(plan::check_memory(specialised, lowered.arena_bytes, weight_bytes(), bytes_max));
  Emitted emitted{std::move(lowered), emitter.outline(), {weights_, own}, own->bytes()};
  emitted.keep.insert(emitted.keep.end(), emitter.shared().begin(), emitter.shared().end());
  if (libraries_.chains != nullptr) emitted.keep.push_back(libraries_.chains);
  for (const Ref<const Weights>& table : emitter.tables()) {
    emitted.keep.push_back(table);
    emitted.own_bytes += table->bytes();
  }
  return emitted;
}

Result<Ref<const device::Program>> CudaModule::lower(const ir::Graph& specialised, uint64_t bytes_max,
                                                     NoLocksHeld) const {
  HEDDLE_TRY_ASSIGN(Emitted emitted, emit(specialised, bytes_max));
  return Ref<const device::Program>(
      std::make_shared<CudaProgram>(specialised, std::move(emitted.lowered), device_, std::move(emitted.keep),
                                    emitted.own_bytes, failures_of(specialised)));
}

Ref<Atomic<uint32_t>> CudaModule::failures_of(const ir::Graph& specialised) const {
  std::string inputs;
  for (const ir::ValueId id : specialised.inputs) inputs += text(*specialised.type(id).extents(), ' ');
  auto all = failures_.lock();
  std::weak_ptr<Atomic<uint32_t>>& known = (*all)[inputs];
  Ref<Atomic<uint32_t>> count = known.lock();
  if (count != nullptr) return count;
  known = count = std::make_shared<Atomic<uint32_t>>(0);
  std::erase_if(*all, [](const auto& each) { return each.second.expired(); });
  return count;
}

Result<plan::ProgramPlan> CudaModule::describe(const ir::Graph& specialised, uint64_t bytes_max,
                                               NoLocksHeld) const {
  HEDDLE_TRY_ASSIGN(const Emitted emitted, emit(specialised, bytes_max));
  plan::ProgramPlan planned;
  planned.arena_bytes = emitted.outline.arena_bytes;
  planned.arena_bytes_apart = emitted.outline.arena_bytes_apart;
  planned.slot_bytes = emitted.lowered.arena_bytes;
  planned.launches = graphs_ == nullptr
                         ? "step by step: graphs are switched off"
                         : graphs_->describe(counts_of(emitted.lowered.steps), emitted.lowered.arena_bytes,
                                             failures_of(specialised)->load_relaxed());
  uint64_t number = 0;
  for (size_t i = 0; i < specialised.nodes.size(); ++i) {
    const auto [first, end] = emitted.outline.nodes[i];
    const auto steps = std::span(emitted.lowered.steps).subspan(first, end - first);
    planned.nodes.push_back(line_of(specialised, specialised.nodes[i], steps));
    if (!steps.empty()) planned.nodes.back().step = ++number;
  }
  return planned;
}

}  // namespace heddle::cuda
