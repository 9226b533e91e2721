// sliding.h: the windows of an operator as the kernels know them (kernels/window.h).
//
//   Errors     unsupported where a plane has more axes than kernels walk, or more places than they count.
//   Threads    Pure functions; any thread.
#pragma once

#include <span>

#include "drivers/cuda/kernels/window.h"
#include "ir/tensor_type.h"
#include "ir/transposed_window.h"

namespace heddle::cuda {

// `in` and `out` are [N, C, plane..].
Result<Sliding> sliding_of(const ir::Window& window, const ir::Extents& in, const ir::Extents& out);
Result<Sliding> sliding_of(const ir::TransposedWindow& window, const ir::Extents& in, const ir::Extents& out);

// One axis of a plane.
struct SlidingAxis {
  int64_t in, out, kernel, stride, dilation, begin, end;
};
Result<Sliding> sliding_of(std::span<const SlidingAxis> axes);

}  // namespace heddle::cuda
