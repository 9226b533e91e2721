// control.h: the nodes of a nested graph, put where the If or Loop stands that runs it.
//
//   What       Inliner appends the nested graph's values to those of the graph around it and gives its nodes
//              with their ids, in order, for a pass that walks over a graph and makes another.
//   Invariant  Results are values that exist already (outputs of the node that goes), each made by exactly
//              one of the nodes that come.
//   Threads    Pure.
#pragma once

#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ir/ops/control.h"

namespace heddle::plan {

using Ids = std::vector<ir::ValueId>;

inline constexpr size_t kMaxNodes = size_t{1} << 17;  // that unrolling may lead to

class Inliner {
 public:
  explicit Inliner(std::vector<ir::Value>& values) : values_(values) {}

  // `body` with `arguments` for its inputs, making `results`. Node names begin with `prefix`.
  std::vector<ir::Node> graph(const ir::Graph& body, const Ids& arguments, const Ids& results,
                              std::string_view prefix);

  // One iteration of a loop. It reads `carried` and replaces it; `rest` is what the body reads of the graph
  // around it.
  struct Iteration {
    std::vector<ir::Node> nodes;
    ir::ValueId condition;
    Ids stacked;
  };
  Iteration iteration(const ir::Node& loop, int64_t number, Ids& carried, const Ids& rest);
  // The loop's outputs, from the last carried values and the parts of each iteration.
  std::vector<ir::Node> results(const ir::Node& loop, const Ids& carried, const std::vector<Ids>& stacked);

 private:
  ir::ValueId fresh(const ir::Value& like);
  ir::Node identity(ir::ValueId from, ir::ValueId to, std::string_view name);

  std::vector<ir::Value>& values_;
};

// The graph, for operands whose constants are its own from now on: `known` (null: not constant) by input.
ir::Graph with_constants(const ir::Graph& graph, const std::vector<const ir::Tensor*>& known);

}  // namespace heddle::plan
