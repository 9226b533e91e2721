// body.h: one graph on its way into the IR, and what it reads of the graphs around it.
//
//   What       A builder, and import(): a value of a graph around this one becomes an input of this one, or a
//              constant of it when it is a constant there.
//   Invariant  captured() lists, in the order of the inputs that stand for them, values of the next graph
//              outwards. Inputs of the body's own come before those.
//   Lifetime   Every body around it outlives it.
//   Threads    One thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ir/builder.h"

namespace heddle::onnx {

class Body {
 public:
  explicit Body(std::string name, Body* outer = nullptr) : builder_(std::move(name)), outer_(outer) {}
  Body(const Body&) = delete;
  Body& operator=(const Body&) = delete;

  ir::Builder& builder() { return builder_; }
  const ir::Value& value(ir::ValueId id) const { return builder_.value(id); }
  const std::vector<ir::ValueId>& captured() const { return captured_; }

  // An input whose elements are known once shapes are: the number of an iteration.
  ir::ValueId counter(std::string name, ir::TensorType type);
  // `id` is a value of `home`, which is this body or one around it.
  ir::ValueId import(ir::ValueId id, const Body& home);
  // False when the value follows from constants and shapes.
  bool depends_on_data(ir::ValueId id) const;

 private:
  ir::Builder builder_;
  Body* outer_;
  std::map<ir::ValueId, ir::ValueId> imported_;  // by id in *outer_
  std::map<ir::ValueId, ir::ValueId> origins_;   // of inputs that were captured
  std::vector<ir::ValueId> captured_;
  std::vector<ir::ValueId> counters_;
};

// A finished body.
struct Nested {
  ir::Graph graph;
  std::vector<ir::ValueId> captured;  // of the graph around it, for the inputs at the end
  bool first_depends_on_data;         // the first output
};
// Both take the same inputs afterwards: those that either captured, in the order returned.
std::vector<ir::ValueId> share_inputs(Nested& a, Nested& b, const ir::Graph& around);

}  // namespace heddle::onnx
