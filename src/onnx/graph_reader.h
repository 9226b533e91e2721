// graph_reader.h: a parsed model becomes an ir::Graph.
//
//   What       Walks the graph in topological order, one operator rule per node. A call of a model's own
//              function becomes the nodes of its body.
//   Graphs     A branch or a loop's body is read with the types that its operands have, into a graph of its
//              own; what it reads of the graphs around it becomes its inputs. An If that is decided becomes
//              the nodes of its branch. One that shapes will decide, and whose branches give tensors of
//              different ranks, leaves nothing after it typed: the graph is read once for each answer.
//   Lifetime   read() is called once. It moves large weights out of the model.
//   Threads    One thread.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "ir/builder.h"
#include "onnx/body.h"
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
  // The names of one graph or function body; `outer` has those of the graph around it.
  struct Scope {
    Body* body = nullptr;
    const Scope* outer = nullptr;
    std::map<std::string, Binding, std::less<>> values;
    std::map<std::string, const proto::AttributeProto*, std::less<>> attributes;  // of the call of a function
    Opsets opsets;
    std::string prefix;  // of node names
  };

  struct Found {
    const Binding* binding;  // null: nothing has that name
    const Scope* scope;
  };
  using NodeKey = std::pair<const proto::NodeProto*, std::string>;  // of a node, by the prefix of its scope
  struct Split {
    NodeKey key;
    ir::ValueId condition;
  };
  // Makes the inputs of a nested graph and binds their names; outputs that come before its own go to `first`.
  using Prologue = std::function<Status(Scope& scope, std::vector<ir::ValueId>& first)>;
  struct Loop {
    ir::ValueId trips = ir::kNoValue;
    ir::ValueId condition = ir::kNoValue;
    std::vector<ir::ValueId> carried;
    // Binds the names of the body's inputs; `state` is the iteration, the condition and the carried values.
    std::function<Status(Scope& inner, const std::vector<ir::ValueId>& state,
                         std::vector<ir::ValueId>& first)>
        bind;
  };
  struct ScanForm {
    std::vector<ir::ValueId> states, scanned;
    std::vector<int64_t> input_axes, input_directions, output_axes, output_directions;
  };

  Status read_initializers(const proto::GraphProto& graph, Scope& scope);
  Status read_inputs(Scope& scope);
  Result<ir::TensorType> input_type(const proto::ValueInfoProto& input) const;
  static Scope inner_scope(const Scope& around, Body* body);
  static Found find(std::string_view name, const Scope& scope);
  // The values of a graph's outputs, each one that a node makes, and no two the same.
  Result<std::vector<ir::ValueId>> read_body(const proto::GraphProto& graph, Scope& given);
  Result<std::vector<ir::ValueId>> read_outputs(const proto::GraphProto& graph, const Scope& scope);
  Result<std::vector<ir::ValueId>> read_split(const proto::GraphProto& graph, Scope& given,
                                              const Split& split);
  Result<ir::Tensor> tensor(const proto::TensorProto& written);
  Status convert_nodes(const Nodes& nodes, Scope& scope);
  Status convert_node(const proto::NodeProto& node, Scope& scope);
  Status convert_operator(const proto::NodeProto& node, Scope& scope);
  Status convert_control(const proto::NodeProto& node, Scope& scope);
  Status convert_if(const proto::NodeProto& node, Scope& scope);
  Status convert_loop(const proto::NodeProto& node, Scope& scope);
  Status convert_scan(const proto::NodeProto& node, Scope& scope);
  Result<ScanForm> scan_form(const proto::NodeProto& node, const proto::GraphProto& graph,
                             const Scope& scope);
  static Result<ir::ValueId> scan_trips(const ScanForm& form, const std::string& name, ir::Builder& builder);
  Status read_loop(const proto::NodeProto& node, const proto::GraphProto& graph, Scope& scope,
                   const Loop& loop, std::vector<ir::ValueId>& made);
  static Result<ir::ValueId> turn_stacked(const proto::NodeProto& node, ir::ValueId id, int64_t to,
                                          bool reversed, const std::string& name, Body& body);
  static Status bind_input(const proto::GraphProto& body, int i, ir::ValueId id, Scope& inner);
  Result<Nested> read_nested(const proto::GraphProto& graph, const Scope& around, const Prologue& prologue);
  Status inline_branch(const proto::NodeProto& node, const proto::GraphProto& branch, Scope& scope);
  Status convert_flex_attention(const proto::NodeProto& node, Scope& scope);
  Result<ir::ValueId> inline_modifier(const proto::NodeProto& node, std::string_view name, ir::ValueId x,
                                      Scope& scope);
  static Result<std::vector<ir::ValueId>> make_if(const std::string& name, ir::ValueId condition,
                                                  Result<Nested>& yes, Result<Nested>& no, Body& body);
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
  std::map<const proto::TensorProto*, ir::Tensor> read_;  // a graph may be read more than once
  Functions functions_;
  std::vector<const proto::FunctionProto*> calls_;  // being inlined, outermost first
  std::map<NodeKey, bool> assumed_;                 // answers of conditions that are not known
  std::optional<Split> split_;                      // why convert_nodes() of the graph at hand has failed
  uint64_t nodes_ = 0;
  int depth_ = 0;
  int loops_ = 0;
};

}  // namespace heddle::onnx
