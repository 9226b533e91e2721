// emit.h: one MPSGraph while it is built, in the words that the lowerings use.
//
//   What       Each function adds one operator of MPSGraph (or none, where nothing is to be done) and returns
//              its result; those of emit_shapes.mm and emit_math.mm that add several say so.
//   Shapes     MPSGraph's tensors have rank 1 or more here: a scalar is [1]. The number of a loop's turns has
//              none.
//   Limits     What this Mac's MPSGraph does wrongly is done another way, as limits.h says.
//   Errors     MPSGraph ends the process when an array is too large. What would make one raises
//              NSException kTooLarge before, as MPSGraph does for other mistakes of ours.
//   Threads    One thread at a time: MPSGraph is not safe for more while it is built.
//   Lifetime   The graph keeps its tensors; a Tensor is good as long as the graph is.
#pragma once

#import <MetalPerformanceShadersGraph/MetalPerformanceShadersGraph.h>

#include <span>
#include <vector>

#include "drivers/metal/limits.h"
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
ir::Extents common(const ir::Extents& x, const ir::Extents& y);  // what two that fit together broadcast to
NSArray<NSNumber*>* numbers(std::span<const int64_t> values);

extern NSString* const kTooLarge;

class Emit {
 public:
  Emit(MPSGraph* graph, const Limits& limits) : graph_(graph), limits_(limits) {}
  MPSGraph* graph() const { return graph_; }
  const Limits& limits() const { return limits_; }
  // Raises kTooLarge. Each function below asks it for what it makes.
  void require_fit(ir::DType dtype, const ir::Extents& extents) const;

  Tensor placeholder(ir::DType dtype, const ir::Extents& extents) const;
  Tensor constant(const ir::Tensor& tensor) const;
  Tensor scalar(double value, ir::DType dtype) const;  // [1]
  Tensor whole(int64_t value, ir::DType dtype) const;  // [1], exact
  Tensor count_of_turns(int64_t value) const;          // i32, without axes
  Tensor like(double value, Tensor of) const { return scalar(value, dtype_of(of)); }
  Tensor filled(double value, ir::DType dtype, const ir::Extents& extents) const;
  Tensor positions(const Axes& values, ir::DType dtype = ir::DType::kI32) const;  // rank 1
  Tensor counting(size_t axis, const ir::Extents& extents) const;  // i32: each element's place along `axis`

  Tensor identity(Tensor x) const { return [graph_ identityWithTensor:x name:nil]; }
  Tensor exp(Tensor x) const { return [graph_ exponentWithTensor:x name:nil]; }
  Tensor log(Tensor x) const { return [graph_ logarithmWithTensor:x name:nil]; }
  Tensor square(Tensor x) const { return [graph_ squareWithTensor:x name:nil]; }
  Tensor sqrt(Tensor x) const { return [graph_ squareRootWithTensor:x name:nil]; }
  Tensor rsqrt(Tensor x) const { return reciprocal(sqrt(x)); }  // MPSGraph renames its own in macOS 15
  Tensor reciprocal(Tensor x) const { return [graph_ reciprocalWithTensor:x name:nil]; }
  Tensor abs(Tensor x) const { return [graph_ absoluteWithTensor:x name:nil]; }
  Tensor negate(Tensor x) const { return [graph_ negativeWithTensor:x name:nil]; }
  Tensor sign(Tensor x) const { return [graph_ signWithTensor:x name:nil]; }
  Tensor ceil(Tensor x) const { return [graph_ ceilWithTensor:x name:nil]; }
  Tensor floor(Tensor x) const { return [graph_ floorWithTensor:x name:nil]; }
  Tensor round(Tensor x) const { return [graph_ rintWithTensor:x name:nil]; }  // halves to even
  Tensor sin(Tensor x) const { return [graph_ sinWithTensor:x name:nil]; }
  Tensor cos(Tensor x) const { return [graph_ cosWithTensor:x name:nil]; }
  Tensor tan(Tensor x) const { return [graph_ tanWithTensor:x name:nil]; }
  Tensor sinh(Tensor x) const { return [graph_ sinhWithTensor:x name:nil]; }
  Tensor cosh(Tensor x) const { return [graph_ coshWithTensor:x name:nil]; }
  Tensor asin(Tensor x) const { return [graph_ asinWithTensor:x name:nil]; }
  Tensor acos(Tensor x) const { return [graph_ acosWithTensor:x name:nil]; }
  Tensor atan(Tensor x) const { return [graph_ atanWithTensor:x name:nil]; }
  Tensor asinh(Tensor x) const { return [graph_ asinhWithTensor:x name:nil]; }
  Tensor acosh(Tensor x) const { return [graph_ acoshWithTensor:x name:nil]; }
  Tensor atanh(Tensor x) const { return [graph_ atanhWithTensor:x name:nil]; }
  Tensor tanh(Tensor x) const { return [graph_ tanhWithTensor:x name:nil]; }
  Tensor erf(Tensor x) const { return [graph_ erfWithTensor:x name:nil]; }
  Tensor logical_not(Tensor x) const { return [graph_ notWithTensor:x name:nil]; }
  Tensor is_inf(Tensor x) const { return [graph_ isInfiniteWithTensor:x name:nil]; }
  Tensor is_nan(Tensor x) const { return [graph_ isNaNWithTensor:x name:nil]; }
  Tensor bit_not(Tensor x) const { return [graph_ bitwiseNOTWithTensor:x name:nil]; }
  Tensor sigmoid(Tensor x) const { return [graph_ sigmoidWithTensor:x name:nil]; }
  Tensor add(Tensor x, Tensor y) const {
    require_common(x, y);
    return [graph_ additionWithPrimaryTensor:x secondaryTensor:y name:nil];
  }
  Tensor sub(Tensor x, Tensor y) const {
    require_common(x, y);
    return [graph_ subtractionWithPrimaryTensor:x secondaryTensor:y name:nil];
  }
  Tensor mul(Tensor x, Tensor y) const {
    require_common(x, y);
    return [graph_ multiplicationWithPrimaryTensor:x secondaryTensor:y name:nil];
  }
  Tensor div(Tensor x, Tensor y) const {
    require_common(x, y);
    return [graph_ divisionWithPrimaryTensor:x secondaryTensor:y name:nil];
  }
  Tensor fmod(Tensor x, Tensor y) const {
    require_common(x, y);
    return [graph_ moduloWithPrimaryTensor:x secondaryTensor:y name:nil];
  }
  Tensor power(Tensor x, Tensor y) const {
    require_common(x, y);
    return [graph_ powerWithPrimaryTensor:x secondaryTensor:y name:nil];
  }
  Tensor equal(Tensor x, Tensor y) const {
    require_common(x, y);
    return [graph_ equalWithPrimaryTensor:x secondaryTensor:y name:nil];
  }
  Tensor not_equal(Tensor x, Tensor y) const {
    require_common(x, y);
    return [graph_ notEqualWithPrimaryTensor:x secondaryTensor:y name:nil];
  }
  Tensor less(Tensor x, Tensor y) const {
    require_common(x, y);
    return [graph_ lessThanWithPrimaryTensor:x secondaryTensor:y name:nil];
  }
  Tensor less_equal(Tensor x, Tensor y) const {
    require_common(x, y);
    return [graph_ lessThanOrEqualToWithPrimaryTensor:x secondaryTensor:y name:nil];
  }
  Tensor greater(Tensor x, Tensor y) const {
    require_common(x, y);
    return [graph_ greaterThanWithPrimaryTensor:x secondaryTensor:y name:nil];
  }
  Tensor greater_equal(Tensor x, Tensor y) const {
    require_common(x, y);
    return [graph_ greaterThanOrEqualToWithPrimaryTensor:x secondaryTensor:y name:nil];
  }
  Tensor both(Tensor x, Tensor y) const {
    require_common(x, y);
    return [graph_ logicalANDWithPrimaryTensor:x secondaryTensor:y name:nil];
  }
  Tensor either(Tensor x, Tensor y) const {
    require_common(x, y);
    return [graph_ logicalORWithPrimaryTensor:x secondaryTensor:y name:nil];
  }
  Tensor differ(Tensor x, Tensor y) const {
    require_common(x, y);
    return [graph_ logicalXORWithPrimaryTensor:x secondaryTensor:y name:nil];
  }
  Tensor bit_and(Tensor x, Tensor y) const {
    require_common(x, y);
    return [graph_ bitwiseANDWithPrimaryTensor:x secondaryTensor:y name:nil];
  }
  Tensor bit_or(Tensor x, Tensor y) const {
    require_common(x, y);
    return [graph_ bitwiseORWithPrimaryTensor:x secondaryTensor:y name:nil];
  }
  Tensor bit_xor(Tensor x, Tensor y) const {
    require_common(x, y);
    return [graph_ bitwiseXORWithPrimaryTensor:x secondaryTensor:y name:nil];
  }
  Tensor shift_left(Tensor x, Tensor y) const {
    require_common(x, y);
    return [graph_ bitwiseLeftShiftWithPrimaryTensor:x secondaryTensor:y name:nil];
  }
  Tensor shift_right(Tensor x, Tensor y) const {
    require_common(x, y);
    return [graph_ bitwiseRightShiftWithPrimaryTensor:x secondaryTensor:y name:nil];
  }
  Tensor matmul(Tensor x, Tensor y) const;
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
  Tensor scatter_elements(Tensor x, Tensor updates, Tensor indices, size_t axis,
                          MPSGraphScatterMode mode) const;
  Tensor scatter_nd(Tensor x, Tensor updates, Tensor indices, MPSGraphScatterMode mode) const;

  // Reductions keep their axes, with extent 1.
  Tensor sum(Tensor x, const Axes& axes) const;
  Tensor product(Tensor x, const Axes& axes) const;
  Tensor greatest(Tensor x, const Axes& axes) const;  // NaN wins
  Tensor least(Tensor x, const Axes& axes) const;
  Tensor mean(Tensor x, const Axes& axes) const;
  Tensor arg_max(Tensor x, size_t axis) const;  // i32, any of equals
  Tensor arg_sort(Tensor x, size_t axis, bool descending) const;
  Tensor softmax(Tensor x, size_t axis) const;
  Tensor running_sum(Tensor x, size_t axis, bool exclusive, bool reverse) const;
  Tensor running_product(Tensor x, size_t axis, bool exclusive, bool reverse) const;

  // Several operators each.
  Tensor activate(Tensor x, const ir::Activation& activation) const;
  Tensor gelu(Tensor x, bool by_tanh) const;
  Tensor clamp(Tensor x, double low, double high) const;
  Tensor quotient(Tensor x, Tensor y) const;             // integers, y is not 0; toward zero
  Tensor divide_whole(Tensor x, Tensor y) const;         // integers; x / 0 is 0
  Tensor remainder_whole(Tensor x, Tensor y) const;      // integers, of that division
  Tensor product_of_integers(Tensor x, Tensor y) const;  // as matmul

 private:
  void require_common(Tensor x, Tensor y) const;  // for what both broadcast to
  Tensor exact_quotient(Tensor x, Tensor y, ir::DType wide, int steps) const;

  MPSGraph* graph_;
  const Limits& limits_;
};

}  // namespace heddle::metal
