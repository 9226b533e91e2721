#include "plan/passes/optimize.h"

#include "plan/passes/passes.h"
#include "plan/rows/batchable.h"
#include "plan/sketch_fixture.h"
#include "plan/specialize.h"

namespace heddle::plan {
namespace {

using Id = Sketch::Id;

constexpr int64_t kFeatures = 8;

// One more node over values of the shape [batch, 5, 8], chosen by `kind`.
Id grow(Sketch& s, std::mt19937& generator, const std::vector<Id>& pool) {
  const auto any = [&] { return pool[generator() % pool.size()]; };
  const Id a = any();
  switch (generator() % 16) {
    case 0:
      return s.op("Add", {a, any()});
    case 1:
      return s.op("Mul", {a, any()});
    case 2:
      return s.op("Sub", {a, any()});
    case 3:
      return s.op("MatMul", {a, s.random({kFeatures, kFeatures})});
    case 4:
      return s.op("Add", {a, s.random({kFeatures})});
    case 5:
      return s.op("Relu", {a});
    case 6:
      return s.op("Tanh", {a});
    case 7:
      return s.transpose(s.op("Neg", {s.transpose(a, {1, 0, 2})}), {1, 0, 2});
    case 8:
      return s.reshape(s.op("MatMul", {s.reshape(a, {-1, kFeatures}), s.random({kFeatures, kFeatures})}),
                       {-1, 5, kFeatures});
    case 9:
      return s.op("Softmax", {a}, {{"axis", int64_t{-1}}});
    case 10:
      return s.transpose(s.transpose(a, {0, 2, 1}), {0, 2, 1});
    case 11:
      return s.op("Div", {a, s.number(2)});
    case 12:
      return s.op("Sub", {a, s.op("ReduceMean", {a, s.ints({-1})})});
    case 13:
      return s.op("Mul", {s.op("Sigmoid", {a}), any()});
    case 14:
      return s.op("Conv", {a, s.random({5, 5, 3})}, {{"pads", std::vector<int64_t>{1, 1}}});
    default: {
      const Id split = s.reshape(a, {0, 0, 2, 4});
      const Id scores = s.op("MatMul", {s.transpose(split, {0, 2, 1, 3}), s.transpose(split, {0, 2, 3, 1})});
      const Id context = s.op("MatMul", {s.op("Softmax", {scores}), s.transpose(split, {0, 2, 1, 3})});
      return s.reshape(s.transpose(context, {0, 2, 1, 3}), {0, 0, kFeatures});
    }
  }
}

ir::Graph random_graph(unsigned seed) {
  std::mt19937 generator(seed);
  Sketch s;
  std::vector<Id> pool{s.in("x", {sym("batch"), 5, kFeatures}), s.in("z", {sym("batch"), 5, kFeatures})};
  const size_t nodes = 2 + generator() % 12;
  for (size_t i = 0; i < nodes; ++i) pool.push_back(grow(s, generator, pool));
  s.out(s.op("Clip", {pool.back(), s.number(-50), s.number(50)}));
  if (generator() % 2 == 0) s.out(s.op("Tanh", {pool[pool.size() / 2]}), "second");
  return s.take();
}

TEST_CASE("random graphs keep their values through all passes, and joined calls theirs") {
  int fused = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const ir::Graph graph = random_graph(seed);
    const ir::Graph after =
        apply([](ir::Graph g) { return optimize(std::move(g)); }, graph, {{"batch", 2}}, 1e-4);
    CHECK(after.nodes.size() <= graph.nodes.size());
    fused += after.nodes.size() < graph.nodes.size() ? 1 : 0;
    // Nothing above mixes rows; the proof may only have become easier.
    CHECK(batchable(after).yes);
    const auto concrete = specialize(after, std::vector<ir::Extents>(2, ir::Extents{2, 5, kFeatures}));
    REQUIRE(concrete.ok());
    const auto inputs = random_inputs(graph, {{"batch", 2}});
    check_equal(run(graph, inputs), run(*concrete, inputs), 1e-4);
  }
  CHECK(fused > 200);
}

TEST_CASE("optimising what is optimised changes nothing more") {
  for (unsigned seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    const auto once = optimize(random_graph(seed));
    REQUIRE(once.ok());
    const auto twice = optimize(*once);
    REQUIRE(twice.ok());
    CHECK(twice->nodes.size() == once->nodes.size());
  }
}

// Each Expand alone is within what a node may cost.
TEST_CASE("folding is bounded for a model as a whole, and what is not folded stays") {
  Sketch s;
  constexpr int kNodes = 64;
  for (int i = 0; i < kNodes; ++i) {
    const auto number = s.constant(ir::Tensor::scalar(ir::DType::kF32, i).reshaped({1}));
    s.out(s.op("Expand", {number, s.ints({1 << 22})}), text("y", i));
  }
  const auto optimised = optimize(s.take());
  REQUIRE(optimised.ok());
  int64_t elements = 0;
  ir::each_constant(*optimised, [&](const ir::Tensor& constant) { elements += constant.elements(); });
  CHECK(elements > 1 << 22);
  CHECK(elements < 1 << 26);
  CHECK(count(*optimised, "Expand") > kNodes / 2);
}

// 3.3e7 multiplications of 4e5 numbers.
TEST_CASE("a product of groups of constants is too much work for folding where it is for one matrix") {
  for (const bool grouped : {false, true}) {
    Sketch s;
    const auto square = s.constant(ir::Tensor::zeros(ir::DType::kF32, {320, 320}));
    const auto matrices = s.constant(ir::Tensor::zeros(ir::DType::kF32, {2, 320, 320}));
    s.out(grouped ? s.op("GroupedMatMul", {square, matrices, s.ints({160, 320})})
                  : s.op("MatMul", {square, square}));
    const auto optimised = optimize(s.take());
    REQUIRE(optimised.ok());
    CHECK(optimised->nodes.size() == 1);
  }
}

}  // namespace
}  // namespace heddle::plan
