// The driver's strided kernels (src/drivers/metal/kernels), which a GPU would compile from their source.
#include "src/drivers/metal/kernels/walk.h"

#include <cstdint>

#include "tests/metal_double/control.h"

namespace heddle::metal_double {
namespace {

using metal::Walk;

struct Offsets {
  int64_t from, to;
};

Offsets offsets(const Walk& walk, uint64_t element) {
  Offsets at{walk.from_start, walk.to_start};
  for (uint32_t axis = walk.rank; axis-- > 0;) {
    const auto index = static_cast<int64_t>(element % walk.extents[axis]);
    element /= walk.extents[axis];
    at.from += walk.from[axis] * index;
    at.to += walk.to[axis] * index;
  }
  return at;
}

template <class T>
void copy(const KernelCall& call) {
  const auto from = call.at<const T>(0);
  const auto to = call.at<T>(1);
  const Walk& walk = call.value<Walk>(2);
  for (uint64_t i = 0; i < call.grid.width; ++i) {
    const Offsets at = offsets(walk, i);
    to[static_cast<size_t>(at.to)] = from[static_cast<size_t>(at.from)];
  }
}

template <class T>
void fill(const KernelCall& call) {
  const T value = call.value<T>(0);
  const auto to = call.at<T>(1);
  const Walk& walk = call.value<Walk>(2);
  for (uint64_t i = 0; i < call.grid.width; ++i) to[static_cast<size_t>(offsets(walk, i).to)] = value;
}

const struct Registered {
  Registered() {
    register_kernel("heddle_copy_1", copy<uint8_t>);
    register_kernel("heddle_copy_2", copy<uint16_t>);
    register_kernel("heddle_copy_4", copy<uint32_t>);
    register_kernel("heddle_copy_8", copy<uint64_t>);
    register_kernel("heddle_fill_1", fill<uint8_t>);
    register_kernel("heddle_fill_2", fill<uint16_t>);
    register_kernel("heddle_fill_4", fill<uint32_t>);
    register_kernel("heddle_fill_8", fill<uint64_t>);
  }
} registered;

}  // namespace
}  // namespace heddle::metal_double
