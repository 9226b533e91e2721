// Matrix products, convolutions, pools.
#include "base/status.h"
#include "tests/metal_double/graph/building.h"
#include "tests/metal_double/graph/field_checks.h"
#include "tests/metal_double/graph/graph_faults.h"
#include "tests/metal_double/graph/numerics/products.h"
#include "tests/metal_double/graph/numerics/windows.h"

using namespace heddle::metal_double;
using numerics::Convolution;

namespace {

int64_t s(NSUInteger n) { return static_cast<int64_t>(n); }

// But for the kernel's extents, which are the weights'.
numerics::Window window_of(MPSGraphConvolution2DOpDescriptor* d) {
  return {{},
          {s(d.strideInY), s(d.strideInX)},
          {s(d.dilationRateInY), s(d.dilationRateInX)},
          {s(d.paddingTop), s(d.paddingLeft)},
          {s(d.paddingBottom), s(d.paddingRight)}};
}
numerics::Window window_of(MPSGraphConvolution3DOpDescriptor* d) {
  return {{},
          {s(d.strideInZ), s(d.strideInY), s(d.strideInX)},
          {s(d.dilationRateInZ), s(d.dilationRateInY), s(d.dilationRateInX)},
          {s(d.paddingFront), s(d.paddingTop), s(d.paddingLeft)},
          {s(d.paddingBack), s(d.paddingBottom), s(d.paddingRight)}};
}

void pad(const Building& b, numerics::Window& window, MPSGraphPaddingStyle style,
         const std::vector<int64_t>& extents) {
  for (size_t i = 0; i < window.axes(); ++i)
    b.require(window.strides[i] > 0 && window.dilations[i] > 0, "strides and dilation rates are 1 or more");
  b.require(window.pad(style, extents), "what explicit offsets mean is not documented");
}

// `source` is the shape of what the forward convolution takes.
template <class Descriptor>
Convolution convolution_of(const Building& b, Descriptor* d, const Shape& source, const Shape& weights) {
  numerics::Window window = window_of(d);
  const size_t axes = window.strides.size();
  const auto layout = [&](MPSGraphTensorNamedDataLayout named, const Shape& shape) {
    const std::optional<numerics::Layout> found = numerics::Layout::of(named);
    b.require(found && found->spatial.size() == axes,
              heddle::text("the layout has not ", axes, " spatial axes"));
    b.require(shape.size() == axes + 2, heddle::text("takes ", axes + 2, " axes, not ", shown(shape)));
    return *found;
  };
  b.require(d.groups > 0, "there are no groups");
  Convolution c{window, s(d.groups), layout(d.dataLayout, source), layout(d.weightsLayout, weights)};
  c.window.kernel = c.weights.spatial_of(weights);
  pad(b, c.window, d.paddingStyle, c.data.spatial_of(source));
  return c;
}

template <class Descriptor>
MPSGraphTensor* convolve(MPSGraph* graph, const char* method, MPSGraphTensor* source, MPSGraphTensor* weights,
                         Descriptor* descriptor) {
  Building b(graph, method);
  const Value &x = b.value(source), &w = b.value(weights);
  b.require_floats(x);
  b.require_same(x, w);
  const Convolution c = convolution_of(b, descriptor, x.shape, w.shape);
  const std::optional<Shape> shape = numerics::convolved_shape(x.shape, w.shape, c);
  b.require(shape.has_value(), heddle::text("weights ", shown(w.shape), " do not fit ", shown(x.shape)));
  return field_convolution(b, x, w, b.add(x.type, *shape, {x, w}, [c](auto in) {
    return numerics::convolution(in[0], in[1], c);
  }));
}

template <class Descriptor>
MPSGraphTensor* convolve_back(MPSGraph* graph, const char* method, MPSGraphTensor* gradient,
                              MPSGraphTensor* weights, MPSShape* wanted, Descriptor* descriptor) {
  Building b(graph, method);
  const Value &x = b.value(gradient), &w = b.value(weights);
  b.require_floats(x);
  b.require_same(x, w);
  const Shape source = shape_from(wanted, method);
  const Convolution c = convolution_of(b, descriptor, source, w.shape);
  b.require(numerics::convolved_shape(source, w.shape, c) == x.shape,
            heddle::text("the forward convolution does not make ", shown(x.shape), " of ", shown(source)));
  return field_convolution(b, x, w, b.add(x.type, source, {x, w}, [=](auto in) {
    return numerics::data_gradient(in[0], in[1], source, c);
  }));
}

numerics::Window window_of(const Building& b, MPSGraphPooling4DOpDescriptor* d, const Shape& x) {
  numerics::Window window{
      numbers_of(d.kernelSizes), numbers_of(d.strides), numbers_of(d.dilationRates), {}, {}};
  const std::vector<int64_t> both = numbers_of(d.paddingValues);
  b.require(x.size() == 4, heddle::text("takes 4 axes, not ", shown(x)));
  b.require(
      window.axes() == 4 && window.strides.size() == 4 && window.dilations.size() == 4 && both.size() == 8,
      "kernelSizes, strides and dilationRates have 4 numbers, paddingValues 8");
  b.require(!d.ceilMode, "rounding up is not in the double yet");
  for (size_t axis = 0; axis < 4; ++axis) {
    window.before.push_back(both[2 * axis]);
    window.after.push_back(both[2 * axis + 1]);
  }
  pad(b, window, d.paddingStyle, x);
  return window;
}

template <class F>  // (array, window) -> array
MPSGraphTensor* pool(MPSGraph* graph, const char* method, MPSGraphTensor* source,
                     MPSGraphPooling4DOpDescriptor* descriptor, F f) {
  Building b(graph, method);
  const Value& x = b.value(source);
  b.require_floats(x);
  const numerics::Window window = window_of(b, descriptor, x.shape);
  const std::optional<Shape> shape = numerics::pooled_shape(x.shape, window);
  b.require(shape.has_value(), "no window fits");
  return b.add(x.type, *shape, {x}, [=](auto in) { return f(in[0], window); });
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
  const std::optional<Shape> shape = numerics::product_shape(x.shape, y.shape);
  b.require(shape.has_value(), heddle::text("cannot multiply ", shown(x.shape), " and ", shown(y.shape)));
  return field_product(
      b, x, y, b.add(x.type, *shape, {x, y}, [](auto in) { return numerics::matrix_product(in[0], in[1]); }));
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
  return pool(self, "maxPooling4DWithSourceTensor:descriptor:name:", source, descriptor,
              numerics::maximum_pool);
}
- (MPSGraphTensor*)avgPooling4DWithSourceTensor:(MPSGraphTensor*)source
                                     descriptor:(MPSGraphPooling4DOpDescriptor*)descriptor
                                           name:(NSString*)name {
  const bool padding_counts = [descriptor includeZeroPadToAverage];
  return pool(self, "avgPooling4DWithSourceTensor:descriptor:name:", source, descriptor,
              [=](const Array& x, const numerics::Window& window) {
                return numerics::average_pool(x, window, padding_counts);
              });
}
@end
