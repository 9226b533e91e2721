#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "onnx/sample_model.h"

namespace heddle::onnx {
namespace {

struct Case {
  std::string what;
  std::function<void(SampleModel&)> spoil;  // of small_network()
  Code code;
  std::vector<std::string> says;  // all of them occur in the message
};

proto::TypeProto::Tensor& input_type(SampleModel& m) {
  return *m.graph().mutable_input(0)->mutable_type()->mutable_tensor_type();
}

void check(const Case& c) {
  CAPTURE(c.what);
  SampleModel m = small_network();
  REQUIRE(m.read().ok());
  c.spoil(m);
  const auto graph = m.read();
  REQUIRE_FALSE(graph.ok());
  const std::string& message = graph.status().message();
  CAPTURE(message);
  CHECK(name(graph.status().code()) == name(c.code));
  for (const std::string& part : c.says) {
    CAPTURE(part);
    CHECK(message.find(part) != std::string::npos);
  }
}

void check_all(const std::vector<Case>& cases) {
  for (const Case& c : cases) check(c);
}

}  // namespace

TEST_CASE("an operator Heddle does not run is refused by node, domain, name and opset") {
  const auto extra = [](const char* op, const char* domain = "") {
    return [=](SampleModel& m) { m.node(op, {"h"}, {"extra"}, "x1").set_domain(domain); };
  };
  check_all({
      {"unknown",
       extra("Foo"),
       Code::unsupported,
       {"node 'x1' (Foo)", "operator ai.onnx.Foo of opset 17 is not known"}},
      {"spelled-out domain", extra("Foo", "ai.onnx"), Code::unsupported, {"ai.onnx.Foo of opset 17"}},
      {"foreign domain",
       extra("FusedMatMul", "com.microsoft"),
       Code::unsupported,
       {"node 'x1' (FusedMatMul)", "com.microsoft.FusedMatMul", "not known"}},
      {"known, foreign domain", extra("Relu", "com.microsoft"), Code::unsupported, {"com.microsoft.Relu"}},
      {"too new", extra("Gelu"), Code::invalid, {"node 'x1' (Gelu)", "opset 17", "is of opset 20"}},
      {"data-dependent", extra("NonZero"), Code::unsupported, {"node 'x1' (NonZero)", "depends on data"}},
      {"data-dependent", extra("Unique"), Code::unsupported, {"(Unique)", "depends on data"}},
      {"data-dependent", extra("Compress"), Code::unsupported, {"(Compress)", "depends on data"}},
      {"data-dependent",
       extra("NonMaxSuppression"),
       Code::unsupported,
       {"(NonMaxSuppression)", "depends on data"}},
      {"text", extra("StringNormalizer"), Code::unsupported, {"node 'x1' (StringNormalizer)", "strings"}},
      {"random", extra("RandomNormalLike"), Code::unsupported, {"(RandomNormalLike)", "random"}},
      {"sequence", extra("SequenceConstruct"), Code::unsupported, {"(SequenceConstruct)", "sequences"}},
      {"unnamed node",
       [](SampleModel& m) { m.node("Foo", {"h"}, {"out7"}); },
       Code::unsupported,
       {"node 'out7' (Foo)"}},
  });
}

TEST_CASE("a model that is not one, or not for this version, says so") {
  check_all({
      {"no ir_version", [](SampleModel& m) { m.model.clear_ir_version(); }, Code::invalid, {"ir_version"}},
      {"future ir_version",
       [](SampleModel& m) { m.model.set_ir_version(999); },
       Code::unsupported,
       {"IR version 999"}},
      {"no opset", [](SampleModel& m) { m.model.clear_opset_import(); }, Code::invalid, {"opset_import"}},
      {"only a foreign opset",
       [](SampleModel& m) { m.model.mutable_opset_import(0)->set_domain("com.microsoft"); },
       Code::invalid,
       {"'layer/gemm'", "opset_import"}},
      {"opset 6",
       [](SampleModel& m) { m.model.mutable_opset_import(0)->set_version(6); },
       Code::unsupported,
       {"opset 6", "7 to 28"}},
      {"opset 29",
       [](SampleModel& m) { m.model.mutable_opset_import(0)->set_version(29); },
       Code::unsupported,
       {"opset 29", "7 to 28"}},
      {"opset twice",
       [](SampleModel& m) { *m.model.add_opset_import() = m.model.opset_import(0); },
       Code::invalid,
       {"imported twice"}},
      {"no graph", [](SampleModel& m) { m.model.clear_graph(); }, Code::invalid, {"no graph"}},
      {"no output", [](SampleModel& m) { m.graph().clear_output(); }, Code::invalid, {"no output"}},
  });
}

TEST_CASE("a bad input declaration is refused by the input's name") {
  check_all({
      {"no shape",
       [](SampleModel& m) { input_type(m).clear_shape(); },
       Code::invalid,
       {"input 'x'", "no shape"}},
      {"negative",
       [](SampleModel& m) { input_type(m).mutable_shape()->mutable_dim(1)->set_dim_value(-4); },
       Code::invalid,
       {"input 'x'", "dimension 1 is -4"}},
      {"huge",
       [](SampleModel& m) { input_type(m).mutable_shape()->mutable_dim(1)->set_dim_value(INT64_MAX); },
       Code::invalid,
       {"input 'x'"}},
      {"overflow",
       [](SampleModel& m) {
         for (int i = 0; i < 2; ++i)
           input_type(m).mutable_shape()->add_dim()->set_dim_value(int64_t{1} << 32);
       },
       Code::invalid,
       {"input 'x'"}},
      {"rank 9",
       [](SampleModel& m) {
         for (int i = 0; i < 7; ++i) input_type(m).mutable_shape()->add_dim()->set_dim_value(1);
       },
       Code::unsupported,
       {"input 'x'", "rank 9"}},
      {"strings",
       [](SampleModel& m) { input_type(m).set_elem_type(proto::TensorProto::STRING); },
       Code::unsupported,
       {"input 'x'", "STRING"}},
      {"no such type",
       [](SampleModel& m) { input_type(m).set_elem_type(77); },
       Code::unsupported,
       {"input 'x'", "element type 77"}},
      {"no type",
       [](SampleModel& m) { m.graph().mutable_input(0)->clear_type(); },
       Code::unsupported,
       {"input 'x'", "no tensor"}},
      {"sequence",
       [](SampleModel& m) { m.graph().mutable_input(0)->mutable_type()->mutable_sequence_type(); },
       Code::unsupported,
       {"input 'x'", "no tensor"}},
      {"no name",
       [](SampleModel& m) { m.graph().mutable_input(0)->set_name(""); },
       Code::invalid,
       {"name of an input"}},
      {"not text",
       [](SampleModel& m) { m.graph().mutable_input(0)->set_name("x\xff"); },
       Code::invalid,
       {"'x\\xff'", "UTF-8"}},
      {"twice", [](SampleModel& m) { m.input("x", {1}); }, Code::invalid, {"input 'x' occurs twice"}},
  });
}

TEST_CASE("a graph whose values do not add up is refused by node and value") {
  check_all({
      {"cycle",
       [](SampleModel& m) {
         m.node("Add", {"c3", "h"}, {"c1"}, "turn1");
         m.node("Relu", {"c1"}, {"c2"}, "turn2");
         m.node("Relu", {"c2"}, {"c3"}, "turn3");
       },
       Code::invalid,
       {"node 'turn", "is on a cycle"}},
      {"behind a cycle, the cycle is named",
       [](SampleModel& m) {
         m.node("Relu", {"c2"}, {"tail"}, "tail");
         m.node("Relu", {"c2"}, {"c1"}, "turn1");
         m.node("Relu", {"c1"}, {"c2"}, "turn2");
       },
       Code::invalid,
       {"node 'turn", "is on a cycle"}},
      {"own output",
       [](SampleModel& m) { m.node("Relu", {"c"}, {"c"}, "loop"); },
       Code::invalid,
       {"node 'loop' (Relu)", "cycle"}},
      {"no node makes it",
       [](SampleModel& m) { m.node("Add", {"h", "ghost"}, {"z"}, "n"); },
       Code::invalid,
       {"node 'n' (Add)", "input 1", "'ghost'", "made by no node"}},
      {"made twice",
       [](SampleModel& m) { m.node("Relu", {"x"}, {"h"}, "again"); },
       Code::invalid,
       {"node 'again' (Relu)", "'h'", "also made by node 'layer/gemm' (Gemm)"}},
      {"an input made again",
       [](SampleModel& m) { m.node("Relu", {"h"}, {"x"}, "again"); },
       Code::invalid,
       {"node 'again' (Relu)", "'x'", "input or initializer"}},
      {"initializer twice",
       [](SampleModel& m) { m.floats("w", {1}, {1}); },
       Code::invalid,
       {"initializer 'w' occurs twice"}},
      {"initializer without a name",
       [](SampleModel& m) { m.floats("", {1}, {1}); },
       Code::invalid,
       {"no name"}},
      {"output that no node makes",
       [](SampleModel& m) { m.output("ghost"); },
       Code::invalid,
       {"output 'ghost'", "made by no node"}},
      {"output twice", [](SampleModel& m) { m.output("y"); }, Code::invalid, {"output 'y' occurs twice"}},
      {"output of another type",
       [](SampleModel& m) {
         m.graph().mutable_output(0)->mutable_type()->mutable_tensor_type()->set_elem_type(kInt64);
       },
       Code::invalid,
       {"output 'y'", "INT64", "f32"}},
      {"node without outputs",
       [](SampleModel& m) { m.node("Relu", {"h"}, {}, "n"); },
       Code::invalid,
       {"node 'n'", "no output"}},
      {"an output Heddle does not compute",
       [](SampleModel& m) {
         m.node("BatchNormalization", {"h", "b", "b", "b", "b"}, {"d", "mean"}, "norm");
         m.node("Neg", {"mean"}, {"n"}, "reader");
       },
       Code::unsupported,
       {"node 'reader' (Neg)", "'mean'", "output 1 of node 'norm' (BatchNormalization)"}},
  });
}

TEST_CASE("operands that do not fit are refused by node") {
  check_all({
      {"wrong shape",
       [](SampleModel& m) {
         m.graph()
             .mutable_input(0)
             ->mutable_type()
             ->mutable_tensor_type()
             ->mutable_shape()
             ->mutable_dim(1)
             ->set_dim_value(5);
       },
       Code::invalid,
       {"node 'layer/gemm' (Gemm)"}},
      {"wrong dtype",
       [](SampleModel& m) { input_type(m).set_elem_type(kInt64); },
       Code::invalid,
       {"'layer/gemm'"}},
      {"too few inputs",
       [](SampleModel& m) { m.node("Add", {"h"}, {"z"}, "n"); },
       Code::invalid,
       {"node 'n' (Add)"}},
      {"too many inputs",
       [](SampleModel& m) { m.node("Relu", {"h", "h"}, {"z"}, "n"); },
       Code::invalid,
       {"node 'n' (Relu)"}},
      {"required input left out",
       [](SampleModel& m) { m.node("Add", {"", "h"}, {"z"}, "n"); },
       Code::invalid,
       {"node 'n' (Add)"}},
  });
}

TEST_CASE("attributes that do not fit are refused by node") {
  check_all({
      {"unknown attribute",
       [](SampleModel& m) { set(m.node("Relu", {"h"}, {"z"}, "n"), "slope", 1.0f); },
       Code::invalid,
       {"node 'n' (Relu)", "slope"}},
      {"attribute of another kind",
       [](SampleModel& m) { set(m.node("Softmax", {"h"}, {"z"}, "n"), "axis", "last"); },
       Code::invalid,
       {"node 'n' (Softmax)", "axis"}},
      {"attribute twice",
       [](SampleModel& m) {
         auto& n = m.node("Softmax", {"h"}, {"z"}, "n");
         set(n, "axis", int64_t{1});
         set(n, "axis", int64_t{1});
       },
       Code::invalid,
       {"node 'n' (Softmax)", "'axis'", "twice"}},
      {"attribute without a type",
       [](SampleModel& m) { m.node("Softmax", {"h"}, {"z"}, "n").add_attribute()->set_name("axis"); },
       Code::invalid,
       {"node 'n' (Softmax)", "'axis'", "no type"}},
      {"attribute that is a graph",
       [](SampleModel& m) {
         auto* a = m.node("Relu", {"h"}, {"z"}, "n").add_attribute();
         a->set_name("body");
         a->set_type(proto::AttributeProto::GRAPH);
       },
       Code::unsupported,
       {"node 'n' (Relu)", "'body'", "GRAPH"}},
      {"axis out of range",
       [](SampleModel& m) { set(m.node("Softmax", {"h"}, {"z"}, "n"), "axis", int64_t{7}); },
       Code::invalid,
       {"node 'n' (Softmax)", "7"}},
      {"training",
       [](SampleModel& m) {
         set(m.node("BatchNormalization", {"h", "b", "b", "b", "b"}, {"z"}, "n"), "training_mode",
             int64_t{1});
       },
       Code::unsupported,
       {"node 'n' (BatchNormalization)", "training_mode"}},
      {"padding in a way that is none",
       [](SampleModel& m) {
         m.ints("pads", {0, 1, 0, 1});
         set(m.node("Pad", {"h", "pads"}, {"z"}, "n"), "mode", "circular");
       },
       Code::invalid,
       {"node 'n' (Pad)", "circular"}},
      {"cast to text",
       [](SampleModel& m) { set(m.node("Cast", {"h"}, {"z"}, "n"), "to", int64_t{8}); },
       Code::unsupported,
       {"node 'n' (Cast)", "STRING"}},
      {"cast without a type",
       [](SampleModel& m) { m.node("Cast", {"h"}, {"z"}, "n"); },
       Code::unsupported,
       {"node 'n' (Cast)"}},
      {"huge result",
       [](SampleModel& m) {
         m.ints("big", {int64_t{1} << 40, int64_t{1} << 40, 1, 3});
         m.node("Expand", {"h", "big"}, {"z"}, "n");
       },
       Code::invalid,
       {"node 'n' (Expand)"}},
  });
}

TEST_CASE("weights whose bytes do not fit their shape are refused by name") {
  const auto w = [](SampleModel& m) { return m.graph().mutable_initializer(0); };
  check_all({
      {"short raw_data",
       [&](SampleModel& m) { w(m)->mutable_raw_data()->pop_back(); },
       Code::invalid,
       {"initializer 'w'", "raw_data has 47 bytes", "needs 48"}},
      {"no data",
       [&](SampleModel& m) { w(m)->clear_raw_data(); },
       Code::invalid,
       {"initializer 'w'", "float_data has 0"}},
      {"negative dim", [&](SampleModel& m) { w(m)->set_dims(0, -3); }, Code::invalid, {"initializer 'w'"}},
      {"huge dim", [&](SampleModel& m) { w(m)->set_dims(0, INT64_MAX); }, Code::invalid, {"initializer 'w'"}},
      {"overflow",
       [&](SampleModel& m) { w(m)->set_dims(0, (int64_t{1} << 62) + 3); },
       Code::invalid,
       {"initializer 'w'"}},
      {"rank 9",
       [&](SampleModel& m) {
         for (int i = 0; i < 7; ++i) w(m)->add_dims(1);
       },
       Code::unsupported,
       {"initializer 'w'", "rank 9"}},
      {"strings",
       [&](SampleModel& m) { w(m)->set_data_type(8); },
       Code::unsupported,
       {"initializer 'w'", "STRING"}},
      {"8-bit floats",
       [&](SampleModel& m) { w(m)->set_data_type(17); },
       Code::unsupported,
       {"initializer 'w'", "FLOAT8E4M3FN"}},
      {"segment",
       [&](SampleModel& m) { w(m)->mutable_segment(); },
       Code::unsupported,
       {"initializer 'w'", "segment"}},
      {"sparse",
       [](SampleModel& m) { m.graph().add_sparse_initializer()->mutable_values()->set_name("s"); },
       Code::unsupported,
       {"'s'", "sparse"}},
      {"external data in bytes",
       [&](SampleModel& m) {
         w(m)->set_data_location(proto::TensorProto::EXTERNAL);
         auto* entry = w(m)->add_external_data();
         entry->set_key("location");
         entry->set_value("w.bin");
       },
       Code::invalid,
       {"initializer 'w'", "'w.bin'", "without a folder"}},
  });
}

TEST_CASE("limits hold, and say which") {
  SampleModel m = small_network();
  const auto refused = [&](const Limits& limits, const std::string& part) {
    const auto graph = m.read(limits);
    REQUIRE_FALSE(graph.ok());
    CAPTURE(graph.status().message());
    CHECK(graph.status().code() == Code::invalid);
    CHECK(graph.status().message().find(part) != std::string::npos);
  };
  refused({.file_bytes = 10}, "the limit is 10");
  refused({.tensor_bytes = 47}, "the limit is 47");
  refused({.records = 5}, "more than 5");
  refused({.nodes = 2}, "more than 2 nodes");
  set(*m.graph().mutable_node(1), "list", std::vector<int64_t>(9, 1));
  refused({.attribute_elements = 8}, "9 elements; the limit is 8");
}

}  // namespace heddle::onnx
