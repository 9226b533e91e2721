#include "plan/cost.h"

#include "plan/passes/optimize.h"
#include "plan/sketch_fixture.h"

namespace heddle::plan {
namespace {

using Id = Sketch::Id;

struct CostCase {
  std::string op;
  std::vector<ir::Extents> inputs;
  ir::Attributes attributes;
  double flops;
  double bytes;
};

Cost cost_of(const CostCase& c) {
  Sketch s;
  std::vector<Id> inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    inputs.push_back(s.in("x" + std::to_string(i), ir::to_shape(c.inputs[i])));
  }
  s.out(s.op(c.op, inputs, c.attributes));
  const ir::Graph graph = s.take();
  const std::optional<Cost> found = cost(graph, graph.nodes.at(0));
  REQUIRE(found.has_value());
  return *found;
}

TEST_CASE("a node costs the products and the bytes that its shapes say, counted by hand") {
  const std::vector<int64_t> three = {3, 3};
  const CostCase cases[] = {
      {"MatMul", {{2, 3, 4}, {4, 5}}, {}, 2 * 2 * 3 * 4 * 5, 4 * (24 + 20 + 30)},
      {"MatMul", {{4}, {4, 5}}, {}, 2 * 4 * 5, 4 * (4 + 20 + 5)},
      {"Linear", {{7, 4}, {4, 5}, {5}}, {}, 2 * 7 * 4 * 5, 4 * (28 + 20 + 5 + 35)},
      {"Gemm", {{4, 7}, {4, 5}}, {{"transA", int64_t{1}}}, 2 * 7 * 4 * 5, 4 * (28 + 20 + 35)},
      {"Conv", {{1, 8, 5, 5}, {6, 8, 3, 3}}, {}, 2 * 6 * 9 * 8 * 9, 4 * (200 + 432 + 54)},
      {"Conv", {{1, 8, 5, 5}, {8, 1, 3, 3}}, {{"group", int64_t{8}}}, 2 * 8 * 9 * 9, 4 * (200 + 72 + 72)},
      {"ConvTranspose", {{1, 8, 2, 2}, {8, 6, 3, 3}}, {}, 2 * 32 * 6 * 9, 4 * (32 + 432 + 96)},
      {"MaxPool", {{1, 2, 5, 5}}, {{"kernel_shape", three}}, 2 * 9 * 9, 4 * (50 + 18)},
      // 2 heads of 4: scores and their product with v, each 2 * queries * keys * extent a head.
      {"Attention",
       {{3, 5, 8}, {3, 7, 8}, {3, 7, 8}},
       {{"num_heads", int64_t{2}}},
       3 * 2 * (2 * 5 * 7 * 4 + 2 * 5 * 7 * 4),
       4 * (120 + 168 + 168 + 120)},
      {"Attention",
       {{3, 5, 24}},
       {{"num_heads", int64_t{2}}, {"packed", int64_t{1}}},
       3 * 2 * (2 * 5 * 5 * 4 + 2 * 5 * 5 * 4),
       4 * (360 + 120)},
      // 4 gates over x and over the state, at every position of every example.
      {"LSTM",
       {{6, 2, 3}, {1, 20, 3}, {1, 20, 5}},
       {{"hidden_size", int64_t{5}}},
       2 * 6 * 2 * (20 * 3 + 20 * 5),
       4 * (36 + 60 + 100 + 60)},
      {"Softmax", {{4, 6}}, {}, 24, 4 * 48},
      {"ReduceSum", {{4, 6}}, {}, 24, 4 * 25},
  };
  for (const CostCase& c : cases) {
    CAPTURE(c.op);
    const Cost found = cost_of(c);
    CHECK(found.flops == c.flops);
    CHECK(found.bytes == c.bytes);
  }
}

TEST_CASE("what is read by index costs what is read, not the table") {
  Sketch s;
  const Id at = s.in("at", {ir::Dim(3)}, ir::DType::kI64);
  s.out(s.op("Gather", {s.random({1000, 8}), at}, {{"axis", int64_t{0}}}));
  const ir::Graph graph = s.take();
  CHECK(cost(graph, graph.nodes[0])->bytes == 4 * 24 + 8 * 3 + 4 * 24);
}

TEST_CASE("a chain costs each of its operators, and its operands once") {
  Sketch s;
  const Id x = s.in("x", {ir::Dim(10)});
  s.out(s.op("Exp", {s.op("Neg", {s.op("Abs", {x})})}));
  const auto graph = optimize(s.take());
  REQUIRE(graph.ok());
  REQUIRE(graph->nodes.size() == 1);
  REQUIRE(graph->nodes[0].is("Elementwise"));
  CHECK(cost(*graph, graph->nodes[0])->flops == 30);
  CHECK(cost(*graph, graph->nodes[0])->bytes == 80);
}

TEST_CASE("the estimate is the larger of computing and moving, and the start") {
  const Rates rates{.flops_per_s = 100,
                    .cached_bytes_per_s = 50,
                    .memory_bytes_per_s = 10,
                    .cached_bytes = 200,
                    .step_s = 0.5};
  CHECK(seconds({.flops = 400, .bytes = 100}, rates) == 4.5);
  CHECK(seconds({.flops = 100, .bytes = 200}, rates) == 4.5);
  CHECK(seconds({.flops = 100, .bytes = 300}, rates) == 30.5);
  CHECK(seconds({}, rates) == 0.5);
}

}  // namespace
}  // namespace heddle::plan
