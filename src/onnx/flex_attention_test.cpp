// FlexAttention and the loss functions: what is refused, and why. Their values are ONNX's own tests'.
#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "onnx/sample_model.h"

namespace heddle::onnx {
namespace {

using Dims = std::vector<SampleModel::Dim>;

struct Attention {
  SampleModel m{26};
  proto::NodeProto* node = nullptr;
};

Attention attention(const Dims& queries, const Dims& keys, const Dims& values) {
  Attention made;
  auto& preview = *made.m.model.add_opset_import();
  preview.set_domain("ai.onnx.preview");
  preview.set_version(1);
  made.m.input("q", queries);
  made.m.input("k", keys);
  made.m.input("v", values);
  made.node = &made.m.node("FlexAttention", {"q", "k", "v"}, {"y"}, "attend");
  made.node->set_domain("ai.onnx.preview");
  made.m.output("y");
  return made;
}

Attention usual() {
  const Dims heads = {"b", int64_t{4}, "l", int64_t{8}};
  return attention(heads, heads, heads);
}

proto::GraphProto& modifier(proto::NodeProto& node, const std::string& op, size_t inputs = 1) {
  auto& attribute = *node.add_attribute();
  attribute.set_name("score_mod");
  attribute.set_type(proto::AttributeProto::GRAPH);
  proto::GraphProto& graph = *attribute.mutable_g();
  for (size_t i = 0; i < inputs; ++i) graph.add_input()->set_name(i == 0 ? "scores" : "other");
  fill_node(*graph.add_node(), op, {"scores"}, {"changed"});
  graph.add_output()->set_name("changed");
  return graph;
}

}  // namespace

TEST_CASE("FlexAttention takes a graph for its scores, and the type of its values") {
  Attention made = usual();
  modifier(*made.node, "Tanh");
  const auto graph = made.m.read();
  REQUIRE_MESSAGE(graph.ok(), to_string(graph.status()));
  CHECK(to_string(graph->type(graph->outputs[0])) == "f32[b, 4, l, 8]");
  size_t tanh = 0;
  for (const ir::Node& node : graph->nodes) tanh += node.is("Tanh") ? 1 : 0;
  CHECK(tanh == 1);
}

TEST_CASE("what FlexAttention cannot be is refused by node and reason") {
  const Dims heads = {"b", int64_t{4}, "l", int64_t{8}};
  check_refused(attention({"b", int64_t{4}, int64_t{8}}, heads, heads).m, Code::invalid,
                {"node 'attend'", "of rank 4"});
  check_refused(attention(heads, {"b", int64_t{3}, "l", int64_t{8}}, {"b", int64_t{3}, "l", int64_t{8}}).m,
                Code::invalid, {"4 query, 3 key and 3 value heads"});
  check_refused(attention({"b", "h", "l", int64_t{8}}, heads, heads).m, Code::unsupported, {"must be known"});
  Attention two = usual();
  modifier(*two.node, "Tanh", 2);
  check_refused(two.m, Code::invalid, {"score_mod takes 2 inputs and gives 1 outputs"});
  Attention other = usual();
  modifier(*other.node, "Shape");
  check_refused(other.m, Code::invalid, {"score_mod makes", "type and shape have to stay"});
  Attention unknown = usual();
  set(*unknown.node, "is_causal", int64_t{1});
  check_refused(unknown.m, Code::invalid, {"'is_causal' is not known"});
  Attention precise = usual();
  set(*precise.node, "softmax_precision", int64_t{7});
  check_refused(precise.m, Code::invalid, {"'softmax_precision' is 7", "floating-point"});
  Attention scaled = usual();
  set(*scaled.node, "scale", 0.0F);
  check_refused(scaled.m, Code::invalid, {"'scale' is 0"});
}

TEST_CASE("what a loss cannot be is refused by node and reason") {
  const auto loss = [](const Dims& scores, const Dims& targets, int type, const char* reduction) {
    SampleModel m(13);
    m.input("scores", scores);
    m.input("targets", targets, type);
    set(m.node("SoftmaxCrossEntropyLoss", {"scores", "targets"}, {"y"}, "loss"), "reduction", reduction);
    m.output("y");
    return m;
  };
  CHECK(loss({"b", int64_t{5}}, {"b"}, kInt64, "mean").read().ok());
  check_refused(loss({"b", int64_t{5}}, {"b"}, kInt64, "max"), Code::invalid,
                {"node 'loss'", "'reduction' is 'max'", "'none', 'sum' or 'mean'"});
  check_refused(loss({"b", int64_t{5}}, {"b", "c"}, kInt64, "mean"), Code::invalid, {"without that axis"});
  check_refused(loss({"b", int64_t{5}}, {"b"}, kFloat, "mean"), Code::invalid, {"have to be integers"});
}

}  // namespace heddle::onnx
