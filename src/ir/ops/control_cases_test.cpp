#include <doctest/doctest.h>

#include "ir/builder.h"
#include "ir/ops/cases.h"
#include "ir/ops/control.h"

namespace heddle::ir {

namespace {

using Body = std::shared_ptr<const Graph>;

// A graph that the function builds from a builder; the function returns the outputs.
template <class Build>
Body body(Build build) {
  Builder builder("body");
  for (ValueId id : build(builder)) builder.output(id);
  auto graph = builder.take();
  REQUIRE_MESSAGE(graph.ok(), to_string(graph.status()));
  return std::make_shared<const Graph>(std::move(*graph));
}

ValueId node(Builder& b, std::string_view op, std::vector<ValueId> inputs, Attributes attributes = {}) {
  auto made = b.node(op, std::move(inputs), std::move(attributes));
  REQUIRE_MESSAGE(made.ok(), to_string(made.status()));
  return *made;
}

// (x: f32[b, 2]) -> op(x)
Body unary_branch(std::string_view op) {
  return body(
      [&](Builder& b) { return std::vector<ValueId>{node(b, op, {b.input("x", {DType::kF32, {kB, 2}})})}; });
}

// (i, go, sum: f32[2], step: f32[2]) -> (go, sum + step, sum * i)
Body adding_body() {
  return body([&](Builder& b) {
    const ValueId i = b.input("i", {DType::kI64, {}});
    const ValueId go = b.input("go", {DType::kBool, {}});
    const ValueId sum = b.input("sum", {DType::kF32, {2}});
    const ValueId step = b.input("step", {DType::kF32, {2}});
    const ValueId real = node(b, "Cast", {i}, {{"to", std::string("f32")}});
    return std::vector<ValueId>{node(b, "Identity", {go}), node(b, "Add", {sum, step}),
                                node(b, "Mul", {sum, real})};
  });
}

// (i, go, all: f32[n]) -> (i < 2, all with an element more)
Body growing_body() {
  return body([&](Builder& b) {
    const ValueId i = b.input("i", {DType::kI64, {}});
    b.input("go", {DType::kBool, {}});
    const ValueId all = b.input("all", {DType::kF32, {Dim::unknown()}});
    const ValueId more = b.constant(Tensor::of<double>(DType::kF32, {1}, std::vector<double>{9}));
    const ValueId two = b.constant(Tensor::scalar(DType::kI64, 2));
    return std::vector<ValueId>{node(b, "Less", {i, two}),
                                node(b, "Concat", {all, more}, {{"axis", int64_t{0}}})};
  });
}

Attributes branches() { return {{"then_branch", unary_branch("Neg")}, {"else_branch", unary_branch("Abs")}}; }

}  // namespace

std::vector<Case> control_cases() {
  const Sample x = f32({kB, 2}, {1, -2, 3, -4});
  const Attributes adding = {{"body", adding_body()}, {"carried", int64_t{1}}};
  return {
      {"If", {flags({}, {1}), x}, branches(), {f32({kB, 2}, {-1, 2, -3, 4})}},
      {"If", {flags({1}, {0}), x}, branches(), {f32({kB, 2}, {1, 2, 3, 4})}},
      {"If", {fixed(flags({}, {0})), x}, branches(), {f32({kB, 2}, {1, 2, 3, 4})}},
      {"Loop",
       {number(3), fixed(flags({}, {1})), f32({2}, {1, 2}), f32({2}, {10, 20})},
       adding,
       {f32({2}, {31, 62}), f32({3, 2}, {0, 0, 11, 22, 42, 84})}},
      {"Loop",
       {number(0), fixed(flags({}, {1})), f32({2}, {1, 2}), f32({2}, {10, 20})},
       adding,
       {f32({2}, {1, 2}), f32({0, 2}, {})}},
      // The condition ends it after the iteration that makes it false.
      {"Loop",
       {number(60), fixed(flags({}, {1})), f32({1}, {5})},
       {{"body", growing_body()}, {"carried", int64_t{1}}},
       {f32({4}, {5, 9, 9, 9})}},
  };
}

TEST_CASE("a condition that is not known leaves the extents open that the branches differ in") {
  const Body first = body([](Builder& b) {
    const ValueId x = b.input("x", {DType::kF32, {kB, 2}});
    return std::vector<ValueId>{node(b, "Concat", {x, x}, {{"axis", int64_t{0}}})};
  });
  Node n{find_op("If"), "n", {0, 1}, {2}, {{"then_branch", first}, {"else_branch", unary_branch("Abs")}}};
  Value condition, x;
  condition.type = {DType::kBool, {}};
  x.type = {DType::kF32, {kB, 2}};
  const std::vector<const Value*> in = {&condition, &x};
  auto made = infer(n, in);
  REQUIRE(made.ok());
  CHECK(made->front().type.shape[0].derived());
  CHECK(made->front().type.shape[1] == Dim(2));

  SUBCASE("known, it is the branch's own") {
    condition.contents = {{Dim(1)}};
    CHECK(infer(n, in)->front().type.shape[0] == kB + kB);
  }
  SUBCASE("a branch that is absent is no obstacle until it is chosen") {
    n.attributes.erase("then_branch");
    n.attributes.set("then_refusal", std::string("Squeeze of axis 3"));
    made = infer(n, in);
    REQUIRE(made.ok());
    CHECK(made->front().type.shape[0] == kB);
    condition.contents = {{Dim(1)}};
    made = infer(n, in);
    CHECK(made.status().code() == Code::unsupported);
    CHECK(made.status().message() ==
          "node 'n' (If): the condition chooses then_branch, which cannot be compiled: Squeeze of axis 3");
  }
}

TEST_CASE("a loop whose count is a symbol stacks that many, and opens the extents that grow") {
  const auto loop = [](Body body, size_t outputs) {
    Node n{find_op("Loop"), "n", {}, {}, {{"body", body}, {"carried", int64_t{1}}}};
    for (size_t i = 0; i < body->inputs.size(); ++i) n.inputs.push_back(static_cast<ValueId>(i));
    for (size_t i = 0; i < outputs; ++i) n.outputs.push_back(static_cast<ValueId>(100 + i));
    return n;
  };
  Value trips, go, sum, step;
  trips.type = {DType::kI64, {}};
  trips.contents = {{kS}};
  go.type = {DType::kBool, {}};
  go.contents = {{Dim(1)}};
  sum.type = step.type = {DType::kF32, {2}};
  auto made = infer(loop(adding_body(), 2), std::vector<const Value*>{&trips, &go, &sum, &step});
  REQUIRE_MESSAGE(made.ok(), to_string(made.status()));
  CHECK(to_string((*made)[0].type) == "f32[2]");
  CHECK(to_string((*made)[1].type) == "f32[s, 2]");
  made = infer(loop(growing_body(), 1), std::vector<const Value*>{&trips, &go, &sum});
  REQUIRE_MESSAGE(made.ok(), to_string(made.status()));
  CHECK(made->front().type.shape[0].derived());
}

}  // namespace heddle::ir
