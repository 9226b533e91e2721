// Pools, over all axes of an array.
#include <algorithm>
#include <limits>

#include "tests/metal_double/graph/numerics/strided.h"
#include "tests/metal_double/graph/numerics/windows.h"

namespace heddle::metal_double::numerics {
namespace {

// The next index of a shape, in row-major order; false after the last.
bool advance(std::vector<int64_t>& index, const Shape& shape) {
  for (size_t axis = shape.size(); axis-- > 0;) {
    if (++index[axis] < shape[axis]) return true;
    index[axis] = 0;
  }
  return false;
}

// f(inside) gives one result of the elements of a window that are not padding.
template <class F>
Array pooled(const Array& x, const Window& window, F f) {
  const Shape shape = *pooled_shape(x.shape(), window);
  const Strides strides = strides_of(x.shape());
  const std::vector<float> values = floats_of(x);
  std::vector<float> made, inside;
  std::vector<int64_t> place(shape.size(), 0), tap(shape.size(), 0);
  do {
    inside.clear();
    do {
      int64_t from = 0;
      for (size_t axis = 0; axis < tap.size() && from >= 0; ++axis) {
        const int64_t at =
            place[axis] * window.strides[axis] + tap[axis] * window.dilations[axis] - window.before[axis];
        from = at < 0 || at >= x.shape()[axis] ? -1 : from + at * strides[axis];
      }
      if (from >= 0) inside.push_back(values[static_cast<size_t>(from)]);
    } while (advance(tap, window.kernel));
    made.push_back(f(inside));
  } while (advance(place, shape));
  return of_floats(x.type(), shape, made);
}

}  // namespace

std::optional<Shape> pooled_shape(const Shape& x, const Window& window) {
  Shape shape;
  for (size_t axis = 0; axis < x.size(); ++axis) {
    shape.push_back(window.count(axis, x[axis]));
    if (shape.back() < 1) return std::nullopt;
  }
  return shape;
}

Array maximum_pool(const Array& x, const Window& window) {
  return pooled(x, window, [](const std::vector<float>& inside) {
    float most = -std::numeric_limits<float>::infinity();
    for (const float value : inside) most = std::max(most, value);
    return most;
  });
}

Array average_pool(const Array& x, const Window& window, bool padding_counts) {
  const auto whole = static_cast<float>(elements_of(window.kernel));
  return pooled(x, window, [&](const std::vector<float>& inside) {
    float total = 0;
    for (const float value : inside) total += value;
    return total / (padding_counts ? whole : static_cast<float>(inside.size()));
  });
}

}  // namespace heddle::metal_double::numerics
