#include "op_cases_fixture.h"

namespace heddle::conformance {
namespace {

using S = std::string;

const std::vector<DType> kBytes = {DType::kI8, DType::kU8};

In of(DType dtype, Extents extents, double low, double high, bool constant = false) {
  return {extents, low, high, dtype, constant, {}, false};
}

void add_transposed(std::vector<Case>& cases) {
  const auto add = [&](In x, In w, ir::Attributes attributes, const std::vector<DType>& dtypes = kFloats) {
    cases.push_back({"ConvTranspose", {x, w}, std::move(attributes), dtypes});
  };
  add(T({2, 6, 9}), weight({6, 8, 5}), {});
  add(T({2, 6, 9}), T({6, 8, 5}), {{"strides", Is{3}}});
  add(T({0, 6, 9}), weight({6, 8, 5}), {});
  add(T({1, 4, 5, 7}), weight({4, 6, 2, 2}), {{"strides", Is{2, 2}}});
  add(T({1, 4, 5, 7}), weight({4, 6, 3, 3}), {{"strides", Is{2, 1}}, {"pads", Is{1, 0, 1, 2}}});
  add(T({2, 4, 5, 7}), weight({4, 3, 3, 2}), {{"group", I{2}}, {"dilations", Is{2, 3}}});
  add(T({2, 8, 5, 5}), weight({8, 1, 4, 4}),
      {{"group", I{8}}, {"strides", Is{2, 2}}, {"pads", Is{1, 1, 1, 1}}});
  add(T({1, 3, 4, 4}), weight({3, 5, 3, 3}),
      {{"strides", Is{2, 2}}, {"pads", Is{1, 1, 1, 1}}, {"output_padding", Is{1, 1}}});
  add(T({1, 3, 4, 4}), weight({3, 5, 3, 3}), {{"strides", Is{2, 3}}, {"output_padding", Is{1, 2}}});
  add(T({1, 3, 4, 4}), weight({3, 5, 3, 3}), {{"strides", Is{3, 2}}, {"output_shape", Is{10, 8}}});
  add(T({1, 3, 4, 4}), weight({3, 5, 3, 3}), {{"strides", Is{3, 2}}, {"output_shape", Is{14, 12}}});
  for (const char* padding : {"SAME_UPPER", "SAME_LOWER", "VALID"}) {
    add(T({1, 3, 4, 5}), weight({3, 5, 3, 2}), {{"strides", Is{2, 3}}, {"auto_pad", S(padding)}});
  }
  add(T({1, 3, 4, 3, 5}), weight({3, 4, 2, 3, 2}), {{"strides", Is{2, 1, 2}}});
  add(T({2, 5, 6, 9}), weight({5, 70, 5, 4}),
      {{"strides", Is{2, 3}}, {"dilations", Is{3, 2}}, {"pads", Is{2, 1, 3, 0}}});
  add(T({3, 6, 11}), weight({6, 9, 2}), {{"group", I{2}}, {"strides", Is{5}}, {"output_padding", Is{3}}});
  add(T({1, 3, 4, 5, 3}), weight({3, 9, 3, 2, 4}),
      {{"strides", Is{4, 2, 1}}, {"dilations", Is{6, 1, 2}}, {"activation", S("silu")}});
  // Large enough to be shared: by images, by rows with and without overlap.
  add(T({2, 64, 17, 9}), weight({64, 32, 3, 3}, -0.1, 0.1), {{"strides", Is{2, 2}}}, kF32);
  add(T({1, 64, 16, 16}), weight({64, 32, 2, 2}, -0.1, 0.1), {{"strides", Is{2, 2}}}, kF32);
  add(T({1, 64, 17, 16}), weight({64, 32, 4, 4}, -0.1, 0.1),
      {{"strides", Is{2, 2}}, {"pads", Is{1, 1, 1, 1}}}, kF32);
  add(T({1, 64, 16, 16}), weight({64, 32, 2, 2}, -0.1, 0.1), {{"strides", Is{3, 3}}}, kF32);
  cases.push_back({"ConvTranspose",
                   {T({2, 6, 9}), weight({6, 8, 5}), weight({8})},
                   {{"activation", S("relu")}, {"strides", Is{2}}},
                   kFloats});
}

// Whose images, channels and sums end within a tile, a step or a piece of those that drivers cut them into.
void add_ragged_convolutions(std::vector<Case>& cases) {
  const auto add = [&](std::vector<In> in, ir::Attributes attributes) {
    cases.push_back({"Conv", std::move(in), std::move(attributes), kFloats});
  };
  add({T({2, 3, 9, 11}), weight({130, 3, 3, 3}), weight({130}), T({2, 130, 10, 10})},
      {{"pads", Is{1, 0, 2, 1}}, {"activation", S("gelu")}});
  add({T({3, 4, 17, 15}), weight({80, 2, 3, 2}), weight({80})},
      {{"group", I{2}}, {"dilations", Is{2, 1}}, {"strides", Is{1, 2}}, {"activation", S("silu")}});
  add({T({2, 9, 3, 4, 5}), weight({70, 9, 2, 2, 2})}, {{"auto_pad", S("SAME_LOWER")}});
  add({T({3, 300, 5}), weight({9, 300, 1}, -0.2, 0.2), none(), T({3, 9, 5})}, {});
  add({T({1, 70, 4, 4}), weight({20, 70, 3, 3}, -0.2, 0.2)}, {{"auto_pad", S("SAME_UPPER")}});
  add({T({2, 3, 40, 30}), weight({6, 1, 3, 3}), weight({6}), T({2, 6, 40, 30})},
      {{"group", I{3}}, {"pads", Is{0, 1, 2, 1}}, {"activation", S("hard_swish")}});
  add({T({2, 6, 7, 33}), weight({9, 2, 2, 5})},
      {{"group", I{3}}, {"strides", Is{2, 3}}, {"dilations", Is{3, 1}}});
}

void add_pool_windows(std::vector<Case>& cases) {
  const ir::Attributes square = {{"kernel_shape", Is{2, 2}}, {"strides", Is{2, 2}}};
  cases.push_back({"MaxPool", {T({2, 3, 9, 8})}, square, kFloats, 2});
  cases.push_back({"MaxPool",
                   {T({2, 3, 4, 5, 6})},
                   {{"kernel_shape", Is{2, 3, 2}}, {"storage_order", I{1}}},
                   {DType::kF32, DType::kF64, DType::kI8},
                   2});
  cases.push_back({"LpPool", {T({2, 3, 9, 8})}, square, kFloats});
  cases.push_back({"LpPool",
                   {T({2, 3, 9})},
                   {{"kernel_shape", Is{3}}, {"p", I{3}}, {"pads", Is{1, 1}}, {"dilations", Is{2}}},
                   kFloats});
  cases.push_back({"MaxUnpool", {T({1, 2, 3, 2}), index({1, 2, 3, 2}, 0, 47)}, square, kFloats});
  cases.push_back(
      {"MaxUnpool", {T({1, 2, 3, 2}), index({1, 2, 3, 2}, 0, 47), ints({1, 2, 7, 3})}, square, kFloats});
}

void add_integers(std::vector<Case>& cases) {
  for (const DType b : kBytes) {
    for (const bool constant : {false, true}) {
      const double low = b == DType::kI8 ? -128 : 0, high = b == DType::kI8 ? 127 : 255;
      cases.push_back(
          {"MatMulInteger", {T({5, 70}, 0, 127), of(b, {70, 9}, low, high, constant)}, {}, kBytes});
      cases.push_back(
          {"MatMulInteger",
           {T({3, 4, 33}, 0, 127), of(b, {3, 33, 6}, low, high, constant), T({}, 3, 9), of(b, {6}, 0, 99)},
           {},
           kBytes});
      cases.push_back({"MatMulInteger",
                       {T({2, 1, 5, 33}, 0, 127), of(b, {3, 33, 6}, low, high, constant), T({5, 1}, 3, 9),
                        of(b, {3, 1, 6}, 0, 99)},
                       {},
                       kBytes});
      cases.push_back({"ConvInteger",
                       {T({2, 4, 9, 11}, 0, 127), of(b, {6, 2, 3, 2}, low, high, constant), T({}, 3, 9),
                        of(b, {6, 1, 1, 1}, 0, 99)},
                       {{"group", I{2}}, {"dilations", Is{2, 1}}, {"pads", Is{1, 2, 0, 1}}},
                       kBytes});
    }
  }
  const In far = of(DType::kU8, {40000, 3}, 255, 255);
  cases.push_back({"MatMulInteger", {T({2, 40000}, 127, 127), far}, {}, kBytes});
  cases.push_back({"MatMulInteger", {T({7}, 0, 9), of(DType::kI8, {7}, -9, 9)}, {}, kBytes});
  cases.push_back({"MatMulInteger", {T({2, 7}, 0, 9), of(DType::kI8, {7}, -9, 9)}, {}, kBytes});
  cases.push_back({"MatMulInteger", {T({0, 7}, 0, 9), of(DType::kI8, {7, 2}, -9, 9)}, {}, kBytes});
  cases.push_back({"MatMulInteger", {T({2, 0}, 0, 9), of(DType::kI8, {0, 2}, -9, 9)}, {}, kBytes});
  cases.push_back({"MatMulInteger",
                   {T({150, 260}, 0, 127), of(DType::kI8, {260, 130}, -128, 127, true), T({}, 3, 9)},
                   {},
                   kBytes});
  cases.push_back({"ConvInteger",
                   {T({1, 16, 20, 20}, 0, 127), of(DType::kI8, {12, 16, 3, 3}, -128, 127, true), T({}, 3, 9)},
                   {{"strides", Is{2, 1}}},
                   kBytes});
  cases.push_back(
      {"ConvInteger", {T({1, 3, 9}, 0, 127), of(DType::kI8, {2, 3, 3}, -128, 127, true)}, {}, kBytes});
}

}  // namespace

void add_window_cases(std::vector<Case>& cases) {
  add_transposed(cases);
  add_ragged_convolutions(cases);
  add_pool_windows(cases);
  add_integers(cases);
}

}  // namespace heddle::conformance
