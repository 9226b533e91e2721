// Placeholders, constants, and the same elements in another shape, order or type.
#include <algorithm>
#include <cstring>

#include "base/status.h"
#include "tests/metal_double/graph/building.h"
#include "tests/metal_double/graph/field_checks.h"
#include "tests/metal_double/graph/graph_faults.h"
#include "tests/metal_double/graph/numerics/elementwise.h"
#include "tests/metal_double/graph/numerics/movement.h"

using namespace heddle::metal_double;

namespace {

constexpr const char* kTranspose = "transposeTensor:permutation:name:";

}  // namespace

@implementation MPSGraph (MPSGraphMemoryOps)
- (MPSGraphTensor*)placeholderWithShape:(MPSShape*)shape dataType:(MPSDataType)dataType name:(NSString*)name {
  Building b(self, "placeholderWithShape:dataType:name:");
  b.require(shape != nil, "unranked placeholders are not in the double yet");
  return b.placeholder(known(dataType, "placeholderWithShape:"), shape_from(shape, "placeholderWithShape:"));
}

- (MPSGraphTensor*)constantWithData:(NSData*)data shape:(MPSShape*)shape dataType:(MPSDataType)dataType {
  Building b(self, "constantWithData:shape:dataType:");
  const Shape extents = shape_from(shape, "constantWithData:");
  Array array = Array::zeros(known(dataType, "constantWithData:"), extents);
  b.require([data length] == static_cast<NSUInteger>(array.bytes()),
            heddle::text("the data has ", [data length], " bytes; the shape takes ", array.bytes()));
  std::memcpy(array.write(), [data bytes], [data length]);
  return b.add(dataType, extents, {}, [array](auto) { return array; });
}

- (MPSGraphTensor*)constantWithScalar:(double)scalar dataType:(MPSDataType)dataType {
  Building b(self, "constantWithScalar:dataType:");
  const Array array = numerics::scalar(known(dataType, "constantWithScalar:dataType:"), scalar).reshaped({});
  return b.add(dataType, {}, {}, [array](auto) { return array; });
}
@end

@implementation MPSGraph (MPSGraphTensorShapeOps)
- (MPSGraphTensor*)reshapeTensor:(MPSGraphTensor*)tensor withShape:(MPSShape*)shape name:(NSString*)name {
  Building b(self, "reshapeTensor:withShape:name:");
  const Value& x = b.value(tensor);
  const Shape to = shape_from(shape, "reshapeTensor:");
  b.require(elements_of(to) == elements_of(x.shape),
            heddle::text("cannot make ", shown(to), " of ", shown(x.shape)));
  return b.add(x.type, to, {x}, [to](auto in) { return in[0].reshaped(to); });
}

- (MPSGraphTensor*)transposeTensor:(MPSGraphTensor*)tensor
                       permutation:(NSArray<NSNumber*>*)permutation
                              name:(NSString*)name {
  Building b(self, kTranspose);
  const Value& x = b.value(tensor);
  const std::vector<int64_t> order = numbers_of(permutation);
  Shape shape;
  for (const size_t axis : b.axes(permutation, x.shape)) shape.push_back(x.shape[axis]);
  b.require(shape.size() == x.shape.size(), "the permutation does not name all axes");
  return b.add(x.type, shape, {x}, [order](auto in) { return numerics::transpose(in[0], order); });
}

- (MPSGraphTensor*)sliceTensor:(MPSGraphTensor*)tensor
                        starts:(NSArray<NSNumber*>*)starts
                          ends:(NSArray<NSNumber*>*)ends
                       strides:(NSArray<NSNumber*>*)strides
                          name:(NSString*)name {
  const Value& source = [tensor value];
  const bool turned = source.recipe->name == kTranspose && source.shape.size() == 4;
  Building b(self, turned ? kPackedView : "sliceTensor:starts:ends:strides:name:");
  const Value& x = b.value(tensor);
  const auto from = numbers_of(starts), to = numbers_of(ends), step = numbers_of(strides);
  b.require(from.size() == x.shape.size() && to.size() == from.size() && step.size() == from.size(),
            "starts, ends and strides take one number for each axis");
  Shape shape;
  for (size_t axis = 0; axis < from.size(); ++axis) {
    b.require(step[axis] > 0 && from[axis] >= 0 && from[axis] < to[axis] && to[axis] <= x.shape[axis],
              heddle::text("axis ", axis, " of ", shown(x.shape), " has no ", from[axis], " to ", to[axis]));
    shape.push_back((to[axis] - from[axis] + step[axis] - 1) / step[axis]);
  }
  return b.add(x.type, shape, {x}, [=](auto in) { return numerics::slice(in[0], from, shape, step); });
}

- (MPSGraphTensor*)concatTensors:(NSArray<MPSGraphTensor*>*)tensors
                       dimension:(NSInteger)dimensionIndex
                            name:(NSString*)name {
  Building b(self, "concatTensors:dimension:name:");
  b.require([tensors count] > 0, "there are no tensors");
  const std::vector<Value> parts = values_of(tensors);
  field_concatenates(b, parts);
  Shape shape = parts[0].shape;
  const size_t axis = b.axis(dimensionIndex, shape);
  shape[axis] = 0;
  for (const Value& part : parts) {
    b.require_same(parts[0], part);
    Shape other = part.shape;
    if (other.size() == shape.size()) other[axis] = shape[axis];
    b.require(other == shape,
              heddle::text("cannot join ", shown(part.shape), " and ", shown(parts[0].shape)));
    shape[axis] += part.shape[axis];
  }
  return b.add(parts[0].type, shape, parts, [=](auto in) { return numerics::concat(in, axis, shape); });
}

- (MPSGraphTensor*)tileTensor:(MPSGraphTensor*)tensor
               withMultiplier:(MPSShape*)multiplier
                         name:(NSString*)name {
  Building b(self, "tileTensor:withMultiplier:name:");
  const Value& x = b.value(tensor);
  const std::vector<int64_t> times = shape_from(multiplier, "tileTensor:");
  b.require(times.size() == x.shape.size(), "the multiplier takes one number for each axis");
  Shape shape = x.shape;
  for (size_t axis = 0; axis < shape.size(); ++axis) shape[axis] *= times[axis];
  return b.add(x.type, shape, {x}, [times](auto in) { return numerics::tile(in[0], times); });
}

- (MPSGraphTensor*)padTensor:(MPSGraphTensor*)tensor
             withPaddingMode:(MPSGraphPaddingMode)paddingMode
                 leftPadding:(MPSShape*)leftPadding
                rightPadding:(MPSShape*)rightPadding
               constantValue:(double)constantValue
                        name:(NSString*)name {
  Building b(self, "padTensor:withPaddingMode:leftPadding:rightPadding:constantValue:name:");
  const Value& x = b.value(tensor);
  const std::vector<int64_t> before = numbers_of(leftPadding), after = numbers_of(rightPadding);
  b.require(paddingMode == MPSGraphPaddingModeConstant,
            "other modes than constant are not in the double yet");
  b.require(x.type != MPSDataTypeBool, "takes numbers");
  b.require(before.size() == x.shape.size() && after.size() == x.shape.size(),
            "paddings take one number for each axis");
  Shape shape = x.shape;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    b.require(before[axis] >= 0 && after[axis] >= 0, "padding is 0 or more");
    shape[axis] += before[axis] + after[axis];
  }
  return b.add(x.type, shape, {x},
               [=](auto in) { return numerics::pad(in[0], before, shape, constantValue); });
}

- (MPSGraphTensor*)broadcastTensor:(MPSGraphTensor*)tensor toShape:(MPSShape*)shape name:(NSString*)name {
  Building b(self, "broadcastTensor:toShape:name:");
  const Value& x = b.value(tensor);
  const Shape to = shape_from(shape, "broadcastTensor:");
  b.require(b.broadcast(x.shape, to) == to, "the shape is smaller than the tensor's");
  return b.add(x.type, to, {x}, [to](auto in) { return numerics::broadcast(in[0], to); });
}

- (MPSGraphTensor*)castTensor:(MPSGraphTensor*)tensor toType:(MPSDataType)type name:(NSString*)name {
  Building b(self, "castTensor:toType:name:");
  const Value& x = b.value(tensor);
  b.require(known(type, "castTensor:") != MPSDataTypeBool, "what a cast to bool gives is not documented");
  return b.add(type, x.shape, {x}, [type](auto in) { return numerics::cast(in[0], type); });
}

- (MPSGraphTensor*)reinterpretCastTensor:(MPSGraphTensor*)tensor
                                  toType:(MPSDataType)type
                                    name:(NSString*)name {
  Building b(self, "reinterpretCastTensor:toType:name:");
  const Value& x = b.value(tensor);
  Shape shape = x.shape;
  const int64_t bytes = shape.back() * size_of(x.type), each = size_of(known(type, "reinterpretCastTensor:"));
  b.require(bytes % each == 0, heddle::text("its rows of ", bytes, " bytes are no whole elements"));
  shape.back() = bytes / each;
  return b.add(type, shape, {x}, [=](auto in) {
    Array out = Array::zeros(type, shape);
    std::memcpy(out.write(), in[0].data(), static_cast<size_t>(out.bytes()));
    return out;
  });
}

- (MPSGraphTensor*)reverseTensor:(MPSGraphTensor*)tensor axes:(NSArray<NSNumber*>*)axes name:(NSString*)name {
  Building b(self, "reverseTensor:axes:name:");
  const Value& x = b.value(tensor);
  const std::vector<size_t> along = b.axes(axes, x.shape);
  return b.add(x.type, x.shape, {x}, [along](auto in) { return numerics::reverse(in[0], along); });
}

- (MPSGraphTensor*)coordinateAlongAxis:(NSInteger)axis withShape:(MPSShape*)shape name:(NSString*)name {
  Building b(self, "coordinateAlongAxis:withShape:name:");
  const Shape extents = shape_from(shape, "coordinateAlongAxis:");
  const size_t along = b.axis(axis, extents);
  return b.add(MPSDataTypeInt32, extents, {}, [=](auto) { return numerics::coordinate(along, extents); });
}
@end
