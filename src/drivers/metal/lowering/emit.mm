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
  require_fit(dtype, extents);
  return [graph_ placeholderWithShape:numbers(at_least_one_axis(extents).span())
                             dataType:type_of(dtype)
                                 name:nil];
}

Tensor Emit::constant(const ir::Tensor& tensor) const {
  require_fit(tensor.dtype(), tensor.extents());
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

Tensor Emit::count_of_turns(int64_t value) const {
  return [graph_ constantWithScalar:static_cast<double>(value) dataType:MPSDataTypeInt32];
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
  require_fit(ir::DType::kI32, extents);
  return [graph_ coordinateAlongAxis:static_cast<NSInteger>(axis)
                           withShape:numbers(at_least_one_axis(extents).span())
                                name:nil];
}

Tensor Emit::matmul(Tensor x, Tensor y) const {
  const ir::Extents left = extents_of(x), right = extents_of(y);
  ir::Extents made = common(ir::Extents(left.span().first(left.rank() - 2)),
                            ir::Extents(right.span().first(right.rank() - 2)));
  made.push_back(left[left.rank() - 2]);
  made.push_back(right[right.rank() - 1]);
  require_fit(dtype_of(x), made);
  return [graph_ matrixMultiplicationWithPrimaryTensor:x secondaryTensor:y name:nil];
}

Tensor Emit::max(Tensor x, Tensor y) const {
  require_common(x, y);
  if (!ir::is_float(dtype_of(x))) return [graph_ maximumWithPrimaryTensor:x secondaryTensor:y name:nil];
  return [graph_ maximumWithNaNPropagationWithPrimaryTensor:x secondaryTensor:y name:nil];
}

Tensor Emit::min(Tensor x, Tensor y) const {
  require_common(x, y);
  if (!ir::is_float(dtype_of(x))) return [graph_ minimumWithPrimaryTensor:x secondaryTensor:y name:nil];
  return [graph_ minimumWithNaNPropagationWithPrimaryTensor:x secondaryTensor:y name:nil];
}

Tensor Emit::choose(Tensor condition, Tensor yes, Tensor no) const {
  require_fit(dtype_of(yes), common(common(extents_of(condition), extents_of(yes)), extents_of(no)));
  return [graph_ selectWithPredicateTensor:condition
                       truePredicateTensor:yes
                      falsePredicateTensor:no
                                      name:nil];
}

}  // namespace heddle::metal
