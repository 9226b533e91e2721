#include "drivers/cuda/lowering/sliding.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace heddle::cuda {
namespace {

constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

// How far the window reaches at the most, its padding included.
int64_t span_of(const SlidingAxis& axis) {
  const int64_t reach = (axis.kernel - 1) * axis.dilation + 1;
  return std::max(axis.in, axis.out) + axis.begin + axis.end + 2 * reach + axis.stride;
}

}  // namespace

Result<Sliding> sliding_of(std::span<const SlidingAxis> axes) {
  if (axes.size() > kPlaneAxes) {
    return Status::unsupported("its planes have ", axes.size(), " axes; the CUDA driver takes up to ",
                               kPlaneAxes);
  }
  Sliding sliding;
  int64_t in = 1, out = 1, taps = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    const SlidingAxis& axis = axes[i];
    in *= axis.in;
    out *= axis.out;
    taps *= axis.kernel;
    if (const int64_t most = std::max({span_of(axis), in, out, taps}); most > kMost) {
      return Status::unsupported("its planes, windows or padding have ", most,
                                 " places; the CUDA driver counts up to ", kMost);
    }
    const size_t at = kPlaneAxes - axes.size() + i;
    sliding.in[at] = static_cast<int32_t>(axis.in);
    sliding.out[at] = static_cast<int32_t>(axis.out);
    sliding.kernel[at] = static_cast<int32_t>(axis.kernel);
    sliding.strides[at] = static_cast<int32_t>(axis.stride);
    sliding.dilations[at] = static_cast<int32_t>(axis.dilation);
    sliding.begin[at] = static_cast<int32_t>(axis.begin);
    sliding.end[at] = static_cast<int32_t>(axis.end);
  }
  sliding.in_plane = static_cast<int32_t>(in);
  sliding.out_plane = static_cast<int32_t>(out);
  sliding.taps = static_cast<int32_t>(taps);
  return sliding;
}

Result<Sliding> sliding_of(const ir::Window& window, const ir::Extents& in, const ir::Extents& out) {
  std::vector<SlidingAxis> axes;
  for (size_t i = 0; i < window.axes(); ++i) {
    const auto [begin, end] = window.pads(i, in[2 + i]);
    axes.push_back(
        {in[2 + i], out[2 + i], window.kernel[i], window.strides[i], window.dilations[i], begin, end});
  }
  return sliding_of(axes);
}

Result<Sliding> sliding_of(const ir::TransposedWindow& window, const ir::Extents& in,
                           const ir::Extents& out) {
  std::vector<SlidingAxis> axes;
  const ir::Window& each = window.window;
  for (size_t i = 0; i < window.axes(); ++i) {
    axes.push_back({in[2 + i], out[2 + i], each.kernel[i], each.strides[i], each.dilations[i],
                    window.begin(i, in[2 + i]), 0});
  }
  return sliding_of(axes);
}

}  // namespace heddle::cuda
