// Placeholders, constants, and the same elements in another shape, order or type.
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/metal_double/graph/building.h"
#include "tests/metal_double/graph/field_checks.h"
#include "tests/metal_double/graph/graph_faults.h"

using namespace heddle::metal_double;
using heddle::ir::DType;
using heddle::ir::Extents;
using heddle::ir::Tensor;

namespace {

constexpr const char* kTranspose = "transposeTensor:permutation:name:";

int64_t i(size_t n) { return static_cast<int64_t>(n); }

// What does not fit an integer is undefined: here, the type's own smallest number.
void cast_element(const Tensor& from, Tensor& to, int64_t at) {
  if (!heddle::ir::is_float(from.dtype())) {
    if (heddle::ir::is_float(to.dtype()) && to.dtype() != DType::kF32) {
      to.set(at, from.get(at));
    } else {
      to.set_i64(at, from.get_i64(at));
    }
    return;
  }
  const double x = from.get(at);
  if (!heddle::ir::is_integer(to.dtype())) return to.set(at, x);
  const double bits = static_cast<double>(8 * heddle::ir::size_of(to.dtype()));
  const bool byte = to.dtype() == DType::kU8;
  const double high = byte ? 256 : std::exp2(bits - 1), low = byte ? 0 : -high;
  const bool fits = std::trunc(x) >= low && std::trunc(x) < high;
  to.set_i64(at, fits ? static_cast<int64_t>(x) : byte ? 255 : static_cast<int64_t>(low));
}

}  // namespace

@implementation MPSGraph (MPSGraphMemoryOps)
- (MPSGraphTensor*)placeholderWithShape:(MPSShape*)shape dataType:(MPSDataType)dataType name:(NSString*)name {
  Building b(self, "placeholderWithShape:dataType:name:");
  b.require(shape != nil, "unranked placeholders are not in the double yet");
  return b.placeholder(dtype_of(dataType, "placeholderWithShape:"),
                       extents_of(shape, "placeholderWithShape:"));
}

- (MPSGraphTensor*)constantWithScalar:(double)scalar dataType:(MPSDataType)dataType {
  Building b(self, "constantWithScalar:dataType:");
  const Tensor tensor = Tensor::scalar(dtype_of(dataType, "constantWithScalar:dataType:"), scalar);
  return b.add(tensor.dtype(), {}, {},
               [tensor](std::span<const Tensor>) -> heddle::Result<Tensors> { return Tensors{tensor}; });
}

- (MPSGraphTensor*)constantWithData:(NSData*)data shape:(MPSShape*)shape dataType:(MPSDataType)dataType {
  Building b(self, "constantWithData:shape:dataType:");
  const Extents extents = extents_of(shape, "constantWithData:");
  Tensor tensor = Tensor::zeros(dtype_of(dataType, "constantWithData:"), extents);
  b.require([data length] == static_cast<NSUInteger>(tensor.bytes()),
            heddle::text("the data has ", [data length], " bytes; the shape takes ", tensor.bytes()));
  std::memcpy(tensor.mutable_data(), [data bytes], [data length]);
  return b.add(tensor.dtype(), extents, {},
               [tensor](std::span<const Tensor>) -> heddle::Result<Tensors> { return Tensors{tensor}; });
}
@end

@implementation MPSGraph (MPSGraphTensorShapeOps)
- (MPSGraphTensor*)reshapeTensor:(MPSGraphTensor*)tensor withShape:(MPSShape*)shape name:(NSString*)name {
  Building b(self, "reshapeTensor:withShape:name:");
  const Value& x = b.value(tensor);
  const Extents to = extents_of(shape, "reshapeTensor:");
  b.require(to.elements() == x.extents.elements(), heddle::text("cannot make ", to, " of ", x.extents));
  return b.add(x.dtype, to, {x}, [to](std::span<const Tensor> in) -> heddle::Result<Tensors> {
    return Tensors{in[0].reshaped(to)};
  });
}

- (MPSGraphTensor*)transposeTensor:(MPSGraphTensor*)tensor
                       permutation:(NSArray<NSNumber*>*)permutation
                              name:(NSString*)name {
  Building b(self, kTranspose);
  return b.add_op("Transpose", {b.value(tensor)}, {{"perm", numbers_of(permutation)}});
}

- (MPSGraphTensor*)sliceTensor:(MPSGraphTensor*)tensor
                        starts:(NSArray<NSNumber*>*)starts
                          ends:(NSArray<NSNumber*>*)ends
                       strides:(NSArray<NSNumber*>*)strides
                          name:(NSString*)name {
  const Value& source = [tensor value];
  const bool turned = source.recipe->name == kTranspose && source.extents.rank() == 4;
  Building b(self, turned ? kPackedView : "sliceTensor:starts:ends:strides:name:");
  const Value& x = b.value(tensor);
  const auto from = numbers_of(starts), to = numbers_of(ends), step = numbers_of(strides);
  b.require(from.size() == x.extents.rank() && to.size() == from.size() && step.size() == from.size(),
            "starts, ends and strides take one number for each axis");
  std::vector<int64_t> axes;
  for (size_t axis = 0; axis < from.size(); ++axis) {
    b.require(step[axis] > 0 && from[axis] >= 0 && from[axis] < to[axis] && to[axis] <= x.extents[axis],
              heddle::text("axis ", axis, " of ", x.extents, " has no ", from[axis], " to ", to[axis]));
    axes.push_back(i(axis));
  }
  return b.add_op("Slice", {x}, {},
                  {Tensor::of_i64(from), Tensor::of_i64(to), Tensor::of_i64(axes), Tensor::of_i64(step)});
}

- (MPSGraphTensor*)concatTensors:(NSArray<MPSGraphTensor*>*)tensors
                       dimension:(NSInteger)dimensionIndex
                            name:(NSString*)name {
  Building b(self, "concatTensors:dimension:name:");
  b.require([tensors count] > 0, "there are no tensors");
  field_concatenates(b, values_of(tensors));
  return b.add_op("Concat", values_of(tensors), {{"axis", static_cast<int64_t>(dimensionIndex)}});
}

- (MPSGraphTensor*)tileTensor:(MPSGraphTensor*)tensor
               withMultiplier:(MPSShape*)multiplier
                         name:(NSString*)name {
  Building b(self, "tileTensor:withMultiplier:name:");
  return b.add_op("Tile", {b.value(tensor)}, {}, {Tensor::of_i64(numbers_of(multiplier))});
}

- (MPSGraphTensor*)padTensor:(MPSGraphTensor*)tensor
             withPaddingMode:(MPSGraphPaddingMode)paddingMode
                 leftPadding:(MPSShape*)leftPadding
                rightPadding:(MPSShape*)rightPadding
               constantValue:(double)constantValue
                        name:(NSString*)name {
  Building b(self, "padTensor:withPaddingMode:leftPadding:rightPadding:constantValue:name:");
  const Value& x = b.value(tensor);
  std::vector<int64_t> pads = numbers_of(leftPadding);
  b.require(paddingMode == MPSGraphPaddingModeConstant,
            "other modes than constant are not in the double yet");
  b.require(x.dtype != DType::kBool, "takes numbers");
  for (const int64_t pad : numbers_of(rightPadding)) pads.push_back(pad);
  for (const int64_t pad : pads) b.require(pad >= 0, "padding is 0 or more");
  return b.add_op("Pad", {x}, {}, {Tensor::of_i64(pads), Tensor::scalar(x.dtype, constantValue)});
}

- (MPSGraphTensor*)broadcastTensor:(MPSGraphTensor*)tensor toShape:(MPSShape*)shape name:(NSString*)name {
  Building b(self, "broadcastTensor:toShape:name:");
  MPSGraphTensor* out = b.add_op("Expand", {b.value(tensor)}, {}, {Tensor::of_i64(numbers_of(shape))});
  b.require([out value].extents == extents_of(shape, "broadcastTensor:"),
            "the shape is smaller than the tensor's");
  return out;
}

- (MPSGraphTensor*)castTensor:(MPSGraphTensor*)tensor toType:(MPSDataType)type name:(NSString*)name {
  Building b(self, "castTensor:toType:name:");
  const Value& x = b.value(tensor);
  const DType to = dtype_of(type, "castTensor:");
  return b.add(to, x.extents, {x}, [to](std::span<const Tensor> in) -> heddle::Result<Tensors> {
    Tensor out = Tensor::zeros(to, in[0].extents());
    for (int64_t at = 0; at < out.elements(); ++at) cast_element(in[0], out, at);
    return Tensors{out};
  });
}

- (MPSGraphTensor*)reinterpretCastTensor:(MPSGraphTensor*)tensor
                                  toType:(MPSDataType)type
                                    name:(NSString*)name {
  Building b(self, "reinterpretCastTensor:toType:name:");
  const DType to = dtype_of(type, "reinterpretCastTensor:");
  return b.add_op("BitCast", {b.value(tensor)}, {{"to", std::string(heddle::ir::name(to))}});
}

- (MPSGraphTensor*)reverseTensor:(MPSGraphTensor*)tensor axes:(NSArray<NSNumber*>*)axes name:(NSString*)name {
  Building b(self, "reverseTensor:axes:name:");
  const std::vector<int64_t> along = numbers_of(axes), from(along.size(), -1), step(along.size(), -1);
  const std::vector<int64_t> to(along.size(), std::numeric_limits<int64_t>::min());
  return b.add_op("Slice", {b.value(tensor)}, {},
                  {Tensor::of_i64(from), Tensor::of_i64(to), Tensor::of_i64(along), Tensor::of_i64(step)});
}

- (MPSGraphTensor*)coordinateAlongAxis:(NSInteger)axis withShape:(MPSShape*)shape name:(NSString*)name {
  Building b(self, "coordinateAlongAxis:withShape:name:");
  const Extents extents = extents_of(shape, "coordinateAlongAxis:");
  b.require(axis >= 0 && static_cast<size_t>(axis) < extents.rank(), "the shape has no such axis");
  Tensor places = Tensor::zeros(DType::kI32, extents);
  int64_t inner = 1;
  for (size_t k = static_cast<size_t>(axis) + 1; k < extents.rank(); ++k) inner *= extents[k];
  for (int64_t at = 0; at < places.elements(); ++at)
    places.set_i64(at, at / inner % extents[static_cast<size_t>(axis)]);
  return b.add(DType::kI32, extents, {},
               [places](std::span<const Tensor>) -> heddle::Result<Tensors> { return Tensors{places}; });
}
@end
