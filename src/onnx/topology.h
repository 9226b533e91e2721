// topology.h: an order in which nodes can be converted.
//
//   What       Every value is made once and before it is read. A file whose nodes are in another order is put
//              in order; what cannot be put in order is refused by name: a value made twice, one that no node
//              makes, a cycle.
//   Threads    Pure functions; any thread.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "onnx/proto.h"

namespace heddle::onnx {

using Nodes = google::protobuf::RepeatedPtrField<proto::NodeProto>;

std::string node_name(const proto::NodeProto& node);  // its name, or else that of its first output; printable
std::string describe(const proto::NodeProto& node);   // "node 'encoder/Add_3' (Add)"

// Indices of `nodes`, each after the makers of its inputs and of what the graphs in its attributes read;
// nodes that are in order already keep it. `given` are the names of this graph that exist before the first
// node, `visible` says whether a name exists there or in a graph around it.
Result<std::vector<int>> topological_order(const Nodes& nodes, const std::set<std::string_view>& given,
                                           const std::function<bool(std::string_view)>& visible);

}  // namespace heddle::onnx
