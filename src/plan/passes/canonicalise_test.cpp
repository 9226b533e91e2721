#include <functional>
#include <optional>

#include "plan/passes/optimize.h"
#include "plan/passes/passes.h"
#include "plan/sketch_fixture.h"

namespace heddle::plan {
namespace {

const Symbols kSymbols{{"batch", 3}, {"seq", 5}};

Result<ir::Graph> fold_all(ir::Graph graph) {
  int64_t work_left = INT64_MAX;
  return fold(std::move(graph), work_left);
}

TEST_CASE("what is constant is computed once, up to a bound on the work") {
  Sketch s;
  const auto x = s.in("x", {sym("batch"), 4});
  const auto folded = s.op("Add", {s.random({4}), s.op("Exp", {s.random({4})})});
  const auto large = s.op("MatMul", {s.random({600, 600}), s.random({600, 600})});
  s.out(s.op("Add", {x, folded}));
  s.out(large, "large");
  auto made = fold_all(s.take());
  REQUIRE(made.ok());
  CHECK(made->nodes.size() == 2);
  CHECK(count(*made, "MatMul") == 1);
}

TEST_CASE("static parts of a shape become constants while others are symbolic") {
  Sketch s;
  const auto x = s.in("x", {sym("batch"), 4});
  const auto width = s.op("Gather", {s.op("Shape", {x}), s.ints({1})});
  const auto root = s.op("Sqrt", {s.op("Cast", {width}, {{"to", std::string("f32")}})});
  s.out(s.op("Div", {x, root}));
  const ir::Graph graph = s.take();
  const ir::Graph after = drop_dead(apply(fold_all, graph, kSymbols, 0));
  CHECK(after.nodes.size() == 1);
}

TEST_CASE("transposes that count axes from the end are followed like others") {
  Sketch s;
  const auto x = s.in("x", {sym("batch"), 4, 5});
  s.out(s.transpose(s.transpose(x, {-1, 0, -2}), {-2, -1, 0}));
  const ir::Graph after = apply(canonicalise, s.take(), kSymbols, 0);
  CHECK(count(after, "Transpose") == 0);
}

TEST_CASE("dead nodes and their weights go, inputs stay") {
  Sketch s;
  const auto x = s.in("x", {sym("batch"), 4});
  s.in("unused", {2});
  s.op("MatMul", {x, s.random({4, 9})});
  s.out(s.op("Relu", {x}));
  const ir::Graph after = drop_dead(s.take());
  CHECK(after.nodes.size() == 1);
  CHECK(after.values.size() == 3);
  CHECK(after.inputs.size() == 2);
}

TEST_CASE("movement chains become as short as their meaning") {
  struct Case {
    std::string what;
    std::function<Sketch::Id(Sketch&, Sketch::Id)> build;  // of x[batch, seq, 12]
    int transposes;
    int reshapes;
  };
  const Case cases[] = {
      {"two transposes that cancel",
       [](Sketch& s, auto x) { return s.transpose(s.transpose(x, {1, 2, 0}), {2, 0, 1}); }, 0, 0},
      {"two transposes", [](Sketch& s, auto x) { return s.transpose(s.transpose(x, {1, 0, 2}), {0, 2, 1}); },
       1, 0},
      {"a transpose of axes of one element",
       [](Sketch& s, auto x) { return s.transpose(s.op("Unsqueeze", {x, s.ints({1})}), {0, 2, 1, 3}); }, 0,
       1},
      {"reshapes", [](Sketch& s, auto x) { return s.reshape(s.reshape(x, {-1, 12}), {-1, 3, 4}); }, 0, 1},
      {"a reshape to the same shape",
       [](Sketch& s, auto x) { return s.reshape(s.reshape(x, {0, 0, 3, 4}), {0, 0, 12}); }, 0, 0},
      {"squeeze after unsqueeze",
       [](Sketch& s, auto x) {
         return s.op("Squeeze", {s.op("Unsqueeze", {x, s.ints({0, 4})}), s.ints({0, -1})});
       },
       0, 0},
      {"heads split, moved there and back",
       [](Sketch& s, auto x) {
         const auto heads = s.transpose(s.reshape(x, {0, 0, 3, 4}), {0, 2, 1, 3});
         return s.reshape(s.transpose(heads, {0, 2, 1, 3}), {0, 0, 12});
       },
       0, 0},
      {"heads split and moved",
       [](Sketch& s, auto x) { return s.transpose(s.reshape(x, {0, 0, 3, 4}), {0, 2, 1, 3}); }, 1, 1},
      {"flatten", [](Sketch& s, auto x) { return s.op("Flatten", {x}, {{"axis", int64_t{2}}}); }, 0, 1},
  };
  for (const Case& each : cases) {
    CAPTURE(each.what);
    Sketch s;
    const auto x = s.op("Relu", {s.in("x", {sym("batch"), sym("seq"), 12})});
    s.out(s.op("Neg", {each.build(s, x)}));
    const ir::Graph after = apply(canonicalise, s.take(), kSymbols, 0);
    CHECK(count(after, "Transpose") == each.transposes);
    CHECK(count(after, "Reshape") == each.reshapes);
    CHECK(static_cast<int>(after.nodes.size()) == 2 + each.transposes + each.reshapes);
  }
}

TEST_CASE("a 0 in a shape keeps meaning the extent of the tensor it was written for") {
  Sketch s;
  const auto x = s.in("x", {1, sym("batch"), sym("seq")});
  const auto shape = s.op("Shape", {x});
  const auto moved =
      s.op("Concat", {s.op("Slice", {shape, s.ints({1}), s.ints({3})}), s.ints({1})}, {{"axis", int64_t{0}}});
  s.out(s.reshape(s.op("Reshape", {x, moved}), {0, 0, 1, 1}));
  const ir::Graph after = drop_dead(apply(canonicalise, s.take(), kSymbols, 0));
  CHECK(count(after, "Reshape") == 2);
}

TEST_CASE("a transpose others read is not done twice") {
  Sketch s;
  const auto moved = s.transpose(s.in("x", {sym("batch"), sym("seq"), 12}), {1, 0, 2});
  s.out(s.op("Relu", {moved}));
  s.out(s.reshape(moved, {0, 0, 3, 4}), "z");
  const ir::Graph after = apply(canonicalise, s.take(), kSymbols, 0);
  CHECK(count(after, "Transpose") == 1);
}

TEST_CASE("nodes that change nothing go") {
  using Build = std::function<Sketch::Id(Sketch&, Sketch::Id)>;
  const Build builds[] = {
      [](Sketch& s, auto x) { return s.op("Identity", {x}); },
      [](Sketch& s, auto x) { return s.op("Cast", {x}, {{"to", std::string("f32")}}); },
      [](Sketch& s, auto x) { return s.op("Mul", {s.number(1), x}); },
      [](Sketch& s, auto x) { return s.op("Sub", {x, s.number(0)}); },
      [](Sketch& s, auto x) { return s.op("Slice", {x, s.ints({0}), s.ints({INT64_MAX}), s.ints({1})}); },
      [](Sketch& s, auto x) { return s.op("Concat", {x}, {{"axis", int64_t{1}}}); },
      [](Sketch& s, auto x) { return s.op("Expand", {x, s.ints({1, 1, 12})}); },
  };
  for (const Build& build : builds) {
    Sketch s;
    const auto x = s.op("Relu", {s.in("x", {sym("batch"), sym("seq"), 12})});
    s.out(build(s, x));
    CHECK(apply(canonicalise, s.take(), kSymbols, 0).nodes.size() == 1);
  }
}

TEST_CASE("nodes that look like no-ops stay") {
  Sketch s;
  const auto x = s.in("x", {sym("batch"), sym("seq"), 12});
  const auto wide = s.constant(ir::Tensor::zeros(ir::DType::kF32, {1, 1, 1, 1}));
  s.out(s.op("Sub", {s.number(0), x}), "negated");
  s.out(s.op("Add", {x, wide}), "of another rank");
  s.out(s.op("Slice", {x, s.ints({INT64_MAX}), s.ints({INT64_MIN}), s.ints({1}), s.ints({-1})}), "reversed");
  s.out(s.op("Div", {s.number(1), x}), "reciprocal");
  CHECK(apply(canonicalise, s.take(), kSymbols, 0).nodes.size() == 4);
}

TEST_CASE("an output that is an input keeps a value of its own") {
  Sketch s;
  const auto x = s.in("x", {sym("batch"), 4});
  s.out(s.op("Identity", {s.op("Identity", {x})}), "a");
  s.out(s.op("Mul", {x, s.number(1)}), "b");
  const ir::Graph after = apply([](ir::Graph g) { return optimize(std::move(g)); }, s.take(), kSymbols, 0);
  CHECK(after.nodes.size() == 2);
}

TEST_CASE("two outputs of one value keep their names") {
  Sketch s;
  const auto x = s.op("Relu", {s.in("x", {sym("batch"), 4})});
  s.out(s.op("Identity", {x}), "a");
  s.out(s.op("Identity", {x}), "b");
  apply([](ir::Graph g) { return optimize(std::move(g)); }, s.take(), kSymbols, 0);
}

TEST_CASE("an Expand before element-wise work goes when another operand has the shape") {
  Sketch s;
  const auto x = s.in("x", {sym("batch"), sym("seq"), 12});
  const auto mask = s.in("mask", {sym("batch"), 1, 12});
  s.out(s.op("Add", {x, s.op("Expand", {mask, s.op("Shape", {x})})}));
  s.out(s.op("Neg", {s.op("Expand", {mask, s.op("Shape", {x})})}), "kept");
  const ir::Graph after = apply(canonicalise, s.take(), kSymbols, 0);
  CHECK(count(after, "Expand") == 1);
}

TEST_CASE("an Expand of what a slope or a bound is for stays: x gives the shape") {
  Sketch s;
  const auto one = s.in("one", {}), bound = s.in("bound", {1});
  s.out(s.op("Clip", {s.op("Expand", {one, s.ints({1})}), bound}), "clipped");
  const auto x = s.in("x", {2, 1}), slope = s.in("slope", {1, 2, 1});
  s.out(s.op("PRelu", {s.op("Expand", {x, s.ints({1, 2, 1})}), slope}));
  s.out(s.op("PRelu", {slope, s.op("Expand", {x, s.ints({1, 2, 1})})}), "of the slope");
  CHECK(count(apply(canonicalise, s.take(), kSymbols, 0), "Expand") == 2);
}

// What an element-wise node makes of operands with these shapes; none: it is refused.
std::optional<ir::Shape> shape_made(const ir::Node& node, const std::vector<ir::Value>& operands) {
  std::vector<const ir::Value*> in;
  for (const ir::Value& operand : operands) in.push_back(&operand);
  const auto made = ir::infer(node, in);
  return made.ok() ? std::optional((*made)[0].type.shape) : std::nullopt;
}

struct WithOperands {
  ir::Node node;
  std::vector<ir::Value> operands;  // of one element each; none: it takes no operands but with a graph inside
};

WithOperands with_operands(const ir::OpDef& op) {
  using enum ir::DType;
  const size_t count = op.inputs_max < 0 ? 3 : static_cast<size_t>(op.inputs_max);
  ir::Node node;
  node.op = &op;
  if (op.name == std::string_view("Mod")) node.attributes.set("fmod", int64_t{1});
  if (op.name == std::string_view("BitShift")) node.attributes.set("direction", std::string("LEFT"));
  for (size_t i = 0; i < count; ++i) node.inputs.push_back(static_cast<ir::ValueId>(i));
  node.outputs = {static_cast<ir::ValueId>(count)};
  for (const ir::DType first : {kF32, kU8, kBool}) {
    for (const ir::DType others : {first, kF32}) {
      std::vector<ir::Value> operands(count, ir::Value{"", {others, {1}}, {}, {}});
      operands[0].type.dtype = first;
      if (shape_made(node, operands)) return {node, operands};
    }
  }
  return {node, {}};
}

TEST_CASE("an Expand before element-wise work stays where the node is refused without it, and nowhere else") {
  std::string left_out, stays;
  for (const ir::OpDef* const op : ir::all_ops()) {
    if (op->dependence != ir::Dependence::kElementwise || op->inputs_max == 1) continue;
    const auto [node, operands] = with_operands(*op);
    if (operands.empty()) left_out += op->name;
    for (size_t i = 0; i < operands.size(); ++i) {
      std::vector<ir::Value> without = operands;
      without[i].type.shape = {};
      const bool needed = shape_made(node, without) != ir::Shape{1};
      if (needed) stays += text(op->name, ' ', i, ' ');
      Sketch s;
      std::vector<Sketch::Id> in;
      for (size_t k = 0; k < operands.size(); ++k)
        in.push_back(s.in(text("in", k), without[k].type.shape, operands[k].type.dtype));
      in[i] = s.op("Expand", {in[i], s.ints({1})});
      s.out(s.op(op->name, in, node.attributes));
      CAPTURE(op->name);
      CAPTURE(i);
      CHECK(count(apply(canonicalise, s.take(), kSymbols, 0), "Expand") == (needed ? 1 : 0));
    }
  }
  CHECK(left_out == "Elementwise");  // no pass before canonicalise() makes one
  CHECK(stays == "Clip 0 PRelu 0 ");
}

TEST_CASE("equal nodes become one, different ones do not") {
  Sketch s;
  const auto x = s.in("x", {sym("batch"), 4});
  const auto a = s.op("Softmax", {s.op("Add", {x, s.number(2)})}, {{"axis", int64_t{-1}}});
  const auto b = s.op("Softmax", {s.op("Add", {x, s.number(2)})}, {{"axis", int64_t{-1}}});
  const auto c = s.op("Softmax", {s.op("Add", {x, s.number(2)})}, {{"axis", int64_t{0}}});
  const auto d = s.op("Softmax", {s.op("Add", {x, s.number(3)})}, {{"axis", int64_t{-1}}});
  s.out(s.op("Add", {s.op("Add", {a, b}), s.op("Mul", {c, d})}));
  const ir::Graph after = apply(merge_equal, s.take(), kSymbols, 0);
  CHECK(count(after, "Softmax") == 3);
  CHECK(after.nodes.size() == 8);
}

TEST_CASE("the shape of an inner value is asked of the inputs") {
  Sketch s;
  const auto x = s.in("x", {sym("batch"), sym("seq"), 12});
  const auto inner = s.transpose(s.reshape(s.op("Exp", {x}), {0, 0, 3, 4}), {0, 2, 1, 3});
  s.out(s.op("Shape", {inner}));
  const ir::Graph after = drop_dead(apply(canonicalise, s.take(), kSymbols));
  CHECK(count(after, "Exp") == 0);
  CHECK(count(after, "Transpose") == 0);
}

TEST_CASE("a mean over all places of each channel is a pool") {
  Sketch s;
  const auto x = s.in("x", {sym("batch"), 3, 4, 5});
  s.out(s.op("ReduceMean", {x, s.ints({-1, 2})}), "y");
  s.out(s.op("ReduceMean", {x, s.ints({2, 3})}, {{"keepdims", int64_t{0}}}), "without axes");
  s.out(s.op("ReduceMean", {x, s.ints({1, 2})}), "z");
  const ir::Graph after = apply(canonicalise, s.take(), kSymbols);
  CHECK(count(after, "GlobalAveragePool") == 2);
  CHECK(count(after, "ReduceMean") == 1);
}

TEST_CASE("a mean over the last of three axes is a pool after a convolution only") {
  Sketch s;
  const auto x = s.in("x", {sym("batch"), 3, 10});
  const auto y = s.op("Conv", {x, s.constant(ir::Tensor::zeros(ir::DType::kF32, {4, 3, 3}))});
  s.out(s.op("ReduceMean", {y, s.ints({2})}, {{"keepdims", int64_t{0}}}), "y");
  s.out(s.op("ReduceMean", {x, s.ints({2})}), "z");
  const ir::Graph after = apply(canonicalise, s.take(), kSymbols);
  CHECK(count(after, "GlobalAveragePool") == 1);
  CHECK(count(after, "ReduceMean") == 1);
}

}  // namespace
}  // namespace heddle::plan
