// windows.h: what slides over an image: convolutions, the gradient of their data, pools.
//
//   Layout     Says where in a shape an image's axes are: NCHW and the like; for weights, O and I stand for N
//              and C. Spatial axes are listed slowest first.
//   Assumed    Apple documents none of these. An odd padding's larger half is after for TF_SAME and before
//              for ONNX_SAME_LOWER, as in those two. A maximum loses NaN, as Metal's max does. Sums are made
//              in f32.
//   Threads    Pure; any thread.
#pragma once

#import <MetalPerformanceShadersGraph/MetalPerformanceShadersGraph.h>

#include <optional>

#include "tests/metal_double/graph/numerics/array.h"

namespace heddle::metal_double::numerics {

// Of each spatial axis.
struct Window {
  std::vector<int64_t> kernel, strides, dilations, before, after;

  size_t axes() const { return kernel.size(); }
  int64_t reach(size_t axis) const { return (kernel[axis] - 1) * dilations[axis] + 1; }
  // How many there are along an axis of `extent`: less than 1 when none fits.
  int64_t count(size_t axis, int64_t extent) const;
  // Sets the padding, unless the style is that it was given. False: a style without documented meaning.
  bool pad(MPSGraphPaddingStyle style, const std::vector<int64_t>& extents);
};

struct Layout {
  size_t outer, channel;
  std::vector<size_t> spatial;

  static std::optional<Layout> of(MPSGraphTensorNamedDataLayout layout);
  std::vector<int64_t> spatial_of(const Shape& shape) const;
};

struct Convolution {
  Window window;
  int64_t groups;
  Layout data, weights;
};

// Nothing when the channels do not fit, or no window does.
std::optional<Shape> convolved_shape(const Shape& x, const Shape& weights, const Convolution& c);
Array convolution(const Array& x, const Array& weights, const Convolution& c);
// With respect to the forward convolution's data, whose shape is `source`.
Array data_gradient(const Array& gradient, const Array& weights, const Shape& source, const Convolution& c);

// Over all axes.
std::optional<Shape> pooled_shape(const Shape& x, const Window& window);
Array maximum_pool(const Array& x, const Window& window);
// Divided by the whole window, or by its elements that are not padding.
Array average_pool(const Array& x, const Window& window, bool padding_counts);

}  // namespace heddle::metal_double::numerics
