// Reductions, normalisation, order, running totals.
#include "tests/metal_double/graph/building.h"
#include "tests/metal_double/graph/field_checks.h"
#include "tests/metal_double/graph/graph_faults.h"
#include "tests/metal_double/graph/numerics/indexing.h"
#include "tests/metal_double/graph/numerics/movement.h"
#include "tests/metal_double/graph/numerics/normalization.h"
#include "tests/metal_double/graph/numerics/order.h"
#include "tests/metal_double/graph/numerics/reductions.h"

using namespace heddle::metal_double;

namespace {

using OfAxes = Array (*)(const Array&, const numerics::Axes&);
MPSGraphTensor* reduce(MPSGraph* graph, const char* method, OfAxes f, bool floats, MPSGraphTensor* tensor,
                       NSArray<NSNumber*>* axes) {
  Building b(graph, method);
  const Value& x = b.value(tensor);
  floats ? b.require_floats(x) : b.require_numbers(x);
  const numerics::Axes over = b.axes(axes, x.shape);
  field_reduces(b, x, over);
  return b.add(x.type, numerics::reduced_shape(x.shape, over), {x},
               [f, over](auto in) { return f(in[0], over); });
}

using Running = Array (*)(const Array&, size_t axis, bool exclusive, bool reverse);
MPSGraphTensor* running(MPSGraph* graph, const char* method, Running f, MPSGraphTensor* tensor,
                        NSInteger axis, BOOL exclusive, BOOL reverse) {
  Building b(graph, method);
  const Value& x = b.value(tensor);
  b.require_numbers(x);
  const size_t along = b.axis(axis, x.shape);
  field_scans(b, x, along);
  return b.add(x.type, x.shape, {x}, [=](auto in) { return f(in[0], along, exclusive, reverse); });
}

}  // namespace

#define REDUCTION(selector, f, floats)                                                       \
  -(MPSGraphTensor*)selector : (MPSGraphTensor*)tensor axes : (NSArray<NSNumber*>*)axes name \
      : (NSString*)name {                                                                    \
    return reduce(self, #selector ":axes:name:", numerics::f, floats, tensor, axes);         \
  }

@implementation MPSGraph (MPSGraphReductionOps)
REDUCTION(reductionSumWithTensor, sum, false)
REDUCTION(reductionMaximumWithTensor, greatest, false)
REDUCTION(reductionMinimumWithTensor, least, false)
REDUCTION(reductionMaximumPropagateNaNWithTensor, greatest_with_nan, true)
REDUCTION(reductionMinimumPropagateNaNWithTensor, least_with_nan, true)
REDUCTION(reductionProductWithTensor, product, false)
- (MPSGraphTensor*)reductionArgMaximumWithTensor:(MPSGraphTensor*)tensor
                                            axis:(NSInteger)axis
                                            name:(NSString*)name {
  Building b(self, "reductionArgMaximumWithTensor:axis:name:");
  const Value& x = b.value(tensor);
  b.require_numbers(x);
  const size_t along = b.axis(axis, x.shape);
  field_reduces(b, x, {along});
  return b.add(MPSDataTypeInt32, numerics::reduced_shape(x.shape, {along}), {x},
               [along](auto in) { return numerics::arg_maximum(in[0], along); });
}
@end

@implementation MPSGraph (MPSGraphNormalizationOps)
REDUCTION(meanOfTensor, mean, true)
- (MPSGraphTensor*)varianceOfTensor:(MPSGraphTensor*)tensor
                         meanTensor:(MPSGraphTensor*)meanTensor
                               axes:(NSArray<NSNumber*>*)axes
                               name:(NSString*)name {
  Building b(self, "varianceOfTensor:meanTensor:axes:name:");
  const Value &x = b.value(tensor), &mean = b.value(meanTensor);
  b.require_floats(x);
  b.require_same(x, mean);
  const numerics::Axes over = b.axes(axes, x.shape);
  field_reduces(b, x, over);
  b.require(mean.shape == numerics::reduced_shape(x.shape, over), "the mean is not that over these axes");
  return b.add(x.type, mean.shape, {x, mean},
               [over](auto in) { return numerics::variance(in[0], in[1], over); });
}

- (MPSGraphTensor*)normalizationWithTensor:(MPSGraphTensor*)tensor
                                meanTensor:(MPSGraphTensor*)mean
                            varianceTensor:(MPSGraphTensor*)variance
                               gammaTensor:(MPSGraphTensor*)gamma
                                betaTensor:(MPSGraphTensor*)beta
                                   epsilon:(float)epsilon
                                      name:(NSString*)name {
  Building b(self, kLayerNormKernel);
  std::vector<Value> operands{b.value(tensor), b.value(mean), b.value(variance)};
  if (gamma != nil) operands.push_back(b.value(gamma));
  if (beta != nil) operands.push_back(b.value(beta));
  const Value x = operands[0];
  b.require_floats(x);
  for (const Value& operand : operands) {
    b.require_same(x, operand);
    b.require(b.broadcast(x.shape, operand.shape) == x.shape, "an operand does not broadcast to the tensor");
  }
  const bool scaled = gamma != nil, shifted = beta != nil;
  return b.add(x.type, x.shape, operands, [=](auto in) {
    return numerics::normalization(in[0], in[1], in[2], scaled ? in[3] : Array(),
                                   shifted ? in.back() : Array(), epsilon);
  });
}
@end

@implementation MPSGraph (MPSGraphSortOps)
- (MPSGraphTensor*)argSortWithTensor:(MPSGraphTensor*)tensor
                                axis:(NSInteger)axis
                          descending:(BOOL)descending
                                name:(NSString*)name {
  Building b(self, "argSortWithTensor:axis:descending:name:");
  const Value& x = b.value(tensor);
  b.require_numbers(x);
  const size_t along = b.axis(axis, x.shape);
  return field_order(b, x, along, b.add(MPSDataTypeInt32, x.shape, {x}, [=](auto in) {
    return numerics::arg_sort(in[0], along, descending);
  }));
}
@end

@implementation MPSGraph (MPSGraphTopKOps)
- (NSArray<MPSGraphTensor*>*)topKWithSourceTensor:(MPSGraphTensor*)source
                                                k:(NSUInteger)k
                                             name:(NSString*)name {
  Building b(self, "topKWithSourceTensor:k:name:");
  const Value& x = b.value(source);
  b.require_numbers(x);
  b.require(k <= 16, "k is at most 16");
  Shape shape = x.shape;
  const size_t last = shape.size() - 1;
  b.require(static_cast<int64_t>(k) <= shape[last], "there are fewer than k");
  shape[last] = static_cast<int64_t>(k);
  const auto made =
      b.add({{nullptr, 0, x.type, shape}, {nullptr, 0, MPSDataTypeInt32, shape}}, {x}, [=](auto in) {
        const std::vector<int64_t> none(shape.size(), 0), one(shape.size(), 1);
        const Array at = numerics::slice(numerics::arg_sort(in[0], last, true), none, shape, one);
        return Arrays{numerics::gather_along(in[0], at, last), at};
      });
  return [NSArray arrayWithObjects:made.data() count:made.size()];
}
@end

@implementation MPSGraph (MPSGraphCumulativeOps)
- (MPSGraphTensor*)cumulativeSumWithTensor:(MPSGraphTensor*)tensor
                                      axis:(NSInteger)axis
                                 exclusive:(BOOL)exclusive
                                   reverse:(BOOL)reverse
                                      name:(NSString*)name {
  return running(self, "cumulativeSumWithTensor:", numerics::cumulative_sum, tensor, axis, exclusive,
                 reverse);
}
- (MPSGraphTensor*)cumulativeProductWithTensor:(MPSGraphTensor*)tensor
                                          axis:(NSInteger)axis
                                     exclusive:(BOOL)exclusive
                                       reverse:(BOOL)reverse
                                          name:(NSString*)name {
  return running(self, "cumulativeProductWithTensor:", numerics::cumulative_product, tensor, axis, exclusive,
                 reverse);
}
@end
