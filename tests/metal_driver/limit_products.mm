// Products, convolutions and attention.
#include "limit_differences.h"
#include "limit_probes.h"
#include "limit_trial.h"

namespace heddle::limits {
namespace {

float left_at(int64_t i) { return static_cast<float>(i % 7 - 3); }
float right_at(int64_t i) { return static_cast<float>(i % 5 - 2); }

// [batch, rows, terms] times [batch, terms, columns], batch in any number of leading axes.
std::string product(const Shape& leading, int64_t rows, int64_t terms, int64_t columns) {
  Trial trial;
  const auto with = [&](int64_t a, int64_t b) {
    Shape shape = leading;
    shape.push_back(a);
    shape.push_back(b);
    return shape;
  };
  MPSGraphTensor* a = trial.input<float>(with(rows, terms), left_at);
  MPSGraphTensor* b = trial.input<float>(with(terms, columns), right_at);
  MPSGraphTensor* y = [trial.graph() matrixMultiplicationWithPrimaryTensor:a secondaryTensor:b name:nil];
  const auto got = trial.run<float>(y, with(rows, columns));
  return differs(got, [&](int64_t i) {
    const int64_t batch = i / (rows * columns), row = i / columns % rows, column = i % columns;
    double sum = 0;  // of small integers: exact in f32, too
    for (int64_t k = 0; k < terms; ++k)
      sum += left_at((batch * rows + row) * terms + k) * right_at((batch * terms + k) * columns + column);
    return sum;
  });
}

std::string many_terms(bool small) { return product({}, 16, small ? 100 : 32768, 16); }
std::string many_terms_batched(bool small) { return product({2}, 16, small ? 100 : 32768, 16); }
std::string few_rows_of_many_terms(bool small) { return product({}, 4, small ? 100 : 32768, 64); }
std::string many_rows(bool small) { return product({}, small ? 101 : 32769, 16, 8); }
std::string many_columns(bool small) { return product({}, 8, 16, small ? 101 : 32769); }
std::string five_axes(bool) { return product({2, 2, 2}, 3, 4, 5); }

std::string convolution(bool small) {
  const int64_t width = small ? 101 : 65537;
  Trial trial;
  MPSGraphTensor* x = trial.input<float>({1, 1, 1, width}, left_at);
  MPSGraphTensor* w = trial.input<float>({1, 1, 1, 3}, [](int64_t i) { return static_cast<float>(i + 1); });
  MPSGraphConvolution2DOpDescriptor* how =
      [MPSGraphConvolution2DOpDescriptor descriptorWithStrideInX:1
                                                       strideInY:1
                                                 dilationRateInX:1
                                                 dilationRateInY:1
                                                          groups:1
                                                     paddingLeft:0
                                                    paddingRight:0
                                                      paddingTop:0
                                                   paddingBottom:0
                                                    paddingStyle:MPSGraphPaddingStyleExplicit
                                                      dataLayout:MPSGraphTensorNamedDataLayoutNCHW
                                                   weightsLayout:MPSGraphTensorNamedDataLayoutOIHW];
  MPSGraphTensor* y = [trial.graph() convolution2DWithSourceTensor:x weightsTensor:w descriptor:how name:nil];
  const auto got = trial.run<float>(y, {1, 1, 1, width - 2});
  return differs(got, [](int64_t i) { return left_at(i) + 2 * left_at(i + 1) + 3 * left_at(i + 2); }, 1e-3);
}

// Scores that are equal for all keys, so that each result is the mean of the values.
std::string attention(bool identity) {
  const int64_t heads = 2, rows = 32, depth = 64;
  Trial trial;
  const Shape shape = {1, heads, rows, depth}, turned = {1, heads, depth, rows};
  MPSGraphTensor* q = trial.input<float>(shape, [](int64_t) { return 0.5F; });
  MPSGraphTensor* k = trial.input<float>(turned, [](int64_t) { return 0.25F; });
  MPSGraphTensor* v = trial.input<float>(shape, [&](int64_t i) { return left_at(i % depth); });
  MPSGraph* graph = trial.graph();
  MPSGraphTensor* scores = [graph matrixMultiplicationWithPrimaryTensor:q secondaryTensor:k name:nil];
  if (identity) scores = [graph identityWithTensor:scores name:nil];
  MPSGraphTensor* shares = [graph softMaxWithTensor:scores axis:3 name:nil];
  MPSGraphTensor* y = [graph matrixMultiplicationWithPrimaryTensor:shares secondaryTensor:v name:nil];
  return differs(trial.run<float>(y, shape), [&](int64_t i) { return left_at(i % depth); }, 1e-3);
}
std::string plain_attention(bool) { return attention(false); }
std::string attention_behind_identity(bool) { return attention(true); }

constexpr Probe kProbes[] = {
    {"product terms", "16 x 32768 x 16", many_terms},
    {"product terms", "two of 16 x 32768 x 16", many_terms_batched},
    {"product terms", "4 x 32768 x 64", few_rows_of_many_terms},
    {"product extents", "32769 rows", many_rows},
    {"product extents", "32769 columns", many_columns},
    {"product axes", "five axes", five_axes},
    {"convolution extents", "65537 wide", convolution},
    {"fused attention", "product, softmax, product in f32", plain_attention},
    {"fused attention", "the same with an identity between", attention_behind_identity},
};

}  // namespace

std::span<const Probe> product_probes() { return kProbes; }

}  // namespace heddle::limits
