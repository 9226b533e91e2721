// Matrix products, convolutions, pools.
#include "tests/metal_double/graph/building.h"
#include "tests/metal_double/graph/field_checks.h"
#include "tests/metal_double/graph/graph_faults.h"

using namespace heddle::metal_double;
using heddle::ir::Attributes;
using heddle::ir::Extents;

namespace {

using Numbers = std::vector<int64_t>;

int64_t s(NSUInteger n) { return static_cast<int64_t>(n); }

// Slowest axis first.
struct Geometry {
  Numbers strides, dilations, begin, end;
  int64_t groups;
  Attributes attributes() const {
    Numbers pads = begin;
    pads.insert(pads.end(), end.begin(), end.end());
    return {{"strides", strides}, {"dilations", dilations}, {"pads", pads}, {"group", groups}};
  }
};

Geometry geometry(const Building& b, MPSGraphConvolution2DOpDescriptor* d) {
  b.require(d.paddingStyle == MPSGraphPaddingStyleExplicit &&
                d.dataLayout == MPSGraphTensorNamedDataLayoutNCHW &&
                d.weightsLayout == MPSGraphTensorNamedDataLayoutOIHW,
            "other layouts and padding styles are not in the double yet");
  return {{s(d.strideInY), s(d.strideInX)},
          {s(d.dilationRateInY), s(d.dilationRateInX)},
          {s(d.paddingTop), s(d.paddingLeft)},
          {s(d.paddingBottom), s(d.paddingRight)},
          s(d.groups)};
}

Geometry geometry(const Building& b, MPSGraphConvolution3DOpDescriptor* d) {
  b.require(d.paddingStyle == MPSGraphPaddingStyleExplicit &&
                d.dataLayout == MPSGraphTensorNamedDataLayoutNCDHW &&
                d.weightsLayout == MPSGraphTensorNamedDataLayoutOIDHW,
            "other layouts and padding styles are not in the double yet");
  return {{s(d.strideInZ), s(d.strideInY), s(d.strideInX)},
          {s(d.dilationRateInZ), s(d.dilationRateInY), s(d.dilationRateInX)},
          {s(d.paddingFront), s(d.paddingTop), s(d.paddingLeft)},
          {s(d.paddingBack), s(d.paddingBottom), s(d.paddingRight)},
          s(d.groups)};
}

void require_images(const Building& b, const Value& x, const Value& w, size_t axes) {
  b.require_floats(x);
  b.require_same(x, w);
  b.require(x.extents.rank() == axes + 2, heddle::text("takes ", axes + 2, " axes, not ", x.extents));
}

template <class Descriptor>
MPSGraphTensor* convolve(MPSGraph* graph, const char* method, MPSGraphTensor* source, MPSGraphTensor* weights,
                         Descriptor* descriptor) {
  Building b(graph, method);
  const Value &x = b.value(source), &w = b.value(weights);
  const Geometry g = geometry(b, descriptor);
  require_images(b, x, w, g.strides.size());
  return field_convolution(b, x, w, b.add_op("Conv", {x, w}, g.attributes()));
}

// The gradient of the data is the transposed convolution; `wanted` says how much of the last stride it has.
template <class Descriptor>
MPSGraphTensor* convolve_back(MPSGraph* graph, const char* method, MPSGraphTensor* gradient,
                              MPSGraphTensor* weights, MPSShape* wanted, Descriptor* descriptor) {
  Building b(graph, method);
  const Value &x = b.value(gradient), &w = b.value(weights);
  const Geometry g = geometry(b, descriptor);
  require_images(b, x, w, g.strides.size());
  const Extents out = extents_of(wanted, method);
  Numbers rest;
  for (size_t i = 0; i < g.strides.size(); ++i) {
    const int64_t reach = (w.extents[2 + i] - 1) * g.dilations[i] + 1;
    const int64_t least = (x.extents[2 + i] - 1) * g.strides[i] + reach - g.begin[i] - g.end[i];
    rest.push_back(out[2 + i] - least);
    b.require(rest.back() >= 0 && rest.back() < g.strides[i],
              "the output shape is not one that the source came from");
  }
  Attributes attributes = g.attributes();
  attributes.set("output_padding", rest);
  MPSGraphTensor* made = b.add_op("ConvTranspose", {x, w}, attributes);
  b.require([made value].extents == out, heddle::text("gives ", [made value].extents, ", not ", out));
  return field_convolution(b, x, w, made);
}

// Over all four axes: as an image of four spatial ones.
MPSGraphTensor* pool(MPSGraph* graph, const char* method, const char* op, MPSGraphTensor* source,
                     MPSGraphPooling4DOpDescriptor* d) {
  Building b(graph, method);
  const Value& x = b.value(source);
  b.require_floats(x);
  b.require(x.extents.rank() == 4, heddle::text("takes 4 axes, not ", x.extents));
  b.require(d.paddingStyle == MPSGraphPaddingStyleExplicit && !d.ceilMode,
            "other padding styles are not in the double yet");
  const Numbers both = numbers_of(d.paddingValues), kernel = numbers_of(d.kernelSizes);
  b.require(both.size() == 8, "paddingValues has 8 numbers");
  Numbers pads;
  for (const size_t side : {size_t{0}, size_t{1}}) {
    for (size_t axis = 0; axis < 4; ++axis) pads.push_back(both[2 * axis + side]);
  }
  Attributes attributes = {{"kernel_shape", kernel},
                           {"strides", numbers_of(d.strides)},
                           {"dilations", numbers_of(d.dilationRates)},
                           {"pads", pads}};
  if (std::string_view(op) == "AveragePool")
    attributes.set("count_include_pad", int64_t{d.includeZeroPadToAverage});
  Numbers image{1, 1};
  for (const int64_t extent : x.extents) image.push_back(extent);
  const Value as_image = [b.add_op("Reshape", {x}, {}, {heddle::ir::Tensor::of_i64(image)}) value];
  const Value pooled = [b.add_op(op, {as_image}, attributes) value];
  Numbers plain(pooled.extents.begin() + 2, pooled.extents.end());
  return b.add_op("Reshape", {pooled}, {}, {heddle::ir::Tensor::of_i64(plain)});
}

}  // namespace

@implementation MPSGraph (MPSGraphMatrixMultiplicationOps)
- (MPSGraphTensor*)matrixMultiplicationWithPrimaryTensor:(MPSGraphTensor*)primaryTensor
                                         secondaryTensor:(MPSGraphTensor*)secondaryTensor
                                                    name:(NSString*)name {
  const bool plain = [[primaryTensor shape] count] == 2 && [[secondaryTensor shape] count] == 2;
  Building b(self, plain ? kPlainProduct : "matrixMultiplicationWithPrimaryTensor:secondaryTensor:name:");
  const Value &x = b.value(primaryTensor), &y = b.value(secondaryTensor);
  b.require_floats(x);
  b.require_same(x, y);
  b.require(x.extents.rank() >= 2 && y.extents.rank() >= 2, "takes matrices");
  return field_product(b, x, y, b.add_op("MatMul", {x, y}));
}
@end

@implementation MPSGraphConvolution2DOpDescriptor
@synthesize strideInX = _strideInX, strideInY = _strideInY, dilationRateInX = _dilationRateInX;
@synthesize dilationRateInY = _dilationRateInY, paddingLeft = _paddingLeft, paddingRight = _paddingRight;
@synthesize paddingTop = _paddingTop, paddingBottom = _paddingBottom, paddingStyle = _paddingStyle;
@synthesize dataLayout = _dataLayout, weightsLayout = _weightsLayout, groups = _groups;
+ (instancetype)descriptorWithStrideInX:(NSUInteger)strideInX
                              strideInY:(NSUInteger)strideInY
                        dilationRateInX:(NSUInteger)dilationRateInX
                        dilationRateInY:(NSUInteger)dilationRateInY
                                 groups:(NSUInteger)groups
                            paddingLeft:(NSUInteger)paddingLeft
                           paddingRight:(NSUInteger)paddingRight
                             paddingTop:(NSUInteger)paddingTop
                          paddingBottom:(NSUInteger)paddingBottom
                           paddingStyle:(MPSGraphPaddingStyle)paddingStyle
                             dataLayout:(MPSGraphTensorNamedDataLayout)dataLayout
                          weightsLayout:(MPSGraphTensorNamedDataLayout)weightsLayout {
  MPSGraphConvolution2DOpDescriptor* d = [[[self alloc] init] autorelease];
  d->_strideInX = strideInX, d->_strideInY = strideInY;
  d->_dilationRateInX = dilationRateInX, d->_dilationRateInY = dilationRateInY;
  d->_groups = groups;
  d->_paddingLeft = paddingLeft, d->_paddingRight = paddingRight;
  d->_paddingTop = paddingTop, d->_paddingBottom = paddingBottom;
  d->_paddingStyle = paddingStyle, d->_dataLayout = dataLayout, d->_weightsLayout = weightsLayout;
  return d;
}
- (id)copyWithZone:(NSZone*)zone {
  return [self retain];
}
@end

@implementation MPSGraphConvolution3DOpDescriptor
@synthesize strideInX = _strideInX, strideInY = _strideInY, strideInZ = _strideInZ;
@synthesize dilationRateInX = _dilationRateInX, dilationRateInY = _dilationRateInY;
@synthesize dilationRateInZ = _dilationRateInZ, paddingLeft = _paddingLeft, paddingRight = _paddingRight;
@synthesize paddingTop = _paddingTop, paddingBottom = _paddingBottom, paddingFront = _paddingFront;
@synthesize paddingBack = _paddingBack, paddingStyle = _paddingStyle, dataLayout = _dataLayout;
@synthesize weightsLayout = _weightsLayout, groups = _groups;
+ (instancetype)descriptorWithStrideInX:(NSUInteger)strideInX
                              strideInY:(NSUInteger)strideInY
                              strideInZ:(NSUInteger)strideInZ
                        dilationRateInX:(NSUInteger)dilationRateInX
                        dilationRateInY:(NSUInteger)dilationRateInY
                        dilationRateInZ:(NSUInteger)dilationRateInZ
                                 groups:(NSUInteger)groups
                            paddingLeft:(NSUInteger)paddingLeft
                           paddingRight:(NSUInteger)paddingRight
                             paddingTop:(NSUInteger)paddingTop
                          paddingBottom:(NSUInteger)paddingBottom
                           paddingFront:(NSUInteger)paddingFront
                            paddingBack:(NSUInteger)paddingBack
                           paddingStyle:(MPSGraphPaddingStyle)paddingStyle
                             dataLayout:(MPSGraphTensorNamedDataLayout)dataLayout
                          weightsLayout:(MPSGraphTensorNamedDataLayout)weightsLayout {
  MPSGraphConvolution3DOpDescriptor* d = [[[self alloc] init] autorelease];
  d->_strideInX = strideInX, d->_strideInY = strideInY, d->_strideInZ = strideInZ;
  d->_dilationRateInX = dilationRateInX, d->_dilationRateInY = dilationRateInY;
  d->_dilationRateInZ = dilationRateInZ, d->_groups = groups;
  d->_paddingLeft = paddingLeft, d->_paddingRight = paddingRight;
  d->_paddingTop = paddingTop, d->_paddingBottom = paddingBottom;
  d->_paddingFront = paddingFront, d->_paddingBack = paddingBack;
  d->_paddingStyle = paddingStyle, d->_dataLayout = dataLayout, d->_weightsLayout = weightsLayout;
  return d;
}
- (id)copyWithZone:(NSZone*)zone {
  return [self retain];
}
@end

@implementation MPSGraph (MPSGraphConvolutionOps)
- (MPSGraphTensor*)convolution2DWithSourceTensor:(MPSGraphTensor*)source
                                   weightsTensor:(MPSGraphTensor*)weights
                                      descriptor:(MPSGraphConvolution2DOpDescriptor*)descriptor
                                            name:(NSString*)name {
  return convolve(self, "convolution2DWithSourceTensor:", source, weights, descriptor);
}
- (MPSGraphTensor*)convolution3DWithSourceTensor:(MPSGraphTensor*)source
                                   weightsTensor:(MPSGraphTensor*)weights
                                      descriptor:(MPSGraphConvolution3DOpDescriptor*)descriptor
                                            name:(NSString*)name {
  return convolve(self, "convolution3DWithSourceTensor:", source, weights, descriptor);
}
- (MPSGraphTensor*)convolution2DDataGradientWithIncomingGradientTensor:(MPSGraphTensor*)incomingGradient
                                                         weightsTensor:(MPSGraphTensor*)weights
                                                           outputShape:(MPSShape*)outputShape
                                          forwardConvolutionDescriptor:
                                              (MPSGraphConvolution2DOpDescriptor*)forwardConvolutionDescriptor
                                                                  name:(NSString*)name {
  return convolve_back(self, "convolution2DDataGradientWithIncomingGradientTensor:", incomingGradient,
                       weights, outputShape, forwardConvolutionDescriptor);
}
- (MPSGraphTensor*)convolution3DDataGradientWithIncomingGradientTensor:(MPSGraphTensor*)incomingGradient
                                                         weightsTensor:(MPSGraphTensor*)weights
                                                           outputShape:(MPSShape*)outputShape
                                          forwardConvolutionDescriptor:
                                              (MPSGraphConvolution3DOpDescriptor*)forwardConvolutionDescriptor
                                                                  name:(NSString*)name {
  return convolve_back(self, "convolution3DDataGradientWithIncomingGradientTensor:", incomingGradient,
                       weights, outputShape, forwardConvolutionDescriptor);
}
@end

@implementation MPSGraphPooling4DOpDescriptor
@synthesize kernelSizes = _kernelSizes, strides = _strides, dilationRates = _dilationRates;
@synthesize paddingValues = _paddingValues, paddingStyle = _paddingStyle, ceilMode = _ceilMode;
@synthesize includeZeroPadToAverage = _includeZeroPadToAverage;
+ (instancetype)descriptorWithKernelSizes:(NSArray<NSNumber*>*)kernelSizes
                                  strides:(NSArray<NSNumber*>*)strides
                            dilationRates:(NSArray<NSNumber*>*)dilationRates
                            paddingValues:(NSArray<NSNumber*>*)paddingValues
                             paddingStyle:(MPSGraphPaddingStyle)paddingStyle {
  MPSGraphPooling4DOpDescriptor* d = [[[self alloc] init] autorelease];
  d->_kernelSizes = [kernelSizes copy];
  d->_strides = [strides copy];
  d->_dilationRates = [dilationRates copy];
  d->_paddingValues = [paddingValues copy];
  d->_paddingStyle = paddingStyle;
  return d;
}
- (id)copyWithZone:(NSZone*)zone {
  return [self retain];
}
- (void)dealloc {
  [_kernelSizes release];
  [_strides release];
  [_dilationRates release];
  [_paddingValues release];
  [super dealloc];
}
@end

@implementation MPSGraph (MPSGraphPoolingOps)
- (MPSGraphTensor*)maxPooling4DWithSourceTensor:(MPSGraphTensor*)source
                                     descriptor:(MPSGraphPooling4DOpDescriptor*)descriptor
                                           name:(NSString*)name {
  return pool(self, "maxPooling4DWithSourceTensor:descriptor:name:", "MaxPool", source, descriptor);
}
- (MPSGraphTensor*)avgPooling4DWithSourceTensor:(MPSGraphTensor*)source
                                     descriptor:(MPSGraphPooling4DOpDescriptor*)descriptor
                                           name:(NSString*)name {
  return pool(self, "avgPooling4DWithSourceTensor:descriptor:name:", "AveragePool", source, descriptor);
}
@end
