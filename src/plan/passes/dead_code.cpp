#include <algorithm>
#include <utility>

#include "plan/passes/passes.h"

namespace heddle::plan {

using ir::kNoValue;
using ir::Node;
using ir::ValueId;

ir::Graph drop_dead(ir::Graph graph) {
  std::vector<char> live(graph.values.size(), 0);
  for (ValueId id : graph.outputs) live[id] = 1;
  std::vector<Node> kept;
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    const auto read = [&](ValueId id) { return id != kNoValue && live[id] != 0; };
    if (std::none_of(node->outputs.begin(), node->outputs.end(), read)) continue;
    for (ValueId id : node->inputs) {
      if (id != kNoValue) live[id] = 1;
    }
    for (ValueId id : node->outputs) {
      if (id != kNoValue) live[id] = 1;
    }
    kept.push_back(std::move(*node));
  }
  std::reverse(kept.begin(), kept.end());
  graph.nodes = std::move(kept);
  for (ValueId id : graph.inputs) live[id] = 1;

  std::vector<ValueId> renumbered(graph.values.size(), kNoValue);
  std::vector<ir::Value> values;
  for (size_t i = 0; i < graph.values.size(); ++i) {
    if (live[i] == 0) continue;
    renumbered[i] = static_cast<ValueId>(values.size());
    values.push_back(std::move(graph.values[i]));
  }
  graph.values = std::move(values);
  const auto renumber = [&](std::vector<ValueId>& ids) {
    for (ValueId& id : ids) {
      if (id != kNoValue) id = renumbered[id];
    }
  };
  renumber(graph.inputs);
  renumber(graph.outputs);
  for (Node& node : graph.nodes) {
    renumber(node.inputs);
    renumber(node.outputs);
  }
  return graph;
}

}  // namespace heddle::plan
