// walk.h: the place of an element in memory whose axes have strides.
#pragma once

#include "drivers/cuda/kernels/portable.h"

namespace heddle::cuda {

inline constexpr int kAxes = 12;  // more than a tensor has: a tile or a window splits some in two

// x / y of numbers that are not negative: 64 bits take several times as long as 32.
HEDDLE_DEVICE int64_t quotient(int64_t x, int64_t y) {
  if (((x | y) >> 32) == 0) return static_cast<uint32_t>(x) / static_cast<uint32_t>(y);
  return x / y;
}

struct Axes {
  int32_t rank = 0;
  int32_t small = 0;  // all counts fit into 32 bits
  int64_t extents[kAxes] = {};
};

// Row-major element `flat` of `axes`: f(axis, place along it) for every axis.
template <class F>
HEDDLE_DEVICE void places_of(const Axes& axes, int64_t flat, F f) {
  if (axes.small != 0) {
    uint32_t rest = static_cast<uint32_t>(flat);
    for (int axis = axes.rank; axis-- > 0;) {
      const uint32_t extent = static_cast<uint32_t>(axes.extents[axis]), above = rest / extent;
      f(axis, static_cast<int64_t>(rest - above * extent));
      rest = above;
    }
    return;
  }
  for (int axis = axes.rank; axis-- > 0;) {
    const int64_t above = flat / axes.extents[axis];
    f(axis, flat - above * axes.extents[axis]);
    flat = above;
  }
}

}  // namespace heddle::cuda
