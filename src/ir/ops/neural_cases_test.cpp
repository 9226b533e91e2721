#include <cmath>
#include <limits>

#include "ir/ops/cases.h"

namespace heddle::ir {

namespace {

void add_products(std::vector<Case>& all) {
  const Sample x = f32({kB, 3}, kSix);
  const Sample w = f32({3, 2}, {1, 0, 0, 1, 1, -1});
  const Sample wt = f32({2, 3}, {1, 0, 1, 0, 1, -1});
  all.push_back({"MatMul", {x, w}, {}, {f32({kB, 2}, {4, -1, 10, -1})}});
  all.push_back({"MatMul", {f32({3}, {1, 2, 3}), w}, {}, {f32({2}, {4, -1})}});
  all.push_back({"MatMul", {x, f32({3}, {1, 0, 1})}, {}, {f32({kB}, {4, 10})}});
  all.push_back({"MatMul", {f32({2}, {1, 2}), f32({2}, {3, 4})}, {}, {f32({}, {11})}});
  all.push_back({"MatMul",
                 {f32({kB, 1, 1, 2}, {1, 2, 3, 4}), f32({kS, 2, 1}, kSix)},
                 {},
                 {f32({kB, kS, 1, 1}, {5, 11, 17, 11, 25, 39})}});
  all.push_back({"MatMul", {i64({1, 2}, {3, 4}), i64({2, 1}, {5, 6})}, {}, {i64({1, 1}, {39})}});
  all.push_back({"MatMul", {f32({kB, 0}, {}), f32({0, 1}, {})}, {}, {f32({kB, 1}, {0, 0})}});
  const Sample many = f32({4, 1}, {1, 2, 3, 4}), of_groups = f32({kS, 1, 2}, kSix);
  all.push_back({"GroupedMatMul",
                 {many, of_groups, i32({kS}, {1, 1, 3})},  // the second has no row, the last row no group
                 {},
                 {f32({4, 2}, {1, 2, 10, 12, 15, 18, 0, 0})}});
  all.push_back({"GroupedMatMul",
                 {x, f32({2, 2, 3}, {1, 0, 1, 0, 1, -1, 2, 0, 0, 0, 0, 1}), i64({2}, {1, 9})},
                 {{"trans_b", i(1)}},
                 {f32({kB, 2}, {4, -1, 8, 6})}});
  all.push_back({"Gemm", {x, w, f32({2}, {1, 2})}, {}, {f32({kB, 2}, {5, 1, 11, 1})}});
  all.push_back({"Gemm",
                 {f32({3, kB}, {1, 4, 2, 5, 3, 6}), wt, f32({}, {1})},
                 {{"transA", i(1)}, {"transB", i(1)}, {"alpha", 2.0}, {"beta", 3.0}},
                 {f32({kB, 2}, {11, 1, 23, 1})}});
  all.push_back({"Linear",
                 {x, w, f32({2}, {0, -1}), f32({kB, 2}, {1, 1, 2, 2})},
                 {{"activation", text_of("relu")}},
                 {f32({kB, 2}, {5, 1, 12, 2})}});
  all.push_back(
      {"Linear", {f32({1, kB, 3}, kSix), wt}, {{"trans_w", i(1)}}, {f32({1, kB, 2}, {4, -1, 10, -1})}});
  all.push_back({"Linear",
                 {f32({1, 1}, {1}), f32({1, 1}, {2})},
                 {{"activation", text_of("gelu")}},
                 {f32({1, 1}, {1.95449974})}});
  all.push_back({"Linear",
                 {f32({1, 1}, {1}), f32({1, 1}, {2})},
                 {{"activation", text_of("gelu_tanh")}},
                 {f32({1, 1}, {1.95459769})}});
  all.push_back({"Linear",
                 {f32({1, 1}, {1}), f32({1, 1}, {2})},
                 {{"activation", text_of("silu")}},
                 {f32({1, 1}, {1.76159416})}});
  all.push_back({"Linear",
                 {f32({1, 1}, {1}), f32({1, 1}, {2})},
                 {{"activation", text_of("sigmoid")}},
                 {f32({1, 1}, {0.88079708})}});
  all.push_back({"Linear",
                 {f32({1, 1}, {1}), f32({1, 1}, {1})},
                 {{"activation", text_of("tanh")}},
                 {f32({1, 1}, {0.76159416})}});
  const Sample six = f32({6, 1}, {-4, -1, 0, 0.5, 2, 4}), one_weight = f32({1, 1}, {1});
  const auto tuned = [&](const char* name, double alpha, double beta, std::vector<double> wanted) {
    all.push_back({"Linear",
                   {six, one_weight},
                   {{"activation", text_of(name)}, {"activation_alpha", alpha}, {"activation_beta", beta}},
                   {f32({6, 1}, std::move(wanted))}});
  };
  tuned("leaky_relu", 0.25, 0, {-1, -0.25, 0, 0.5, 2, 4});
  tuned("hard_sigmoid", 0.25, 0.5, {0, 0.25, 0.5, 0.625, 1, 1});
  tuned("hard_swish", 0, 0, {0, -1.0 / 3, 0, 0.29166667, 5.0 / 3, 4});
  tuned("clip", -2, 1, {-2, -1, 0, 0.5, 1, 1});
}

void add_windows(std::vector<Case>& all) {
  const Sample line = f32({kB, 1, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  const Sample taps = f32({1, 1, 2}, {1, 10});
  all.push_back({"Conv", {line, taps}, {}, {f32({kB, 1, 3}, {21, 32, 43, 65, 76, 87})}});
  all.push_back({"Conv", {f32({1, 1, kS + 1}, {1, 2, 3, 4}), taps}, {}, {f32({1, 1, kS}, {21, 32, 43})}});
  all.push_back({"Conv",
                 {line, taps, f32({1}, {1})},
                 {{"pads", Ints{1, 0}}, {"strides", Ints{2}}},
                 {f32({kB, 1, 2}, {11, 33, 51, 77})}});
  all.push_back({"Conv", {line, taps}, {{"dilations", Ints{2}}}, {f32({kB, 1, 2}, {31, 42, 75, 86})}});
  all.push_back({"Conv",
                 {line, taps},
                 {{"auto_pad", text_of("SAME_UPPER")}},
                 {f32({kB, 1, 4}, {21, 32, 43, 4, 65, 76, 87, 8})}});
  all.push_back({"Conv",
                 {line, taps},
                 {{"auto_pad", text_of("SAME_LOWER")}},
                 {f32({kB, 1, 4}, {10, 21, 32, 43, 50, 65, 76, 87})}});
  all.push_back(
      {"Conv", {line, taps}, {{"auto_pad", text_of("VALID")}}, {f32({kB, 1, 3}, {21, 32, 43, 65, 76, 87})}});
  all.push_back(
      {"Conv",
       {f32({1, 2, 2}, {1, 2, 3, 4}), f32({2, 1, 1}, {1, -1}), none(), f32({1, 2, 2}, {-5, 1, 5, 1})},
       {{"group", i(2)}, {"activation", text_of("relu")}},
       {f32({1, 2, 2}, {0, 3, 2, 0})}});
  all.push_back(
      {"Conv",
       {f32({1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9}), f32({2, 1, 2, 2}, {1, 0, 0, 1, 0, 1, 1, 0})},
       {},
       {f32({1, 2, 2, 2}, {6, 8, 12, 14, 6, 8, 12, 14})}});
  const Attributes two = {{"kernel_shape", Ints{2}}, {"strides", Ints{2}}};
  const Sample five = f32({kB, 1, 5}, {1, 2, 3, 4, 5, -1, -2, -3, -4, -5});
  Attributes ceil = two;
  ceil.set("ceil_mode", i(1));
  Attributes padded = ceil;
  padded.set("pads", Ints{1, 1});
  Attributes counted = padded;
  counted.set("count_include_pad", i(1));
  all.push_back({"MaxPool", {five}, two, {f32({kB, 1, 2}, {2, 4, -1, -3})}});
  all.push_back({"MaxPool", {five}, ceil, {f32({kB, 1, 3}, {2, 4, 5, -1, -3, -5})}});
  all.push_back(
      {"MaxPool", {{DType::kI8, {1, 1, 2}, {-3, -4}, {}}}, padded, {{DType::kI8, {1, 1, 2}, {-3, -4}, {}}}});
  all.push_back({"AveragePool", {five}, two, {f32({kB, 1, 2}, {1.5, 3.5, -1.5, -3.5})}});
  all.push_back({"AveragePool", {five}, padded, {f32({kB, 1, 3}, {1, 2.5, 4.5, -1, -2.5, -4.5})}});
  all.push_back({"AveragePool", {five}, counted, {f32({kB, 1, 3}, {0.5, 2.5, 4.5, -0.5, -2.5, -4.5})}});
  all.push_back({"GlobalAveragePool", {f32({1, kB, kS, 1}, kSix)}, {}, {f32({1, kB, 1, 1}, {2, 5})}});
  all.push_back({"GlobalMaxPool", {f32({1, kB, kS}, kSix)}, {}, {f32({1, kB, 1}, {3, 6})}});
}

void add_normalizations(std::vector<Case>& all) {
  const Attributes exact = {{"epsilon", 0.0}};
  const double r = std::sqrt(1.5);
  all.push_back(
      {"BatchNormalization",
       {f32({1, 2, 2}, {1, 2, 3, 4}), f32({2}, {1, 2}), f32({2}, {0, 1}), f32({2}, {1, 3}), f32({2}, {4, 1})},
       exact,
       {f32({1, 2, 2}, {0, 0.5, 1, 3})}});
  all.push_back({"LayerNormalization",
                 {f32({kB, 3}, {1, 2, 3, 0, 0, 3}), f32({3}, {1, 1, 2}), f32({3}, {0, 1, 0})},
                 exact,
                 {f32({kB, 3}, {-r, 1, 2 * r, -0.70710678, 0.29289322, 2.82842712})}});
  all.push_back({"LayerNormalization",
                 {f32({kB, 2}, {1, 2, 3, 2}), f32({}, {1})},
                 {{"axis", i(0)}, {"epsilon", 0.0}},
                 {f32({kB, 2}, {-1.41421356, 0, 1.41421356, 0})}});
  all.push_back({"RMSNormalization",
                 {f32({kB, 2}, {3, 4, 1, 1}), f32({2}, {1, 2})},
                 exact,
                 {f32({kB, 2}, {0.84852814, 2.2627417, 1, 2})}});
  all.push_back({"InstanceNormalization",
                 {f32({1, 2, 2}, {1, 3, 5, 9}), f32({2}, {1, 2}), f32({2}, {0, 1})},
                 exact,
                 {f32({1, 2, 2}, {-1, 1, -1, 3})}});
  all.push_back({"GroupNormalization",
                 {f32({1, 2, 2}, {1, 1, 3, 3}), f32({2}, {1, 2}), f32({2}, {0, 1})},
                 {{"num_groups", i(1)}, {"epsilon", 0.0}},
                 {f32({1, 2, 2}, {-1, -1, 3, 3})}});
  all.push_back({"Softmax",
                 {f32({kB, 2}, {0, std::log(3.0), 1000, 1000})},
                 {},
                 {f32({kB, 2}, {0.25, 0.75, 0.5, 0.5})}});
  all.push_back({"Softmax",
                 {f32({kB, 2}, {0, 5, std::log(3.0), -kInf})},
                 {{"axis", i(0)}},
                 {f32({kB, 2}, {0.25, 1, 0.75, 0})}});
  all.push_back({"LogSoftmax",
                 {f32({kB, 2}, {0, std::log(3.0), 7, 7})},
                 {},
                 {f32({kB, 2}, {std::log(0.25), std::log(0.75), -std::log(2.0), -std::log(2.0)})}});
}

// Keys chosen so that, with scale 1, the scores of a query 1 are 0 and log 3: weights 1/4 and 3/4.
void add_attention(std::vector<Case>& all) {
  const double l = std::log(3.0);
  const Sample q = f32({1, 2, 1}, {1, 0});
  const Sample k = f32({1, 2, 1}, {0, l});
  const Sample v = f32({1, 2, 1}, {4, 8});
  const Attributes one = {{"num_heads", i(1)}, {"scale", 1.0}};
  Attributes causal = one;
  causal.set("causal", i(1));
  all.push_back({"Attention", {q, k, v}, one, {f32({1, 2, 1}, {7, 6})}});
  all.push_back({"Attention", {q, k, v}, causal, {f32({1, 2, 1}, {4, 6})}});
  all.push_back({"Attention", {q, k, v, flags({2, 2}, {1, 0, 0, 0})}, one, {f32({1, 2, 1}, {4, 0})}});
  all.push_back({"Attention", {q, k, v, f32({1, 2}, {-kInf, -kInf})}, one, {f32({1, 2, 1}, {0, 0})}});
  all.push_back({"Attention", {q, k, v, f32({1, 2}, {l, 0})}, one, {f32({1, 2, 1}, {6, 5})}});
  // Two query heads share one key head; the default scale of extent 1 is 1.
  all.push_back(
      {"Attention",
       {f32({kB, 1, 2}, {1, 0, 0, 1}), f32({kB, 2, 1}, {0, l, 0, l}), f32({kB, 2, 1}, {4, 8, 4, 8})},
       {{"num_heads", i(2)}, {"kv_heads", i(1)}},
       {f32({kB, 1, 2}, {7, 6, 6, 7})}});
  Attributes packed = one;
  packed.set("packed", i(1));
  all.push_back({"Attention", {f32({1, 2, 3}, {1, 0, 4, 0, l, 8})}, packed, {f32({1, 2, 1}, {7, 6})}});
}

}  // namespace

std::vector<Case> neural_cases() {
  std::vector<Case> all;
  add_products(all);
  add_windows(all);
  add_normalizations(all);
  add_attention(all);
  return all;
}

}  // namespace heddle::ir
