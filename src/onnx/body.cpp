#include "onnx/body.h"

#include <algorithm>

namespace heddle::onnx {

ir::ValueId Body::counter(std::string name, ir::TensorType type) {
  counters_.push_back(builder_.input(std::move(name), std::move(type)));
  return counters_.back();
}

ir::ValueId Body::import(ir::ValueId id, const Body& home) {
  if (&home == this) return id;
  const ir::ValueId outside = outer_->import(id, home);
  const auto found = imported_.find(outside);
  if (found != imported_.end()) return found->second;
  const ir::Value& value = outer_->value(outside);
  ir::ValueId inside;
  if (value.is_constant()) {
    inside = builder_.constant(*value.constant, value.name);
  } else {
    inside = builder_.input(value.name, value.type, value.contents);
    captured_.push_back(outside);
    origins_[inside] = outside;
  }
  imported_[outside] = inside;
  return inside;
}

bool Body::depends_on_data(ir::ValueId id) const {
  const ir::Graph& graph = builder_.graph();
  const std::vector<int> producers = graph.producers();
  std::vector<char> seen(graph.values.size(), 0);
  std::vector<ir::ValueId> open = {id};
  while (!open.empty()) {
    const ir::ValueId at = open.back();
    open.pop_back();
    if (at == ir::kNoValue || seen[at] != 0) continue;
    seen[at] = 1;
    const ir::Value& value = graph.values[at];
    if (value.is_constant() || value.contents.has_value()) continue;
    if (std::find(counters_.begin(), counters_.end(), at) != counters_.end()) continue;
    if (producers[at] < 0) {
      const auto origin = origins_.find(at);
      if (origin == origins_.end() || outer_->depends_on_data(origin->second)) return true;
      continue;
    }
    const ir::Node& node = graph.nodes[static_cast<size_t>(producers[at])];
    if (node.is("Shape") || node.is("Size")) continue;
    open.insert(open.end(), node.inputs.begin(), node.inputs.end());
  }
  return false;
}

std::vector<ir::ValueId> share_inputs(Nested& a, Nested& b, const ir::Graph& around) {
  std::vector<ir::ValueId> all = a.captured;
  for (ir::ValueId id : b.captured) {
    if (std::find(all.begin(), all.end(), id) == all.end()) all.push_back(id);
  }
  for (Nested* nested : {&a, &b}) {
    std::vector<ir::ValueId> inputs;
    for (ir::ValueId id : all) {
      const auto found = std::find(nested->captured.begin(), nested->captured.end(), id);
      const auto at = static_cast<size_t>(found - nested->captured.begin());
      const ir::Value& value = around.values[id];
      inputs.push_back(found != nested->captured.end()
                           ? nested->graph.inputs[at]
                           : nested->graph.add_value({value.name, value.type, {}, value.contents}));
    }
    nested->graph.inputs = std::move(inputs);
    nested->captured = all;
  }
  return all;
}

}  // namespace heddle::onnx
