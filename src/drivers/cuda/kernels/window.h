// window.h: windows that slide over planes of up to three axes, for convolutions and pools.
//
//   What       A plane of fewer axes has extents of 1 in front. Places are counted in 32 bits;
//              lowering/sliding.cpp refuses windows that they cannot count.
#pragma once

#include "drivers/cuda/kernels/portable.h"

namespace heddle::cuda {

inline constexpr int kPlaneAxes = 3;

// Window `o` begins at place o * stride - begin of the plane that it slides over.
struct Sliding {
  int32_t in[kPlaneAxes] = {1, 1, 1}, out[kPlaneAxes] = {1, 1, 1};
  int32_t kernel[kPlaneAxes] = {1, 1, 1}, strides[kPlaneAxes] = {1, 1, 1}, dilations[kPlaneAxes] = {1, 1, 1};
  int32_t begin[kPlaneAxes] = {}, end[kPlaneAxes] = {};  // padding
  int32_t in_plane = 1, out_plane = 1, taps = 1;
};

struct Place {
  int32_t z, y, x;
};
HEDDLE_DEVICE Place place_in(const int32_t (&extents)[kPlaneAxes], int32_t flat) {
  const auto width = static_cast<uint32_t>(extents[2]), height = static_cast<uint32_t>(extents[1]);
  const uint32_t rows = static_cast<uint32_t>(flat) / width, planes = rows / height;
  return {static_cast<int32_t>(planes), static_cast<int32_t>(rows - planes * height),
          static_cast<int32_t>(static_cast<uint32_t>(flat) - rows * width)};
}

HEDDLE_DEVICE bool within(int32_t at, int32_t extent) {
  return static_cast<uint32_t>(at) < static_cast<uint32_t>(extent);
}

// Where the first tap of a window lies; outside the plane where there is padding.
HEDDLE_DEVICE Place first_tap(const Sliding& w, int32_t window) {
  const Place at = place_in(w.out, window);
  return {at.z * w.strides[0] - w.begin[0], at.y * w.strides[1] - w.begin[1],
          at.x * w.strides[2] - w.begin[2]};
}

// f(place in the plane, tap) for each tap of a window that lies inside.
template <class F>
HEDDLE_DEVICE void each_tap(const Sliding& w, int32_t window, F f) {
  const Place first = first_tap(w, window);
  int32_t tap = 0;
  for (int32_t kz = 0, z = first.z; kz < w.kernel[0]; ++kz, z += w.dilations[0]) {
    for (int32_t ky = 0, y = first.y; ky < w.kernel[1]; ++ky, y += w.dilations[1]) {
      const bool row = within(z, w.in[0]) && within(y, w.in[1]);
      for (int32_t kx = 0, x = first.x; kx < w.kernel[2]; ++kx, x += w.dilations[2], ++tap) {
        if (row && within(x, w.in[2])) f((z * w.in[1] + y) * w.in[2] + x, tap);
      }
    }
  }
}

// How many taps of a window lie inside the plane or its padding.
HEDDLE_DEVICE int32_t taps_covered(const Sliding& w, int32_t window) {
  const Place first = first_tap(w, window);
  const int32_t starts[] = {first.z, first.y, first.x};
  int32_t covered = 1;
  for (int axis = 0; axis < kPlaneAxes; ++axis) {
    const int32_t room = w.in[axis] + w.end[axis] - starts[axis];
    const int32_t fit = room <= 0 ? 0 : (room - 1) / w.dilations[axis] + 1;
    covered *= fit < w.kernel[axis] ? fit : w.kernel[axis];
  }
  return covered;
}

// The other way round: `in` holds what is added to `out`, and window i of `in` begins at place
// i * stride - begin of `out`. f(place in `in`, tap) for each tap of a window that lies on `place` of `out`.
template <class F>
HEDDLE_DEVICE void each_window_on(const Sliding& w, int32_t place, F f) {
  const auto window_at = [&](int axis, int32_t at, int32_t& window) {
    window = at / w.strides[axis];
    return at >= 0 && window * w.strides[axis] == at && window < w.in[axis];
  };
  const Place on = place_in(w.out, place);
  int32_t tap = 0, iz = 0, iy = 0, ix = 0;
  for (int32_t kz = 0; kz < w.kernel[0]; ++kz) {
    const bool plane = window_at(0, on.z + w.begin[0] - kz * w.dilations[0], iz);
    for (int32_t ky = 0; ky < w.kernel[1]; ++ky) {
      const bool row = window_at(1, on.y + w.begin[1] - ky * w.dilations[1], iy) && plane;
      for (int32_t kx = 0; kx < w.kernel[2]; ++kx, ++tap) {
        if (row && window_at(2, on.x + w.begin[2] - kx * w.dilations[2], ix))
          f((iz * w.in[1] + iy) * w.in[2] + ix, tap);
      }
    }
  }
}

}  // namespace heddle::cuda
