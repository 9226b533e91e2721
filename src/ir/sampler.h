// sampler.h: what GridSample reads for one point of its grid, one axis at a time.
//
//   What       along() gives the elements of one axis and their weights; the taps of a point are the products
//              over the axes, the same for all channels.
//   Invariant  Places lie in [0, extent). What lies outside and is padded with zeros has weight 0. A
//              coordinate that is NaN reads as 0.
//   Threads    Immutable.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "ir/graph.h"

namespace heddle::ir {

class Sampler {
 public:
  struct Tap {
    int64_t position = 0;
    double weight = 0;
  };
  using AxisTaps = std::array<Tap, 4>;

  static Status check(const Node& node);  // the attributes
  Sampler(const Node& node, const Extents& image);

  size_t axes() const { return extents_.size(); }  // spatial ones
  size_t taps_per_axis() const { return mode_ == Mode::kNearest ? 1 : mode_ == Mode::kLinear ? 2 : 4; }
  // `at` in [-1, 1] within the image, or with attribute places in [0, extent - 1]. The first taps_per_axis()
  // are set.
  AxisTaps along(size_t axis, double at) const;

 private:
  enum class Mode : uint8_t { kNearest, kLinear, kCubic };
  enum class Padding : uint8_t { kZeros, kBorder, kReflection };

  double source(double at, int64_t extent) const;
  Tap held(int64_t position, double weight, int64_t extent) const;

  std::vector<int64_t> extents_;
  Mode mode_;
  Padding padding_;
  bool align_corners_;
  bool places_;  // the grid names elements, not the range from border to border
};

}  // namespace heddle::ir
