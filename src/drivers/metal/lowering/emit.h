// emit.h: one MPSGraph while it is built, in the words that the lowerings use.
//
//   What       Each function adds one operator of MPSGraph (or none, where nothing is to be done) and returns
//              its result; those of emit_shapes.mm and emit_math.mm that add several say so.
//   Shapes     MPSGraph's tensors have rank 1 or more here: a scalar is [1].
//   Threads    One thread at a time: MPSGraph is not safe for more while it is built.
//   Lifetime   The graph keeps its tensors; a Tensor is good as long as the graph is.
#pragma once

#import <MetalPerformanceShadersGraph/MetalPerformanceShadersGraph.h>

#include <span>
#include <vector>

#include "ir/ops/activation.h"
#include "ir/tensor.h"

namespace heddle::metal {

using Tensor = MPSGraphTensor*;
using Axes = std::vector<int64_t>;

// Metal has no f64: ask has_type() first.
bool has_type(ir::DType dtype);
MPSDataType type_of(ir::DType dtype);
ir::DType dtype_of(Tensor tensor);
ir::Extents extents_of(Tensor tensor);
ir::Extents at_least_one_axis(const ir::Extents& extents);
NSArray<NSNumber*>* numbers(std::span<const int64_t> values);

class Emit {
 public:
  explicit Emit(MPSGraph* graph) : graph_(graph) {}
  MPSGraph* graph() const { return graph_; }

  Tensor placeholder(ir::DType dtype, const ir::Extents& extents) const;
  Tensor constant(const ir::Tensor& tensor) const;
  Tensor scalar(double value, ir::DType dtype) const;          // [1]
  Tensor whole(int64_t value, ir::DType dtype) const;          // [1], exact
  Tensor like(double value, Tensor of) const { return scalar(value, dtype_of(of)); }
  Tensor filled(double value, ir::DType dtype, const ir::Extents& extents) const;
  Tensor positions(const Axes& values, ir::DType dtype = ir::DType::kI32) const;  // rank 1
  Tensor counting(size_t axis, const ir::Extents& extents) const;  // i32: each element's place along `axis`

#define HEDDLE_UNARY(name, selector) \
  Tensor name(Tensor x) const { return [graph_ selector:x name:nil]; }
#define HEDDLE_BINARY(name, selector) \
  Tensor name(Tensor x, Tensor y) const { return [graph_ selector:x secondaryTensor:y name:nil]; }
  HEDDLE_UNARY(identity, identityWithTensor)
  HEDDLE_UNARY(exp, exponentWithTensor)
  HEDDLE_UNARY(log, logarithmWithTensor)
  HEDDLE_UNARY(square, squareWithTensor)
  HEDDLE_UNARY(sqrt, squareRootWithTensor)
  HEDDLE_UNARY(rsqrt, reverseSquareRootWithTensor)
  HEDDLE_UNARY(reciprocal, reciprocalWithTensor)
  HEDDLE_UNARY(abs, absoluteWithTensor)
  HEDDLE_UNARY(negate, negativeWithTensor)
  HEDDLE_UNARY(sign, signWithTensor)
  HEDDLE_UNARY(ceil, ceilWithTensor)
  HEDDLE_UNARY(floor, floorWithTensor)
  HEDDLE_UNARY(round, rintWithTensor)  // halves to even
  HEDDLE_UNARY(sin, sinWithTensor)
  HEDDLE_UNARY(cos, cosWithTensor)
  HEDDLE_UNARY(tan, tanWithTensor)
  HEDDLE_UNARY(sinh, sinhWithTensor)
  HEDDLE_UNARY(cosh, coshWithTensor)
  HEDDLE_UNARY(asin, asinWithTensor)
  HEDDLE_UNARY(acos, acosWithTensor)
  HEDDLE_UNARY(atan, atanWithTensor)
  HEDDLE_UNARY(asinh, asinhWithTensor)
  HEDDLE_UNARY(acosh, acoshWithTensor)
  HEDDLE_UNARY(atanh, atanhWithTensor)
  HEDDLE_UNARY(tanh, tanhWithTensor)
  HEDDLE_UNARY(erf, erfWithTensor)
  HEDDLE_UNARY(logical_not, notWithTensor)
  HEDDLE_UNARY(is_inf, isInfiniteWithTensor)
  HEDDLE_UNARY(is_nan, isNaNWithTensor)
  HEDDLE_UNARY(bit_not, bitwiseNOTWithTensor)
  HEDDLE_UNARY(sigmoid, sigmoidWithTensor)
  HEDDLE_BINARY(add, additionWithPrimaryTensor)
  HEDDLE_BINARY(sub, subtractionWithPrimaryTensor)
  HEDDLE_BINARY(mul, multiplicationWithPrimaryTensor)
  HEDDLE_BINARY(div, divisionWithPrimaryTensor)
  HEDDLE_BINARY(fmod, moduloWithPrimaryTensor)
  HEDDLE_BINARY(power, powerWithPrimaryTensor)
  HEDDLE_BINARY(equal, equalWithPrimaryTensor)
  HEDDLE_BINARY(not_equal, notEqualWithPrimaryTensor)
  HEDDLE_BINARY(less, lessThanWithPrimaryTensor)
  HEDDLE_BINARY(less_equal, lessThanOrEqualToWithPrimaryTensor)
  HEDDLE_BINARY(greater, greaterThanWithPrimaryTensor)
  HEDDLE_BINARY(greater_equal, greaterThanOrEqualToWithPrimaryTensor)
  HEDDLE_BINARY(both, logicalANDWithPrimaryTensor)
  HEDDLE_BINARY(either, logicalORWithPrimaryTensor)
  HEDDLE_BINARY(differ, logicalXORWithPrimaryTensor)
  HEDDLE_BINARY(bit_and, bitwiseANDWithPrimaryTensor)
  HEDDLE_BINARY(bit_or, bitwiseORWithPrimaryTensor)
  HEDDLE_BINARY(bit_xor, bitwiseXORWithPrimaryTensor)
  HEDDLE_BINARY(shift_left, bitwiseLeftShiftWithPrimaryTensor)
  HEDDLE_BINARY(shift_right, bitwiseRightShiftWithPrimaryTensor)
  HEDDLE_BINARY(matmul, matrixMultiplicationWithPrimaryTensor)
#undef HEDDLE_UNARY
#undef HEDDLE_BINARY
  Tensor max(Tensor x, Tensor y) const;  // NaN wins
  Tensor min(Tensor x, Tensor y) const;
  Tensor choose(Tensor condition, Tensor yes, Tensor no) const;

  // Shapes and types.
  Tensor cast(Tensor x, ir::DType dtype) const;
  Tensor reinterpret(Tensor x, ir::DType dtype) const;
  Tensor reshape(Tensor x, const ir::Extents& extents) const;
  Tensor with_rank(Tensor x, size_t rank) const;  // axes of 1 in front
  Tensor transpose(Tensor x, const Axes& permutation) const;
  Tensor swap_last(Tensor x) const;
  Tensor broadcast(Tensor x, const ir::Extents& extents) const;
  Tensor concat(const std::vector<Tensor>& parts, size_t axis) const;
  Tensor tile(Tensor x, const Axes& times) const;
  Tensor pad(Tensor x, const Axes& before, const Axes& after, double value) const;
  Tensor reverse(Tensor x, size_t axis) const;
  Tensor slice(Tensor x, size_t axis, int64_t start, int64_t length, int64_t step = 1) const;

  // Places that are known while compiling, along one axis; or indices, which have to be within.
  Tensor take(Tensor x, size_t axis, const Axes& places) const;
  Tensor gather(Tensor x, Tensor indices, size_t axis) const;
  Tensor gather_elements(Tensor x, Tensor indices, size_t axis) const;
  Tensor gather_nd(Tensor x, Tensor indices, size_t batch_axes) const;
  Tensor scatter_elements(Tensor x, Tensor updates, Tensor indices, size_t axis, MPSGraphScatterMode mode) const;
  Tensor scatter_nd(Tensor x, Tensor updates, Tensor indices, MPSGraphScatterMode mode) const;

  // Reductions keep their axes, with extent 1.
  Tensor sum(Tensor x, const Axes& axes) const;
  Tensor product(Tensor x, const Axes& axes) const;
  Tensor greatest(Tensor x, const Axes& axes) const;  // NaN wins
  Tensor least(Tensor x, const Axes& axes) const;
  Tensor mean(Tensor x, const Axes& axes) const;
  Tensor arg_max(Tensor x, size_t axis) const;  // i32, the first of equals
  Tensor arg_min(Tensor x, size_t axis) const;
  Tensor arg_sort(Tensor x, size_t axis, bool descending) const;
  Tensor softmax(Tensor x, size_t axis) const;
  Tensor running_sum(Tensor x, size_t axis, bool exclusive, bool reverse) const;
  Tensor running_product(Tensor x, size_t axis, bool exclusive, bool reverse) const;

  // Several operators each.
  Tensor activate(Tensor x, const ir::Activation& activation) const;
  Tensor gelu(Tensor x, bool by_tanh) const;
  Tensor clamp(Tensor x, double low, double high) const;
  Tensor divide_whole(Tensor x, Tensor y) const;     // integers; x / 0 is 0
  Tensor remainder_whole(Tensor x, Tensor y) const;  // integers, of that division
  Tensor product_of_integers(Tensor x, Tensor y) const;  // as matmul

 private:
  MPSGraph* graph_;
};

}  // namespace heddle::metal
