// rewrite.h: one walk over a graph in which each node is kept or replaced.
//
//   What       run() offers every node to a rule, in topological order. The rule looks back at what was kept
//              (maker(), uses()), and either returns without doing anything (the node is kept), or calls
//              exactly one of replace(), forward() and become_constants().
//   Invariant  uses() is exact at every moment: a node whose outputs lost their last reader is gone at once.
//              A replacement takes over the outputs of the node it replaces, so names and output order stay.
//              Everything a pattern reads lies before its last node; hence a rule that starts at the last
//              node of a pattern never breaks the order.
//   Lifetime   References to nodes stay valid until the rule returns.
//   Threads    One thread.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "ir/op.h"

namespace heddle::plan {

class Rewriter {
 public:
  using Rule = std::function<Status(Rewriter&, const ir::Node&)>;
  explicit Rewriter(ir::Graph graph);
  Result<ir::Graph> run(const Rule& rule);

  const ir::Value& value(ir::ValueId id) const { return graph_.values[id]; }
  const ir::Shape& shape(ir::ValueId id) const { return graph_.values[id].type.shape; }
  ir::DType dtype(ir::ValueId id) const { return graph_.values[id].type.dtype; }
  // The kept node that makes `id`; null for inputs, constants, and when it is not `op`.
  const ir::Node* maker(ir::ValueId id, std::string_view op = {}) const;
  int uses(ir::ValueId id) const { return uses_[id]; }  // input slots that name it, and graph outputs
  const std::vector<ir::ValueId>& graph_inputs() const { return graph_.inputs; }
  bool is_graph_output(ir::ValueId id) const { return outputs_[id] > 0; }
  // Nothing outside `interior` and `root` reads what `interior` makes: the pattern may be replaced as a
  // whole.
  bool closed(const std::vector<const ir::Node*>& interior, const ir::Node& root) const;

  std::optional<double> scalar(ir::ValueId id) const;              // of a constant with one element
  std::optional<std::vector<int64_t>> ints(ir::ValueId id) const;  // when known now

  ir::ValueId constant(ir::Tensor tensor, std::string_view name);
  Result<ir::ValueId> emit(std::string_view op, std::vector<ir::ValueId> inputs, ir::Attributes attributes,
                           std::string_view name);
  Status replace(const ir::Node& node, std::string_view op, std::vector<ir::ValueId> inputs,
                 ir::Attributes attributes = {});
  // The node's only output is `to` itself. Becomes an Identity where the graph's interface needs a value of
  // its own.
  Status forward(const ir::Node& node, ir::ValueId to);
  void become_constants(const ir::Node& node, std::vector<ir::Tensor> tensors);
  Status infer_again(const ir::Node& node);    // after inputs became constant
  bool replaced() const { return replaced_; }  // the rule has dealt with its node

 private:
  void keep(ir::Node node);
  void drop_inputs(const ir::Node& node);
  Result<std::vector<ir::Value>> inferred(const ir::Node& node) const;
  void refine(ir::ValueId id, ir::Value made, bool prefer_new);

  ir::Graph graph_;
  std::deque<ir::Node> kept_;  // op is null for the ones that went
  std::vector<int> makers_;    // index into kept_, -1
  std::vector<int> uses_;
  std::vector<int> outputs_;
  std::vector<ir::ValueId> aliases_;  // of values that were forwarded; else themselves
  bool replaced_ = false;             // the node at hand
};

bool all_static(const ir::Shape& shape);
std::optional<std::vector<int64_t>> static_dims(const ir::Shape& shape);
// A constant of integer dtype from numbers.
ir::Tensor integer_tensor(ir::DType dtype, const ir::Extents& extents, const std::vector<int64_t>& values);
std::vector<int64_t> permutation(const ir::Node& transpose, size_t rank);  // in [0, rank)

}  // namespace heddle::plan
