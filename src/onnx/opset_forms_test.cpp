#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ir/op.h"
#include "onnx/sample_model.h"

namespace heddle::onnx {
namespace {

using Model = SampleModel;
const std::vector<int64_t> kAxis0 = {0}, kAxis1 = {1};

// Softmax over [1 2 3] and over all six.
std::vector<double> softmax(const std::vector<double>& x, size_t group) {
  std::vector<double> y;
  for (size_t begin = 0; begin < x.size(); begin += group) {
    double sum = 0;
    for (size_t i = begin; i < begin + group; ++i) sum += std::exp(x[i]);
    for (size_t i = begin; i < begin + group; ++i) y.push_back(std::exp(x[i]) / sum);
  }
  return y;
}

const std::vector<double> kX = {1, 2, 3, 4, 5, 6};

}  // namespace

TEST_CASE("axes to add and drop mean the same as an attribute and as an input") {
  const std::vector<OpsetForm> forms = {
      {"Unsqueeze", 11,
       [](Model& m) { set(m.node("Unsqueeze", {"x"}, {"y"}), "axes", std::vector<int64_t>{0, 3}); },
       "f32[1, 2, 3, 1]", kX},
      {"Unsqueeze", 13,
       [](Model& m) {
         m.ints("a", {0, 3});
         m.node("Unsqueeze", {"x", "a"}, {"y"});
       },
       "f32[1, 2, 3, 1]", kX},
      {"Squeeze", 11,
       [](Model& m) {
         set(m.node("Unsqueeze", {"x"}, {"u"}), "axes", std::vector<int64_t>{0, 1});
         set(m.node("Squeeze", {"u"}, {"y"}), "axes", kAxis1);
       },
       "f32[1, 2, 3]", kX},
      {"Squeeze of all", 11,
       [](Model& m) {
         set(m.node("Unsqueeze", {"x"}, {"u"}), "axes", std::vector<int64_t>{0, 1});
         m.node("Squeeze", {"u"}, {"y"});
       },
       "f32[2, 3]", kX},
  };
  for (const OpsetForm& form : forms) check_form(form);
}

TEST_CASE("axes to reduce mean the same as an attribute and as an input") {
  const std::vector<OpsetForm> forms = {
      {"ReduceSum",
       11,
       [](Model& m) {
         auto& n = m.node("ReduceSum", {"x"}, {"y"});
         set(n, "axes", kAxis1);
         set(n, "keepdims", int64_t{0});
       },
       "f32[2]",
       {6, 15}},
      {"ReduceSum",
       13,
       [](Model& m) {
         m.ints("a", {1});
         m.node("ReduceSum", {"x", "a"}, {"y"});
       },
       "f32[2, 1]",
       {6, 15}},
      {"ReduceMean",
       17,
       [](Model& m) { set(m.node("ReduceMean", {"x"}, {"y"}), "axes", kAxis0); },
       "f32[1, 3]",
       {2.5, 3.5, 4.5}},
      {"ReduceMean",
       18,
       [](Model& m) {
         m.ints("a", {0});
         m.node("ReduceMean", {"x", "a"}, {"y"});
       },
       "f32[1, 3]",
       {2.5, 3.5, 4.5}},
      {"ReduceMax of all", 11, [](Model& m) { m.node("ReduceMax", {"x"}, {"y"}); }, "f32[1, 1]", {6}},
      {"ReduceL1",
       13,
       [](Model& m) {
         m.node("Neg", {"x"}, {"n"});
         set(m.node("ReduceL1", {"n"}, {"y"}), "axes", kAxis1);
       },
       "f32[2, 1]",
       {6, 15}},
      {"ReduceLogSum",
       13,
       [](Model& m) { set(m.node("ReduceLogSum", {"x"}, {"y"}), "axes", kAxis1); },
       "f32[2, 1]",
       {std::log(6.0), std::log(15.0)}},
      {"ReduceLogSumExp",
       18,
       [](Model& m) {
         m.ints("a", {1});
         set(m.node("ReduceLogSumExp", {"x", "a"}, {"y"}), "keepdims", int64_t{0});
       },
       "f32[2]",
       {3.4076059, 6.4076059}},
  };
  for (const OpsetForm& form : forms) check_form(form);
}

TEST_CASE("sizes to split by mean the same as an attribute and as an input") {
  const std::vector<OpsetForm> forms = {
      {"Split by an attribute",
       11,
       [](Model& m) {
         auto& n = m.node("Split", {"x"}, {"s", "y"});
         set(n, "axis", int64_t{1});
         set(n, "split", std::vector<int64_t>{1, 2});
       },
       "f32[2, 2]",
       {2, 3, 5, 6}},
      {"Split by an input",
       13,
       [](Model& m) {
         m.ints("sizes", {2, 1});
         set(m.node("Split", {"x", "sizes"}, {"s", "y"}), "axis", int64_t{1});
       },
       "f32[2, 1]",
       {3, 6}},
      {"Split evenly", 13, [](Model& m) { m.node("Split", {"x"}, {"s", "y"}); }, "f32[1, 3]", {4, 5, 6}},
      {"Split with num_outputs",
       18,
       [](Model& m) {
         auto& n = m.node("Split", {"x"}, {"", "y"});
         set(n, "axis", int64_t{1});
         set(n, "num_outputs", int64_t{2});
       },
       "f32[2, 1]",
       {3, 6}},
  };
  for (const OpsetForm& form : forms) check_form(form);
}

TEST_CASE("softmax before opset 13 runs over all axes from its axis on") {
  const auto on3d = [](int64_t opset, std::optional<int64_t> axis) {
    return [=](Model& m) {
      if (opset < 13) {
        set(m.node("Unsqueeze", {"x"}, {"u"}), "axes", kAxis0);
      } else {
        m.ints("a", {0});
        m.node("Unsqueeze", {"x", "a"}, {"u"});
      }
      auto& n = m.node("Softmax", {"u"}, {"y"});
      if (axis) set(n, "axis", *axis);
    };
  };
  const std::vector<OpsetForm> forms = {
      {"axis 1 by default", 11, on3d(11, {}), "f32[1, 2, 3]", softmax(kX, 6)},
      {"axis -2", 12, on3d(12, -2), "f32[1, 2, 3]", softmax(kX, 6)},
      {"the last axis", 12, on3d(12, 2), "f32[1, 2, 3]", softmax(kX, 3)},
      {"the last axis by default", 13, on3d(13, {}), "f32[1, 2, 3]", softmax(kX, 3)},
      {"one axis alone",
       13,
       on3d(13, 1),
       "f32[1, 2, 3]",
       {1 / (1 + std::exp(3)), 1 / (1 + std::exp(3)), 1 / (1 + std::exp(3)), 1 / (1 + std::exp(-3)),
        1 / (1 + std::exp(-3)), 1 / (1 + std::exp(-3))}},
  };
  for (const OpsetForm& form : forms) check_form(form);
}

TEST_CASE("operators without an entry of their own are composed") {
  const auto scalar = [](Model& m, const char* name, float value) { m.floats(name, {}, {value}); };
  const std::vector<OpsetForm> forms = {
      {"Sum of three",
       11,
       [](Model& m) { m.node("Sum", {"x", "x", "x"}, {"y"}); },
       "f32[2, 3]",
       {3, 6, 9, 12, 15, 18}},
      {"Sum of one", 11, [](Model& m) { m.node("Sum", {"x"}, {"y"}); }, "f32[2, 3]", kX},
      {"Mean",
       13,
       [&](Model& m) {
         scalar(m, "c", 3);
         m.node("Mean", {"x", "c"}, {"y"});
       },
       "f32[2, 3]",
       {2, 2.5, 3, 3.5, 4, 4.5}},
      {"Swish",
       24,
       [&](Model& m) { m.node("Swish", {"x"}, {"y"}); },
       "f32[2, 3]",
       {0.7310586, 1.7615942, 2.8577224, 3.9280552, 4.9665358, 5.9851642}},
      {"Swish with alpha",
       24,
       [&](Model& m) { set(m.node("Swish", {"x"}, {"y"}), "alpha", 2.0f); },
       "f32[2, 3]",
       {0.8807971, 1.9640276, 2.9925821, 3.9986586, 4.9997730, 5.9999631}},
      {"Mish",
       18,
       [&](Model& m) { m.node("Mish", {"x"}, {"y"}); },
       "f32[2, 3]",
       {0.8650984, 1.9439590, 2.9865350, 3.9974137, 4.9995521, 5.9999266}},
  };
  for (const OpsetForm& form : forms) check_form(form);
}

TEST_CASE("operators whose operands have changed with the opsets keep their meaning") {
  const auto scalar = [](Model& m, const char* name, float value) { m.floats(name, {}, {value}); };
  const std::vector<OpsetForm> forms = {
      {"IsInf of one sign",
       20,
       [&](Model& m) {
         m.floats("inf", {3}, {-INFINITY, 1, INFINITY});
         set(m.node("IsInf", {"inf"}, {"y"}), "detect_negative", int64_t{0});
       },
       "bool[3]",
       {0, 0, 1}},
      {"IsInf of no sign",
       20,
       [&](Model& m) {
         m.floats("inf", {2}, {-INFINITY, INFINITY});
         auto& n = m.node("IsInf", {"inf"}, {"y"});
         set(n, "detect_negative", int64_t{0});
         set(n, "detect_positive", int64_t{0});
       },
       "bool[2]",
       {0, 0}},
      {"Dropout", 12,
       [&](Model& m) {
         scalar(m, "ratio", 0.5);
         m.node("Dropout", {"x", "ratio"}, {"y"});
       },
       "f32[2, 3]", kX},
      {"Cast", 13, [](Model& m) { set(m.node("Cast", {"x"}, {"y"}), "to", int64_t{kInt64}); }, "i64[2, 3]",
       kX},
      {"CastLike", 19,
       [](Model& m) {
         m.ints("i", {0});
         m.node("CastLike", {"x", "i"}, {"y"});
       },
       "i64[2, 3]", kX},
      {"Pow by an integer",
       13,
       [](Model& m) {
         m.ints("two", {2});
         m.node("Pow", {"x", "two"}, {"y"});
       },
       "f32[2, 3]",
       {1, 4, 9, 16, 25, 36}},
      {"Pow of an integer",
       13,
       [&](Model& m) {
         scalar(m, "half", 0.5);
         m.ints("i", {16, 25});
         m.node("Pow", {"i", "half"}, {"y"});
       },
       "i64[2]",
       {4, 5}},
  };
  for (const OpsetForm& form : forms) check_form(form);
}

TEST_CASE("operands and outputs that are optional may be left out") {
  const auto scalar = [](Model& m, const char* name, float value) { m.floats(name, {}, {value}); };
  const std::vector<OpsetForm> forms = {
      {"Clip below",
       11,
       [&](Model& m) {
         scalar(m, "min", 3);
         m.node("Clip", {"x", "min"}, {"y"});
       },
       "f32[2, 3]",
       {3, 3, 3, 4, 5, 6}},
      {"Clip above",
       13,
       [&](Model& m) {
         scalar(m, "max", 3);
         m.node("Clip", {"x", "", "max"}, {"y"});
       },
       "f32[2, 3]",
       {1, 2, 3, 3, 3, 3}},
      {"TopK",
       11,
       [](Model& m) {
         m.ints("k", {2});
         m.node("TopK", {"x", "k"}, {"v", "y"});
       },
       "i64[2, 2]",
       {2, 1, 2, 1}},
  };
  for (const OpsetForm& form : forms) check_form(form);
}

TEST_CASE("constants in all forms") {
  const auto constant = [](const char* name, std::function<void(proto::AttributeProto&)> fill) {
    return [=](Model& m) {
      auto* a = m.node("Constant", {}, {"c"}).add_attribute();
      a->set_name(name);
      fill(*a);
      m.node("Identity", {"c"}, {"y"});
    };
  };
  using A = proto::AttributeProto;
  const std::vector<OpsetForm> forms = {
      {"value",
       11,
       constant("value",
                [](A& a) {
                  a.set_type(A::TENSOR);
                  a.mutable_t()->set_data_type(kInt64);
                  a.mutable_t()->add_dims(1);
                  a.mutable_t()->add_int64_data(7);
                }),
       "i64[1]",
       {7}},
      {"value_int",
       12,
       constant("value_int",
                [](A& a) {
                  a.set_type(A::INT);
                  a.set_i(-3);
                }),
       "i64[]",
       {-3}},
      {"value_ints",
       12,
       constant("value_ints",
                [](A& a) {
                  a.set_type(A::INTS);
                  a.add_ints(1);
                  a.add_ints(2);
                }),
       "i64[2]",
       {1, 2}},
      {"value_float",
       12,
       constant("value_float",
                [](A& a) {
                  a.set_type(A::FLOAT);
                  a.set_f(0.5f);
                }),
       "f32[]",
       {0.5}},
      {"value_floats",
       12,
       constant("value_floats",
                [](A& a) {
                  a.set_type(A::FLOATS);
                  a.add_floats(0.5f);
                }),
       "f32[1]",
       {0.5}},
  };
  for (const OpsetForm& form : forms) check_form(form);
}

TEST_CASE("normalisation: group factors before opset 21, channel factors from 21 on") {
  const auto group = [](std::vector<float> scale, std::vector<float> bias) {
    return [=](Model& m) {
      m.ints("four", {1, 6, 1});
      m.node("Reshape", {"x", "four"}, {"r"});
      m.floats("scale", {static_cast<int64_t>(scale.size())}, scale);
      m.floats("bias", {static_cast<int64_t>(bias.size())}, bias);
      auto& n = m.node("GroupNormalization", {"r", "scale", "bias"}, {"y"});
      set(n, "num_groups", int64_t{2});
      set(n, "epsilon", 0.0f);
    };
  };
  const double a = std::sqrt(1.5);
  const std::vector<double> expected = {-2 * a, 0, 2 * a, 1 - 3 * a, 1, 1 + 3 * a};
  check_form({"per group", 18, group({2, 3}, {0, 1}), "f32[1, 6, 1]", expected});
  check_form({"per channel", 21, group({2, 2, 2, 3, 3, 3}, {0, 0, 0, 1, 1, 1}), "f32[1, 6, 1]", expected});
}

TEST_CASE("attention is the same with heads apart and heads together") {
  // Two heads of size 3 attend over one key: the result is its value.
  const std::vector<OpsetForm> forms = {
      {"rank 3", 23,
       [](Model& m) {
         m.ints("s", {1, 1, 6});
         m.node("Reshape", {"x", "s"}, {"q"});
         auto& n = m.node("Attention", {"q", "q", "q"}, {"y"});
         set(n, "q_num_heads", int64_t{2});
         set(n, "kv_num_heads", int64_t{2});
       },
       "f32[1, 1, 6]", kX},
      {"rank 4", 23,
       [](Model& m) {
         m.ints("s", {1, 2, 1, 3});
         m.node("Reshape", {"x", "s"}, {"q"});
         set(m.node("Attention", {"q", "q", "q"}, {"y"}), "is_causal", int64_t{1});
       },
       "f32[1, 2, 1, 3]", kX},
      {"rank 4, two keys",
       23,
       [](Model& m) {
         m.ints("s", {1, 1, 2, 3});
         m.node("Reshape", {"x", "s"}, {"q"});
         set(m.node("Attention", {"q", "q", "q"}, {"y"}), "is_causal", int64_t{1});
       },
       "f32[1, 1, 2, 3]",
       {1, 2, 3, 4, 5, 6}},  // the second row sees both keys, and its own outweighs the other by e^26
  };
  for (const OpsetForm& form : forms) check_form(form);
}

TEST_CASE("attention refuses what it does not do, by name") {
  const auto refused = [](const std::function<void(SampleModel&, proto::NodeProto&)>& spoil,
                          const std::string& says) {
    SampleModel m(24);
    m.input("x", {2, 3, 8});
    auto& n = m.node("Attention", {"x", "x", "x"}, {"y"}, "att");
    set(n, "q_num_heads", int64_t{2});
    set(n, "kv_num_heads", int64_t{2});
    m.output("y");
    REQUIRE(m.read().ok());
    spoil(m, n);
    const auto graph = m.read();
    REQUIRE_FALSE(graph.ok());
    CAPTURE(graph.status().message());
    CHECK(graph.status().message().find("node 'att' (Attention)") != std::string::npos);
    CHECK(graph.status().message().find(says) != std::string::npos);
  };
  refused([](SampleModel&, proto::NodeProto& n) { set(n, "scale", 0.0f); }, "scale 0");
  refused(
      [](SampleModel&, proto::NodeProto& n) {
        for (const char* in : {"", "x"}) n.add_input(in);
      },
      "past_key and past_value must be given together");
  refused(
      [](SampleModel& m, proto::NodeProto& n) {
        m.input("past", {2, 2, 3, 4});
        m.input("seen", {2}, kInt64);
        for (const char* in : {"", "past", "past", "seen"}) n.add_input(in);
      },
      "nonpad_kv_seqlen cannot be given beside past_key");
  refused([](SampleModel&, proto::NodeProto& n) { n.mutable_attribute(0)->set_i(0); }, "0 query heads");
  refused(
      [](SampleModel& m, proto::NodeProto& n) {
        m.input("k", {2, "keys"});
        n.set_input(1, "k");
      },
      "input 1 is f32[2, keys]");
}

}  // namespace heddle::onnx
