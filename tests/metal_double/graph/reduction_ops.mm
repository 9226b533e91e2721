// Reductions, normalisation, order, running totals.
#include <algorithm>
#include <numeric>

#include "ir/op.h"
#include "tests/metal_double/graph/building.h"
#include "tests/metal_double/graph/field_checks.h"
#include "tests/metal_double/graph/graph_faults.h"

using namespace heddle::metal_double;
using heddle::ir::DType;
using heddle::ir::Tensor;

namespace {

MPSGraphTensor* reduce(MPSGraph* graph, const char* method, const char* op, bool floats,
                       MPSGraphTensor* tensor, NSArray<NSNumber*>* axes) {
  Building b(graph, method);
  const Value& x = b.value(tensor);
  floats ? b.require_floats(x) : b.require_numbers(x);
  b.require(axes != nil && [axes count] > 0, "there are no axes");
  field_reduces(b, x, numbers_of(axes));
  return b.add_op(op, {x}, {}, {Tensor::of_i64(numbers_of(axes))});
}

// The last of equals: MPSGraph does not say which it gives.
MPSGraphTensor* arg(MPSGraph* graph, const char* method, const char* op, MPSGraphTensor* tensor,
                    NSInteger axis) {
  Building b(graph, method);
  const Value& x = b.value(tensor);
  b.require_numbers(x);
  field_reduces(b, x, {static_cast<int64_t>(b.axis(axis, x))});
  const heddle::ir::Attributes attributes = {{"axis", static_cast<int64_t>(b.axis(axis, x))},
                                             {"select_last_index", int64_t{1}}};
  const Value found = [b.add_op(op, {x}, attributes) value];
  return b.add_op("Cast", {found}, {{"to", std::string("i32")}});
}

MPSGraphTensor* running(MPSGraph* graph, const char* method, const char* op, MPSGraphTensor* tensor,
                        NSInteger axis, BOOL exclusive, BOOL reverse) {
  Building b(graph, method);
  const Value& x = b.value(tensor);
  b.require_numbers(x);
  field_scans(b, x, b.axis(axis, x));
  return b.add_op(op, {x}, {{"exclusive", int64_t{exclusive}}, {"reverse", int64_t{reverse}}},
                  {Tensor::scalar(DType::kI64, static_cast<double>(b.axis(axis, x)))});
}

}  // namespace

#define REDUCTION(selector, op, floats)                                                      \
  -(MPSGraphTensor*)selector : (MPSGraphTensor*)tensor axes : (NSArray<NSNumber*>*)axes name \
      : (NSString*)name {                                                                    \
    return reduce(self, #selector ":axes:name:", op, floats, tensor, axes);                  \
  }

@implementation MPSGraph (MPSGraphReductionOps)
REDUCTION(reductionSumWithTensor, "ReduceSum", false)
REDUCTION(reductionMaximumWithTensor, "ReduceMax", false)
REDUCTION(reductionMinimumWithTensor, "ReduceMin", false)
REDUCTION(reductionMaximumPropagateNaNWithTensor, "ReduceMax", true)
REDUCTION(reductionMinimumPropagateNaNWithTensor, "ReduceMin", true)
REDUCTION(reductionProductWithTensor, "ReduceProd", false)
- (MPSGraphTensor*)reductionArgMaximumWithTensor:(MPSGraphTensor*)tensor
                                            axis:(NSInteger)axis
                                            name:(NSString*)name {
  return arg(self, "reductionArgMaximumWithTensor:axis:name:", "ArgMax", tensor, axis);
}
@end

@implementation MPSGraph (MPSGraphNormalizationOps)
REDUCTION(meanOfTensor, "ReduceMean", true)
- (MPSGraphTensor*)varianceOfTensor:(MPSGraphTensor*)tensor
                         meanTensor:(MPSGraphTensor*)meanTensor
                               axes:(NSArray<NSNumber*>*)axes
                               name:(NSString*)name {
  Building b(self, "varianceOfTensor:meanTensor:axes:name:");
  b.require_floats(b.value(tensor));
  const Value difference = [b.add_op("Sub", {b.value(tensor), b.value(meanTensor)}) value];
  const Value squares = [b.add_op("Square", {difference}) value];
  return b.add_op("ReduceMean", {squares}, {}, {Tensor::of_i64(numbers_of(axes))});
}

- (MPSGraphTensor*)normalizationWithTensor:(MPSGraphTensor*)tensor
                                meanTensor:(MPSGraphTensor*)mean
                            varianceTensor:(MPSGraphTensor*)variance
                               gammaTensor:(MPSGraphTensor*)gamma
                                betaTensor:(MPSGraphTensor*)beta
                                   epsilon:(float)epsilon
                                      name:(NSString*)name {
  Building b(self, kLayerNormKernel);
  const Value& x = b.value(tensor);
  b.require_floats(x);
  const auto op = [&](const char* which, std::vector<Value> in, std::vector<Tensor> constants = {}) {
    return Value([b.add_op(which, std::move(in), {}, std::move(constants)) value]);
  };
  const Value root = op("Sqrt", {op("Add", {b.value(variance)}, {Tensor::scalar(x.dtype, epsilon)})});
  Value y = op("Div", {op("Sub", {x, b.value(mean)}), root});
  if (gamma != nil) y = op("Mul", {y, b.value(gamma)});
  if (beta != nil) y = op("Add", {y, b.value(beta)});
  b.require(y.extents == x.extents, "gamma and beta have to broadcast to the tensor");
  return b.add_op("Identity", {y});
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
  const size_t along = b.axis(axis, x);
  heddle::ir::Node node{heddle::ir::find_op("TopK"), "argSort", {0, 1}, {2, 3}, {}};
  node.attributes = {{"axis", static_cast<int64_t>(along)}, {"largest", int64_t{descending}}};
  const Tensor count = Tensor::of_i64({x.extents[along]});
  MPSGraphTensor* order =
      b.add(DType::kI32, x.extents, {x}, [=](std::span<const Tensor> in) -> heddle::Result<Tensors> {
        const Tensor* const operands[] = {&in[0], &count};
        HEDDLE_TRY_ASSIGN(const Tensors sorted, heddle::ir::evaluate(node, operands));
        Tensor order = Tensor::zeros(DType::kI32, in[0].extents());
        for (int64_t at = 0; at < order.elements(); ++at) order.set_i64(at, sorted[1].get_i64(at));
        return Tensors{order};
      });
  return field_order(b, x, along, order);
}
@end

@implementation MPSGraph (MPSGraphCumulativeOps)
- (MPSGraphTensor*)cumulativeSumWithTensor:(MPSGraphTensor*)tensor
                                      axis:(NSInteger)axis
                                 exclusive:(BOOL)exclusive
                                   reverse:(BOOL)reverse
                                      name:(NSString*)name {
  return running(self, "cumulativeSumWithTensor:", "CumSum", tensor, axis, exclusive, reverse);
}
- (MPSGraphTensor*)cumulativeProductWithTensor:(MPSGraphTensor*)tensor
                                          axis:(NSInteger)axis
                                     exclusive:(BOOL)exclusive
                                       reverse:(BOOL)reverse
                                          name:(NSString*)name {
  return running(self, "cumulativeProductWithTensor:", "CumProd", tensor, axis, exclusive, reverse);
}
@end
