#include "op_cases_fixture.h"

namespace heddle::conformance {
namespace {

using S = std::string;

void add_grouped_products(std::vector<Case>& cases) {
  const std::vector<DType> short_floats = {DType::kF32, DType::kF16, DType::kBF16};
  for (const int64_t transposed : {0, 1}) {
    const ir::Attributes how = {{"trans_b", I{transposed}}};
    const auto matrices = [&](int64_t groups, int64_t k, int64_t n, bool constant) {
      const Extents extents = transposed != 0 ? Extents{groups, n, k} : Extents{groups, k, n};
      return constant ? weight(extents, -0.3, 0.3) : T(extents, -0.3, 0.3);
    };
    // A group of none, of one, of few and of many rows, and rows of no group; fewer rows than groups.
    const In ends = {{5}, 0, 0, DType::kI32, false, Is{0, 1, 7, 30, 31}, false};
    const In past = {{4}, 0, 0, DType::kI64, false, Is{1, 1, 2, 2}, false};
    // What no program means: ends out of order and beyond all rows, and none that is within.
    const In wild = {{5}, 0, 0, DType::kI32, false, Is{-5, 40, 3, 3, INT32_MAX}, false};
    const In far = {{4}, 0, 0, DType::kI64, false, Is{INT64_MIN, 20, 10, INT64_MAX}, false};
    const In before = {{4}, 0, 0, DType::kI64, false, Is{0, -1, -7, 0}, false};
    cases.push_back({"GroupedMatMul", {T({33, 70}), matrices(5, 70, 33, false), ends}, how, kFloats});
    cases.push_back({"GroupedMatMul", {T({33, 70}), matrices(5, 70, 33, true), ends}, how, kFloats});
    cases.push_back({"GroupedMatMul", {T({3, 8}), matrices(4, 8, 5, false), past}, how, kFloats});
    cases.push_back({"GroupedMatMul", {T({33, 8}), matrices(5, 8, 5, false), wild}, how, kFloats});
    cases.push_back({"GroupedMatMul", {T({33, 8}), matrices(4, 8, 5, false), far}, how, kFloats});
    cases.push_back({"GroupedMatMul", {T({33, 8}), matrices(4, 8, 5, false), before}, how, kFloats});
    cases.push_back({"GroupedMatMul", {T({33, 600}), matrices(5, 600, 250, false), ends}, how, short_floats});
  }
}

void add_products(std::vector<Case>& cases) {
  const std::vector<DType> products = {DType::kF32, DType::kF16, DType::kBF16,
                                       DType::kF64, DType::kI32, DType::kI64};
  cases.push_back({"MatMul", {T({5, 7}), T({7, 3})}, {}, products});
  cases.push_back({"MatMul", {T({2, 3, 5, 7}), T({2, 3, 7, 4})}, {}, products});
  cases.push_back({"MatMul", {T({2, 1, 5, 7}), T({3, 7, 4})}, {}, products});
  cases.push_back({"MatMul", {T({3, 5, 7}), T({7, 4})}, {}, products});
  cases.push_back({"MatMul", {T({5, 7}), T({3, 7, 4})}, {}, products});
  cases.push_back({"MatMul", {T({7}), T({7, 4})}, {}, products});
  cases.push_back({"MatMul", {T({2, 5, 7}), T({7})}, {}, products});
  cases.push_back({"MatMul", {T({7}), T({7})}, {}, products});
  cases.push_back({"MatMul", {T({3, 0}), T({0, 4})}, {}, products});
  cases.push_back({"MatMul", {T({0, 3}), T({3, 4})}, {}, products});
  cases.push_back({"MatMul", {T({4, 64, 65}), T({4, 65, 66})}, {}, kF32});
  cases.push_back({"MatMul", {T({3, 5, 7}), weight({7, 4})}, {}, kFloats});
  // At the edges of the CUDA driver's tiles and parts of k, and more tiles than it launches blocks.
  const std::vector<DType> short_floats = {DType::kF32, DType::kF16, DType::kBF16};
  cases.push_back({"MatMul", {T({65, 257}, -0.2, 0.2), T({257, 65}, -0.2, 0.2)}, {}, short_floats});
  cases.push_back({"MatMul", {T({64, 256}, -0.2, 0.2), T({256, 64}, -0.2, 0.2)}, {}, short_floats});
  cases.push_back({"MatMul", {T({4, 1}), T({1, 8})}, {}, short_floats});
  cases.push_back({"MatMul", {T({17, 16}), T({16, 17})}, {}, short_floats});
  cases.push_back({"MatMul", {T({33, 15}), T({15, 31})}, {}, short_floats});
  cases.push_back({"MatMul", {T({150, 2, 3}), T({150, 3, 2})}, {}, short_floats});
  add_grouped_products(cases);
  cases.push_back(
      {"Gemm", {T({40, 36}), T({72, 40}), T({1, 72})}, {{"transA", I{1}}, {"transB", I{1}}}, short_floats});
  cases.push_back({"Gemm", {T({5, 7}), T({7, 3}), T({3})}, {}, kFloats});
  cases.push_back({"Gemm",
                   {T({7, 5}), T({3, 7}), T({5, 1})},
                   {{"transA", I{1}}, {"transB", I{1}}, {"alpha", 0.5}, {"beta", 2.0}},
                   kFloats});
  cases.push_back({"Gemm", {T({5, 7}), T({7, 3})}, {{"alpha", 1.5}}, kFloats});
  cases.push_back({"Gemm", {T({5, 7}), weight({3, 7}), weight({3})}, {{"transB", I{1}}}, kFloats});
  for (const char* activation : {"", "relu", "gelu", "gelu_tanh", "tanh", "sigmoid", "silu", "leaky_relu",
                                 "hard_sigmoid", "hard_swish", "clip"}) {
    cases.push_back({"Linear",
                     {T({2, 5, 33}), weight({33, 70}, -0.3, 0.3), weight({70}), T({2, 5, 70})},
                     {{"activation", S(activation)}, {"activation_alpha", 0.2}, {"activation_beta", 0.6}},
                     kFloats});
  }
  cases.push_back({"Linear", {T({3, 20}), weight({7, 20})}, {{"trans_w", I{1}}}, kFloats});
  cases.push_back({"Linear", {T({3, 20}), T({20, 7}), T({7})}, {}, kFloats});
  cases.push_back({"Linear", {T({1, 20}), T({20, 7})}, {}, kFloats});
  cases.push_back({"Linear", {T({2, 2, 20}), T({7, 20}), T({7})}, {{"trans_w", I{1}}}, kFloats});
  cases.push_back({"Linear", {T({1, 512}), T({1100, 512}, -0.1, 0.1), T({1100})}, {{"trans_w", I{1}}}, kF32});
  cases.push_back({"Linear", {T({3, 512}), T({512, 1100}, -0.1, 0.1)}, {}, kF32});
  cases.push_back({"Linear", {T({0, 20}), weight({20, 7})}, {}, kFloats});
  cases.push_back({"Linear", {T({1, 384}), weight({384, 384}, -0.1, 0.1), weight({384})}, {}, kF32});
  cases.push_back({"Linear", {T({77, 384}), weight({384, 1152}, -0.1, 0.1), weight({1152})}, {}, kF32});
  cases.push_back({"Linear",
                   {T({130, 96}), weight({96, 40}, -0.1, 0.1), none(), T({130, 40})},
                   {{"activation", S("gelu")}},
                   kF32});
  cases.push_back({"Linear", {T({300, 512}), T({512, 100}, -0.1, 0.1)}, {}, kF32});
}

void add_windows(std::vector<Case>& cases) {
  cases.push_back({"Conv", {T({2, 6, 20}), weight({8, 6, 5}), weight({8})}, {}, kFloats});
  cases.push_back({"Conv",
                   {T({1, 4, 9, 11}), weight({6, 4, 3, 3})},
                   {{"strides", Is{2, 1}}, {"pads", Is{1, 0, 2, 3}}},
                   kFloats});
  cases.push_back({"Conv",
                   {T({2, 4, 9, 11}), weight({6, 2, 3, 2}), weight({6})},
                   {{"group", I{2}}, {"dilations", Is{2, 3}}},
                   kFloats});
  cases.push_back({"Conv",
                   {T({2, 8, 7, 7}), weight({8, 1, 3, 3})},
                   {{"group", I{8}}, {"pads", Is{1, 1, 1, 1}}},
                   kFloats});
  cases.push_back({"Conv",
                   {T({1, 3, 5, 6, 7}), weight({4, 3, 2, 3, 2}), weight({4})},
                   {{"auto_pad", S("SAME_UPPER")}},
                   kFloats});
  cases.push_back({"Conv",
                   {T({1, 3, 8, 8}), weight({4, 3, 3, 3})},
                   {{"auto_pad", S("SAME_LOWER")}, {"strides", Is{2, 2}}},
                   kFloats});
  cases.push_back({"Conv",
                   {T({2, 5, 6, 6}), weight({5, 5, 3, 3}), weight({5}), T({2, 5, 6, 6})},
                   {{"pads", Is{1, 1, 1, 1}}, {"activation", S("relu")}},
                   kFloats});
  // Sequences written as images, and as volumes, of width 1.
  cases.push_back(
      {"Conv",
       {T({2, 4, 20, 1}), weight({6, 2, 5, 1}), weight({6}), T({2, 6, 9, 1})},
       {{"pads", Is{1, 0, 1, 0}}, {"strides", Is{2, 1}}, {"group", I{2}}, {"activation", S("relu")}},
       kFloats});
  cases.push_back({"Conv",
                   {T({1, 4, 9, 1, 1}), weight({6, 4, 3, 1, 1})},
                   {{"dilations", Is{2, 1, 1}}, {"kernel_shape", Is{3, 1, 1}}},
                   kFloats});
  cases.push_back({"Conv", {T({1, 4, 9, 1}), weight({6, 4, 3, 3})}, {{"pads", Is{0, 1, 0, 1}}}, kFloats});
  cases.push_back({"Conv", {T({1, 4, 9}), T({6, 4, 3})}, {}, kFloats});
  cases.push_back({"Conv", {T({0, 4, 9}), weight({6, 4, 3})}, {}, kFloats});
  cases.push_back({"Conv",
                   {T({1, 64, 17, 9}), weight({32, 64, 3, 3}, -0.1, 0.1), weight({32})},
                   {{"pads", Is{1, 1, 1, 1}}, {"strides", Is{2, 2}}},
                   kF32});
  cases.push_back({"Conv",
                   {T({4, 64, 40}), weight({32, 64, 5}, -0.1, 0.1), weight({32})},
                   {{"activation", S("relu")}},
                   kF32});
}

void add_pools(std::vector<Case>& cases) {
  cases.push_back({"MaxPool",
                   {T({2, 3, 9, 8})},
                   {{"kernel_shape", Is{3, 2}}, {"strides", Is{2, 2}}, {"pads", Is{1, 0, 1, 1}}},
                   kFloats});
  cases.push_back({"MaxPool",
                   {T({2, 3, 10})},
                   {{"kernel_shape", Is{3}}, {"strides", Is{2}}, {"ceil_mode", I{1}}},
                   kFloats});
  cases.push_back(
      {"MaxPool", {T({1, 3, 9, 9})}, {{"kernel_shape", Is{2, 2}}, {"dilations", Is{2, 3}}}, kFloats});
  cases.push_back({"MaxPool", {T({1, 3, 9, 9})}, {{"kernel_shape", Is{2, 2}}}, {DType::kI8, DType::kU8}});
  cases.push_back({"AveragePool",
                   {T({2, 3, 9, 8})},
                   {{"kernel_shape", Is{3, 2}}, {"strides", Is{2, 2}}, {"pads", Is{1, 0, 1, 1}}},
                   kFloats});
  cases.push_back({"AveragePool",
                   {T({2, 3, 9, 8})},
                   {{"kernel_shape", Is{3, 2}}, {"pads", Is{1, 0, 1, 1}}, {"count_include_pad", I{1}}},
                   kFloats});
  cases.push_back({"AveragePool",
                   {T({2, 3, 10})},
                   {{"kernel_shape", Is{3}},
                    {"strides", Is{2}},
                    {"ceil_mode", I{1}},
                    {"count_include_pad", I{1}},
                    {"pads", Is{1, 1}}},
                   kFloats});
  cases.push_back({"AveragePool", {T({1, 2, 4, 5, 6})}, {{"kernel_shape", Is{2, 2, 2}}}, kFloats});
  for (const char* op : {"GlobalAveragePool", "GlobalMaxPool"}) {
    cases.push_back({op, {T({2, 5, 7, 9})}, {}, kFloats});
    cases.push_back({op, {T({2, 5, 33})}, {}, kFloats});
  }
}

void add_normalizations(std::vector<Case>& cases) {
  cases.push_back({"BatchNormalization",
                   {T({2, 5, 3, 4}), T({5}), T({5}), T({5}), T({5}, 0.1, 2)},
                   {{"epsilon", 1e-3}},
                   kFloats});
  cases.push_back({"BatchNormalization",
                   {T({6, 5}), weight({5}), weight({5}), weight({5}), weight({5}, 0.1, 2)},
                   {},
                   kFloats});
  cases.push_back({"LayerNormalization", {T({3, 5, 37}), T({37}), T({37})}, {}, kFloats});
  cases.push_back(
      {"LayerNormalization", {T({3, 5, 8}), T({5, 8})}, {{"axis", I{1}}, {"epsilon", 1e-2}}, kFloats});
  cases.push_back({"LayerNormalization", {T({0, 5}), T({5})}, {}, kFloats});
  cases.push_back({"RMSNormalization", {T({4, 33}), T({33})}, {}, kFloats});
  cases.push_back({"InstanceNormalization", {T({2, 5, 4, 6}), T({5}), T({5})}, {}, kFloats});
  cases.push_back({"GroupNormalization", {T({2, 6, 4, 5}), T({6}), T({6})}, {{"num_groups", I{3}}}, kFloats});
  // Rows of less than a warp, of several, and longer than a block's registers.
  for (const int64_t length : {12, 384, 1030, 9001}) {
    cases.push_back({"LayerNormalization", {T({5, length}), T({length}), T({length})}, {}, kFloats});
    cases.push_back({"RMSNormalization", {T({5, length}), T({1})}, {}, kFloats});
    for (const char* op : {"Softmax", "LogSoftmax"})
      cases.push_back({op, {T({5, length}, -9, 9)}, {}, kFloats});
  }
  cases.push_back({"LayerNormalization", {T({3, 20, 40}), T({40}), T({20, 40})}, {{"axis", I{1}}}, kFloats});
  cases.push_back(
      {"GroupNormalization", {T({2, 6, 20, 30}), T({6}), T({6})}, {{"num_groups", I{2}}}, kFloats});
  for (const char* op : {"Softmax", "LogSoftmax"}) {
    cases.push_back({op, {T({3, 5, 37}, -9, 9)}, {}, kFloats});
    cases.push_back({op, {T({3, 5, 8}, -9, 9)}, {{"axis", I{1}}}, kFloats});
    cases.push_back({op, {T({3, 0}, -9, 9)}, {}, kFloats});
  }
}

void add_attention(std::vector<Case>& cases) {
  const ir::Attributes four = {{"num_heads", I{4}}};
  const ir::Attributes packed = {{"num_heads", I{4}}, {"packed", I{1}}};
  cases.push_back({"Attention", {T({2, 5, 32}), T({2, 7, 32}), T({2, 7, 24})}, four, kFloats});
  cases.push_back({"Attention", {T({2, 9, 96})}, packed, kFloats});
  cases.push_back({"Attention", {T({2, 9, 96}), none(), none(), bools({2, 1, 1, 9})}, packed, kFloats});
  cases.push_back({"Attention", {T({2, 9, 96}), none(), none(), T({2, 1, 1, 9})}, packed, kFloats});
  cases.push_back({"Attention", {T({2, 9, 96}), none(), none(), f32s({9, 9})}, packed, kFloats});
  cases.push_back({"Attention", {T({2, 9, 96}), none(), none(), T({4, 9, 1})}, packed, kF32});
  cases.push_back({"Attention",
                   {T({2, 9, 96}), none(), none(), bools({2, 4, 9, 9})},
                   {{"num_heads", I{4}}, {"packed", I{1}}, {"causal", I{1}}},
                   kFloats});
  cases.push_back({"Attention",
                   {T({1, 6, 32}), T({1, 6, 16}), T({1, 6, 16})},
                   {{"num_heads", I{4}}, {"kv_heads", I{2}}, {"causal", I{1}}, {"scale", 0.3}},
                   kFloats});
  cases.push_back(
      {"Attention", {T({1, 6, 64})}, {{"num_heads", I{4}}, {"kv_heads", I{2}}, {"packed", I{1}}}, kFloats});
  cases.push_back({"Attention", {T({0, 6, 96})}, packed, kFloats});
  cases.push_back({"Attention", {T({3, 0, 96})}, packed, kFloats});
  cases.push_back({"Attention", {T({2, 5, 32}), T({2, 0, 32}), T({2, 0, 32})}, four, kFloats});
  cases.push_back({"Attention", {T({1, 131, 3 * 384})}, {{"num_heads", I{12}}, {"packed", I{1}}}, kF32});
  cases.push_back({"Attention",
                   {T({3, 32, 3 * 384}), none(), none(), bools({3, 1, 1, 32})},
                   {{"num_heads", I{12}}, {"packed", I{1}}},
                   kF32});
  cases.push_back({"Attention",
                   {T({1, 200, 16}), T({1, 700, 16}), T({1, 700, 16}), bools({200, 700})},
                   {{"num_heads", I{2}}},
                   kF32});
}

// Heads, queries and keys that are no multiples of a kernel's tiles.
void add_attention_edges(std::vector<Case>& cases) {
  const ir::Attributes two = {{"num_heads", I{2}}};
  const ir::Attributes causal = {{"num_heads", I{2}}, {"causal", I{1}}};
  cases.push_back({"Attention", {T({1, 70, 2 * 64}), T({1, 45, 2 * 64}), T({1, 45, 2 * 50})}, two, kFloats});
  cases.push_back({"Attention", {T({2, 37, 2 * 33}), T({2, 66, 2 * 33}), T({2, 66, 2 * 61})}, two, kFloats});
  cases.push_back({"Attention", {T({1, 33, 2 * 99}), T({1, 65, 2 * 99}), T({1, 65, 2 * 128})}, two, kFloats});
  cases.push_back(
      {"Attention", {T({1, 9, 2 * 130}), T({1, 150, 2 * 130}), T({1, 150, 2 * 5})}, two, kFloats});
  cases.push_back(
      {"Attention", {T({1, 70, 2 * 23}), T({1, 40, 2 * 23}), T({1, 40, 2 * 23})}, causal, kFloats});
  cases.push_back(
      {"Attention", {T({1, 40, 2 * 72}), T({1, 70, 2 * 72}), T({1, 70, 2 * 72})}, causal, kFloats});
  cases.push_back({"Attention", {T({3, 1, 2 * 64}), T({3, 97, 2 * 64}), T({3, 97, 2 * 64})}, two, kFloats});
  const In nothing = {{2, 1, 7}, 0, 0, DType::kBool, false, std::vector<int64_t>(14, 0), false};
  cases.push_back(
      {"Attention", {T({1, 7, 2 * 16}), T({1, 7, 2 * 16}), T({1, 7, 2 * 16}), nothing}, two, kFloats});
  cases.push_back({"Attention",
                   {T({2, 40, 6 * 20}), T({2, 50, 2 * 20}), T({2, 50, 2 * 20}), T({6, 1, 50}, -9, 9)},
                   {{"num_heads", I{6}}, {"kv_heads", I{2}}},
                   kFloats});
}

// PyTorch's eager calls bring a convolution's weight as an input.
void repeat_with_weights_as_inputs(std::vector<Case>& cases) {
  const size_t count = cases.size();
  for (size_t i = 0; i < count; ++i) {
    if (cases[i].op != "Conv" && cases[i].op != "ConvTranspose") continue;
    Case again = cases[i];
    for (In& in : again.in) in.constant = false;
    cases.push_back(std::move(again));
  }
}

}  // namespace

void add_neural_cases(std::vector<Case>& cases) {
  add_products(cases);
  add_windows(cases);
  add_pools(cases);
  add_normalizations(cases);
  add_attention(cases);
  add_attention_edges(cases);
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  add_elementwise_cases(cases);
  add_movement_cases(cases);
  add_reduction_cases(cases);
  add_neural_cases(cases);
  add_window_cases(cases);
  add_recurrent_cases(cases);
  add_placement_cases(cases);
  add_control_cases(cases);
  repeat_with_weights_as_inputs(cases);
  return cases;
}

}  // namespace heddle::conformance
