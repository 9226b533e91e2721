#include "plan/placement.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "plan/memory_plan.h"

namespace heddle::plan {
namespace {

using Kind = Place::Kind;

void place_given(const ir::Graph& graph, std::vector<Place>& places) {
  for (size_t i = 0; i < graph.inputs.size(); ++i) places[graph.inputs[i]] = {Kind::kInput, i};
  for (ir::ValueId id = 0; id < places.size(); ++id) {
    if (graph.values[id].is_constant()) places[id] = {Kind::kConstant, 0};
  }
}

void place_outputs(const ir::Graph& graph, Placement& out) {
  const std::vector<int> producers = graph.producers();
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const ir::ValueId id = graph.outputs[i];
    Place& root = out.places[out.root[id]];
    if (producers[out.root[id]] >= 0 && root.kind == Kind::kNone) {
      root = {Kind::kOutput, i};
    } else {
      out.copies.push_back({id, i});
    }
  }
}

void place_arena(const ir::Graph& graph, const std::function<uint64_t(ir::ValueId)>& bytes_of,
                 Placement& out) {
  std::vector<ir::ValueId> ids;
  std::vector<Lifetime> lifetimes;
  std::vector<int> index(out.root.size(), -1);
  for (int step = 0; step < static_cast<int>(graph.nodes.size()); ++step) {
    const ir::Node& node = graph.nodes[static_cast<size_t>(step)];
    for (const ir::ValueId id : node.inputs) {
      if (id == ir::kNoValue || index[out.root[id]] < 0) continue;
      lifetimes[static_cast<size_t>(index[out.root[id]])].last = step;
    }
    if (renames(node)) continue;
    for (const ir::ValueId id : node.outputs) {
      if (id == ir::kNoValue || out.places[id].kind != Kind::kNone) continue;
      index[id] = static_cast<int>(ids.size());
      ids.push_back(id);
      lifetimes.push_back({bytes_of(id), step, step});
    }
  }
  const MemoryPlan plan = plan_memory(lifetimes);
  for (size_t i = 0; i < ids.size(); ++i) out.places[ids[i]] = {Kind::kArena, plan.offsets[i]};
  out.arena_bytes = plan.bytes;
  out.arena_bytes_apart = plan.bytes_apart;
}

}  // namespace

bool renames(const ir::Node& node) {
  constexpr std::array<std::string_view, 5> kRenaming = {"Reshape", "Squeeze", "Unsqueeze", "Flatten",
                                                         "Identity"};
  return std::any_of(kRenaming.begin(), kRenaming.end(), [&](std::string_view op) { return node.is(op); });
}

std::vector<ir::ValueId> roots_of(const ir::Graph& graph) {
  std::vector<ir::ValueId> root(graph.values.size());
  for (ir::ValueId id = 0; id < root.size(); ++id) root[id] = id;
  for (const ir::Node& node : graph.nodes) {
    if (renames(node)) root[node.outputs[0]] = root[node.inputs[0]];
  }
  return root;
}

Placement place_values(const ir::Graph& graph, const std::function<uint64_t(ir::ValueId)>& bytes_of) {
  Placement out;
  out.places.resize(graph.values.size());
  out.root = roots_of(graph);
  place_given(graph, out.places);
  place_outputs(graph, out);
  place_arena(graph, bytes_of, out);
  for (ir::ValueId id = 0; id < out.root.size(); ++id) out.places[id] = out.places[out.root[id]];
  return out;
}

}  // namespace heddle::plan
