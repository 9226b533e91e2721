// graph_work.h: the values of the graphs that one MPSGraph is built of, and what its executable is to report.
//
//   What       emit_graph() walks over a specialised graph (or a branch or body inside one) and emits its
//              nodes. Constants become feeds where the module has a buffer of them, else constants.
//   Invariant  A value without elements has no tensor (nil).
//   Threads    One thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "drivers/metal/lowering/lowering.h"

namespace heddle::metal {

struct Flags {
  std::string mistake;
  Tensor tensor;  // i32 [count]
  int64_t count;
  bool per_row;
};

// What becomes of a node of a specialised graph.
enum class Fate : uint8_t {
  emitted,   // by its path
  known,     // its operands are empty: the result is known while compiling
  left_out,  // nothing it makes has elements
};
struct Choice {
  const PathEntry* path;
  Fate fate;
};
Result<Choice> choose(const ir::Graph& graph, const ir::Node& node);  // unsupported, naming the node
// For people: the path and why it was taken; with `half`, of a module of precision f16.
std::string described(const ir::Graph& graph, const ir::Node& node, const Choice& choice, bool half);

// What raised it: Emit, of an array that is too large (unsupported), or MPSGraph, of a mistake of ours.
Status refusal_of(NSException* exception);

class GraphWork {
 public:
  GraphWork(const Emit& emit, const Weights& weights, const LoweringOptions& options)
      : emit_(emit), weights_(weights), options_(options) {}

  // Tensors of the graph's outputs, for those of its inputs.
  Result<std::vector<Tensor>> emit_graph(const ir::Graph& graph, const std::vector<Tensor>& inputs);
  Tensor constant(const ir::Tensor& tensor);
  // Those of a nested graph are made outside: what a block makes is seen inside it only.
  void make_constants(const ir::Graph& graph);

  struct WeightFeed {
    Tensor placeholder;
    size_t weight;
  };
  const std::vector<WeightFeed>& weight_feeds() const { return weight_feeds_; }
  std::vector<Flags>& flags() { return flags_; }

 private:
  Status emit_node(const ir::Graph& graph, const ir::Node& node, std::vector<Tensor>& values);
  Status emit_by_path(const PathEntry& path, Lowering& lowering);
  Status evaluate_node(const ir::Graph& graph, const ir::Node& node, std::vector<Tensor>& values);
  Status settle(Lowering& lowering, std::vector<Tensor>& values);
  void add_flags(const Lowering& lowering, const Mistake& mistake);

  const Emit& emit_;
  const Weights& weights_;
  const LoweringOptions& options_;
  std::map<const void*, Tensor> constants_;  // by their bytes, which the graph keeps
  std::vector<WeightFeed> weight_feeds_;
  std::vector<Flags> flags_;
};

}  // namespace heddle::metal
