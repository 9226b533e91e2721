// pool.h: pools over windows, one element a thread, and what undoes them.
#pragma once

#include "drivers/cuda/kernels/block.h"
#include "drivers/cuda/kernels/flags.h"
#include "drivers/cuda/kernels/scalar.h"
#include "drivers/cuda/kernels/walk.h"
#include "drivers/cuda/kernels/window.h"

namespace heddle::cuda {

struct PoolParams {
  uint64_t x = 0, out = 0;
  uint64_t places = 0;  // of the greatest, where they are asked for: i64
  Type type = Type::kF32;
  int32_t counts_padding = 0;  // the mean is over what the window covers of it, too
  int32_t by_columns = 0;      // places count along the first axis of a plane first
  double power = 2;
  Sliding window;
  int64_t count = 0;  // of the output
};

// The greatest; NaN wins, and of equals the first.
template <class C>
struct MaxPool {
  PoolParams p;

  HEDDLE_DEVICE int64_t place_of(int64_t plane, int32_t at) const {
    if (at < 0) return -1;
    int64_t place = at;
    if (p.by_columns != 0) {
      const Place in = place_in(p.window.in, at);
      place = (int64_t{in.x} * p.window.in[1] + in.y) * p.window.in[0] + in.z;
    }
    return plane * p.window.in_plane + place;
  }

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    each_of(block, p.count, [&](int64_t element) {
      const int64_t plane = element / p.window.out_plane, x = plane * p.window.in_plane;
      // Taps that are far apart may all lie in the padding.
      C greatest = std::is_floating_point_v<C> ? C(-INFINITY) : C(0);
      int32_t where = -1;
      const auto window = static_cast<int32_t>(element - plane * p.window.out_plane);
      each_tap(p.window, window, [&](int32_t at, int32_t) {
        const C each = load<C>(p.x, p.type, x + at);
        if (where >= 0 && !is_nan(each) && !(each > greatest)) return;
        greatest = each;
        where = at;
      });
      if (p.out != 0) store<C>(p.out, p.type, element, greatest);
      if (p.places != 0) global<int64_t>(p.places)[element] = place_of(plane, where);
    });
  }
};

template <class C>
struct AveragePool {
  PoolParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    each_of(block, p.count, [&](int64_t element) {
      const int64_t plane = element / p.window.out_plane, x = plane * p.window.in_plane;
      const auto window = static_cast<int32_t>(element - plane * p.window.out_plane);
      C sum = 0;
      int32_t inside = 0;
      each_tap(p.window, window, [&](int32_t at, int32_t) {
        sum += load<C>(p.x, p.type, x + at);
        ++inside;
      });
      const int32_t of = p.counts_padding != 0 ? taps_covered(p.window, window) : inside;
      store<C>(p.out, p.type, element, sum / C(of));
    });
  }
};

template <class C>
struct LpPool {
  PoolParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    each_of(block, p.count, [&](int64_t element) {
      const int64_t plane = element / p.window.out_plane, x = plane * p.window.in_plane;
      C sum = 0;
      each_tap(
          p.window, static_cast<int32_t>(element - plane * p.window.out_plane),
          [&](int32_t at, int32_t) { sum += std::pow(std::fabs(load<C>(p.x, p.type, x + at)), C(p.power)); });
      store<C>(p.out, p.type, element, std::pow(sum, C(1) / C(p.power)));
    });
  }
};

// Elements to the places that indices name: of several for one place the last. `last` holds, for each place,
// 1 and the number of the last element for it; 0 where none is.
struct UnpoolParams {
  uint64_t x = 0, indices = 0, last = 0, out = 0;
  int64_t count = 0;                                 // of x, then of the output
  int64_t places = 0;                                // that indices may name
  Axes axes;                                         // of those places
  int64_t extents[kAxes] = {}, strides[kAxes] = {};  // of the output, which cuts them off
  Flags flags;
};

HEDDLE_DEVICE void raise_to(uint64_t* word, uint64_t value) {
#if defined(__CUDA_ARCH__)
  atomicMax(reinterpret_cast<unsigned long long*>(word), static_cast<unsigned long long>(value));
#else
  uint64_t seen = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (seen < value &&
         !__atomic_compare_exchange_n(word, &seen, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
#endif
}

struct UnpoolPlaces {
  UnpoolParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    each_of(block, p.count, [&](int64_t element) {
      const int64_t index = global<const int64_t>(p.indices)[element];
      if (index < 0 || index >= p.places) return mark_wrong(p.flags, element);
      int64_t to = 0;
      bool inside = true;
      places_of(p.axes, index, [&](int axis, int64_t place) {
        inside = inside && place < p.extents[axis];
        to += place * p.strides[axis];
      });
      if (inside) raise_to(global<uint64_t>(p.last) + to, static_cast<uint64_t>(element) + 1);
    });
  }
};

template <class Bits>
struct Unpool {
  UnpoolParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    each_of(block, p.count, [&](int64_t element) {
      const uint64_t last = global<const uint64_t>(p.last)[element];
      global<Bits>(p.out)[element] = last == 0 ? Bits(0) : global<const Bits>(p.x)[last - 1];
    });
  }
};

// Blocks of columns added up to the image that they were cut out of.
struct FoldParams {
  uint64_t x = 0, out = 0;
  Type type = Type::kF32;
  Sliding window;
  int64_t count = 0;  // of the output
};

// C is float, double, or uint64_t, which wraps.
template <class C>
struct Fold {
  FoldParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    each_of(block, p.count, [&](int64_t element) {
      const int64_t plane = element / p.window.out_plane;
      C sum = 0;
      each_window_on(p.window, static_cast<int32_t>(element - plane * p.window.out_plane),
                     [&](int32_t at, int32_t tap) {
                       const int64_t column = plane * p.window.taps + tap;
                       sum += load<C>(p.x, p.type, column * p.window.in_plane + at);
                     });
      store<C>(p.out, p.type, element, sum);
    });
  }
};

}  // namespace heddle::cuda
