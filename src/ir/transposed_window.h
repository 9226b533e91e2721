// transposed_window.h: the windows of a transposed convolution: kernel, strides, dilations, and what is cut
// off.
//
//   What       Input element i adds to the outputs i * stride + tap * dilation - begin. Output extents follow
//              from the pads (or from auto_pad), or are given and the pads follow.
//   Invariant  All vectors have one element per spatial axis.
//   Threads    Plain values.
#pragma once

#include "ir/window.h"

namespace heddle::ir {

struct TransposedWindow {
  Window window;  // ceil_mode means nothing
  std::vector<int64_t> output_padding;
  std::vector<int64_t> output_shape;  // empty: not given

  static Result<TransposedWindow> of(const Node& node, size_t spatial, const std::vector<int64_t>& kernel);

  size_t axes() const { return window.axes(); }
  Result<Dim> out(size_t i, const Dim& in) const;  // invalid when nothing is left
  // What is cut off before the first output; elements beyond the last input's reach get nothing.
  int64_t begin(size_t i, int64_t in) const;

 private:
  bool same() const {
    return window.auto_pad == AutoPad::kSameUpper || window.auto_pad == AutoPad::kSameLower;
  }
  int64_t full(size_t i, int64_t in) const {  // of nothing cut off
    return (in - 1) * window.strides[i] + output_padding[i] + window.reach(i);
  }
};

}  // namespace heddle::ir
