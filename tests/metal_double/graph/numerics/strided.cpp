#include "tests/metal_double/graph/numerics/strided.h"

#include <algorithm>

namespace heddle::metal_double {

Strides strides_of(const Shape& shape) {
  Strides strides(shape.size());
  int64_t step = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    strides[axis] = step;
    step *= shape[axis];
  }
  return strides;
}

std::optional<Shape> broadcast_shape(const Shape& x, const Shape& y) {
  if (x.size() < y.size()) return broadcast_shape(y, x);
  Shape out = x;
  for (size_t i = 1; i <= y.size(); ++i) {
    int64_t& extent = out[x.size() - i];
    const int64_t other = y[y.size() - i];
    if (extent != other && extent != 1 && other != 1) return std::nullopt;
    extent = std::max(extent, other);
  }
  return out;
}

Strides broadcast_strides(const Shape& from, const Shape& to) {
  Strides strides(to.size(), 0);
  const Strides own = strides_of(from);
  const size_t lead = to.size() - from.size();
  for (size_t axis = 0; axis < from.size(); ++axis) strides[lead + axis] = from[axis] == 1 ? 0 : own[axis];
  return strides;
}

}  // namespace heddle::metal_double
