#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "ir/op.h"
#include "onnx/sample_model.h"

namespace heddle::onnx {
namespace {

using Model = SampleModel;
using Is = std::vector<int64_t>;
using Ds = std::vector<double>;

proto::TensorProto& bytes(Model& m, const std::string& name, const Is& dims, const Is& values,
                          int type = proto::TensorProto::UINT8) {
  proto::TensorProto& t = *m.graph().add_initializer();
  t.set_name(name);
  t.set_data_type(type);
  for (int64_t d : dims) t.add_dims(d);
  for (int64_t v : values) t.add_int32_data(static_cast<int32_t>(v));
  return t;
}

void words(proto::NodeProto& node, const std::string& name, const std::vector<std::string>& list) {
  proto::AttributeProto& a = *node.add_attribute();
  a.set_name(name);
  a.set_type(proto::AttributeProto::STRINGS);
  for (const std::string& word : list) a.add_strings(word);
}

}  // namespace

TEST_CASE("bounds and amounts are attributes before opset 11") {
  const std::vector<OpsetForm> forms = {
      {"Clip",
       7,
       [](Model& m) {
         auto& n = m.node("Clip", {"x"}, {"y"});
         set(n, "min", 2.0f);
         set(n, "max", 5.0f);
       },
       "f32[2, 3]",
       {2, 2, 3, 4, 5, 5}},
      {"Clip below",
       10,
       [](Model& m) { set(m.node("Clip", {"x"}, {"y"}), "min", 3.0f); },
       "f32[2, 3]",
       {3, 3, 3, 4, 5, 6}},
      {"Pad",
       9,
       [](Model& m) {
         auto& n = m.node("Pad", {"x"}, {"y"});
         set(n, "pads", Is{0, 1, 0, -1});
         set(n, "value", 9.0f);
       },
       "f32[2, 3]",
       {9, 1, 2, 9, 4, 5}},
  };
  for (const OpsetForm& form : forms) check_form(form);
}

TEST_CASE("a scale covers a tensor, an axis, or blocks of one") {
  const std::vector<OpsetForm> forms = {
      {"whole, halves to even",
       11,
       [](Model& m) {
         m.floats("s", {}, {2});
         bytes(m, "z", {}, {250});
         m.node("QuantizeLinear", {"x", "s", "z"}, {"y"});
       },
       "u8[2, 3]",
       {250, 251, 252, 252, 252, 253}},
      {"along an axis",
       13,
       [](Model& m) {
         m.floats("s", {2}, {1, 0.02f});
         set(m.node("QuantizeLinear", {"x", "s"}, {"y"}), "axis", int64_t{0});
       },
       "u8[2, 3]",
       {1, 2, 3, 200, 250, 255}},
      {"in blocks, the last cut short",
       21,
       [](Model& m) {
         m.floats("s", {2, 2}, {1, 3, 2, 0.5f});
         bytes(m, "z", {2, 2}, {-1, 0, 1, 2}, proto::TensorProto::INT8);
         auto& n = m.node("QuantizeLinear", {"x", "s", "z"}, {"y"});
         set(n, "axis", int64_t{1});
         set(n, "block_size", int64_t{2});
       },
       "i8[2, 3]",
       {0, 1, 1, 3, 3, 14}},
      {"output_dtype",
       21,
       [](Model& m) {
         m.floats("s", {}, {1e-4f});
         set(m.node("QuantizeLinear", {"x", "s"}, {"y"}), "output_dtype", int64_t{proto::TensorProto::INT16});
       },
       "i16[2, 3]",
       {10000, 20000, 30000, 32767, 32767, 32767}},
      {"and back",
       13,
       [](Model& m) {
         bytes(m, "q", {2, 3}, {1, 2, 3, 4, 5, 6});
         bytes(m, "z", {3}, {1, 2, 3});
         m.floats("s", {3}, {1, 2, 3});
         m.node("DequantizeLinear", {"q", "s", "z"}, {"d"});
         m.node("Add", {"x", "d"}, {"y"});
       },
       "f32[2, 3]",
       {1, 2, 3, 7, 11, 15}},
  };
  for (const OpsetForm& form : forms) check_form(form);
}

TEST_CASE("dynamic quantisation covers zero and finds its scale") {
  const auto output = [](const char* name) {
    return [name](Model& m) {
      m.node("DynamicQuantizeLinear", {"x"}, {"q", "s", "z"});
      m.node("Identity", {name}, {"y"});
    };
  };
  check_form({"values", 11, output("q"), "u8[2, 3]", {42, 85, 128, 170, 212, 255}});
  check_form({"scale", 11, output("s"), "f32[]", {6.0 / 255}});
  check_form({"zero point", 11, output("z"), "u8[]", {0}});
}

TEST_CASE("products of quantised operands are exact, then rounded and saturated") {
  const auto quantised = [](Model& m) {
    m.floats("one", {}, {1});
    bytes(m, "zero", {}, {0});
    m.node("QuantizeLinear", {"x", "one", "zero"}, {"q"});
  };
  const std::vector<OpsetForm> forms = {
      {"MatMulInteger with a zero point for each row and column",
       11,
       [&](Model& m) {
         quantised(m);
         bytes(m, "w", {3, 2}, {1, 0, 0, 1, 1, 1});
         bytes(m, "rows", {2}, {1, 4});
         bytes(m, "columns", {2}, {0, 1});
         m.node("MatMulInteger", {"q", "w", "rows", "columns"}, {"y"});
       },
       "i32[2, 2]",
       {2, 0, 2, 0}},
      {"QLinearMatMul",
       11,
       [&](Model& m) {
         quantised(m);
         bytes(m, "w", {3, 2}, {1, 0, 0, 1, 1, 1});
         m.floats("ws", {2}, {1, 10});
         m.floats("ys", {}, {2});
         bytes(m, "yz", {}, {200});
         m.node("QLinearMatMul", {"q", "one", "zero", "w", "ws", "zero", "ys", "yz"}, {"y"});
       },
       "u8[2, 2]",
       {202, 225, 205, 255}},
      {"QLinearConv",
       11,
       [&](Model& m) {
         quantised(m);
         m.ints("image", {1, 1, 2, 3});
         m.node("Reshape", {"q", "image"}, {"p"});
         bytes(m, "w", {2, 1, 2, 2}, {1, 0, 0, 1, 0, 1, 1, 0}, proto::TensorProto::INT8);
         m.floats("ws", {2}, {1, 0.5f});
         bytes(m, "wz", {2}, {0, 1}, proto::TensorProto::INT8);
         bytes(m, "b", {2}, {100, -4}, proto::TensorProto::INT32);
         m.node("QLinearConv", {"p", "one", "zero", "w", "ws", "wz", "one", "zero", "b"}, {"y"});
       },
       "u8[1, 2, 1, 2]",
       {106, 108, 0, 0}},
  };
  for (const OpsetForm& form : forms) check_form(form);
}

TEST_CASE("recurrent nodes read both layouts and lists of names") {
  const auto rnn = [](const Is& shape, int64_t layout, const char* output) {
    return [=](Model& m) {
      m.ints("s", shape);
      m.node("Reshape", {"x", "s"}, {"seq"});
      m.floats("w", {1, 1, 1}, {2});
      m.floats("r", {1, 1, 1}, {1});
      auto& n = m.node("RNN", {"seq", "w", "r"}, {"all", "last"});
      words(n, "activations", {"Relu"});
      set(n, "hidden_size", int64_t{1});
      set(n, "layout", layout);
      m.node("Identity", {output}, {"y"});
    };
  };
  check_form({"sequence first", 14, rnn({2, 3, 1}, 0, "all"), "f32[2, 1, 3, 1]", {2, 4, 6, 10, 14, 18}});
  check_form({"its last state", 14, rnn({2, 3, 1}, 0, "last"), "f32[1, 3, 1]", {10, 14, 18}});
  check_form({"batch first", 14, rnn({2, 3, 1}, 1, "all"), "f32[2, 3, 1, 1]", {2, 6, 12, 8, 18, 30}});
  check_form({"its last state", 14, rnn({2, 3, 1}, 1, "last"), "f32[2, 1, 1]", {12, 30}});
}

TEST_CASE("normalisations that are written out keep their meaning") {
  const std::vector<OpsetForm> forms = {
      {"LpNormalization of order 1",
       11,
       [](Model& m) { set(m.node("LpNormalization", {"x"}, {"y"}), "p", int64_t{1}); },
       "f32[2, 3]",
       {1 / 6.0, 2 / 6.0, 3 / 6.0, 4 / 15.0, 5 / 15.0, 6 / 15.0}},
      {"of zeros",
       11,
       [](Model& m) {
         m.node("Sub", {"x", "x"}, {"o"});
         m.node("LpNormalization", {"o"}, {"y"});
       },
       "f32[2, 3]",
       {0, 0, 0, 0, 0, 0}},
      {"LRN",
       13,
       [](Model& m) {
         m.ints("s", {1, 6, 1});
         m.node("Reshape", {"x", "s"}, {"c"});
         auto& n = m.node("LRN", {"c"}, {"y"});
         set(n, "size", int64_t{2});
         set(n, "alpha", 2.0f);
         set(n, "beta", 1.0f);
         set(n, "bias", 0.0f);
       },
       "f32[1, 6, 1]",
       {1 / 5.0, 2 / 13.0, 3 / 25.0, 4 / 41.0, 5 / 61.0, 6 / 36.0}},
      {"LayerNormalization's mean",
       17,
       [](Model& m) {
         m.floats("s", {3}, {1, 1, 1});
         m.node("LayerNormalization", {"x", "s"}, {"n", "y", "d"});
       },
       "f32[2, 1]",
       {2, 5}},
      {"and inverse deviation",
       17,
       [](Model& m) {
         m.floats("s", {3}, {1, 1, 1});
         m.node("LayerNormalization", {"x", "s"}, {"n", "", "y"});
       },
       "f32[2, 1]",
       {1 / std::sqrt(2 / 3.0 + 1e-5), 1 / std::sqrt(2 / 3.0 + 1e-5)}},
      {"BatchNormalization of a vector",
       15,
       [](Model& m) {
         m.ints("s", {6});
         m.node("Reshape", {"x", "s"}, {"v"});
         for (const char* name : {"scale", "b", "mean", "var"})
           m.floats(name, {1}, {name == std::string("var") ? 4.0f : 1.0f});
         set(m.node("BatchNormalization", {"v", "scale", "b", "mean", "var"}, {"y"}), "epsilon", 0.0f);
       },
       "f32[6]",
       {1, 1.5, 2, 2.5, 3, 3.5}},
  };
  for (const OpsetForm& form : forms) check_form(form);
}

TEST_CASE("attention joins its cache, and sees only the keys it may") {
  // Two positions of three features, one head; the values tell which key was seen.
  const auto attention = [](std::vector<std::string> more, std::vector<std::string> outputs,
                            std::function<void(Model&, proto::NodeProto&)> change, const char* output) {
    return [=](Model& m) {
      m.ints("s", {1, 2, 3});
      m.node("Reshape", {"x", "s"}, {"q"});
      m.floats("past", {1, 1, 1, 3}, {0, 0, 0});
      m.floats("zero", {}, {0});
      m.node("Mul", {"q", "zero"}, {"same"});  // equal scores: the mean of what is seen
      std::vector<std::string> inputs = {"same", "same", "q"};
      inputs.insert(inputs.end(), more.begin(), more.end());
      auto& n = m.node("Attention", inputs, outputs);
      set(n, "q_num_heads", int64_t{1});
      set(n, "kv_num_heads", int64_t{1});
      change(m, n);
      m.node("Identity", {output}, {"y"});
    };
  };
  const auto causal = [](Model&, proto::NodeProto& n) { set(n, "is_causal", int64_t{1}); };
  check_form({"causal after a cache",
              23,
              attention({"", "past", "past"}, {"o", "k", "v"}, causal, "o"),
              "f32[1, 2, 3]",
              {0.5, 1, 1.5, 5 / 3.0, 7 / 3.0, 3}});
  check_form({"the joined values",
              23,
              attention({"", "past", "past"}, {"o", "k", "v"}, causal, "v"),
              "f32[1, 1, 3, 3]",
              {0, 0, 0, 1, 2, 3, 4, 5, 6}});
  check_form({"a window to the left",
              25,
              attention(
                  {}, {"o"},
                  [](Model&, proto::NodeProto& n) {
                    set(n, "left_window_size", int64_t{0});
                    set(n, "right_window_size", int64_t{0});
                  },
                  "o"),
              "f32[1, 2, 3]",
              {1, 2, 3, 4, 5, 6}});
  check_form({"padded keys",
              24,
              attention(
                  {"", "", "", "seen"}, {"o"}, [](Model& m, proto::NodeProto&) { m.ints("seen", {1}); }, "o"),
              "f32[1, 2, 3]",
              {1, 2, 3, 1, 2, 3}});
  check_form({"the weights, under a cap",
              23,
              attention(
                  {}, {"o", "", "", "w"},
                  [](Model&, proto::NodeProto& n) {
                    set(n, "softcap", 2.0f);
                    set(n, "is_causal", int64_t{1});
                    set(n, "qk_matmul_output_mode", int64_t{3});
                  },
                  "w"),
              "f32[1, 1, 2, 2]",
              {1, 0, 0.5, 0.5}});
}

TEST_CASE("rotary embeddings turn pairs, by halves or interleaved") {
  // A quarter turn: (a, b) becomes (-b, a). One head of size 2 in two positions; the third feature stays.
  const auto rotary = [](int64_t interleaved) {
    return [=](Model& m) {
      m.ints("s", {1, 1, 1, 6});
      m.node("Reshape", {"x", "s"}, {"h"});
      m.floats("c", {1, 1, 2}, {0, 0});
      m.floats("d", {1, 1, 2}, {1, 1});
      auto& n = m.node("RotaryEmbedding", {"h", "c", "d"}, {"y"});
      set(n, "interleaved", interleaved);
      set(n, "rotary_embedding_dim", int64_t{4});
    };
  };
  check_form({"halves", 23, rotary(0), "f32[1, 1, 1, 6]", {-3, -4, 1, 2, 5, 6}});
  check_form({"interleaved", 23, rotary(1), "f32[1, 1, 1, 6]", {-2, 1, -4, 3, 5, 6}});
}

}  // namespace heddle::onnx
