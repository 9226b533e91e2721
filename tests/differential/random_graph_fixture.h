// random_graph_fixture.h: graphs of all operators, with operands for which a right answer can be told.
//
//   What       Inputs whose first axis is the rows of a caller, and nodes over them: element-wise, moving,
//              reducing, products, windows, the patterns that passes look for, and single nodes of every
//              operator that the drivers' conformance has a case of. A node whose results would say nothing
//              (expected_fixture.h) is not added.
//   Threads    One thread.
#pragma once

#include <string>
#include <vector>

#include "choices_fixture.h"
#include "expected_fixture.h"
#include "ir/builder.h"

namespace heddle::differential {

struct RandomGraph {
  ir::Graph graph;
  std::vector<ir::Tensor> inputs;
  std::vector<Known> outputs;  // for these inputs
};

RandomGraph random_graph(Choices& choices);

// Operands of the same graph for another number of rows.
std::vector<ir::Tensor> other_inputs(const RandomGraph& of, int64_t rows, Choices& choices);

// What a graph is made with: values so far, and the ways to add to them.
class Sketch {
 public:
  explicit Sketch(Choices& choices) : choices_(choices) {}

  Choices& choices() { return choices_; }
  ir::ValueId input(ir::DType dtype, const ir::Extents& extents, bool rows);
  ir::ValueId input(ir::Tensor tensor, bool rows);
  ir::ValueId constant(ir::Tensor tensor);
  ir::ValueId ints(std::vector<int64_t> values) { return constant(ir::Tensor::of_i64(values)); }
  // The outputs; none where the node was refused, or would say nothing.
  std::vector<ir::ValueId> add(std::string_view op, std::vector<ir::ValueId> inputs,
                               ir::Attributes attributes = {}, size_t outputs = 1);
  // The first output, or kNoValue.
  ir::ValueId one(std::string_view op, std::vector<ir::ValueId> inputs, ir::Attributes attributes = {});

  const ir::Tensor& at(ir::ValueId id) const { return expected_.of(id).right; }
  ir::DType dtype(ir::ValueId id) const { return at(id).dtype(); }
  const ir::Extents& extents(ir::ValueId id) const { return at(id).extents(); }
  int64_t rows() const { return rows_; }
  void set_rows(int64_t rows) { rows_ = rows; }
  ir::ValueId any();                                 // of the values so far
  ir::ValueId any(bool (*fits)(const ir::Tensor&));  // kNoValue: there is none
  ir::Tensor random(ir::DType dtype, const ir::Extents& extents, double low = -2, double high = 2);
  RandomGraph take();

 private:
  Choices& choices_;
  ir::Builder builder_{"random"};
  Expected expected_;
  std::vector<ir::ValueId> values_;  // that later nodes may take: inputs and results
  std::vector<ir::ValueId> ends_;    // results that nothing has taken yet
  std::vector<ir::Tensor> inputs_;
  int64_t rows_ = 1;
};

// Each adds something over the sketch's values, or nothing.
using Step = void (*)(Sketch&);
void add_pointwise(Sketch& sketch);
void add_movement(Sketch& sketch);
void add_reduction(Sketch& sketch);
void add_product(Sketch& sketch);
void add_window(Sketch& sketch);
void add_pattern(Sketch& sketch);
void add_case(Sketch& sketch);

}  // namespace heddle::differential
