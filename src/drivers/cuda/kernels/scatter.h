// scatter.h: updates that are written where indices say. Those of one place are taken in their order.
#pragma once

#include "drivers/cuda/kernels/block.h"
#include "drivers/cuda/kernels/flags.h"
#include "drivers/cuda/kernels/index.h"
#include "drivers/cuda/kernels/scalar.h"

namespace heddle::cuda {

// targets[point]: the number of the place that the point's `depth` indices name; -1: outside.
struct ScatterTargetsParams {
  uint64_t indices = 0, targets = 0;
  Type index_type = Type::kI64;
  int32_t depth = 1;
  int64_t points = 0;
  int64_t extents[kAxes] = {};
  Flags flags;
};

struct ScatterTargets {
  ScatterTargetsParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    each_of(block, p.points, [&](int64_t point) {
      int64_t target = 0;
      for (int axis = 0; axis < p.depth && target >= 0; ++axis) {
        const int64_t index = point * p.depth + axis;
        const int64_t at = place_of(load<int64_t>(p.indices, p.index_type, index), p.extents[axis]);
        if (at < 0) mark_wrong(p.flags, index);
        target = at < 0 ? -1 : target * p.extents[axis] + at;
      }
      global<int64_t>(p.targets)[point] = target;
    });
  }
};

enum class Join : int32_t { kReplace, kAdd, kMultiply, kGreatest, kLeast };

// A lane has `extent` places and `count` updates. A thread owns a range of a lane's places and walks all of
// its updates: no place has two writers.
struct ScatterParams {
  uint64_t updates = 0, targets = 0, out = 0;
  Type type = Type::kF32;
  Join join = Join::kReplace;
  int64_t lanes = 0, ranges = 1, range = 0;  // ranges of a lane, and the places of each
  int64_t extent = 0, count = 0;
  int64_t target_step = 1, update_step = 1, out_step = 1;  // from one to the next in a lane
  Axes axes;                                               // of the lanes
  int64_t target_strides[kAxes] = {}, update_strides[kAxes] = {}, out_strides[kAxes] = {};
};

template <class C>
struct Scatter {
  ScatterParams p;

  HEDDLE_DEVICE C joined(C before, C update) const {
    const C both[] = {before, update};
    switch (p.join) {
      case Join::kReplace:
        return update;
      case Join::kAdd:
        return Add::apply<C>(both, {});
      case Join::kMultiply:
        return Mul::apply<C>(both, {});
      case Join::kGreatest:
        return Max::apply<C>(both, {});
      case Join::kLeast:
        return Min::apply<C>(both, {});
    }
    return update;
  }

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    each_of(block, p.lanes * p.ranges, [&](int64_t owner) {
      const int64_t first = owner / p.lanes * p.range;
      const int64_t end = first + p.range < p.extent ? first + p.range : p.extent;
      int64_t targets = 0, updates = 0, out = 0;
      places_of(p.axes, owner % p.lanes, [&](int axis, int64_t place) {
        targets += place * p.target_strides[axis];
        updates += place * p.update_strides[axis];
        out += place * p.out_strides[axis];
      });
      for (int64_t n = 0; n < p.count; ++n) {
        const int64_t target = global<const int64_t>(p.targets)[targets + n * p.target_step];
        if (target < first || target >= end) continue;
        const int64_t at = out + target * p.out_step;
        const C update = load<C>(p.updates, p.type, updates + n * p.update_step);
        store<C>(p.out, p.type, at, joined(load<C>(p.out, p.type, at), update));
      }
    });
  }
};

// out[o, a, i] = values[1] where a is indices[o, i], else values[0]. Indices outside light nothing.
struct OneHotParams {
  uint64_t indices = 0, values = 0, out = 0;
  Type index_type = Type::kI64;
  int64_t count = 0, extent = 0, inner = 1;
};

template <class Bits>
struct OneHot {
  OneHotParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    each_of(block, p.count, [&](int64_t element) {
      const int64_t a = element / p.inner % p.extent;
      const int64_t from = element / p.inner / p.extent * p.inner + element % p.inner;
      const bool real = p.index_type <= Type::kF64;
      const int64_t index = real ? to_i64(load<double>(p.indices, p.index_type, from))
                                 : load<int64_t>(p.indices, p.index_type, from);
      const bool lit = place_of(index, p.extent) == a;
      global<Bits>(p.out)[element] = global<const Bits>(p.values)[lit ? 1 : 0];
    });
  }
};

}  // namespace heddle::cuda
