// tile.h: what kernels use that hold tiles of matrices.
#pragma once

#include "drivers/cuda/kernels/element.h"

namespace heddle::cuda {

// What is computed in for elements of one type.
template <Type kType>
using Computed = std::conditional_t<kType == Type::kF64, double, float>;

// Read and written at once.
template <class T>
struct alignas(4 * sizeof(T)) Four {
  T v[4];
};

}  // namespace heddle::cuda
