// strided.h: elements of several arrays that belong together, found by strides.
//
//   What       Strides say how far apart neighbours along each axis lie, in elements. each_run() visits a
//              shape's last axis again and again, with the place and the step of every array.
//   Threads    Pure; any thread.
#pragma once

#include <array>
#include <optional>

#include "tests/metal_double/graph/numerics/array.h"

namespace heddle::metal_double {

using Strides = std::vector<int64_t>;

Strides strides_of(const Shape& shape);  // row-major
// From the right, as for arithmetic: axes of 1, and axes that are missing, repeat.
std::optional<Shape> broadcast_shape(const Shape& x, const Shape& y);
Strides broadcast_strides(const Shape& from, const Shape& to);

// f(places, count, steps)
template <size_t N, class F>
void each_run(const Shape& shape, const std::array<Strides, N>& strides, std::array<int64_t, N> places,
              F&& f) {
  const size_t last = shape.size() - 1;
  std::array<int64_t, N> steps;
  for (size_t n = 0; n < N; ++n) steps[n] = strides[n][last];
  std::vector<int64_t> index(last, 0);
  while (true) {
    f(static_cast<const std::array<int64_t, N>&>(places), shape[last], steps);
    size_t axis = last;
    while (axis-- > 0) {
      for (size_t n = 0; n < N; ++n) places[n] += strides[n][axis];
      if (++index[axis] < shape[axis]) break;
      for (size_t n = 0; n < N; ++n) places[n] -= strides[n][axis] * shape[axis];
      index[axis] = 0;
    }
    if (axis == static_cast<size_t>(-1)) return;
  }
}

// Everything left of an axis, the axis itself, everything right of it.
struct Lanes {
  int64_t outer, extent, inner;
  Lanes(const Shape& shape, size_t axis)
      : outer(elements_of(std::span(shape).first(axis))),
        extent(shape[axis]),
        inner(elements_of(std::span(shape).subspan(axis + 1))) {}
  // f(place of the lane's first element); its next is `inner` on.
  template <class F>
  void each(F&& f) const {
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t i = 0; i < inner; ++i) f(o * extent * inner + i);
    }
  }
};

}  // namespace heddle::metal_double
