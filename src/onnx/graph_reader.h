// graph_reader.h: a parsed model becomes an ir::Graph.
//
//   What       Walks the graph in topological order, one operator rule per node. A call of a model's own
//              function becomes the nodes of its body.
//   Lifetime   read() is called once. It moves large weights out of the model.
//   Threads    One thread.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "ir/builder.h"
#include "onnx/call.h"
#include "onnx/functions.h"
#include "onnx/operators.h"
#include "onnx/proto.h"
#include "onnx/tensor_data.h"
#include "onnx/topology.h"

namespace heddle::onnx {

class GraphReader {
 public:
  GraphReader(proto::ModelProto& model, const Limits& limits, ExternalData& external);
  Result<ir::Graph> read();

 private:
  struct Binding {
    ir::ValueId id = ir::kNoValue;
    std::string absent;  // why the value is not there, when id is kNoValue: a whole message
  };
  // The names of one graph or function body.
  struct Scope {
    std::map<std::string, Binding, std::less<>> values;
    std::map<std::string, const proto::AttributeProto*, std::less<>> attributes;  // of the call of a function
    Opsets opsets;
    std::string prefix;  // of node names
  };

  Status read_initializers(Scope& scope);
  Status read_inputs(Scope& scope);
  Result<ir::TensorType> input_type(const proto::ValueInfoProto& input) const;
  Status read_outputs(const Scope& scope);
  Status convert_nodes(const Nodes& nodes, Scope& scope);
  Status convert_node(const proto::NodeProto& node, Scope& scope);
  Status convert_operator(const proto::NodeProto& node, Scope& scope);
  Status inline_function(const proto::NodeProto& node, const proto::FunctionProto& function, Scope& scope);
  Result<Scope> function_scope(const proto::NodeProto& node, const proto::FunctionProto& function,
                               const Scope& scope) const;
  Result<std::vector<ir::ValueId>> operands(const proto::NodeProto& node, const Scope& scope) const;
  Result<ir::Attributes> attributes(const proto::NodeProto& node, const Scope& scope);
  Result<ir::Attribute> attribute(const proto::AttributeProto& attribute);
  Result<const Operator*> choose_operator(const proto::NodeProto& node, const Scope& scope) const;
  void bind_outputs(const proto::NodeProto& node, const std::vector<ir::ValueId>& ids, Scope& scope) const;

  proto::ModelProto& model_;
  const Limits& limits_;
  TensorData tensors_;
  ir::Builder builder_;
  Functions functions_;
  std::vector<const proto::FunctionProto*> calls_;  // being inlined, outermost first
  uint64_t nodes_ = 0;
};

}  // namespace heddle::onnx
