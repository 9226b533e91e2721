#include "ir/builder.h"

#include <algorithm>
#include <utility>

namespace heddle::ir {

ValueId Builder::input(std::string name, TensorType type, std::optional<std::vector<Dim>> contents) {
  const ValueId id = graph_.add_value({std::move(name), std::move(type), std::nullopt, std::move(contents)});
  graph_.inputs.push_back(id);
  return id;
}

ValueId Builder::constant(Tensor tensor, std::string name) {
  return graph_.add_constant(std::move(name), std::move(tensor));
}

Result<ValueId> Builder::node(std::string_view op, std::vector<ValueId> inputs, Attributes attributes,
                              std::string name) {
  HEDDLE_TRY_ASSIGN(const std::vector<ValueId> made,
                    nodes(op, std::move(inputs), 1, std::move(attributes), std::move(name)));
  return made.front();
}

Result<std::vector<ValueId>> Builder::nodes(std::string_view op, std::vector<ValueId> inputs, size_t outputs,
                                            Attributes attributes, std::string name) {
  Node node{find_op(op), std::move(name), std::move(inputs), std::vector<ValueId>(outputs, kNoValue),
            std::move(attributes)};
  if (node.op == nullptr) {
    return Status::unsupported("node '", node.name, "': operator ", op,
                               " is not known; all_ops() lists those that are");
  }
  std::vector<const Value*> in;
  for (ValueId id : node.inputs) {
    if (id != kNoValue && id >= graph_.values.size()) {
      return Status::invalid(node.describe(), ": input ", in.size(), " refers to value ", id, " of ",
                             graph_.values.size());
    }
    in.push_back(id == kNoValue ? nullptr : &graph_.values[id]);
  }
  HEDDLE_TRY_ASSIGN(std::vector<Value> made, infer(node, in));
  for (size_t i = 0; i < outputs; ++i) {
    made[i].constant.reset();
    made[i].name = node.name.empty() || i == 0 ? node.name : text(node.name, ':', i);
    node.outputs[i] = graph_.add_value(std::move(made[i]));
  }
  graph_.nodes.push_back(std::move(node));
  return graph_.nodes.back().outputs;
}

void Builder::output(ValueId id, std::string name) {
  if (!name.empty() && id < graph_.values.size()) graph_.values[id].name = std::move(name);
  graph_.outputs.push_back(id);
}

Result<Graph> Builder::take() {
  HEDDLE_TRY(validate(graph_));
  return std::exchange(graph_, Graph{});
}

}  // namespace heddle::ir
