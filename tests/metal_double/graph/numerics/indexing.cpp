#include "tests/metal_double/graph/numerics/indexing.h"

#include <algorithm>
#include <cstring>

#include "tests/metal_double/graph/numerics/elementwise.h"
#include "tests/metal_double/graph/numerics/strided.h"

namespace heddle::metal_double::numerics {
namespace {

int64_t elements_between(const Shape& shape, size_t begin, size_t end) {
  return elements_of(std::span(shape).subspan(begin, end - begin));
}

Shape joined_shape(const Shape& x, size_t x_end, const Shape& y, size_t y_begin, size_t y_end,
                   size_t x_begin) {
  Shape out(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(x_end));
  out.insert(out.end(), y.begin() + static_cast<std::ptrdiff_t>(y_begin),
             y.begin() + static_cast<std::ptrdiff_t>(y_end));
  out.insert(out.end(), x.begin() + static_cast<std::ptrdiff_t>(x_begin), x.end());
  return out;
}

// Blocks of `count` elements.
void copy_block(Array& to, int64_t to_first, const Array& from, int64_t from_first, int64_t count) {
  const int64_t size = size_of(to.type());
  std::memcpy(to.write() + to_first * size, from.data() + from_first * size,
              static_cast<size_t>(count * size));
}

// The places that the last axis of the indices names: of slice `row` of batch `b`; -1 outside.
class Points {
 public:
  Points(const Shape& x, const Array& indices, size_t batch)
      : x_(x), batch_(batch), values_(integers_of(indices)) {
    const Shape& shape = indices.shape();
    depth_ = static_cast<size_t>(shape.back());
    batches = elements_between(shape, 0, batch);
    rows = elements_between(shape, batch, shape.size() - 1);
    slice = elements_between(x, batch + depth_, x.size());
    each = elements_between(x, batch, x.size());
  }
  int64_t at(int64_t b, int64_t row) const {
    const int64_t* const point = values_.data() + (b * rows + row) * static_cast<int64_t>(depth_);
    int64_t place = 0;
    for (size_t k = 0; k < depth_; ++k) {
      const int64_t extent = x_[batch_ + k];
      if (point[k] < 0 || point[k] >= extent) return -1;
      place = place * extent + point[k];
    }
    return b * each + place * slice;
  }

  int64_t batches, rows, slice, each;

 private:
  const Shape& x_;
  size_t batch_, depth_;
  std::vector<int64_t> values_;
};

template <class T>
T updated(MPSGraphScatterMode mode, T old, T update) {
  using Wide = std::conditional_t<std::is_floating_point_v<T>, T, uint64_t>;  // integers wrap
  const auto a = static_cast<Wide>(old), b = static_cast<Wide>(update);
  switch (mode) {
    case MPSGraphScatterModeAdd:
      return static_cast<T>(a + b);
    case MPSGraphScatterModeSub:
      return static_cast<T>(a - b);
    case MPSGraphScatterModeMul:
      return static_cast<T>(a * b);
    case MPSGraphScatterModeDiv:
      return std::is_integral_v<T> && update == 0 ? T{} : static_cast<T>(old / update);
    case MPSGraphScatterModeMin:
      return update < old || old != old ? update : old;
    case MPSGraphScatterModeMax:
      return update > old || old != old ? update : old;
    case MPSGraphScatterModeSet:
      break;
  }
  return update;
}

// target(i) is where update i goes, or -1.
template <class F>
Array scatter(const Array& data, const Array& updates, MPSGraphScatterMode mode, F target) {
  Array out = Array::zeros(data.type(), data.shape());
  copy_block(out, 0, data, 0, data.elements());
  if (mode == MPSGraphScatterModeSet) {
    for (int64_t i = updates.elements(); i-- > 0;) {
      if (target(i) >= 0) copy_block(out, target(i), updates, i, 1);
    }
    return out;
  }
  with_numbers(data.type(), [&](auto tag) {
    using T = decltype(tag);
    using C = Computed<T>;
    for (int64_t i = updates.elements(); i-- > 0;) {
      const int64_t to = target(i);
      if (to < 0) continue;
      T& place = out.write<T>()[to];
      place = static_cast<T>(updated(mode, static_cast<C>(place), static_cast<C>(updates.read<T>()[i])));
    }
  });
  return out;
}

// The place, in an array of shape `to`, of element `flat` of an array of shape `from`, but along `axis` at
// `index`; -1 outside.
int64_t moved_along(const Shape& from, const Shape& to, int64_t flat, size_t axis, int64_t index) {
  if (index < 0 || index >= to[axis]) return -1;
  int64_t place = 0, stride = 1;
  for (size_t k = to.size(); k-- > 0;) {
    place += (k == axis ? index : flat % from[k]) * stride;
    flat /= from[k];
    stride *= to[k];
  }
  return place;
}

}  // namespace

Shape gathered_shape(const Shape& x, const Shape& indices, size_t axis, size_t batch) {
  return joined_shape(x, axis, indices, batch, indices.size(), axis + 1);
}

Array gather(const Array& x, const Array& indices, size_t axis, size_t batch) {
  const Shape& from = x.shape();
  const std::vector<int64_t> picks = integers_of(indices);
  const int64_t batches = elements_between(from, 0, batch), middle = elements_between(from, batch, axis);
  const int64_t count = indices.elements() / batches, extent = from[axis];
  const int64_t inner = elements_between(from, axis + 1, from.size());
  Array out = Array::zeros(x.type(), gathered_shape(from, indices.shape(), axis, batch));
  int64_t to = 0;
  for (int64_t lane = 0; lane < batches * middle; ++lane) {
    for (int64_t i = 0; i < count; ++i, to += inner) {
      const int64_t pick = picks[static_cast<size_t>(lane / middle * count + i)];
      if (pick < 0 || pick >= extent) return Array::zeros(x.type(), out.shape());
      copy_block(out, to, x, (lane * extent + pick) * inner, inner);
    }
  }
  return out;
}

Shape gathered_nd_shape(const Shape& x, const Shape& indices, size_t batch) {
  const auto depth = static_cast<size_t>(indices.back());
  return joined_shape(x, batch, indices, batch, indices.size() - 1, batch + depth);
}

Array gather_nd(const Array& x, const Array& indices, size_t batch) {
  const Points points(x.shape(), indices, batch);
  Array out = Array::zeros(x.type(), gathered_nd_shape(x.shape(), indices.shape(), batch));
  for (int64_t b = 0; b < points.batches; ++b) {
    for (int64_t row = 0; row < points.rows; ++row) {
      const int64_t from = points.at(b, row);
      if (from < 0) return Array::zeros(x.type(), out.shape());
      copy_block(out, (b * points.rows + row) * points.slice, x, from, points.slice);
    }
  }
  return out;
}

Array gather_along(const Array& x, const Array& indices, size_t axis) {
  const std::vector<int64_t> picks = integers_of(indices);
  Array out = Array::zeros(x.type(), indices.shape());
  for (int64_t i = 0; i < out.elements(); ++i) {
    const int64_t from = moved_along(indices.shape(), x.shape(), i, axis, picks[static_cast<size_t>(i)]);
    if (from >= 0) copy_block(out, i, x, from, 1);
  }
  return out;
}

Array scatter_nd(const Array& data, const Array& updates, const Array& indices, size_t batch,
                 MPSGraphScatterMode mode) {
  const Points points(data.shape(), indices, batch);
  return scatter(data, updates, mode, [&](int64_t i) {
    const int64_t row = i / points.slice, to = points.at(row / points.rows, row % points.rows);
    return to < 0 ? to : to + i % points.slice;
  });
}

Array scatter_along(const Array& data, const Array& updates, const Array& indices, size_t axis,
                    MPSGraphScatterMode mode) {
  const std::vector<int64_t> picks = integers_of(indices);
  return scatter(data, updates, mode, [&](int64_t i) {
    return moved_along(updates.shape(), data.shape(), i, axis, picks[static_cast<size_t>(i)]);
  });
}

}  // namespace heddle::metal_double::numerics
