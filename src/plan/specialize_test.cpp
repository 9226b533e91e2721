#include "plan/specialize.h"

#include "plan/passes/optimize.h"
#include "plan/sketch_fixture.h"

namespace heddle::plan {
namespace {

using ir::DType;
using ir::Extents;

ir::Graph specialized(const ir::Graph& graph, const std::vector<Extents>& shapes) {
  auto made = specialize(graph, shapes);
  INFO(to_string(made.status()));
  REQUIRE(made.ok());
  for (const ir::Value& value : made->values) CHECK(value.type.is_static());
  REQUIRE(ir::validate(*made).ok());
  return std::move(made).value();
}

// x[batch, seq, 12] -> [batch, seq, 3, 4] -> [batch, 3, seq, 4] -> [batch, -1], the shapes computed as
// exporters do.
ir::Graph reshape_chain() {
  Sketch s;
  const auto x = s.in("x", {sym("batch"), sym("seq"), 12});
  const auto shape = s.op("Shape", {x});
  const auto batch = s.op("Gather", {shape, s.ints({0})});
  const auto seq = s.op("Gather", {shape, s.ints({1})});
  const auto split = s.op("Concat", {batch, seq, s.ints({3, 4})}, {{"axis", int64_t{0}}});
  const auto heads = s.transpose(s.op("Reshape", {x, split}), {0, 2, 1, 3});
  const auto flat = s.op("Concat", {batch, s.ints({-1})}, {{"axis", int64_t{0}}});
  s.out(s.op("Relu", {s.op("Reshape", {heads, flat})}));
  return s.take();
}

TEST_CASE("shape arithmetic is gone once shapes are concrete") {
  const ir::Graph graph = reshape_chain();
  const ir::Graph concrete = specialized(graph, {{2, 5, 12}});
  for (const char* op : {"Shape", "Gather", "Concat"}) CHECK(count(concrete, op) == 0);
  CHECK(count(concrete, "Reshape") == 2);
  CHECK(concrete.nodes.size() == 4);
  const auto inputs = random_inputs(graph, {{"batch", 2}, {"seq", 5}});
  check_equal(run(graph, inputs), run(concrete, inputs), 0);
}

TEST_CASE("the same graph serves many shapes, zero extents included") {
  const ir::Graph graph = reshape_chain();
  for (const auto& [batch, seq] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {7, 3}, {2, 9}, {0, 3}}) {
    CAPTURE(batch);
    CAPTURE(seq);
    const auto inputs = random_inputs(graph, {{"batch", batch}, {"seq", seq}});
    check_equal(run(graph, inputs), run(specialized(graph, {{batch, seq, 12}}), inputs), 0);
  }
}

TEST_CASE("positions built from the length of the input become a constant") {
  Sketch s;
  const auto x = s.in("x", {sym("batch"), sym("seq")}, DType::kI64);
  const auto length = s.op("Gather", {s.op("Shape", {x}), s.constant(ir::Tensor::scalar(DType::kI64, 1))});
  const auto zero = s.constant(ir::Tensor::scalar(DType::kI64, 0));
  const auto one = s.constant(ir::Tensor::scalar(DType::kI64, 1));
  const auto positions = s.op("Range", {zero, length, one});
  const auto table = s.random({16, 4});
  s.out(s.op("Add", {s.op("Gather", {table, x}), s.op("Gather", {table, positions})}));
  const ir::Graph graph = s.take();
  const ir::Graph concrete = specialized(graph, {{2, 6}});
  CHECK(concrete.nodes.size() == 2);
  CHECK(count(concrete, "Gather") == 1);
  const auto inputs = random_inputs(graph, {{"batch", 2}, {"seq", 6}});
  check_equal(run(graph, inputs), run(concrete, inputs), 0);
}

TEST_CASE("weights are shared, not copied") {
  Sketch s;
  const auto x = s.in("x", {sym("batch"), 64});
  s.out(s.op("MatMul", {x, s.random({64, 64})}));
  const ir::Graph graph = s.take();
  const ir::Graph concrete = specialized(graph, {{3, 64}});
  const ir::ValueId weight = the(concrete, "MatMul").inputs[1];
  CHECK(concrete.values[weight].constant->data() ==
        graph.values[the(graph, "MatMul").inputs[1]].constant->data());
}

TEST_CASE("contradictions name the input, the axis and both numbers") {
  Sketch s;
  const auto a = s.in("a", {sym("batch"), 4});
  const auto b = s.in("b", {sym("batch"), sym("n")});
  const auto c = s.in("c", {sym("n") + 1, sym("n")});
  s.out(s.op("Relu", {a}), "a2");
  s.out(s.op("Relu", {b}), "b2");
  s.out(s.op("Relu", {c}), "c2");
  const ir::Graph graph = s.take();
  struct Case {
    std::vector<Extents> shapes;
    std::vector<std::string> words;
  };
  const Case cases[] = {
      {{{2, 4}, {3, 5}, {6, 5}}, {"axis 0 of input 'b' is 3", "'batch' is 2", "input 'a'"}},
      {{{2, 5}, {2, 5}, {6, 5}}, {"axis 1 of input 'a' is 5", "takes 4"}},
      {{{2, 4}, {2, 5}, {7, 5}}, {"axis 0 of input 'c' is 7", "6"}},
      {{{2}, {2, 5}, {6, 5}}, {"input 'a'", "rank 2", "rank 1"}},
      {{{2, 4}, {2, 5}}, {"3 inputs", "2"}},
      {{{-1, 4}, {2, 5}, {6, 5}}, {"axis 0 of input 'a' is -1"}},
  };
  for (const Case& each : cases) {
    const auto made = specialize(graph, each.shapes);
    REQUIRE_FALSE(made.ok());
    CHECK(made.status().code() == Code::invalid);
    for (const std::string& word : each.words) {
      INFO(made.status().message());
      CHECK(made.status().message().find(word) != std::string::npos);
    }
  }
  CHECK(specialize(graph, std::vector<Extents>{{2, 4}, {2, 5}, {6, 5}}).ok());
}

TEST_CASE("what stays data-dependent is unsupported by the node's name") {
  Sketch s;
  const auto x = s.in("x", {sym("batch"), 4});
  const auto n = s.in("n", {1}, DType::kI64);
  s.out(s.op("Expand", {x, s.op("Concat", {n, s.ints({-1, 4})}, {{"axis", int64_t{0}}})}));
  const auto made = specialize(s.take(), std::vector<Extents>{{2, 4}, {1}});
  REQUIRE_FALSE(made.ok());
  CHECK(made.status().code() == Code::unsupported);
  CHECK(made.status().message().find("Expand") != std::string::npos);
}

TEST_CASE("an output may be an input, a constant or a folded shape") {
  Sketch s;
  const auto x = s.in("x", {sym("batch"), 4});
  s.out(s.op("Identity", {x}), "same");
  s.out(s.op("Shape", {x}), "shape");
  const ir::Graph graph = s.take();
  const ir::Graph concrete = specialized(graph, {{2, 4}});
  CHECK(concrete.values[concrete.outputs[0]].name == "same");
  CHECK(concrete.values[concrete.outputs[1]].name == "shape");
  CHECK(concrete.values[concrete.outputs[1]].is_constant());
  const auto inputs = random_inputs(graph, {{"batch", 2}});
  check_equal(run(graph, inputs), run(concrete, inputs), 0);
}

}  // namespace
}  // namespace heddle::plan
