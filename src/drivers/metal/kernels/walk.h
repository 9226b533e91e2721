// walk.h: the argument of the strided kernels: a loop over the elements of two windows.
//
//   What       Element i, row-major over `extents`, lies at from_start + sum(index * from) elements of the
//              source buffer, and so for the target. Layout of the Metal source's struct of the same name.
#pragma once

#include <cstdint>

namespace heddle::metal {

struct Walk {
  static constexpr int kMostAxes = 8;
  uint32_t rank;
  uint32_t unused;
  uint32_t extents[kMostAxes];
  int64_t from_start, to_start;
  int64_t from[kMostAxes], to[kMostAxes];
};
static_assert(sizeof(Walk) == 184);

}  // namespace heddle::metal
