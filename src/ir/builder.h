// builder.h: makes a Graph one node at a time, with the types inferred at once.
//
//   What       Used by readers, by the public GraphBuilder, by passes and by tests. A mistake is reported at
//              the node that makes it.
//   Lifetime   take() ends it. After an error the builder stays as it was before that call.
//   Threads    One thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/op.h"

namespace heddle::ir {

class Builder {
 public:
  explicit Builder(std::string name = "graph") { graph_.name = std::move(name); }

  // `contents`: what is known of the elements, as the Value says.
  ValueId input(std::string name, TensorType type, std::optional<std::vector<Dim>> contents = std::nullopt);
  ValueId constant(Tensor tensor, std::string name = "");
  // Adds a node; `inputs` may hold kNoValue. Returns the first output; `outputs` says how many to make.
  Result<ValueId> node(std::string_view op, std::vector<ValueId> inputs, Attributes attributes = {},
                       std::string name = "");
  Result<std::vector<ValueId>> nodes(std::string_view op, std::vector<ValueId> inputs, size_t outputs,
                                     Attributes attributes = {}, std::string name = "");
  void output(ValueId id, std::string name = "");

  const Value& value(ValueId id) const { return graph_.values[id]; }
  const Graph& graph() const { return graph_; }
  Result<Graph> take();  // validated; invalid when there is no output

 private:
  Graph graph_;
};

}  // namespace heddle::ir
