#include "drivers/host/kernels/movement/planes.h"

#include <algorithm>

#include "drivers/host/kernels/elementwise/vectorised.h"

namespace heddle::host {

namespace {

// A tile of T: d[h * to_stride + w] = s[w * from_stride + h].
template <class T>
HEDDLE_INLINE void tile(const T* s, int64_t from_stride, T* d, int64_t to_stride, int64_t width,
                        int64_t height) {
  for (int64_t h = 0; h < height; ++h) {
    for (int64_t w = 0; w < width; ++w) d[h * to_stride + w] = s[w * from_stride + h];
  }
}

}  // namespace

std::optional<Planes> Planes::of(const Strided& view) {
  if (view.form != Strided::Form::kOther || view.rank < 2 || view.strides[view.rank - 1] == 1)
    return std::nullopt;
  const size_t inner = view.rank - 1;
  size_t unit = inner;
  for (size_t axis = 0; axis < inner; ++axis) {
    if (view.strides[axis] == 1) unit = axis;
  }
  if (unit == inner || view.extents[unit] < 4 || view.extents[inner] < 4) return std::nullopt;
  Planes p;
  p.start_ = view.start;
  p.width_ = view.extents[inner];
  p.width_stride_ = view.strides[inner];
  p.height_ = view.extents[unit];
  p.strips_per_plane_ = (p.height_ + kTile - 1) / kTile;
  int64_t to = 1;
  std::array<int64_t, Strided::kMaxAxes> to_strides{};
  for (size_t axis = view.rank; axis-- > 0;) {
    to_strides[axis] = to;
    to *= view.extents[axis];
  }
  p.height_stride_ = to_strides[unit];
  for (size_t axis = 0; axis < inner; ++axis) {
    if (axis == unit) continue;
    p.planes_ *= view.extents[axis];
    p.outer_.extents[p.outer_.rank] = view.extents[axis];
    p.outer_to_[p.outer_.rank] = to_strides[axis];
    p.outer_.strides[p.outer_.rank++] = view.strides[axis];
  }
  return p;
}

template <class T>
void Planes::run_plane(const T* from, T* to, int64_t first, int64_t last) const {
  for (int64_t span = 0; span < width_; span += kSpan) {
    const int64_t span_end = std::min(width_, span + kSpan);
    for (int64_t strip = first; strip < last; ++strip) {
      const int64_t top = strip * kTile;
      const int64_t height = std::min(kTile, height_ - top);
      for (int64_t left = span; left < span_end; left += kTile) {
        const int64_t width = std::min(kTile, span_end - left);
        const T* s = from + top + left * width_stride_;
        T* d = to + top * height_stride_ + left;
        // Known extents let the compiler unroll.
        if (width == kTile && height == kTile) {
          tile(s, width_stride_, d, height_stride_, kTile, kTile);
        } else {
          tile(s, width_stride_, d, height_stride_, width, height);
        }
      }
    }
  }
}

template <class T>
void Planes::run_as(const T* from, T* to, int64_t first, int64_t last) const {
  while (first < last) {
    int64_t plane = first / strips_per_plane_;
    const int64_t strip = first % strips_per_plane_;
    const int64_t strips = std::min(last - first, strips_per_plane_ - strip);
    const T* s = from + start_;
    T* d = to;
    for (size_t axis = outer_.rank; axis-- > 0;) {
      const int64_t at = plane % outer_.extents[axis];
      plane /= outer_.extents[axis];
      s += at * outer_.strides[axis];
      d += at * outer_to_[axis];
    }
    run_plane(s, d, strip, strip + strips);
    first += strips;
  }
}

void Planes::run(const std::byte* from, std::byte* to, int64_t size, int64_t first_strip,
                 int64_t last_strip) const {
  const auto as = [&]<class T>(T) {
    run_as(reinterpret_cast<const T*>(from), reinterpret_cast<T*>(to), first_strip, last_strip);
  };
  switch (size) {
    case 1:
      as(uint8_t{});
      break;
    case 2:
      as(uint16_t{});
      break;
    case 4:
      as(uint32_t{});
      break;
    default:
      as(uint64_t{});
      break;
  }
}

}  // namespace heddle::host
