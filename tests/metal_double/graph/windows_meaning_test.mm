// What products, convolutions and pools of MPSGraph mean: examples worked by hand from Apple's documentation,
// which docs/metal-api.md sums up.
#include "tests/metal_double/graph/meaning_fixture.h"

namespace heddle::metal_double {
namespace {

MPSGraphConvolution2DOpDescriptor* planar(NSUInteger stride, MPSGraphPaddingStyle style,
                                          MPSGraphTensorNamedDataLayout data,
                                          MPSGraphTensorNamedDataLayout weights, NSUInteger groups = 1) {
  return [MPSGraphConvolution2DOpDescriptor descriptorWithStrideInX:stride
                                                          strideInY:1
                                                    dilationRateInX:1
                                                    dilationRateInY:1
                                                             groups:groups
                                                        paddingLeft:1
                                                       paddingRight:0
                                                         paddingTop:0
                                                      paddingBottom:0
                                                       paddingStyle:style
                                                         dataLayout:data
                                                      weightsLayout:weights];
}
MPSGraphConvolution2DOpDescriptor* planar(NSUInteger stride, MPSGraphPaddingStyle style) {
  return planar(stride, style, MPSGraphTensorNamedDataLayoutNCHW, MPSGraphTensorNamedDataLayoutOIHW);
}

MPSGraphConvolution3DOpDescriptor* spatial() {
  return [MPSGraphConvolution3DOpDescriptor descriptorWithStrideInX:2
                                                          strideInY:1
                                                          strideInZ:1
                                                    dilationRateInX:1
                                                    dilationRateInY:1
                                                    dilationRateInZ:1
                                                             groups:1
                                                        paddingLeft:1
                                                       paddingRight:0
                                                         paddingTop:0
                                                      paddingBottom:0
                                                       paddingFront:0
                                                        paddingBack:0
                                                       paddingStyle:MPSGraphPaddingStyleExplicit
                                                         dataLayout:MPSGraphTensorNamedDataLayoutNDHWC
                                                      weightsLayout:MPSGraphTensorNamedDataLayoutDHWIO];
}

MPSGraphPooling4DOpDescriptor* square(NSArray<NSNumber*>* pads, BOOL padding_counts) {
  MPSGraphPooling4DOpDescriptor* d =
      [MPSGraphPooling4DOpDescriptor descriptorWithKernelSizes:n({1, 1, 2, 2})
                                                       strides:n({1, 1, 1, 2})
                                                 dilationRates:n({1, 1, 1, 1})
                                                 paddingValues:pads
                                                  paddingStyle:MPSGraphPaddingStyleExplicit];
  [d setIncludeZeroPadToAverage:padding_counts];
  return d;
}

TEST_CASE("MPSGraph double: padding of convolutions") {
  const Given row{{1, 1, 1, 4}, {1, 2, 3, 4}}, pair{{1, 1, 1, 2}, {10, 1}};
  const Example examples[] = {
      {"a convolution's padding on the left is zeros before x = 0, and the weights are not turned round",
       {row, pair},
       [](MPSGraph* g, In in) {
         return [g convolution2DWithSourceTensor:in[0]
                                   weightsTensor:in[1]
                                      descriptor:planar(1, MPSGraphPaddingStyleExplicit)
                                            name:nil];
       },
       {{1, 1, 1, 4}, {1, 12, 23, 34}}},
      {"TF_SAME pads after",
       {row, pair},
       [](MPSGraph* g, In in) {
         return [g convolution2DWithSourceTensor:in[0]
                                   weightsTensor:in[1]
                                      descriptor:planar(1, MPSGraphPaddingStyleTF_SAME)
                                            name:nil];
       },
       {{1, 1, 1, 4}, {12, 23, 34, 40}}},
      {"ONNX_SAME_LOWER pads before",
       {row, pair},
       [](MPSGraph* g, In in) {
         return [g convolution2DWithSourceTensor:in[0]
                                   weightsTensor:in[1]
                                      descriptor:planar(1, MPSGraphPaddingStyleONNX_SAME_LOWER)
                                            name:nil];
       },
       {{1, 1, 1, 4}, {1, 12, 23, 34}}},
      {"TF_VALID pads nothing",
       {row, pair},
       [](MPSGraph* g, In in) {
         return [g convolution2DWithSourceTensor:in[0]
                                   weightsTensor:in[1]
                                      descriptor:planar(2, MPSGraphPaddingStyleTF_VALID)
                                            name:nil];
       },
       {{1, 1, 1, 2}, {12, 34}}},
  };
  for (const Example& example : examples) check_meaning(example);
}

TEST_CASE("MPSGraph double: products; layouts, groups and gradients of convolutions") {
  const Example examples[] = {
      {"matrices in front of a product's last two axes broadcast",
       {{{2, 1, 2}, {1, 2, 3, 4}}, {{2, 1}, {5, 6}}},
       [](MPSGraph* g, In in) {
         return [g matrixMultiplicationWithPrimaryTensor:in[0] secondaryTensor:in[1] name:nil];
       },
       {{2, 1, 1}, {17, 39}}},
      {"NHWC has the channels last, HWIO the output channels",
       {{{1, 1, 2, 2}, {1, 2, 3, 4}}, {{1, 1, 2, 1}, {10, 1}}},
       [](MPSGraph* g, In in) {
         return [g convolution2DWithSourceTensor:in[0]
                                   weightsTensor:in[1]
                                      descriptor:planar(1, MPSGraphPaddingStyleTF_VALID,
                                                        MPSGraphTensorNamedDataLayoutNHWC,
                                                        MPSGraphTensorNamedDataLayoutHWIO)
                                            name:nil];
       },
       {{1, 1, 2, 1}, {12, 34}}},
      {"of three axes X is the last, and Z the first",
       {{{1, 2, 1, 3, 1}, {1, 2, 3, 4, 5, 6}}, {{2, 1, 2, 1, 1}, {1000, 100, 10, 1}}},
       [](MPSGraph* g, In in) {
         return [g convolution3DWithSourceTensor:in[0] weightsTensor:in[1] descriptor:spatial() name:nil];
       },
       {{1, 1, 1, 2, 1}, {104, 2356}}},
      {"a group's outputs see its inputs only",
       {{{1, 2, 1, 1}, {3, 4}}, {{4, 1, 1, 1}, {1, 10, 100, 1000}}},
       [](MPSGraph* g, In in) {
         return [g convolution2DWithSourceTensor:in[0]
                                   weightsTensor:in[1]
                                      descriptor:planar(1, MPSGraphPaddingStyleTF_VALID,
                                                        MPSGraphTensorNamedDataLayoutNCHW,
                                                        MPSGraphTensorNamedDataLayoutOIHW, 2)
                                            name:nil];
       },
       {{1, 4, 1, 1}, {3, 30, 400, 4000}}},
      {"the data's gradient gives each source element what it gave",
       {{{1, 1, 1, 2}, {1, 2}}, {{1, 1, 1, 2}, {10, 1}}},
       [](MPSGraph* g, In in) {
         return [g convolution2DDataGradientWithIncomingGradientTensor:in[0]
                                                         weightsTensor:in[1]
                                                           outputShape:n({1, 1, 1, 4})
                                          forwardConvolutionDescriptor:planar(2, MPSGraphPaddingStyleExplicit)
                                                                  name:nil];
       },
       {{1, 1, 1, 4}, {1, 20, 2, 0}}},
  };
  for (const Example& example : examples) check_meaning(example);
}

TEST_CASE("MPSGraph double: pools") {
  const Given image{{1, 1, 2, 3}, {1, 2, 3, 4, 5, -6}};
  const Example examples[] = {
      {"a pool's padding values are before and after of each axis, slowest first; a maximum takes no padding",
       {{{1, 1, 2, 3}, {-1, -2, -3, -4, -5, -6}}},
       [](MPSGraph* g, In in) {
         return [g maxPooling4DWithSourceTensor:in[0]
                                     descriptor:square(n({0, 0, 0, 0, 0, 0, 1, 0}), NO)
                                           name:nil];
       },
       {{1, 1, 1, 2}, {-1, -2}}},
      {"an average counts padding as zeros",
       {image},
       [](MPSGraph* g, In in) {
         return [g avgPooling4DWithSourceTensor:in[0]
                                     descriptor:square(n({0, 0, 0, 0, 0, 0, 1, 0}), YES)
                                           name:nil];
       },
       {{1, 1, 1, 2}, {1.25, 1}}},
      {"or does not count it",
       {image},
       [](MPSGraph* g, In in) {
         return [g avgPooling4DWithSourceTensor:in[0]
                                     descriptor:square(n({0, 0, 0, 0, 0, 0, 1, 0}), NO)
                                           name:nil];
       },
       {{1, 1, 1, 2}, {2.5, 1}}},
  };
  for (const Example& example : examples) check_meaning(example);
}

}  // namespace
}  // namespace heddle::metal_double
