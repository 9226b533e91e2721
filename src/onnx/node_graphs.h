// node_graphs.h: the attributes of nodes that hold graphs (If, Loop, Scan, FlexAttention).
//
//   Lifetime   A graph that is returned belongs to the node.
//   Threads    Pure functions; any thread.
#pragma once

#include <set>
#include <string_view>

#include "base/status.h"
#include "onnx/proto.h"

namespace heddle::onnx {

const proto::GraphProto* find_graph(const proto::NodeProto& node, std::string_view name);  // null: none
Result<const proto::GraphProto*> graph_of(const proto::NodeProto& node,
                                          std::string_view name);  // invalid: none

// invalid where the node has an attribute that is not in `known`, or one twice. Such nodes have no operator
// rule, which would refuse attributes that are left over.
Status check_attributes(const proto::NodeProto& node, const std::set<std::string_view>& known);

}  // namespace heddle::onnx
