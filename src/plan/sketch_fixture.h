// sketch_fixture.h: graphs written down in few lines, and the question whether two graphs compute the same.
//
//   Lifetime   A Sketch builds one graph; take() ends it.
//   Threads    One thread.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "ir/builder.h"

namespace heddle::plan {

inline ir::Dim sym(const std::string& name) { return ir::Dim::symbol(name); }

class Sketch {
 public:
  using Id = ir::ValueId;

  Id in(const std::string& name, ir::Shape shape, ir::DType dtype = ir::DType::kF32) {
    return builder_.input(name, {dtype, std::move(shape)});
  }
  Id op(std::string_view name, std::vector<Id> inputs, ir::Attributes attributes = {}) {
    auto made = builder_.node(name, std::move(inputs), std::move(attributes),
                              std::string(name) + std::to_string(nodes_++));
    INFO(to_string(made.status()));
    REQUIRE(made.ok());
    return *made;
  }
  std::vector<Id> ops(std::string_view name, std::vector<Id> inputs, size_t outputs,
                      ir::Attributes attributes = {}) {
    auto made = builder_.nodes(name, std::move(inputs), outputs, std::move(attributes),
                               std::string(name) + std::to_string(nodes_++));
    INFO(to_string(made.status()));
    REQUIRE(made.ok());
    return *made;
  }
  Id number(double value) { return builder_.constant(ir::Tensor::scalar(ir::DType::kF32, value)); }
  Id ints(const std::vector<int64_t>& values) { return builder_.constant(ir::Tensor::of_i64(values)); }
  Id constant(ir::Tensor tensor) { return builder_.constant(std::move(tensor)); }
  Id random(const ir::Extents& extents, double low = -1, double high = 1) {
    ir::Tensor t = ir::Tensor::zeros(ir::DType::kF32, extents);
    std::uniform_real_distribution<double> pick(low, high);
    for (int64_t i = 0; i < t.elements(); ++i) t.set(i, pick(generator_));
    return builder_.constant(std::move(t));
  }
  Id reshape(Id x, const std::vector<int64_t>& shape) { return op("Reshape", {x, ints(shape)}); }
  Id transpose(Id x, const std::vector<int64_t>& perm) { return op("Transpose", {x}, {{"perm", perm}}); }
  void out(Id id, const std::string& name = "y") { builder_.output(id, name); }
  const ir::TensorType& type(Id id) const { return builder_.value(id).type; }
  ir::Graph take() {
    auto graph = builder_.take();
    INFO(to_string(graph.status()));
    REQUIRE(graph.ok());
    return std::move(graph).value();
  }

 private:
  ir::Builder builder_;
  std::mt19937 generator_{7};
  int nodes_ = 0;
};

inline int count(const ir::Graph& graph, std::string_view op) {
  int n = 0;
  for (const ir::Node& node : graph.nodes) n += node.is(op) ? 1 : 0;
  return n;
}

// The only node of its operator.
inline const ir::Node& the(const ir::Graph& graph, std::string_view op) {
  REQUIRE(count(graph, op) == 1);
  for (const ir::Node& node : graph.nodes) {
    if (node.is(op)) return node;
  }
  return graph.nodes[0];
}

using Symbols = std::map<std::string, int64_t>;

inline ir::Tensor random_tensor(const ir::TensorType& type, const Symbols& symbols, std::mt19937& generator) {
  ir::Extents extents;
  for (const ir::Dim& d : type.shape) {
    const auto extent = d.evaluate(symbols);
    REQUIRE(extent.has_value());
    extents.push_back(*extent);
  }
  ir::Tensor t = ir::Tensor::zeros(type.dtype, extents);
  std::uniform_real_distribution<double> real(-2, 2);
  std::uniform_int_distribution<int> integer(0, 3);
  for (int64_t i = 0; i < t.elements(); ++i) {
    const bool flag = type.dtype == ir::DType::kBool;
    t.set(i, ir::is_float(type.dtype) ? real(generator) : flag ? integer(generator) % 2 : integer(generator));
  }
  return t;
}

inline std::vector<ir::Tensor> random_inputs(const ir::Graph& graph, const Symbols& symbols,
                                             unsigned seed = 1) {
  std::mt19937 generator(seed);
  std::vector<ir::Tensor> out;
  for (ir::ValueId id : graph.inputs) out.push_back(random_tensor(graph.type(id), symbols, generator));
  return out;
}

inline std::vector<ir::Tensor> run(const ir::Graph& graph, const std::vector<ir::Tensor>& inputs) {
  auto made = ir::evaluate(graph, inputs);
  INFO(to_string(made.status()));
  REQUIRE(made.ok());
  return std::move(made).value();
}

inline void check_equal(const std::vector<ir::Tensor>& a, const std::vector<ir::Tensor>& b,
                        double tolerance = 1e-5) {
  REQUIRE(a.size() == b.size());
  for (size_t o = 0; o < a.size(); ++o) {
    REQUIRE(to_string(a[o].type()) == to_string(b[o].type()));
    double largest = 1e-3;
    for (int64_t i = 0; i < a[o].elements(); ++i) {
      if (std::isfinite(a[o].get(i))) largest = std::max(largest, std::fabs(a[o].get(i)));
    }
    int64_t wrong = 0;
    for (int64_t i = 0; i < a[o].elements(); ++i) {
      const double x = a[o].get(i);
      const double y = b[o].get(i);
      const bool same = x == y || (std::isnan(x) && std::isnan(y)) || std::fabs(x - y) <= tolerance * largest;
      wrong += same ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
}

// Both compute the same, names of inputs and outputs included, and `after` is a valid graph whose types hold.
inline void check_same(const ir::Graph& before, const ir::Graph& after, const Symbols& symbols,
                       double tolerance = 1e-5) {
  const Status valid = ir::validate(after);
  INFO(to_string(valid) << "\n" << to_string(after));
  REQUIRE(valid.ok());
  REQUIRE(before.inputs.size() == after.inputs.size());
  REQUIRE(before.outputs.size() == after.outputs.size());
  for (size_t i = 0; i < before.inputs.size(); ++i) {
    CHECK(before.values[before.inputs[i]].name == after.values[after.inputs[i]].name);
  }
  for (size_t i = 0; i < before.outputs.size(); ++i) {
    CHECK(before.values[before.outputs[i]].name == after.values[after.outputs[i]].name);
    CHECK(to_string(before.type(before.outputs[i])) == to_string(after.type(after.outputs[i])));
  }
  for (unsigned seed = 1; seed <= 3; ++seed) {
    const auto inputs = random_inputs(before, symbols, seed);
    check_equal(run(before, inputs), run(after, inputs), tolerance);
  }
}

template <class Pass>
ir::Graph apply(Pass pass, const ir::Graph& graph, const Symbols& symbols, double tolerance = 1e-5) {
  auto made = pass(graph);
  INFO(to_string(made.status()));
  REQUIRE(made.ok());
  check_same(graph, *made, symbols, tolerance);
  return std::move(made).value();
}

}  // namespace heddle::plan
