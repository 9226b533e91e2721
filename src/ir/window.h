// window.h: the sliding windows of convolution and pooling: kernel, strides, padding, dilation.
//
//   What       Reads and checks the attributes once; gives output extents for symbolic and concrete inputs,
//              and the padding that auto_pad means for a concrete input.
//   Invariant  All vectors have one element per spatial axis; sizes are positive, padding is 0 or more.
//   Threads    Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "ir/graph.h"

namespace heddle::ir {

enum class AutoPad : uint8_t { kExplicit, kSameUpper, kSameLower, kValid };

struct Window {
  std::vector<int64_t> kernel;
  std::vector<int64_t> strides;
  std::vector<int64_t> dilations;
  std::vector<int64_t> pads_begin;
  std::vector<int64_t> pads_end;
  AutoPad auto_pad = AutoPad::kExplicit;
  bool ceil_mode = false;

  // `kernel` is used when the attribute kernel_shape is absent (Conv: the extents of the weights).
  static Result<Window> of(const Node& node, size_t spatial, const std::vector<int64_t>& kernel);

  size_t axes() const { return kernel.size(); }
  int64_t reach(size_t i) const {
    return (kernel[i] - 1) * dilations[i] + 1;
  }  // what the dilated kernel spans
  Result<Dim> out(size_t i, const Dim& in) const;                // invalid when no window fits
  std::pair<int64_t, int64_t> pads(size_t i, int64_t in) const;  // begin, end
};

}  // namespace heddle::ir
