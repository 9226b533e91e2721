// lowering.h: a traced graph becomes one Heddle model, node by node, through the table that eager calls use.
//
//   What       Python walks the FX graph (graph_lowering.py) and says here what it meets: inputs with free
//              dimensions, weights, calls of ATen operators, sizes and what is reckoned with them, outputs.
//              build() ends it with a CompiledModel.
//   Errors     What an entry does not do is heddle's `unsupported`, NotImplementedError in Python.
//   Threads    One thread at a time, holding the GIL.
#pragma once

#include <map>

#include "compiled_model.h"
#include "python_argument.h"

namespace heddle::torch_backend {

class Lowering {
 public:
  using Results = std::vector<std::optional<Node>>;  // nothing: a result that the entry does not make

  explicit Lowering(std::string name) : graph_(std::move(name)) {}

  Node input(const std::string& name, at::ScalarType dtype, const std::vector<Dim>& dims);
  Node constant(const at::Tensor& tensor);
  // `op` as its schema has it: "aten::add.Tensor". Nodes stand for tensors in the arguments, and for numbers.
  Results call(const std::string& op, const pybind11::sequence& positional, const pybind11::dict& named,
               const std::vector<std::pair<at::ScalarType, Extents>>& types);

  // Of an input of rank 0: what its caller may also fix, and build anew where an operator refuses it.
  Node as_number(const Node& scalar) { return has_numbers_ = true, Node{scalar.value, true}; }
  std::variant<int64_t, Node> size_of(const Node& tensor, int axis);
  // "add", "sub", "mul", "floordiv", "mod", "max", "min", "truediv" of numbers, known ones or Nodes.
  Node reckon(const std::string& operation, pybind11::handle left, pybind11::handle right);

  void output(const Node& node, const std::string& name, ResultOrder order);
  std::string type(const Node& node) const { return graph_.type(node.value); }
  Model build(const ModelOptions& options) { return graph_.build(options); }
  const std::vector<ResultOrder>& orders() const { return orders_; }  // of the outputs

 private:
  Value add(std::string_view op, const std::vector<Value>& inputs, const AttributeList& attributes = {}) {
    return graph_.add(op, inputs, attributes);
  }
  Value number(pybind11::handle known_or_node);

  GraphBuilder graph_;
  std::vector<ResultOrder> orders_;
  bool has_numbers_ = false;
  std::map<std::pair<uint32_t, int>, Value> sizes_;  // read once for each tensor and axis
};

void bind_lowering(pybind11::module_& m);

}  // namespace heddle::torch_backend
