#include "plan/control.h"

#include <algorithm>
#include <functional>

#include "plan/passes/optimize.h"
#include "plan/rows/batchable.h"
#include "plan/sketch_fixture.h"
#include "plan/specialize.h"

namespace heddle::plan {
namespace {

using ir::DType;
using ir::Extents;
using Body = std::shared_ptr<const ir::Graph>;
using Id = Sketch::Id;

Body body(Sketch& s) { return std::make_shared<const ir::Graph>(s.take()); }

// x[batch, seq, 8] -> relu(x W) or x V, both [batch, seq, 4]; the weights come from outside.
Body product(bool relu) {
  Sketch s;
  const Id x = s.in("x", {sym("batch"), sym("seq"), 8});
  const Id w = s.in("w", {8, 4});
  const Id v = s.in("v", {8, 4});
  const Id y = s.op("MatMul", {x, relu ? w : v});
  s.out(relu ? s.op("Relu", {y}) : y);
  return body(s);
}

Id sequence(Sketch& s, Id x) {
  return s.op("Gather", {s.op("Shape", {x}), s.constant(ir::Tensor::scalar(DType::kI64, 1))});
}

ir::Graph choice(bool by_data) {
  Sketch s;
  const Id x = s.in("x", {sym("batch"), sym("seq"), 8});
  Id condition;
  if (by_data) {
    condition = s.in("flag", {}, DType::kBool);
  } else {
    condition = s.op("Equal", {sequence(s, x), s.constant(ir::Tensor::scalar(DType::kI64, 1))});
  }
  const ir::Attributes branches = {{"then_branch", product(true)}, {"else_branch", product(false)}};
  s.out(s.op("Relu", {s.op("If", {condition, x, s.random({8, 4}), s.random({8, 4})}, branches)}));
  return s.take();
}

// (i, go, sum[batch, 8], all[batch, seq, 8]) -> (go, sum + all[:, i], sum)
Body adding() {
  Sketch s;
  const Id i = s.in("i", {}, DType::kI64);
  const Id go = s.in("go", {}, DType::kBool);
  const Id sum = s.in("sum", {sym("batch"), 8});
  const Id all = s.in("all", {sym("batch"), sym("seq"), 8});
  s.out(s.op("Identity", {go}));
  s.out(s.op("Add", {sum, s.op("Gather", {all, i}, {{"axis", int64_t{1}}})}));
  s.out(s.op("Neg", {sum}));
  return body(s);
}

ir::Graph running_sum(int64_t fixed_count = -1, Body inner = adding()) {
  Sketch s;
  const Id x = s.in("x", {sym("batch"), sym("seq"), 8});
  const Id first = s.in("first", {sym("batch"), 8});
  const Id count = fixed_count < 0
                       ? sequence(s, x)
                       : s.constant(ir::Tensor::scalar(DType::kI64, static_cast<double>(fixed_count)));
  const Id yes = s.constant(ir::Tensor::scalar(DType::kBool, 1));
  const auto made =
      s.ops("Loop", {count, yes, first, x}, 2, {{"body", std::move(inner)}, {"carried", int64_t{1}}});
  s.out(made[0], "sum");
  s.out(s.transpose(made[1], {1, 0, 2}), "sums");
  return s.take();
}

ir::Graph must(Result<ir::Graph> graph) {
  INFO(to_string(graph.status()));
  REQUIRE(graph.ok());
  return std::move(graph).value();
}

std::string refusal(const ir::Graph& graph, const std::vector<Extents>& shapes) {
  const auto made = specialize(graph, shapes);
  REQUIRE_FALSE(made.ok());
  CHECK(made.status().code() == Code::unsupported);
  return made.status().message();
}

}  // namespace

TEST_CASE("a condition on shapes leaves one branch, which fuses with nothing of the other left") {
  const ir::Graph graph = choice(false);
  const ir::Graph optimised = must(optimize(graph));
  check_same(graph, optimised, {{"batch", 2}, {"seq", 1}});
  check_same(graph, optimised, {{"batch", 2}, {"seq", 5}});
  REQUIRE(count(optimised, "If") == 1);
  const ir::Node& node = the(optimised, "If");
  CHECK(node.inputs.size() == 2);  // the condition and x: weights are the branches' own
  CHECK(count(*node.attributes.graph("then_branch"), "Linear") == 1);
  for (const int64_t seq : {1, 5}) {
    const ir::Graph concrete = must(specialize(optimised, std::vector<Extents>{{2, seq, 8}}));
    CHECK(count(concrete, "If") == 0);
    CHECK(concrete.nodes.size() == 2);
    const auto inputs = random_inputs(graph, {{"batch", 2}, {"seq", seq}});
    check_equal(run(graph, inputs), run(concrete, inputs));
  }
}

TEST_CASE("a condition on data keeps both branches, each specialised") {
  const ir::Graph graph = choice(true);
  const ir::Graph concrete =
      must(specialize(must(optimize(graph)), std::vector<Extents>{{2, 5, 8}, Extents{}}));
  const ir::Node& node = the(concrete, "If");
  for (const char* name : {"then_branch", "else_branch"}) {
    const Body branch = node.attributes.graph(name);
    CHECK(branch->inputs.size() == 1);
    for (const ir::Value& value : branch->values) CHECK(value.type.is_static());
  }
  for (unsigned seed = 1; seed < 5; ++seed) {
    const auto inputs = random_inputs(graph, {{"batch", 2}, {"seq", 5}}, seed);
    check_equal(run(graph, inputs), run(concrete, inputs));
  }
}

TEST_CASE("branches that give other shapes are refused by name when data chooses") {
  const auto branch = [](const char* op, ir::Attributes attributes) {
    Sketch s;
    const Id x = s.in("x", {sym("n"), sym("m")});
    s.out(s.op(op, {x}, std::move(attributes)));
    return body(s);
  };
  Sketch s;
  const Id x = s.in("x", {sym("n"), sym("m")});
  const Id flag = s.in("flag", {}, DType::kBool);
  s.out(
      s.op("If", {flag, x}, {{"then_branch", branch("Transpose", {})}, {"else_branch", branch("Abs", {})}}));
  const ir::Graph graph = s.take();
  CHECK(refusal(graph, {{2, 3}, Extents{}}) ==
        "node 'If0' (If): output 0 is f32[3, 2] by its then branch and f32[2, 3] by its else branch; the "
        "condition depends on data, so they have to be the same");
  const ir::Graph square = must(specialize(graph, std::vector<Extents>{{3, 3}, Extents{}}));
  const auto inputs = random_inputs(graph, {{"n", 3}, {"m", 3}});
  check_equal(run(graph, inputs), run(square, inputs));
}

TEST_CASE("a branch that no shapes can run is refused when it is chosen, and only then") {
  Sketch s;
  const Id x = s.in("x", {sym("n"), 4});
  const Id shape = s.op("Shape", {x});
  const Id n = s.op("Gather", {shape, s.constant(ir::Tensor::scalar(DType::kI64, 0))});
  const Id one = s.constant(ir::Tensor::scalar(DType::kI64, 1));
  Sketch inner;
  inner.out(inner.op("Abs", {inner.in("x", {sym("n"), 4})}));
  s.out(s.op("If", {s.op("Equal", {n, one}), x},
             {{"then_refusal", std::string("axis 7 is not there")}, {"else_branch", body(inner)}}));
  const ir::Graph graph = must(optimize(s.take()));
  CHECK(must(specialize(graph, std::vector<Extents>{{2, 4}})).nodes.size() == 1);
  CHECK(refusal(graph, {{1, 4}}) ==
        "node 'If3' (If): the condition chooses then_branch, which cannot be compiled: axis 7 is not there");
}

TEST_CASE("a loop whose count follows from shapes is unrolled for each of them") {
  const ir::Graph graph = running_sum();
  const ir::Graph optimised = must(optimize(graph));
  CHECK(count(optimised, "Loop") == 1);
  for (const int64_t seq : {0, 1, 2, 64}) {
    CAPTURE(seq);
    const ir::Graph concrete = must(specialize(optimised, std::vector<Extents>{{3, seq, 8}, {3, 8}}));
    CHECK(count(concrete, "Loop") == 0);
    CHECK(count(concrete, "Add") + count(concrete, "Elementwise") == seq);
    const auto inputs = random_inputs(graph, {{"batch", 3}, {"seq", seq}});
    check_equal(run(graph, inputs), run(concrete, inputs));
  }
}

TEST_CASE("a longer loop keeps its body as a graph of its own") {
  const ir::Graph graph = running_sum();
  const ir::Graph concrete =
      must(specialize(must(optimize(graph)), std::vector<Extents>{{2, 65, 8}, {2, 8}}));
  CHECK(count(concrete, "Loop") == 1);
  const auto inputs = random_inputs(graph, {{"batch", 2}, {"seq", 65}});
  check_equal(run(graph, inputs), run(concrete, inputs));
}

TEST_CASE("a count that the model fixes is unrolled while loading") {
  const ir::Graph graph = running_sum(4);
  const ir::Graph optimised =
      apply([](ir::Graph g) { return optimize(std::move(g)); }, graph, {{"batch", 2}, {"seq", 6}});
  CHECK(count(optimised, "Loop") == 0);
}

namespace {

// (i, go, x) -> (go, or whether the greatest of x is positive; x, or twice as long; the same stacked)
Body odd(bool ends_by_data, bool grows, bool stacks) {
  Sketch s;
  s.in("i", {}, DType::kI64);
  const Id go = s.in("go", {}, DType::kBool);
  const Id x = s.in("x", {ir::Dim::unknown()});
  const Id greatest = s.op("ReduceMax", {x}, {{"keepdims", int64_t{0}}});
  s.out(ends_by_data ? s.op("Greater", {greatest, s.number(0)}) : s.op("Identity", {go}));
  const Id next = grows ? s.op("Concat", {x, x}, {{"axis", int64_t{0}}}) : s.op("Neg", {x});
  s.out(next);
  if (stacks) s.out(s.op("Abs", {next}));
  return body(s);
}

struct OddLoop {
  const char* what;
  int64_t trips;  // -1: an input
  bool flag;      // whether the loop begins is an input
  bool ends_by_data, grows, stacks;
  std::string says;  // empty: it can be compiled
};

}  // namespace

TEST_CASE("a loop that data may end, or that has no fixed shape, is refused by name") {
  const OddLoop table[] = {
      {"count", -1, false, false, false, false, "node 'Loop0' (Loop): its trip count depends on data"},
      {"condition", 3, true, false, false, false, "node 'Loop0' (Loop): its condition depends on data"},
      {"none of it runs", 0, false, true, true, false, ""},
      {"it runs once", 1, false, true, true, true, ""},
      {"ends early", 3, false, true, false, false,
       "node 'Loop0' (Loop): whether iteration 1 runs depends on data"},
      {"ends early, long", 70, false, true, false, false, "of 70 iterations some may end the loop"},
      {"grows", 3, false, false, true, false, ""},
      {"grows, long", 70, false, false, true, false, "some change the shape of a carried value"},
      {"stacks other shapes", 3, false, false, true, true, "node 'Loop0/stacked' (Concat)"},
      {"steady", 3, false, false, false, true, ""},
      {"steady, long", 70, false, false, false, true, ""},
  };
  for (const OddLoop& c : table) {
    CAPTURE(std::string(c.what));
    Sketch s;
    std::vector<Extents> shapes = {{2}};
    const Id x = s.in("x", {sym("n")});
    const Id n = c.trips < 0 ? s.in("n", {}, DType::kI64)
                             : s.constant(ir::Tensor::scalar(DType::kI64, static_cast<double>(c.trips)));
    const Id go = c.flag ? s.in("flag", {}, DType::kBool) : s.constant(ir::Tensor::scalar(DType::kBool, 1));
    if (c.trips < 0 || c.flag) shapes.push_back(Extents{});
    const auto made = s.ops("Loop", {n, go, x}, c.stacks ? 2 : 1,
                            {{"body", odd(c.ends_by_data, c.grows, c.stacks)}, {"carried", int64_t{1}}});
    for (Id id : made) s.out(id);
    const ir::Graph graph = s.take();
    const auto concrete = specialize(graph, shapes);
    if (!c.says.empty()) {
      REQUIRE_FALSE(concrete.ok());
      CAPTURE(concrete.status().message());
      CHECK(concrete.status().message().find(c.says) != std::string::npos);
      continue;
    }
    REQUIRE_MESSAGE(concrete.ok(), to_string(concrete.status()));
    const auto inputs = random_inputs(graph, {{"n", 2}});
    check_equal(run(graph, inputs), run(*concrete, inputs));
  }
}

TEST_CASE("a long loop inside a branch, and branches inside it, stay graphs with their constants inside") {
  Sketch turn;
  turn.in("i", {}, DType::kI64);
  const Id go = turn.in("go", {}, DType::kBool);
  const Id x = turn.in("x", {sym("n"), 8}), w = turn.in("w", {8, 8});
  const Id high = turn.op("Greater", {turn.op("ReduceMax", {x}, {{"keepdims", int64_t{0}}}), turn.number(1)});
  const auto scaled = [](double by) {
    Sketch s;
    const Id a = s.in("x", {sym("n"), 8}), b = s.in("w", {8, 8});
    s.out(s.op("Tanh", {s.op("MatMul", {a, s.op("Mul", {b, s.number(by)})})}));
    return body(s);
  };
  turn.out(turn.op("Identity", {go}));
  turn.out(turn.op("If", {high, x, w}, {{"then_branch", scaled(0.5)}, {"else_branch", scaled(0.75)}}));
  const Body turning = body(turn);
  Sketch yes;
  const Id start = yes.in("x", {sym("n"), 8}), weight = yes.in("w", {8, 8});
  const Id count70 = yes.constant(ir::Tensor::scalar(DType::kI64, 70));
  const Id always = yes.constant(ir::Tensor::scalar(DType::kBool, 1));
  yes.out(yes.op("Loop", {count70, always, start, weight}, {{"body", turning}, {"carried", int64_t{1}}}));
  Sketch no;
  no.out(no.op("Neg", {no.in("x", {sym("n"), 8})}));
  no.in("w", {8, 8});
  const Body other = body(no);
  Sketch s;
  const Id flag = s.in("flag", {}, DType::kBool), input = s.in("x", {sym("n"), 8});
  s.out(s.op("If", {flag, input, s.random({8, 8})}, {{"then_branch", body(yes)}, {"else_branch", other}}));
  const ir::Graph graph = s.take();
  const ir::Graph concrete = must(specialize(must(optimize(graph)), std::vector<Extents>{{}, {3, 8}}));
  const Body branch = the(concrete, "If").attributes.graph("then_branch");
  CHECK(the(concrete, "If").inputs.size() == 2);
  const ir::Node& loop = the(*branch, "Loop");
  CHECK(loop.inputs.size() == 3);
  const Body inner = the(*loop.attributes.graph("body"), "If").attributes.graph("then_branch");
  CHECK(inner->inputs.size() == 1);
  CHECK(count(*inner, "Mul") == 0);  // of two constants: folded
  for (unsigned seed = 1; seed < 5; ++seed) {
    const auto inputs = random_inputs(graph, {{"n", 3}}, seed);
    check_equal(run(graph, inputs), run(concrete, inputs));
  }
}

TEST_CASE("rows stay apart through branches that shapes choose and through loops over another axis") {
  CHECK(batchable(must(optimize(choice(false)))).reason == "");
  CHECK(batchable(must(optimize(running_sum()))).reason == "");
  CHECK(batchable(running_sum()).yes);
}

TEST_CASE("marks of rows reach branches and bodies, and stay when these are specialised or taken apart") {
  constexpr int64_t kRows = 3;
  // Of every value of the graph and of those inside its nodes, that nodes make from the inputs.
  const std::function<int(const ir::Graph&)> check_marks = [&](const ir::Graph& graph) {
    int marked = 0;
    for (const ir::Node& node : graph.nodes) {
      for (const ir::ValueId id : node.outputs) {
        const ir::Value& value = graph.values[id];
        const auto& shape = value.type.shape;
        const auto batch = std::find(shape.begin(), shape.end(), ir::Dim(kRows));
        CAPTURE(node.describe());
        REQUIRE((batch != shape.end()) == value.row_axis.has_value());
        if (!value.row_axis) continue;
        CHECK(static_cast<size_t>(batch - shape.begin()) == *value.row_axis);
        ++marked;
      }
      for (const auto& entry : node.attributes) {
        if (const auto* inner = std::get_if<Body>(&entry.second)) marked += check_marks(**inner);
      }
    }
    return marked;
  };
  const ir::Graph branches = mark_rows(must(optimize(choice(false))));
  const Body taken = the(branches, "If").attributes.graph("then_branch");
  CHECK(taken->values[taken->outputs[0]].row_axis == 0);
  CHECK(check_marks(must(specialize(branches, std::vector<Extents>{{kRows, 1, 8}}))) == 2);
  const ir::Graph loop = mark_rows(must(optimize(running_sum())));
  const Body body = the(loop, "Loop").attributes.graph("body");
  CHECK(body->values[body->outputs[1]].row_axis == 0);
  CHECK(loop.values[the(loop, "Loop").outputs[1]].row_axis == 1);
  for (const int64_t seq : {4, 65}) {
    const ir::Graph concrete = must(specialize(loop, std::vector<Extents>{{kRows, seq, 8}, {kRows, 8}}));
    CHECK(count(concrete, "Loop") == (seq == 65 ? 1 : 0));
    CHECK(check_marks(concrete) > 4);
  }
}

TEST_CASE("rows meet where one condition serves all of them, and where their number decides") {
  Sketch s;
  const Id x = s.in("x", {sym("batch"), sym("seq"), 8});
  const Id largest = s.op("ReduceMax", {x}, {{"keepdims", int64_t{0}}});
  const ir::Attributes branches = {{"then_branch", product(true)}, {"else_branch", product(false)}};
  const Id high = s.op("Greater", {largest, s.number(0)});
  s.out(s.op("If", {high, x, s.random({8, 4}), s.random({8, 4})}, branches));
  CHECK_FALSE(batchable(s.take()).yes);

  Sketch t;
  const Id y = t.in("x", {sym("batch"), sym("seq"), 8});
  const Id rows = t.op("Gather", {t.op("Shape", {y}), t.constant(ir::Tensor::scalar(DType::kI64, 0))});
  const Id one = t.op("Equal", {rows, t.constant(ir::Tensor::scalar(DType::kI64, 1))});
  t.out(t.op("If", {one, y, t.random({8, 4}), t.random({8, 4})}, branches));
  CHECK(batchable(t.take()).reason ==
        "node 'If3' (If) chooses by shapes, in which the number of rows may have a part");
}

}  // namespace heddle::plan
