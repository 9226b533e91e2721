// index.h: elements at places that are computed, or that other elements name.
#pragma once

#include "drivers/cuda/kernels/block.h"
#include "drivers/cuda/kernels/element.h"
#include "drivers/cuda/kernels/flags.h"
#include "drivers/cuda/kernels/walk.h"

namespace heddle::cuda {

// Counts from the end where it is negative; -1 outside.
HEDDLE_DEVICE int64_t place_of(int64_t index, int64_t extent) {
  const int64_t at = index < 0 ? index + extent : index;
  return at >= 0 && at < extent ? at : -1;
}

// out[o, k, i] = x[o, indices[k], i]
struct GatherParams {
  uint64_t x = 0, indices = 0, out = 0;
  Type index_type = Type::kI64;
  int64_t count = 0, indices_count = 0, extent = 0, inner = 1;
  Flags flags;
};

template <class Bits>
struct Gather {
  GatherParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    each_of(block, p.count, [&](int64_t element) {
      const int64_t i = element % p.inner, k = element / p.inner % p.indices_count;
      const int64_t o = element / p.inner / p.indices_count;
      const int64_t at = place_of(load<int64_t>(p.indices, p.index_type, k), p.extent);
      if (at < 0) return mark_wrong(p.flags, k);
      global<Bits>(p.out)[element] = global<const Bits>(p.x)[(o * p.extent + at) * p.inner + i];
    });
  }
};

// out[place] = x[place, but along one axis where indices[place] says]
struct GatherElementsParams {
  uint64_t x = 0, indices = 0, out = 0;
  Type index_type = Type::kI64;
  int64_t count = 0, extent = 0, stride = 0;  // of x along the axis
  Axes axes;                                  // of the indices
  int64_t strides[kAxes] = {};                // of x, 0 along the axis
  Flags flags;
};

template <class Bits>
struct GatherElements {
  GatherElementsParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    each_of(block, p.count, [&](int64_t element) {
      int64_t from = 0;
      places_of(p.axes, element, [&](int axis, int64_t place) { from += place * p.strides[axis]; });
      const int64_t at = place_of(load<int64_t>(p.indices, p.index_type, element), p.extent);
      if (at < 0) return mark_wrong(p.flags, element);
      global<Bits>(p.out)[element] = global<const Bits>(p.x)[from + at * p.stride];
    });
  }
};

// Points name places along several axes; what lies there are `inner` elements in a row.
struct GatherPointsParams {
  uint64_t x = 0, indices = 0, out = 0;
  Type index_type = Type::kI64;
  int32_t depth = 0;
  int64_t count = 0, inner = 1;
  int64_t points = 1, batch_step = 0;  // of each element of the batch, and where in x it begins
  int64_t extents[8] = {}, strides[8] = {};
  Flags flags;
};

template <class Bits>
struct GatherPoints {
  GatherPointsParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    each_of(block, p.count, [&](int64_t element) {
      const int64_t point = element / p.inner;
      int64_t from = point / p.points * p.batch_step + element % p.inner;
      for (int axis = 0; axis < p.depth; ++axis) {
        const int64_t index = point * p.depth + axis;
        const int64_t at = place_of(load<int64_t>(p.indices, p.index_type, index), p.extents[axis]);
        if (at < 0) return mark_wrong(p.flags, index);
        from += at * p.strides[axis];
      }
      global<Bits>(p.out)[element] = global<const Bits>(p.x)[from];
    });
  }
};

enum class Border : int32_t { kConstant, kReflect, kEdge, kWrap };

struct PadParams {
  uint64_t x = 0, value = 0, out = 0;  // value 0: zero
  Border border = Border::kConstant;
  int64_t count = 0;
  Axes axes;                                                            // of the output
  int64_t begin[kAxes] = {}, extents[kAxes] = {}, strides[kAxes] = {};  // of x
};

template <class Bits>
struct Pad {
  PadParams p;

  HEDDLE_DEVICE int64_t inside(int64_t at, int64_t extent) const {
    if (p.border == Border::kEdge) return at < 0 ? 0 : extent - 1;
    if (p.border == Border::kWrap) return (at % extent + extent) % extent;
    while (at < 0 || at >= extent) at = at < 0 ? -at : 2 * (extent - 1) - at;
    return at;
  }

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    each_of(block, p.count, [&](int64_t element) {
      int64_t from = 0;
      bool outside = false;
      places_of(p.axes, element, [&](int axis, int64_t place) {
        int64_t at = place - p.begin[axis];
        if (at < 0 || at >= p.extents[axis]) {
          outside = outside || p.border == Border::kConstant;
          at = p.border == Border::kConstant ? 0 : inside(at, p.extents[axis]);
        }
        from += at * p.strides[axis];
      });
      const Bits border = p.value == 0 ? Bits(0) : *global<const Bits>(p.value);
      global<Bits>(p.out)[element] = outside ? border : global<const Bits>(p.x)[from];
    });
  }
};

// What lies on the wrong side of a diagonal becomes 0.
struct TriluParams {
  uint64_t x = 0, k = 0, out = 0;  // k 0: the main diagonal
  Type k_type = Type::kI64;
  int32_t upper = 1;
  int64_t count = 0, rows = 1, columns = 1;
};

template <class Bits>
struct Trilu {
  TriluParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    each_of(block, p.count, [&](int64_t element) {
      const int64_t diagonal = element % p.columns - element / p.columns % p.rows;
      const int64_t k = p.k == 0 ? 0 : load<int64_t>(p.k, p.k_type, 0);
      const bool kept = p.upper != 0 ? diagonal >= k : diagonal <= k;
      global<Bits>(p.out)[element] = kept ? global<const Bits>(p.x)[element] : Bits(0);
    });
  }
};

// Sums and products of all elements before one along an axis: a thread for each lane.
struct CumulativeParams {
  uint64_t in = 0, out = 0;
  Type type = Type::kF32;
  int32_t product = 0, exclusive = 0, reverse = 0;
  int64_t lanes = 0, extent = 0, inner = 1;
};

template <class C>
struct Cumulative {
  CumulativeParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    each_of(block, p.lanes, [&](int64_t lane) {
      const int64_t begin = lane / p.inner * p.extent * p.inner + lane % p.inner;
      C all = p.product != 0 ? C(1) : C(0);
      for (int64_t n = 0; n < p.extent; ++n) {
        const int64_t at = begin + (p.reverse != 0 ? p.extent - 1 - n : n) * p.inner;
        const C before = all, x = load<C>(p.in, p.type, at);
        all = p.product != 0 ? C(all * x) : C(all + x);
        store<C>(p.out, p.type, at, p.exclusive != 0 ? before : all);
      }
    });
  }
};

}  // namespace heddle::cuda
