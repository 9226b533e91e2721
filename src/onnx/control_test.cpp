// If, Loop and Scan: what files write, read, and what their values are.
#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "ir/op.h"
#include "onnx/sample_model.h"

namespace heddle::onnx {
namespace {

using Names = std::vector<std::string>;

constexpr int kBool = proto::TensorProto::BOOL;

proto::NodeProto& node(proto::GraphProto& graph, const std::string& op, const Names& inputs,
                       const Names& outputs) {
  auto& made = *graph.add_node();
  fill_node(made, op, inputs, outputs);
  made.set_name(outputs.empty() ? op : outputs[0]);
  return made;
}

proto::GraphProto& nested(proto::NodeProto& node, const std::string& attribute) {
  auto& made = *node.add_attribute();
  made.set_name(attribute);
  made.set_type(proto::AttributeProto::GRAPH);
  made.mutable_g()->set_name(attribute);
  return *made.mutable_g();
}

proto::GraphProto& branch(proto::NodeProto& choice, bool yes) {
  return nested(choice, yes ? "then_branch" : "else_branch");
}

// A branch of one node.
void branch(proto::NodeProto& choice, bool yes, const std::string& op, const Names& inputs) {
  proto::GraphProto& graph = branch(choice, yes);
  node(graph, op, inputs, {yes ? "yes" : "no"});
  graph.add_output()->set_name(yes ? "yes" : "no");
}

void outputs(proto::GraphProto& graph, const Names& names) {
  for (const std::string& name : names) graph.add_output()->set_name(name);
}

void flag(SampleModel& m, const std::string& name, bool value) {
  auto& tensor = *m.graph().add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(kBool);
  tensor.add_int32_data(value ? 1 : 0);
}

void scalar(SampleModel& m, const std::string& name, int64_t value) {
  auto& tensor = *m.graph().add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(kInt64);
  tensor.add_int64_data(value);
}

// x: f32[rows, 2] and flag: bool -> If -> y, with branches that the test adds.
SampleModel choosing(proto::NodeProto*& choice, const std::string& condition = "flag") {
  SampleModel m;
  m.input("x", {"rows", int64_t{2}});
  if (condition == "flag") m.input("flag", {}, kBool);
  choice = &m.node("If", {condition}, {"y"}, "choice");
  m.output("y");
  return m;
}

// x: f32[rows, 2], s: f32[2] -> Loop over the rows -> "last", "all"; (i, go, before) -> what the test adds.
struct Looping {
  explicit Looping(const std::string& trips = "count", const std::string& condition = "") {
    m.input("x", {"rows", int64_t{2}});
    m.input("s", {int64_t{2}});
    m.input("n", {}, kInt64);
    m.input("flag", {}, kBool);
    scalar(m, "first", 0);
    m.node("Shape", {"x"}, {"shape"});
    m.node("Gather", {"shape", "first"}, {"count"});
    loop = &m.node("Loop", {trips, condition, "s"}, {"last", "all"}, "loop");
    body = &nested(*loop, "body");
    for (const char* name : {"i", "go", "before"}) body->add_input()->set_name(name);
    m.output("last");
    m.output("all");
  }
  // after = before + x[i], both given and stacked.
  void add_rows() {
    node(*body, "Gather", {"x", "i"}, {"row"});
    node(*body, "Add", {"before", "row"}, {"after"});
    node(*body, "Identity", {"go"}, {"on"});
    node(*body, "Identity", {"after"}, {"shown"});
    outputs(*body, {"on", "after", "shown"});
  }

  SampleModel m;
  proto::NodeProto* loop;
  proto::GraphProto* body;
};

ir::Graph must_read(const SampleModel& m) {
  auto graph = m.read();
  REQUIRE_MESSAGE(graph.ok(), to_string(graph.status()));
  return std::move(*graph);
}

std::vector<std::vector<double>> values(const ir::Graph& graph, const std::vector<ir::Tensor>& inputs) {
  auto made = ir::evaluate(graph, inputs);
  REQUIRE_MESSAGE(made.ok(), to_string(made.status()));
  std::vector<std::vector<double>> out;
  for (const ir::Tensor& tensor : *made) {
    out.emplace_back();
    for (int64_t i = 0; i < tensor.elements(); ++i) out.back().push_back(tensor.get(i));
  }
  return out;
}

ir::Tensor f32(const ir::Extents& extents, const std::vector<float>& numbers) {
  return ir::Tensor::of<float>(ir::DType::kF32, extents, numbers);
}
ir::Tensor boolean(bool value) { return ir::Tensor::scalar(ir::DType::kBool, value ? 1 : 0); }

int count(const ir::Graph& graph, std::string_view op) {
  int n = 0;
  for (const ir::Node& node : graph.nodes) n += node.is(op) ? 1 : 0;
  return n;
}

const std::vector<float> kRows = {1, 2, 3, -4};

}  // namespace

TEST_CASE("a condition that the file fixes leaves the nodes of its branch") {
  for (const bool taken : {false, true}) {
    proto::NodeProto* choice = nullptr;
    SampleModel m = choosing(choice, "known");
    flag(m, "known", taken);
    branch(*choice, true, "Neg", {"x"});
    branch(*choice, false, "Foo", {"x"});  // read only when it is taken
    if (!taken) {
      check_refused(m, Code::unsupported, {"node 'choice' (If)", "node 'no' (Foo)"});
      continue;
    }
    const ir::Graph graph = must_read(m);
    CHECK(count(graph, "If") == 0);
    CHECK(values(graph, {f32({2, 2}, kRows)})[0] == std::vector<double>{-1, -2, -3, 4});
  }
}

TEST_CASE("a condition on data keeps both branches, which read the values around them") {
  proto::NodeProto* choice = nullptr;
  SampleModel m = choosing(choice);
  m.floats("w", {2}, {10, 20});
  branch(*choice, true, "Add", {"x", "w"});
  // A branch inside a branch: it reads the outermost graph's x and a value of the branch around it.
  proto::GraphProto& no = branch(*choice, false);
  node(no, "Mul", {"x", "w"}, {"scaled"});
  proto::NodeProto& inner = node(no, "If", {"flag"}, {"chosen"});
  branch(inner, true, "Identity", {"x"});
  branch(inner, false, "Sub", {"scaled", "x"});
  outputs(no, {"chosen"});
  const ir::Graph graph = must_read(m);
  CHECK(count(graph, "If") == 1);
  CHECK(values(graph, {f32({2, 2}, kRows), boolean(true)})[0] == std::vector<double>{11, 22, 13, 16});
  CHECK(values(graph, {f32({2, 2}, kRows), boolean(false)})[0] == std::vector<double>{9, 38, 27, -76});
}

TEST_CASE("a name made anew inside a branch hides the one outside, and does not leave") {
  proto::NodeProto* choice = nullptr;
  SampleModel m = choosing(choice);
  m.node("Neg", {"x"}, {"v"});
  proto::GraphProto& yes = branch(*choice, true);
  node(yes, "Abs", {"x"}, {"v"});
  node(yes, "Add", {"v", "v"}, {"twice"});
  outputs(yes, {"twice"});
  branch(*choice, false, "Identity", {"v"});
  m.output("v");
  const ir::Graph graph = must_read(m);
  const auto made = values(graph, {f32({2, 2}, kRows), boolean(true)});
  CHECK(made[0] == std::vector<double>{2, 4, 6, 8});
  CHECK(made[1] == std::vector<double>{-1, -2, -3, 4});
  CHECK(values(graph, {f32({2, 2}, kRows), boolean(false)})[0] == std::vector<double>{-1, -2, -3, 4});
}

TEST_CASE("branches may be written before the nodes that they read") {
  proto::NodeProto* choice = nullptr;
  SampleModel m = choosing(choice);
  branch(*choice, true, "Neg", {"later"});
  branch(*choice, false, "Identity", {"x"});
  m.node("Abs", {"x"}, {"later"});
  CHECK(values(must_read(m), {f32({2, 2}, kRows), boolean(true)})[0] == std::vector<double>{-1, -2, -3, -4});
}

TEST_CASE("branches of other ranks: shapes may choose between them, data may not") {
  const auto add_branches = [](proto::NodeProto& choice) {
    branch(choice, true, "Flatten", {"x"});
    branch(choice, false, "ReduceSum", {"x"});
    set(*choice.mutable_attribute(1)->mutable_g()->mutable_node(0), "keepdims", int64_t{0});
  };
  proto::NodeProto* choice = nullptr;
  SampleModel by_data = choosing(choice);
  add_branches(*choice);
  check_refused(by_data, Code::unsupported,
                {"node 'choice' (If): its condition depends on data, and output 0 is f32[rows, 2] by "
                 "then_branch and f32[] by else_branch; they have to be the same"});

  SampleModel by_shape = choosing(choice, "one");
  add_branches(*choice);
  scalar(by_shape, "first", 0);
  scalar(by_shape, "row", 1);
  by_shape.node("Shape", {"x"}, {"shape"});
  by_shape.node("Gather", {"shape", "first"}, {"rows"});
  by_shape.node("Equal", {"rows", "row"}, {"one"});
  by_shape.node("Neg", {"y"}, {"z"});
  check_refused(by_shape, Code::unsupported, {"node 'choice' (If): output 0 is f32[rows, 2]", "f32[]"});
  by_shape.graph().clear_output();  // an output of the graph has one rank
  set(by_shape.node("ReduceMax", {"z"}, {"greatest"}), "keepdims", int64_t{0});
  by_shape.output("greatest");
  const ir::Graph graph = must_read(by_shape);
  CHECK(values(graph, {f32({1, 2}, {1, 2})})[0] == std::vector<double>{-1});
  CHECK(values(graph, {f32({2, 2}, kRows)})[0] == std::vector<double>{-2});
}

TEST_CASE("branches whose extents can never agree are refused while loading, when data chooses") {
  proto::NodeProto* choice = nullptr;
  SampleModel m = choosing(choice);
  m.floats("three", {3}, {1, 2, 3});
  m.floats("two", {2}, {1, 2});
  branch(*choice, true, "Neg", {"three"});
  branch(*choice, false, "Neg", {"two"});
  check_refused(m, Code::unsupported, {"node 'choice' (If)", "f32[3]", "f32[2]"});
}

TEST_CASE("an If that is not one is refused by node") {
  const auto refused = [](const std::function<void(SampleModel&, proto::NodeProto&)>& spoil,
                          const Names& says, Code code = Code::invalid) {
    proto::NodeProto* choice = nullptr;
    SampleModel m = choosing(choice);
    branch(*choice, true, "Neg", {"x"});
    branch(*choice, false, "Abs", {"x"});
    REQUIRE(m.read().ok());
    spoil(m, *choice);
    check_refused(m, code, says);
  };
  const auto yes = [](proto::NodeProto& choice) { return choice.mutable_attribute(0)->mutable_g(); };
  refused([](auto&, auto& choice) { choice.mutable_attribute()->RemoveLast(); },
          {"node 'choice' (If)", "'else_branch' is missing"});
  refused([&](auto&, auto& choice) { yes(choice)->add_input()->set_name("x"); },
          {"node 'choice' (If)", "takes 1 inputs"});
  refused([&](auto&, auto& choice) { yes(choice)->add_output()->set_name("x"); }, {"gives 2 outputs"});
  refused([&](auto&, auto& choice) { yes(choice)->mutable_output(0)->set_name("ghost"); },
          {"node 'choice' (If): then_branch", "'ghost'", "made by no node"});
  refused([&](auto&, auto& choice) { yes(choice)->mutable_node(0)->set_input(0, "ghost"); },
          {"then_branch", "node 'yes' (Neg)", "'ghost'"});
  refused([](auto&, auto& choice) { choice.set_input(0, "x"); }, {"node 'choice' (If)", "condition", "bool"});
  refused([](auto&, auto& choice) { choice.add_input("x"); }, {"node 'choice' (If)", "2 inputs"});
  refused([](auto&, auto& choice) { set(choice, "axis", int64_t{0}); },
          {"node 'choice' (If)", "'axis' is not known"});
  refused([](auto&, auto& choice) { *choice.add_attribute() = choice.attribute(0); },
          {"node 'choice' (If)", "'then_branch' occurs twice"});
  refused([&](auto&, auto& choice) { yes(choice)->mutable_node(0)->set_op_type("Foo"); },
          {"then_branch", "node 'yes' (Foo)"}, Code::unsupported);
}

TEST_CASE("a loop over the rows of its input carries a value and stacks another") {
  for (const char* condition : {"", "known"}) {
    Looping l("count", condition);
    flag(l.m, "known", true);
    l.add_rows();
    const ir::Graph graph = must_read(l.m);
    CHECK(count(graph, "Loop") == 1);
    for (const int64_t rows : {0, 1, 2}) {
      const std::vector<float> x(kRows.begin(), kRows.begin() + 2 * rows);
      const auto made = values(graph, {f32({rows, 2}, x), f32({2}, {10, 20}),
                                       ir::Tensor::scalar(ir::DType::kI64, 0), boolean(false)});
      std::vector<double> sum = {10, 20}, all;
      for (size_t i = 0; i < x.size(); ++i) all.push_back(sum[i % 2] += double{x[i]});
      CHECK(made[0] == sum);
      CHECK(made[1] == all);
    }
  }
}

TEST_CASE("a loop that data could end, or that is not one, is refused by node") {
  const auto refused = [](Looping l, Code code, const Names& says) {
    l.add_rows();
    check_refused(l.m, code, says);
  };
  refused(Looping("n"), Code::unsupported, {"node 'loop' (Loop): its trip count depends on data"});
  refused(Looping(""), Code::unsupported, {"node 'loop' (Loop): its trip count is left out"});
  refused(Looping("count", "flag"), Code::unsupported, {"node 'loop' (Loop): its condition depends on data"});

  const auto spoiled = [](const std::function<void(Looping&)>& spoil, Code code, const Names& says) {
    Looping l;
    l.add_rows();
    REQUIRE(l.m.read().ok());
    spoil(l);
    check_refused(l.m, code, says);
  };
  spoiled([](Looping& l) { l.loop->clear_attribute(); }, Code::invalid, {"node 'loop'", "'body' is missing"});
  spoiled([](Looping& l) { l.body->mutable_node(2)->set_input(0, "flag"); }, Code::unsupported,
          {"node 'loop' (Loop): the condition that its body gives depends on data"});
  spoiled([](Looping& l) { l.body->mutable_input()->RemoveLast(); }, Code::invalid,
          {"node 'loop' (Loop): it carries 1 values", "its body takes 2 and gives 3", "take 3 and give 3"});
  spoiled([](Looping& l) { l.body->mutable_output()->RemoveLast(); }, Code::invalid, {"gives 2"});
  spoiled([](Looping& l) { l.body->mutable_input(2)->set_name("i"); }, Code::invalid,
          {"node 'loop' (Loop): body", "input 'i' occurs twice"});
  spoiled([](Looping& l) { l.body->mutable_input(2)->clear_name(); }, Code::invalid,
          {"node 'loop' (Loop): body", "input 2 has no name"});
  spoiled([](Looping& l) { l.body->mutable_node(0)->set_output(0, "before"); }, Code::invalid,
          {"node 'row' (Gather)", "'before'", "is already the name of an input"});
  spoiled([](Looping& l) { l.body->mutable_node(3)->set_op_type("Shape"); }, Code::invalid, {"'all'"});
  spoiled(
      [](Looping& l) {
        l.body->mutable_node(1)->set_op_type("Equal");
        l.m.graph().mutable_output(1)->mutable_type()->mutable_tensor_type()->set_elem_type(kBool);
      },
      Code::unsupported, {"node 'loop' (Loop)", "carried value 0 is f32[2]", "bool[2]"});
  spoiled([](Looping& l) { set(*l.loop, "carried", int64_t{1}); }, Code::invalid, {"'carried' is not known"});
}

TEST_CASE("loops lie in each other three deep, and no deeper") {
  for (const int depth : {3, 4}) {
    Looping l;
    proto::GraphProto* body = l.body;
    for (int i = 1; i < depth; ++i) {
      proto::NodeProto& inner = node(*body, "Loop", {"count", "", "before"}, {"after"});
      node(*body, "Identity", {"go"}, {"on"});
      node(*body, "Identity", {"after"}, {"shown"});
      outputs(*body, {"on", "after"});
      if (i == 1) outputs(*body, {"shown"});
      body = &nested(inner, "body");
      for (const char* name : {"j", "go", "before"}) body->add_input()->set_name(name);
    }
    node(*body, "Add", {"before", "before"}, {"after"});
    node(*body, "Identity", {"go"}, {"on"});
    outputs(*body, {"on", "after"});
    if (depth == 4) {
      check_refused(l.m, Code::unsupported, {"(Loop): it is a loop inside 3 others"});
      continue;
    }
    const auto made = values(must_read(l.m), {f32({2, 2}, kRows), f32({2}, {1, 3}),
                                              ir::Tensor::scalar(ir::DType::kI64, 0), boolean(false)});
    CHECK(made[0] == std::vector<double>{256, 768});  // doubled 2 * 2 * 2 times
  }
}

// a: f32[2, n], b: f32[m, 2] -> Scan: s = s + column of a * row of b; gives s and the products.
SampleModel scanning(const SampleModel::Dim& n, const SampleModel::Dim& m) {
  SampleModel model;
  model.input("s", {int64_t{2}});
  model.input("a", {int64_t{2}, n});
  model.input("b", {m, int64_t{2}});
  auto& scan = model.node("Scan", {"s", "a", "b"}, {"last", "all"}, "scan");
  set(scan, "num_scan_inputs", int64_t{2});
  set(scan, "scan_input_axes", std::vector<int64_t>{-1, 0});
  set(scan, "scan_input_directions", std::vector<int64_t>{0, 1});
  set(scan, "scan_output_axes", std::vector<int64_t>{1});
  set(scan, "scan_output_directions", std::vector<int64_t>{1});
  proto::GraphProto& body = nested(scan, "body");
  for (const char* name : {"before", "column", "row"}) body.add_input()->set_name(name);
  node(body, "Mul", {"column", "row"}, {"product"});
  node(body, "Add", {"before", "product"}, {"after"});
  outputs(body, {"after", "product"});
  model.output("last");
  model.output("all");
  return model;
}

TEST_CASE("a scan goes along its axes in its directions") {
  const ir::Graph graph = must_read(scanning("n", "n"));
  const auto made = values(
      graph, {f32({2}, {100, 200}), f32({2, 3}, {1, 2, 3, 4, 5, 6}), f32({3, 2}, {1, 2, 10, 20, 30, 40})});
  CHECK(made[0] == std::vector<double>{100 + 30 + 20 + 3, 200 + 160 + 100 + 12});
  CHECK(made[1] == std::vector<double>{3, 20, 30, 12, 100, 160});
}

TEST_CASE("scan inputs of other lengths are refused: while loading where it shows, else when it does") {
  check_refused(scanning(int64_t{3}, int64_t{4}), Code::invalid,
                {"node 'scan' (Scan): scan input 1 has 4 elements and scan input 0 3"});
  const ir::Graph graph = must_read(scanning("n", "m"));
  const auto run = [&](int64_t n, int64_t m) {
    return ir::evaluate(graph,
                        std::vector<ir::Tensor>{f32({2}, {0, 0}), ir::Tensor::zeros(ir::DType::kF32, {2, n}),
                                                ir::Tensor::zeros(ir::DType::kF32, {m, 2})});
  };
  CHECK(run(3, 3).ok());
  CHECK(run(3, 4).status().code() == Code::invalid);
  CHECK(run(4, 3).status().code() == Code::invalid);
}

TEST_CASE("a scan that is not one is refused by node") {
  const auto refused = [](const std::function<void(proto::NodeProto&)>& spoil, const Names& says) {
    SampleModel m = scanning("n", "n");
    spoil(*m.graph().mutable_node(0));
    check_refused(m, Code::invalid, says);
  };
  refused([](auto& scan) { scan.mutable_attribute(0)->set_i(4); },
          {"node 'scan' (Scan)", "4 of them scanned"});
  refused([](auto& scan) { scan.mutable_attribute(1)->set_ints(0, 2); },
          {"node 'scan' (Scan): scan input 0"});
  refused([](auto& scan) { scan.mutable_attribute(2)->add_ints(0); },
          {"'scan_input_directions' has 3 numbers; it has to have 2"});
  refused([](auto& scan) { scan.mutable_attribute(2)->set_ints(0, 2); }, {"a direction is 2"});
  refused([](auto& scan) { scan.mutable_attribute(3)->set_ints(0, 5); }, {"scan_output_axes"});
  refused([](auto& scan) { scan.mutable_attribute(5)->mutable_g()->mutable_input()->RemoveLast(); },
          {"its body takes 2"});
  refused([](auto& scan) { set(scan, "num_inputs", int64_t{1}); }, {"'num_inputs' is not known"});
}

}  // namespace heddle::onnx
