#include "ir/graph.h"

#include <doctest/doctest.h>

#include <functional>

#include "ir/builder.h"

namespace heddle::ir {

namespace {

// y = relu(x + 1), x [b, 2]
Graph small_graph() {
  Builder b("small");
  const ValueId x = b.input("x", {DType::kF32, {Dim::symbol("b"), 2}});
  const ValueId one = b.constant(Tensor::scalar(DType::kF32, 1), "one");
  const ValueId sum = b.node("Add", {x, one}, {}, "add").value();
  b.output(b.node("Relu", {sum}, {}, "relu").value(), "y");
  return b.take().value();
}

}  // namespace

TEST_CASE("a graph is evaluated node by node") {
  const std::vector<double> values = {-5, 1, 2, -0.5};
  const Tensor x = Tensor::of<double>(DType::kF32, {2, 2}, values);
  const std::vector<Tensor> out = evaluate(small_graph(), std::span(&x, 1)).value();
  REQUIRE(out.size() == 1);
  for (size_t i = 0; i < 4; ++i) CHECK(out[0].get(static_cast<int64_t>(i)) == std::max(values[i] + 1, 0.0));
}

TEST_CASE("inputs that do not fit are refused by name") {
  const Graph graph = small_graph();
  const auto run = [&](const std::vector<Tensor>& in) { return evaluate(graph, in).status().message(); };
  CHECK(run({}) == "graph 'small': has 1 inputs; 0 are given");
  CHECK(run({Tensor::zeros(DType::kI64, {2, 2})}).find("input 'x' is i64[2, 2]; it has to be f32[b, 2]") !=
        std::string::npos);
  CHECK(run({Tensor::zeros(DType::kF32, {2, 3})}).find("axis 1 of f32[b, 2] has to be 2") !=
        std::string::npos);
  Builder b("pair");
  const Dim n = Dim::symbol("n");
  b.input("p", {DType::kF32, {n}});
  const ValueId q = b.input("q", {DType::kF32, {n}});
  b.output(b.node("Relu", {q}).value());
  const Tensor in[] = {Tensor::zeros(DType::kF32, {2}), Tensor::zeros(DType::kF32, {3})};
  CHECK(evaluate(b.take().value(), in)
            .status()
            .message()
            .find("input 'q' is f32[3]; axis 0 of f32[n] has to be 2") != std::string::npos);
}

TEST_CASE("validate names what breaks the invariant") {
  struct Damage {
    std::function<void(Graph&)> harm;
    std::string message;
  };
  const Damage all[] = {
      {[](Graph& g) { std::swap(g.nodes[0], g.nodes[1]); },
       "node 'relu' (Relu): reads value 'add', which nothing before it makes"},
      {[](Graph& g) { g.nodes[0].inputs[0] = 77; }, "input 0 refers to value 77 of 4"},
      {[](Graph& g) { g.nodes[0].outputs[0] = 77; }, "output 0 refers to value 77 of 4"},
      {[](Graph& g) { g.nodes[1].outputs[0] = g.nodes[0].outputs[0]; }, "which is made already"},
      {[](Graph& g) { g.nodes[0].op = nullptr; }, "has no operator"},
      {[](Graph& g) { g.nodes[0].inputs.pop_back(); }, "has 1 inputs; it takes 2"},
      {[](Graph& g) { g.nodes[0].attributes.set("axis", int64_t{1}); },
       "attribute 'axis' is not known; it takes none"},
      {[](Graph& g) { g.inputs.push_back(g.inputs[0]); }, "is a constant or listed twice"},
      {[](Graph& g) { g.inputs.push_back(99); }, "an input of the graph refers to value 99"},
      {[](Graph& g) { g.outputs = {99}; }, "an output refers to value 99"},
      {[](Graph& g) { g.outputs.clear(); }, "has no output"},
      {[](Graph& g) { g.nodes.pop_back(); }, "output value 'y' is made by no node"},
      {[](Graph& g) { g.values[1].type.dtype = DType::kI8; }, "is f32[] but is declared as i8[]"},
  };
  CHECK(validate(small_graph()).ok());
  for (const Damage& damage : all) {
    Graph graph = small_graph();
    damage.harm(graph);
    const Status status = validate(graph);
    CAPTURE(damage.message);
    REQUIRE(!status.ok());
    CHECK_MESSAGE(status.message().find(damage.message) != std::string::npos, status.message());
  }
}

TEST_CASE("producers and consumers invert the nodes") {
  const Graph graph = small_graph();
  CHECK(graph.producers() == std::vector<int>{-1, -1, 0, 1});
  CHECK(graph.consumers() == std::vector<std::vector<int>>{{0}, {0}, {1}, {-1}});
  CHECK(to_string(graph).find("%3:y f32[b, 2] = Relu(%2:add f32[b, 2])") != std::string::npos);
}

TEST_CASE("the builder refuses unknown operators and ids, and goes on") {
  Builder b;
  const ValueId x = b.input("x", {DType::kF32, {2}});
  CHECK(b.node("Foo", {x}, {}, "n").status().message().find("node 'n': operator Foo is not known") == 0);
  CHECK(b.node("Relu", {42}).status().message().find("refers to value 42") != std::string::npos);
  CHECK(!b.take().ok());
  b.output(b.node("Relu", {x}).value());
  CHECK(b.take().ok());
}

}  // namespace heddle::ir
