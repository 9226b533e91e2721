#include "onnx/reader.h"

#include <doctest/doctest.h>

#include <unistd.h>
#include <algorithm>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "ir/op.h"
#include "onnx/sample_model.h"

namespace heddle::onnx {
namespace {

ir::Graph must(Result<ir::Graph> graph) {
  if (!graph.ok()) FAIL(to_string(graph.status()));
  return std::move(*graph);
}

std::vector<double> run(const ir::Graph& graph, const std::vector<ir::Tensor>& inputs) {
  auto results = ir::evaluate(graph, inputs);
  if (!results.ok()) FAIL(to_string(results.status()));
  std::vector<double> values;
  for (int64_t i = 0; i < results->front().elements(); ++i) values.push_back(results->front().get(i));
  return values;
}

ir::Tensor floats(const ir::Extents& extents, const std::vector<double>& values) {
  return ir::Tensor::of<double>(ir::DType::kF32, extents, values);
}

std::vector<std::string> node_names(const ir::Graph& graph) {
  std::vector<std::string> names;
  for (const ir::Node& node : graph.nodes) names.push_back(node.name);
  return names;
}

}  // namespace

TEST_CASE("a valid model keeps its names, symbols and values") {
  const ir::Graph graph = must(small_network().read());
  REQUIRE(graph.inputs.size() == 1);
  REQUIRE(graph.outputs.size() == 1);
  CHECK(graph.values[graph.inputs[0]].name == "x");
  CHECK(to_string(graph.type(graph.inputs[0])) == "f32[batch, 4]");
  CHECK(graph.values[graph.outputs[0]].name == "y");
  CHECK(to_string(graph.type(graph.outputs[0])) == "f32[batch, 3, 1]");
  CHECK(node_names(graph) == std::vector<std::string>{"layer/gemm", "layer/relu", "layer/reshape"});
  // Half the sums of the rows of w (10, 26, 42), plus b: the first is below 0.
  CHECK(run(graph, {floats({1, 4}, {1, 1, 1, 1})}) == std::vector<double>{0, 13, 22});
}

TEST_CASE("a dimension without a name is a symbol of its own, named after the input") {
  SampleModel m;
  m.input("a", {"", 2, "n"});
  m.input("b", {"", 2, "n"});
  m.node("Identity", {"a"}, {"ya"});
  m.node("Identity", {"b"}, {"yb"});
  m.output("ya");
  m.output("yb");
  const ir::Graph graph = must(m.read());
  CHECK(to_string(graph.type(graph.inputs[0])) == "f32[a_dim0, 2, n]");
  CHECK(to_string(graph.type(graph.inputs[1])) == "f32[b_dim0, 2, n]");
  CHECK_FALSE(graph.type(graph.inputs[0]).shape[0] == graph.type(graph.inputs[1]).shape[0]);
}

TEST_CASE("extents written as -1 or as '?' are unknown, and need not equal each other") {
  SampleModel m;
  m.input("a", {-1, "?", "?", 3});
  m.node("Identity", {"a"}, {"y"});
  m.output("y");
  const ir::Graph graph = must(m.read());
  CHECK(to_string(graph.type(graph.inputs[0])) == "f32[a_dim0, a_dim1, a_dim2, 3]");
}

TEST_CASE("what the file claims of inner values is not believed") {
  SampleModel m = small_network();
  auto& claim = *m.graph().add_value_info();
  claim.set_name("h");
  auto* tensor = claim.mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(kInt64);
  tensor->mutable_shape()->add_dim()->set_dim_value(99);
  CHECK(to_string(must(m.read()).type(must(m.read()).outputs[0])) == "f32[batch, 3, 1]");
}

TEST_CASE("nodes in any order are put in order") {
  SampleModel m = small_network();
  std::reverse(m.graph().mutable_node()->pointer_begin(), m.graph().mutable_node()->pointer_end());
  const ir::Graph graph = must(m.read());
  CHECK(node_names(graph) == std::vector<std::string>{"layer/gemm", "layer/relu", "layer/reshape"});
  CHECK(run(graph, {floats({1, 4}, {1, 1, 1, 1})}) == std::vector<double>{0, 13, 22});
}

TEST_CASE("an input with an initializer is a constant, not an input") {
  SampleModel m = small_network();
  m.model.set_ir_version(3);
  m.input("w", {3, 4});
  m.input("b", {3});
  m.input("shape", {3}, kInt64);
  const ir::Graph graph = must(m.read());
  REQUIRE(graph.inputs.size() == 1);
  CHECK(graph.values[graph.inputs[0]].name == "x");
}

TEST_CASE("every output is a value of its own, whatever it is an alias of") {
  SampleModel m;
  m.input("x", {"n"});
  m.floats("c", {2}, {5, 6});
  m.node("Dropout", {"x"}, {"y"});
  m.node("Relu", {"x"}, {"r"});
  m.node("Dropout", {"r"}, {"r2"});
  for (const char* name : {"x", "c", "y", "r", "r2"}) m.output(name);
  const ir::Graph graph = must(m.read());
  REQUIRE(graph.outputs.size() == 5);
  std::vector<ir::ValueId> ids = graph.outputs;
  std::sort(ids.begin(), ids.end());
  CHECK(std::unique(ids.begin(), ids.end()) == ids.end());
  CHECK(graph.values[graph.inputs[0]].name == "x");
  for (const ir::ValueId id : graph.outputs) CHECK_FALSE(graph.values[id].is_constant());
  auto results = ir::evaluate(graph, std::vector<ir::Tensor>{floats({2}, {-1, 3})});
  REQUIRE(results.ok());
  const double expected[5][2] = {{-1, 3}, {5, 6}, {-1, 3}, {0, 3}, {0, 3}};
  for (size_t i = 0; i < 5; ++i) {
    for (int64_t k = 0; k < 2; ++k) CHECK((*results)[i].get(k) == expected[i][k]);
  }
}

TEST_CASE("opsets from the oldest to the newest load") {
  for (int64_t opset = kOldestOpset; opset <= kNewestOpset; ++opset) {
    CAPTURE(opset);
    SampleModel m = small_network();
    m.model.mutable_opset_import(0)->set_version(opset);
    if (opset == 12) m.model.mutable_opset_import(0)->set_domain("ai.onnx");
    CHECK(m.read().ok());
  }
}

TEST_CASE("a model's own functions are inlined, with attributes and defaults") {
  SampleModel m;
  m.input("x", {"n"});
  auto* import = m.model.add_opset_import();
  import->set_domain("my.domain");
  import->set_version(1);

  auto& inner = *m.model.add_functions();
  inner.set_domain("my.domain");
  inner.set_name("Leak");
  inner.add_input("a");
  inner.add_output("r");
  inner.add_attribute("slope");
  *inner.add_opset_import() = m.model.opset_import(0);
  auto& leak = *inner.add_node();
  fill_node(leak, "LeakyRelu", {"a"}, {"r"});
  auto* reference = leak.add_attribute();
  reference->set_name("alpha");
  reference->set_type(proto::AttributeProto::FLOAT);
  reference->set_ref_attr_name("slope");

  auto& outer = *m.model.add_functions();
  outer.set_domain("my.domain");
  outer.set_name("Twice");
  outer.add_input("a");
  outer.add_output("r");
  auto* preset = outer.add_attribute_proto();
  preset->set_name("s");
  preset->set_type(proto::AttributeProto::FLOAT);
  preset->set_f(0.5f);
  for (const auto& [from, to] : {std::pair("t", "r"), std::pair("a", "t")}) {  // out of order on purpose
    auto& call = *outer.add_node();
    fill_node(call, "Leak", {from}, {to});
    call.set_domain("my.domain");
    auto* slope = call.add_attribute();
    slope->set_name("slope");
    slope->set_type(proto::AttributeProto::FLOAT);
    slope->set_ref_attr_name("s");
  }
  *outer.add_opset_import() = *import;

  m.node("Twice", {"x"}, {"y"}, "block").set_domain("my.domain");
  auto& given = m.node("Twice", {"y"}, {"z"}, "block2");
  given.set_domain("my.domain");
  set(given, "s", 0.1f);
  m.output("z");

  const ir::Graph graph = must(m.read());
  CHECK(graph.nodes.size() == 4);
  CHECK(graph.nodes[0].name == "block/t/r");
  const std::vector<double> result = run(graph, {floats({2}, {-400, 8})});
  CHECK(result[0] == doctest::Approx(-1.0));  // 0.5 twice, then 0.1 twice
  CHECK(result[1] == 8.0);
}

TEST_CASE("functions that recurse, nest too deep or do not fit are refused by name") {
  SampleModel m;
  m.input("x", {"n"});
  m.output("y");
  const auto function = [&](const std::string& name, const std::string& calls) {
    auto& made = *m.model.add_functions();
    made.set_domain("d");
    made.set_name(name);
    made.add_input("a");
    made.add_output("r");
    auto& node = *made.add_node();
    fill_node(node, calls, {"a"}, {"r"});
    node.set_domain("d");
  };
  const auto refused = [](const SampleModel& model, const std::string& part) {
    const auto graph = model.read();
    REQUIRE_FALSE(graph.ok());
    CAPTURE(graph.status().message());
    CHECK(graph.status().code() == Code::invalid);
    CHECK(graph.status().message().find("node 'call' (F0)") != std::string::npos);
    CHECK(graph.status().message().find(part) != std::string::npos);
  };
  m.node("F0", {"x"}, {"y"}, "call").set_domain("d");
  SUBCASE("recursion") {
    function("F0", "F1");
    function("F1", "F0");
    refused(m, "function 'F0' calls itself");
  }
  SUBCASE("depth") {
    for (int i = 0; i < 40; ++i) function("F" + std::to_string(i), "F" + std::to_string(i + 1));
    refused(m, "more than 32 deep");
  }
  SUBCASE("too many operands") {
    function("F0", "F1");
    m.graph().mutable_node(0)->add_input("x");
    refused(m, "2 inputs and 1 outputs");
  }
  SUBCASE("an output that no node makes") {
    function("F0", "F0");
    m.model.mutable_functions(0)->clear_node();
    refused(m, "'r' is made by no node");
  }
  SUBCASE("many small calls") {
    for (int i = 0; i < 30; ++i) {
      function("F" + std::to_string(i), i < 29 ? "F" + std::to_string(i + 1) : "Relu");
      auto& made = *m.model.mutable_functions(i);
      auto& again = *made.add_node();
      again = made.node(0);
      again.set_output(0, "unused");
      if (i == 29) {
        for (auto& node : *made.mutable_node()) node.set_domain("");
      }
    }
    refused(m, "nodes once its functions are inlined");
  }
}

TEST_CASE("a file is read with its weights beside it, and messages name the file") {
  const auto folder =
      std::filesystem::temp_directory_path() / ("heddle_reader_test_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const std::string path = (folder / "net.onnx").string();
  {
    std::ofstream out(path, std::ios::binary);
    out << small_network().bytes();
  }
  const ir::Graph graph = must(read_file(path));
  CHECK(run(graph, {floats({1, 4}, {1, 1, 1, 1})}) == std::vector<double>{0, 13, 22});
  std::filesystem::resize_file(path, 40);
  const auto cut = read_file(path);
  REQUIRE_FALSE(cut.ok());
  CHECK(cut.status().message().find(path) != std::string::npos);
  CHECK(cut.status().message().find("cut short") != std::string::npos);
  for (const std::string& wrong : {path + ".missing", folder.string(), std::string("/dev/zero")}) {
    CAPTURE(wrong);
    const auto refused = read_file(wrong);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.status().code() == Code::invalid);
    CHECK(refused.status().message().find(wrong) != std::string::npos);
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("every known operator has one entry, in order") {
  const auto names = known_operators();
  CHECK(names.size() > 90);
  CHECK(std::adjacent_find(names.begin(), names.end(), std::greater_equal<>()) == names.end());
}

}  // namespace heddle::onnx
