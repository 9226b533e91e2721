#include "onnx/node_graphs.h"

#include "onnx/names.h"
#include "onnx/topology.h"

namespace heddle::onnx {

const proto::GraphProto* find_graph(const proto::NodeProto& node, std::string_view name) {
  for (const proto::AttributeProto& attribute : node.attribute()) {
    if (attribute.name() == name && attribute.type() == proto::AttributeProto::GRAPH) return &attribute.g();
  }
  return nullptr;
}

Result<const proto::GraphProto*> graph_of(const proto::NodeProto& node, std::string_view name) {
  const proto::GraphProto* graph = find_graph(node, name);
  if (graph == nullptr) {
    return Status::invalid(describe(node), ": attribute '", name, "' is missing; it has to be a graph");
  }
  return graph;
}

Status check_attributes(const proto::NodeProto& node, const std::set<std::string_view>& known) {
  std::set<std::string_view> seen;
  for (const proto::AttributeProto& attribute : node.attribute()) {
    if (!known.contains(attribute.name())) {
      return Status::invalid(describe(node), ": attribute ", in_quotes(attribute.name()), " is not known");
    }
    if (!seen.insert(attribute.name()).second) {
      return Status::invalid(describe(node), ": attribute ", in_quotes(attribute.name()), " occurs twice");
    }
  }
  return {};
}

}  // namespace heddle::onnx
