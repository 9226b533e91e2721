#include "drivers/metal/lowering/emit.h"

#include <cassert>

namespace heddle::metal {
namespace {

struct TypePair {
  ir::DType ours;
  MPSDataType theirs;
};
constexpr TypePair kTypes[] = {
    {ir::DType::kF32, MPSDataTypeFloat32},   {ir::DType::kF16, MPSDataTypeFloat16},
    {ir::DType::kBF16, MPSDataTypeBFloat16}, {ir::DType::kI8, MPSDataTypeInt8},
    {ir::DType::kU8, MPSDataTypeUInt8},      {ir::DType::kI16, MPSDataTypeInt16},
    {ir::DType::kI32, MPSDataTypeInt32},     {ir::DType::kI64, MPSDataTypeInt64},
    {ir::DType::kBool, MPSDataTypeBool},
};

}  // namespace

bool has_type(ir::DType dtype) { return type_of(dtype) != MPSDataTypeInvalid; }

MPSDataType type_of(ir::DType dtype) {
  for (const TypePair& pair : kTypes) {
    if (pair.ours == dtype) return pair.theirs;
  }
  return MPSDataTypeInvalid;
}

ir::DType dtype_of(Tensor tensor) {
  for (const TypePair& pair : kTypes) {
    if (pair.theirs == [tensor dataType]) return pair.ours;
  }
  assert(false && "a type that no lowering asks for");
  return ir::DType::kF64;
}

ir::Extents extents_of(Tensor tensor) {
  ir::Extents extents;
  for (NSNumber* extent in [tensor shape]) extents.push_back([extent longLongValue]);
  return extents;
}

ir::Extents at_least_one_axis(const ir::Extents& extents) {
  return extents.rank() == 0 ? ir::Extents{1} : extents;
}

NSArray<NSNumber*>* numbers(std::span<const int64_t> values) {
  NSMutableArray<NSNumber*>* array = [NSMutableArray array];
  for (const int64_t value : values) [array addObject:[NSNumber numberWithLongLong:value]];
  return array;
}

Tensor Emit::placeholder(ir::DType dtype, const ir::Extents& extents) const {
  return [graph_ placeholderWithShape:numbers(at_least_one_axis(extents).span())
                             dataType:type_of(dtype)
                                 name:nil];
}

Tensor Emit::constant(const ir::Tensor& tensor) const {
  NSData* data = [NSData dataWithBytes:tensor.data() length:static_cast<NSUInteger>(tensor.bytes())];
  return [graph_ constantWithData:data
                            shape:numbers(at_least_one_axis(tensor.extents()).span())
                         dataType:type_of(tensor.dtype())];
}

Tensor Emit::scalar(double value, ir::DType dtype) const {
  return constant(ir::Tensor::scalar(dtype, value).reshaped({1}));
}

Tensor Emit::whole(int64_t value, ir::DType dtype) const {
  ir::Tensor tensor = ir::Tensor::zeros(dtype, {1});
  tensor.set_i64(0, value);
  return constant(tensor);
}

Tensor Emit::filled(double value, ir::DType dtype, const ir::Extents& extents) const {
  return broadcast(scalar(value, dtype), extents);
}

Tensor Emit::positions(const Axes& values, ir::DType dtype) const {
  ir::Tensor tensor = ir::Tensor::zeros(dtype, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) tensor.set_i64(static_cast<int64_t>(i), values[i]);
  return constant(tensor);
}

Tensor Emit::counting(size_t axis, const ir::Extents& extents) const {
  return [graph_ coordinateAlongAxis:static_cast<NSInteger>(axis)
                           withShape:numbers(at_least_one_axis(extents).span())
                                name:nil];
}

Tensor Emit::max(Tensor x, Tensor y) const {
  if (!ir::is_float(dtype_of(x))) return [graph_ maximumWithPrimaryTensor:x secondaryTensor:y name:nil];
  return [graph_ maximumWithNaNPropagationWithPrimaryTensor:x secondaryTensor:y name:nil];
}

Tensor Emit::min(Tensor x, Tensor y) const {
  if (!ir::is_float(dtype_of(x))) return [graph_ minimumWithPrimaryTensor:x secondaryTensor:y name:nil];
  return [graph_ minimumWithNaNPropagationWithPrimaryTensor:x secondaryTensor:y name:nil];
}

Tensor Emit::choose(Tensor condition, Tensor yes, Tensor no) const {
  return [graph_ selectWithPredicateTensor:condition
                       truePredicateTensor:yes
                      falsePredicateTensor:no
                                      name:nil];
}

Tensor Emit::sum(Tensor x, const Axes& axes) const {
  return axes.empty() ? x : [graph_ reductionSumWithTensor:x axes:numbers(axes) name:nil];
}

Tensor Emit::product(Tensor x, const Axes& axes) const {
  return axes.empty() ? x : [graph_ reductionProductWithTensor:x axes:numbers(axes) name:nil];
}

Tensor Emit::greatest(Tensor x, const Axes& axes) const {
  if (axes.empty()) return x;
  if (!ir::is_float(dtype_of(x))) return [graph_ reductionMaximumWithTensor:x axes:numbers(axes) name:nil];
  return [graph_ reductionMaximumPropagateNaNWithTensor:x axes:numbers(axes) name:nil];
}

Tensor Emit::least(Tensor x, const Axes& axes) const {
  if (axes.empty()) return x;
  if (!ir::is_float(dtype_of(x))) return [graph_ reductionMinimumWithTensor:x axes:numbers(axes) name:nil];
  return [graph_ reductionMinimumPropagateNaNWithTensor:x axes:numbers(axes) name:nil];
}

Tensor Emit::mean(Tensor x, const Axes& axes) const {
  return axes.empty() ? x : [graph_ meanOfTensor:x axes:numbers(axes) name:nil];
}

Tensor Emit::arg_max(Tensor x, size_t axis) const {
  return [graph_ reductionArgMaximumWithTensor:x axis:static_cast<NSInteger>(axis) name:nil];
}

Tensor Emit::arg_sort(Tensor x, size_t axis, bool descending) const {
  return [graph_ argSortWithTensor:x axis:static_cast<NSInteger>(axis) descending:descending name:nil];
}

Tensor Emit::softmax(Tensor x, size_t axis) const {
  return [graph_ softMaxWithTensor:x axis:static_cast<NSInteger>(axis) name:nil];
}

Tensor Emit::running_sum(Tensor x, size_t axis, bool exclusive, bool reverse) const {
  return [graph_ cumulativeSumWithTensor:x
                                    axis:static_cast<NSInteger>(axis)
                               exclusive:exclusive
                                 reverse:reverse
                                    name:nil];
}

Tensor Emit::running_product(Tensor x, size_t axis, bool exclusive, bool reverse) const {
  return [graph_ cumulativeProductWithTensor:x
                                        axis:static_cast<NSInteger>(axis)
                                   exclusive:exclusive
                                     reverse:reverse
                                        name:nil];
}

}  // namespace heddle::metal
