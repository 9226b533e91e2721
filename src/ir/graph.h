// graph.h: a model as data: values, nodes in order, inputs and outputs.
//
//   What       Node inputs and outputs are ids into `values`. A value is an input, a constant, or the output
//              of exactly one node.
//   Invariant  validate(): nodes are in topological order, ids in range, every value made once, arity and
//              attributes fit the operator's entry.
//   Lifetime   A plain value. It is immutable once a driver took it (Ref<const Graph>). Nested graphs
//              (attributes) are shared and immutable.
//   Threads    No interior mutation: const access from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "ir/tensor.h"

namespace heddle::ir {

struct OpDef;
struct Graph;

using ValueId = uint32_t;
inline constexpr ValueId kNoValue = ~ValueId{0};  // an optional input that was left out

using Attribute = std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                               Tensor, std::shared_ptr<const Graph>>;

// Attributes by name. The typed getters are for attributes that validate() has seen: they return the
// operator's default when absent.
class Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<const std::string, Attribute>> list) : map_(list) {}

  bool has(std::string_view name) const;
  const Attribute* find(std::string_view name) const;
  void set(std::string name, Attribute value) { map_.insert_or_assign(std::move(name), std::move(value)); }
  void erase(std::string_view name);

  int64_t i64(std::string_view name, int64_t otherwise = 0) const;
  double f64(std::string_view name, double otherwise = 0) const;
  std::string str(std::string_view name, std::string_view otherwise = "") const;
  std::vector<int64_t> ints(std::string_view name, const std::vector<int64_t>& otherwise = {}) const;
  std::vector<double> floats(std::string_view name, const std::vector<double>& otherwise = {}) const;
  std::shared_ptr<const Graph> graph(std::string_view name) const;  // null when absent

  auto begin() const { return map_.begin(); }
  auto end() const { return map_.end(); }

 private:
  std::map<std::string, Attribute, std::less<>> map_;
};

// What compilation knows of a value. `contents` are the elements of a small integer tensor (at most
// kMaxContents, row-major) as far as shapes determine them: this is how shape arithmetic (Shape, Gather,
// Concat ...) is followed while dimensions are symbolic.
inline constexpr size_t kMaxContents = 256;
struct Value {
  std::string name;
  TensorType type;
  std::optional<Tensor> constant;
  std::optional<std::vector<Dim>> contents;
  // The axis along which the rows of several callers lie, in blocks of one size and in order, where the plan
  // has proven that (plan/rows/batchable.h).
  std::optional<size_t> row_axis = {};

  bool is_constant() const { return constant.has_value(); }
  // The elements as Dims: from the constant when it is small and of integers that i64 holds, else `contents`.
  std::optional<std::vector<Dim>> integers() const;
};

struct Node {
  const OpDef* op = nullptr;
  std::string name;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  Attributes attributes;

  bool is(std::string_view op_name) const;
  bool has_input(size_t i) const { return i < inputs.size() && inputs[i] != kNoValue; }
  std::string describe() const;  // "node 'encoder/Add_3' (Add)": how every message names a node
};

struct Graph {
  std::string name;
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;

  ValueId add_value(Value value);
  ValueId add_constant(std::string name, Tensor tensor);
  const TensorType& type(ValueId id) const { return values[id].type; }
  // Index of the node that makes each value, -1 for inputs and constants.
  std::vector<int> producers() const;
  // Node indices that read each value, each once; an output of the graph counts as one more reader, index -1.
  std::vector<std::vector<int>> consumers() const;
};

// The constants of a graph and of those inside its nodes; one that several hold comes once for each.
void each_constant(const Graph& graph, const std::function<void(const Tensor&)>& visit);

Status validate(const Graph& graph);
std::string to_string(const Attribute& attribute);
std::string to_string(const Graph& graph);  // one line per node, for people

}  // namespace heddle::ir
