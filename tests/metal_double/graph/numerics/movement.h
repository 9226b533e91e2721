// movement.h: the same elements elsewhere.
//
//   Threads    Pure; any thread.
#pragma once

#include "tests/metal_double/graph/numerics/strided.h"

namespace heddle::metal_double::numerics {

// Element i of each axis of `shape` is that at first + i * strides.
Array view(const Array& x, const Shape& shape, int64_t first, const Strides& strides);

// Axis i of the result is axis permutation[i]: Apple does not document which way, others use it so.
Array transpose(const Array& x, const std::vector<int64_t>& permutation);
// From starts on, every strides-th, short of ends; as TensorFlow's strided slice.
Array slice(const Array& x, const std::vector<int64_t>& starts, const Shape& shape,
            const std::vector<int64_t>& strides);
Array concat(std::span<const Array> parts, size_t axis, const Shape& shape);
Array tile(const Array& x, const std::vector<int64_t>& times);
Array pad(const Array& x, const std::vector<int64_t>& before, const Shape& shape, double value);
Array broadcast(const Array& x, const Shape& shape);
Array reverse(const Array& x, const std::vector<size_t>& axes);
Array coordinate(size_t axis, const Shape& shape);  // i32: each element's place along `axis`

}  // namespace heddle::metal_double::numerics
