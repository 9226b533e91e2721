#include <doctest/doctest.h>

#include <algorithm>
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

// Nodes that make "y" from x = 0, 1, 2, .. whose axes are symbols but for those that `fixed` names.
struct Form {
  std::string what;
  int64_t opset;
  ir::Extents x;
  Is fixed;
  std::function<void(Model&)> add;
  std::string shape;
  std::vector<double> values;
};

void check(const Form& form) {
  CAPTURE(form.what);
  Model m(form.opset);
  std::vector<Model::Dim> dims;
  for (size_t axis = 0; axis < form.x.rank(); ++axis) {
    const bool fixed =
        std::find(form.fixed.begin(), form.fixed.end(), static_cast<int64_t>(axis)) != form.fixed.end();
    dims.push_back(fixed ? Model::Dim(form.x[axis]) : Model::Dim("d" + std::to_string(axis)));
  }
  m.input("x", dims);
  form.add(m);
  ir::Tensor x = ir::Tensor::zeros(ir::DType::kF32, form.x);
  for (int64_t i = 0; i < x.elements(); ++i) x.set(i, static_cast<double>(i));
  check_y(m, x, form.shape, form.values);
}

Form einsum(const std::string& equation, const ir::Extents& x, std::vector<std::string> operands,
            std::string shape, std::vector<double> values) {
  return {equation,
          13,
          x,
          {},
          [=](Model& m) {
            m.floats("w", {3, 2}, {1, 2, 3, 4, 5, 6});
            m.floats("v", {3}, {1, 10, 100});
            set(m.node("Einsum", operands, {"y"}), "equation", equation.c_str());
          },
          std::move(shape),
          std::move(values)};
}

}  // namespace

TEST_CASE("Einsum is written with transposes, products and sums") {
  const std::vector<Form> forms = {
      einsum("ij->ji", {2, 3}, {"x"}, "f32[3, 2]", {0, 3, 1, 4, 2, 5}),
      einsum("ij", {2, 3}, {"x"}, "f32[2, 3]", {0, 1, 2, 3, 4, 5}),
      einsum("ba", {2, 3}, {"x"}, "f32[3, 2]", {0, 3, 1, 4, 2, 5}),
      einsum("ij->i", {2, 3}, {"x"}, "f32[2]", {3, 12}),
      einsum("ij->", {2, 3}, {"x"}, "f32[]", {15}),
      einsum("ii->i", {3, 3}, {"x"}, "f32[3]", {0, 4, 8}),
      einsum("...ii->...i", {2, 2, 2}, {"x"}, "f32[2, 2]", {0, 3, 4, 7}),
      einsum("ii", {3, 3}, {"x"}, "f32[]", {12}),
      einsum("ij,jk->ik", {2, 3}, {"x", "w"}, "f32[2, 2]", {13, 16, 40, 52}),
      einsum("ij,jk", {2, 3}, {"x", "w"}, "f32[2, 2]", {13, 16, 40, 52}),
      einsum("bij,jk->bki", {1, 2, 3}, {"x", "w"}, "f32[1, 2, 2]", {13, 40, 16, 52}),
      einsum("bij,jk->bk", {1, 2, 3}, {"x", "w"}, "f32[1, 2]", {53, 68}),
      einsum("bij,bik->bjk", {1, 2, 2}, {"x", "x"}, "f32[1, 2, 2]", {4, 6, 6, 10}),
      einsum("...j,jk->...k", {2, 3}, {"x", "w"}, "f32[2, 2]", {13, 16, 40, 52}),
      einsum("ij,j->ij", {2, 3}, {"x", "v"}, "f32[2, 3]", {0, 10, 200, 3, 40, 500}),
      einsum("i,j->ij", {2}, {"x", "v"}, "f32[2, 3]", {0, 0, 0, 1, 10, 100}),
      einsum("j,j->", {3}, {"x", "v"}, "f32[]", {210}),
      einsum("ij,ij->", {3, 2}, {"x", "w"}, "f32[]", {70}),
      einsum("ij,jk,j->i", {2, 3}, {"x", "w", "v"}, "f32[2]", {2270, 5789}),
      einsum("abc,abd->cd", {2, 1, 2}, {"x", "x"}, "f32[2, 2]", {4, 6, 6, 10}),
  };
  for (const Form& form : forms) check(form);
}

TEST_CASE("an Einsum that makes no sense is refused by the equation") {
  const std::vector<std::pair<std::string, std::string>> wrong = {{"ijk->i", "names 3 axes of input 0"},
                                                                  {"ij->k", "has to name axes"},
                                                                  {"ij->ii", "each once"},
                                                                  {"i+j->i", "holds '+'"},
                                                                  {"ij,j->i", "has 2 operands"}};
  for (const auto& [equation, message] : wrong) {
    CAPTURE(equation);
    Model m(13);
    m.input("x", {2, 3});
    set(m.node("Einsum", {"x"}, {"y"}, "e"), "equation", equation.c_str());
    m.output("y");
    const auto graph = m.read();
    REQUIRE(!graph.ok());
    CHECK(graph.status().message().find(message) != std::string::npos);
  }
}

TEST_CASE("blocks, lengths and places are rearranged for extents that are symbols") {
  const auto depth = [](const char* mode) {
    return [=](Model& m) {
      auto& node = m.node("DepthToSpace", {"x"}, {"y"});
      set(node, "blocksize", int64_t{2});
      set(node, "mode", mode);
    };
  };
  const std::vector<Form> forms = {
      {"DepthToSpace DCR", 13, {1, 8, 1, 1}, {1}, depth("DCR"), "f32[1, 2, 2, 2]", {0, 2, 4, 6, 1, 3, 5, 7}},
      {"DepthToSpace CRD", 13, {1, 8, 1, 1}, {1}, depth("CRD"), "f32[1, 2, 2, 2]", {0, 1, 2, 3, 4, 5, 6, 7}},
      {"SpaceToDepth",
       13,
       {1, 1, 2, 4},
       {1},
       [](Model& m) { set(m.node("SpaceToDepth", {"x"}, {"y"}), "blocksize", int64_t{2}); },
       "f32[1, 4, 1, 2]",
       {0, 2, 1, 3, 4, 6, 5, 7}},
      {"ReverseSequence",
       11,
       {3, 2},
       {},
       [](Model& m) {
         m.ints("n", {2, 3});
         m.node("ReverseSequence", {"x", "n"}, {"y"});
       },
       "f32[3, 2]",
       {2, 5, 0, 3, 4, 1}},
      {"ReverseSequence, batch first",
       11,
       {2, 2, 2},
       {},
       [](Model& m) {
         m.ints("n", {1, 2});
         auto& node = m.node("ReverseSequence", {"x", "n"}, {"y"});
         set(node, "batch_axis", int64_t{0});
         set(node, "time_axis", int64_t{1});
       },
       "f32[2, 2, 2]",
       {0, 1, 2, 3, 6, 7, 4, 5}},
      {"EyeLike",
       11,
       {2, 3},
       {},
       [](Model& m) { set(m.node("EyeLike", {"x"}, {"y"}), "k", int64_t{1}); },
       "f32[2, 3]",
       {0, 1, 0, 0, 0, 1}},
  };
  for (const Form& form : forms) check(form);
}

TEST_CASE("what is cut, written and selected follows extents that are symbols") {
  const std::vector<Form> forms = {
      {"CenterCropPad",
       18,
       {5, 2},
       {},
       [](Model& m) {
         m.ints("s", {2, 5});
         m.node("CenterCropPad", {"x", "s"}, {"y"});
       },
       "f32[2, 5]",
       {0, 2, 3, 0, 0, 0, 4, 5, 0, 0}},
      {"TensorScatter",
       24,
       {2, 4, 1},
       {},
       [](Model& m) {
         m.floats("u", {2, 2, 1}, {10, 11, 12, 13});
         m.ints("w", {1, 3});
         set(m.node("TensorScatter", {"x", "u", "w"}, {"y"}), "mode", "circular");
       },
       "f32[2, 4, 1]",
       {0, 10, 11, 3, 13, 5, 6, 12}},
      {"Hardmax",
       13,
       {2, 3},
       {},
       [](Model& m) { m.node("Hardmax", {"x"}, {"y"}); },
       "f32[2, 3]",
       {0, 0, 1, 0, 0, 1}},
      {"Hardmax of all",
       11,
       {2, 1, 2},
       {},
       [](Model& m) { set(m.node("Hardmax", {"x"}, {"y"}), "axis", int64_t{0}); },
       "f32[2, 1, 2]",
       {0, 0, 0, 1}},
      {"Shrink",
       11,
       {4},
       {},
       [](Model& m) {
         auto& node = m.node("Shrink", {"x"}, {"y"});
         set(node, "lambd", 1.5f);
         set(node, "bias", 0.5f);
       },
       "f32[4]",
       {0, 0, 1.5, 2.5}},
      {"ThresholdedRelu",
       11,
       {3},
       {},
       [](Model& m) { m.node("ThresholdedRelu", {"x"}, {"y"}); },
       "f32[3]",
       {0, 0, 2}},
      {"Dropout's mask",
       13,
       {2},
       {},
       [](Model& m) { m.node("Dropout", {"x"}, {"z", "y"}); },
       "bool[2]",
       {1, 1}},
  };
  for (const Form& form : forms) check(form);
}

TEST_CASE("images are resized by scales, sizes and the forms of old opsets") {
  const std::vector<double> doubled = {0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 3, 3};
  const std::vector<Form> forms = {
      {"Resize by scales",
       13,
       {1, 1, 2, 2},
       {},
       [](Model& m) {
         m.floats("s", {4}, {1, 1, 2, 2});
         m.node("Resize", {"x", "", "s"}, {"y"});
       },
       "f32[1, 1, 4, 4]",
       doubled},
      {"Resize with empty roi and scales",
       11,
       {1, 1, 2, 2},
       {},
       [](Model& m) {
         m.floats("none", {0}, {});
         m.ints("s", {1, 1, 4, 4});
         m.node("Resize", {"x", "none", "none", "s"}, {"y"});
       },
       "f32[1, 1, 4, 4]",
       doubled},
      {"Upsample",
       11,
       {1, 1, 2, 2},
       {},
       [](Model& m) {
         m.floats("s", {4}, {1, 1, 2, 2});
         m.node("Upsample", {"x", "s"}, {"y"});
       },
       "f32[1, 1, 4, 4]",
       doubled},
      {"GridSample, bilinear",
       16,
       {1, 1, 2, 2},
       {},
       [](Model& m) {
         m.floats("g", {1, 1, 1, 2}, {0, 0});
         set(m.node("GridSample", {"x", "g"}, {"y"}), "mode", "bilinear");
       },
       "f32[1, 1, 1, 1]",
       {1.5}},
      {"AffineGrid",
       20,
       {1, 2, 3},
       {},
       [](Model& m) {
         m.ints("n", {1, 1, 1, 2});
         m.node("AffineGrid", {"x", "n"}, {"y"});
       },
       "f32[1, 1, 2, 2]",
       {2, 3.5, 2, 6.5}},
  };
  for (const Form& form : forms) check(form);
}

TEST_CASE("DeformConv samples the image where the offsets say") {
  const auto deformed = [](std::vector<std::string> operands) {
    return [=](Model& m) {
      m.floats("w", {1, 1, 2, 2}, {1, 1, 1, 1});
      // The first tap half a row lower, the last one out of the image.
      std::vector<float> moves(8 * 4, 0.0f);
      std::fill_n(moves.begin(), 4, 0.5f);
      std::fill_n(moves.begin() + 24, 4, -9.0f);
      m.floats("o", {1, 8, 2, 2}, moves);
      m.floats("b", {1}, {100});
      std::vector<float> mask(4 * 4, 1.0f);
      std::fill_n(mask.begin() + 4, 4, 2.0f);
      m.floats("m", {1, 4, 2, 2}, mask);
      m.node("DeformConv", operands, {"y"});
    };
  };
  const std::vector<Form> forms = {
      {"plain", 19, {1, 1, 3, 3}, {}, deformed({"x", "w", "o"}), "f32[1, 1, 2, 2]", {5.5, 8.5, 14.5, 17.5}},
      {"with bias and mask",
       22,
       {1, 1, 3, 3},
       {},
       deformed({"x", "w", "o", "b", "m"}),
       "f32[1, 1, 2, 2]",
       {106.5, 110.5, 118.5, 122.5}},
  };
  for (const Form& form : forms) check(form);
}

TEST_CASE("CausalConvWithState carries the end of its input") {
  const auto causal = [](std::vector<std::string> outputs, bool past, const char* activation) {
    return [=](Model& m) {
      m.floats("w", {2, 1, 2}, {1, 1, 1, 2});
      m.floats("p", {1, 2, 1}, {10, 20});
      set(m.node("CausalConvWithState", {"x", "w", "", past ? "p" : ""}, outputs), "activation", activation);
    };
  };
  const std::vector<Form> forms = {
      {"from zeros",
       27,
       {1, 2, 3},
       {},
       causal({"y", "s"}, false, "none"),
       "f32[1, 2, 3]",
       {0, 1, 3, 6, 11, 14}},
      {"from a past",
       27,
       {1, 2, 3},
       {},
       causal({"y", "s"}, true, "none"),
       "f32[1, 2, 3]",
       {10, 1, 3, 26, 11, 14}},
      {"its state", 27, {1, 2, 3}, {}, causal({"o", "y"}, true, "none"), "f32[1, 2, 1]", {2, 5}},
      {"activated",
       27,
       {1, 2, 1},
       {},
       causal({"y", "s"}, false, "silu"),
       "f32[1, 2, 1]",
       {0, 2 / (1 + std::exp(-2.0))}},
      {"swish", 27, {1, 2, 3}, {}, causal({"o", "y"}, false, "swish"), "f32[1, 2, 1]", {2, 5}},
  };
  for (const Form& form : forms) check(form);
}

TEST_CASE("Fourier transforms: to the spectrum and back, whole and half") {
  const auto dft = [](int64_t inverse, int64_t onesided) {
    return [=](Model& m) {
      auto& node = m.node("DFT", {"x"}, {"y"});
      set(node, "inverse", inverse);
      set(node, "onesided", onesided);
    };
  };
  const std::vector<Form> forms = {
      {"real", 17, {1, 4, 1}, {2}, dft(0, 0), "f32[1, 4, 2]", {6, 0, -2, 2, -2, 0, -2, -2}},
      {"half", 17, {1, 4, 1}, {2}, dft(0, 1), "f32[1, 3, 2]", {6, 0, -2, 2, -2, 0}},
      {"complex", 20, {1, 2, 2}, {2}, dft(0, 0), "f32[1, 2, 2]", {2, 4, -2, -2}},
      {"back", 20, {1, 2, 2}, {2}, dft(1, 0), "f32[1, 2, 2]", {1, 2, -1, -1}},
      {"back from half", 20, {1, 3, 2}, {2}, dft(1, 1), "f32[1, 4, 1]", {2, -2.5, 0, 0.5}},
      {"STFT",
       17,
       {1, 5},
       {},
       [](Model& m) {
         m.ints("step", {2});
         m.ints("length", {2});
         m.node("STFT", {"x", "step", "", "length"}, {"y"});
       },
       "f32[1, 2, 2, 2]",
       {1, 0, -1, 0, 5, 0, -1, 0}},
  };
  for (const Form& form : forms) check(form);
}

}  // namespace heddle::onnx
