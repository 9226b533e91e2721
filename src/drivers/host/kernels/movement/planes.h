// planes.h: transposes of two axes, tile by tile.
//
//   What       A view whose innermost stride is not 1, while another axis has stride 1, is read in square
//              tiles, so that each cache line of the operand is used whole. Other axes are walked outside.
//   Threads    A value; run() is a pure function over the caller's memory.
#pragma once

#include <optional>

#include "drivers/host/kernels/movement/strided.h"

namespace heddle::host {

class Planes {
 public:
  // Nothing when the view is not such a transpose, or its planes are too small to gain.
  static std::optional<Planes> of(const Strided& view);

  int64_t strips() const { return planes_ * strips_per_plane_; }  // the units of splitting
  int64_t elements() const { return planes_ * height_ * width_; }
  void run(const std::byte* from, std::byte* to, int64_t size, int64_t first_strip, int64_t last_strip) const;

 private:
  static constexpr int64_t kTile = 16;   // a cache line of f32
  static constexpr int64_t kSpan = 256;  // of the operand's rows at a time: their pages stay known to the TLB

  template <class T>
  void run_as(const T* from, T* to, int64_t first, int64_t last) const;
  template <class T>
  void run_plane(const T* from, T* to, int64_t first, int64_t last) const;

  Strided outer_;                                      // the axes besides the two, as they lie in the operand
  std::array<int64_t, Strided::kMaxAxes> outer_to_{};  // their strides in the output
  int64_t start_ = 0;
  int64_t planes_ = 1;
  int64_t width_ = 0;          // along the output's innermost axis
  int64_t width_stride_ = 0;   // in the operand
  int64_t height_ = 0;         // along the axis of stride 1 in the operand
  int64_t height_stride_ = 0;  // in the output
  int64_t strips_per_plane_ = 0;
};

}  // namespace heddle::host
