// resample.h: what Resize computes, one axis at a time: which elements each position reads, how weighted.
//
//   What       resize_axes() turns scales or sizes into extents; taps_of() gives the weights of one axis.
//              Every mode is separable, so applying the axes one after the other is the whole operator.
//   Invariant  Indices lie in [0, in); each position has the same number of taps, in ascending order before
//              they were held at the border.
//   Threads    Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "ir/graph.h"
#include "ir/tensor.h"

namespace heddle::ir {

struct ResizeAxis {
  size_t axis = 0;
  int64_t in = 0;
  int64_t out = 0;
  double scale = 1;
  double roi_begin = 0;  // of tf_crop_and_resize
  double roi_end = 1;

  bool changes(const Node& node) const;
};

struct AxisTaps {
  int64_t count = 1;           // taps of a position
  std::vector<int64_t> index;  // out * count
  std::vector<double> weight;  // out * count
  std::vector<char> outside;   // by position: the extrapolation value stands there; empty when nowhere
  bool picks() const;          // every position is one element of the operand
  int64_t picked(int64_t position) const;  // when picks()
};

// Checks the attributes of a Resize node: modes, policies. The message names the attribute.
Status check_resize(const Node& node);
// The axes that `axes` names, or all of `rank`.
Result<std::vector<size_t>> resized_axes(const Node& node, size_t rank);
// One entry per named axis. `scales` or `sizes`: as many elements as axes; one of them null. `roi` may be
// null.
Result<std::vector<ResizeAxis>> resize_axes(const Node& node, const Extents& in, const Tensor* roi,
                                            const Tensor* scales, const Tensor* sizes);
AxisTaps taps_of(const Node& node, const ResizeAxis& axis);
uint64_t taps_max(const Node& node, const ResizeAxis& axis);  // no fewer than taps_of() has

}  // namespace heddle::ir
