#include "tests/metal_double/graph/numerics/movement.h"

#include <cstring>

#include "tests/metal_double/graph/numerics/elementwise.h"

namespace heddle::metal_double::numerics {
namespace {

// Where elements lie in memory.
struct Places {
  std::byte* data;
  int64_t first;
  Strides strides;
};

template <class Bits>
void copy_of_size(const Shape& shape, const Places& from, const Places& to) {
  const Bits* const source = reinterpret_cast<const Bits*>(from.data);
  Bits* const target = reinterpret_cast<Bits*>(to.data);
  each_run<2>(shape, {from.strides, to.strides}, {from.first, to.first},
              [&](const auto& at, int64_t count, const auto& step) {
                if (step[0] == 1 && step[1] == 1) {
                  std::memcpy(target + at[1], source + at[0], static_cast<size_t>(count) * sizeof(Bits));
                  return;
                }
                for (int64_t i = 0; i < count; ++i) target[at[1] + i * step[1]] = source[at[0] + i * step[0]];
              });
}

void copy(MPSDataType type, const Shape& shape, const Places& from, const Places& to) {
  const auto of_size = size_of(type) == 1   ? copy_of_size<uint8_t>
                       : size_of(type) == 2 ? copy_of_size<uint16_t>
                       : size_of(type) == 4 ? copy_of_size<uint32_t>
                                            : copy_of_size<uint64_t>;
  of_size(shape, from, to);
}

Places places_in(const Array& x, int64_t first, Strides strides) {
  return {const_cast<std::byte*>(x.data()), first, std::move(strides)};
}

// All of x into `out`, its first element at `first`.
void put(Array& out, int64_t first, const Array& x) {
  copy(x.type(), x.shape(), places_in(x, 0, strides_of(x.shape())),
       {out.write(), first, strides_of(out.shape())});
}

}  // namespace

Array view(const Array& x, const Shape& shape, int64_t first, const Strides& strides) {
  Array out = Array::zeros(x.type(), shape);
  copy(x.type(), shape, places_in(x, first, strides), {out.write(), 0, strides_of(shape)});
  return out;
}

Array transpose(const Array& x, const std::vector<int64_t>& permutation) {
  const Strides own = strides_of(x.shape());
  Shape shape;
  Strides strides;
  for (const int64_t axis : permutation) {
    shape.push_back(x.shape()[static_cast<size_t>(axis)]);
    strides.push_back(own[static_cast<size_t>(axis)]);
  }
  return view(x, shape, 0, strides);
}

Array slice(const Array& x, const std::vector<int64_t>& starts, const Shape& shape,
            const std::vector<int64_t>& strides) {
  Strides own = strides_of(x.shape());
  int64_t first = 0;
  for (size_t axis = 0; axis < own.size(); ++axis) {
    first += starts[axis] * own[axis];
    own[axis] *= strides[axis];
  }
  return view(x, shape, first, own);
}

Array concat(std::span<const Array> parts, size_t axis, const Shape& shape) {
  Array out = Array::zeros(parts[0].type(), shape);
  int64_t first = 0;
  for (const Array& part : parts) {
    put(out, first, part);
    first += part.shape()[axis] * strides_of(shape)[axis];
  }
  return out;
}

// Each axis as two: the copies, then the axis itself.
Array tile(const Array& x, const std::vector<int64_t>& times) {
  const Strides own = strides_of(x.shape());
  Shape split, shape;
  Strides strides;
  for (size_t axis = 0; axis < times.size(); ++axis) {
    split.push_back(times[axis]), split.push_back(x.shape()[axis]);
    strides.push_back(0), strides.push_back(own[axis]);
    shape.push_back(times[axis] * x.shape()[axis]);
  }
  return view(x, split, 0, strides).reshaped(shape);
}

Array pad(const Array& x, const std::vector<int64_t>& before, const Shape& shape, double value) {
  Array out = broadcast(scalar(x.type(), value), shape);
  const Strides strides = strides_of(shape);
  int64_t first = 0;
  for (size_t axis = 0; axis < strides.size(); ++axis) first += before[axis] * strides[axis];
  put(out, first, x);
  return out;
}

Array broadcast(const Array& x, const Shape& shape) {
  return view(x, shape, 0, broadcast_strides(x.shape(), shape));
}

Array reverse(const Array& x, const std::vector<size_t>& axes) {
  Strides strides = strides_of(x.shape());
  int64_t first = 0;
  for (const size_t axis : axes) {
    first += (x.shape()[axis] - 1) * strides[axis];
    strides[axis] = -strides[axis];
  }
  return view(x, x.shape(), first, strides);
}

Array coordinate(size_t axis, const Shape& shape) {
  Array line = Array::zeros(MPSDataTypeInt32, {shape[axis]});
  for (int64_t i = 0; i < shape[axis]; ++i) line.write<int32_t>()[i] = static_cast<int32_t>(i);
  Strides strides(shape.size(), 0);
  strides[axis] = 1;
  return view(line, shape, 0, strides);
}

}  // namespace heddle::metal_double::numerics
