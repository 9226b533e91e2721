// pool.h: pools over windows, one element a thread, and what undoes them.
#pragma once

#include "drivers/cuda/kernels/block.h"
#include "drivers/cuda/kernels/flags.h"
#include "drivers/cuda/kernels/scalar.h"
#include "drivers/cuda/kernels/walk.h"
#include "drivers/cuda/kernels/window.h"

namespace heddle::cuda {

inline constexpr int kPoolThreads = 256, kPoolsAtOnce = 6;  // so that nothing is spilled

struct PoolParams {
  uint64_t x = 0, out = 0;
  uint64_t places = 0;  // of the greatest, where they are asked for: i64
  Type type = Type::kF32;
  int32_t counts_padding = 0;  // the mean is over what the window covers of it, too
  int32_t by_columns = 0;      // places count along the first axis of a plane first
  double power = 2;
  Sliding window;
  int64_t count = 0;          // of the output
  int64_t channels_last = 0;  // how many lie beside each other; 0: the places of a plane do
};

// Where the plane of an element begins, how far apart its places lie, and which window makes the element.
struct PlaneOf {
  int64_t plane, first, step;
  int32_t window;
};
HEDDLE_DEVICE PlaneOf plane_of(const PoolParams& p, int64_t element) {
  const int64_t channels = p.channels_last, out_plane = p.window.out_plane;
  if (channels == 0) {
    const int64_t plane = element / out_plane;
    return {plane, plane * p.window.in_plane, 1, static_cast<int32_t>(element - plane * out_plane)};
  }
  const int64_t place = quotient(element, channels), channel = element - place * channels;
  const int64_t image = quotient(place, out_plane);
  return {image * channels + channel, image * channels * p.window.in_plane + channel, channels,
          static_cast<int32_t>(place - image * out_plane)};
}

// The greatest; NaN wins, and of equals the first.
template <class C>
struct MaxPool {
  static constexpr int kThreads = kPoolThreads, kBlocksAtOnce = kPoolsAtOnce;
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
      const PlaneOf x = plane_of(p, element);
      // Taps that are far apart may all lie in the padding.
      C greatest = std::is_floating_point_v<C> ? C(-INFINITY) : C(0);
      int32_t where = -1;
      each_tap(p.window, x.window, [&](int32_t at, int32_t) {
        const C each = load<C>(p.x, p.type, x.first + at * x.step);
        if (where >= 0 && !is_nan(each) && !(each > greatest)) return;
        greatest = each;
        where = at;
      });
      if (p.out != 0) store<C>(p.out, p.type, element, greatest);
      if (p.places != 0) global<int64_t>(p.places)[element] = place_of(x.plane, where);
    });
  }
};

template <class C>
struct AveragePool {
  static constexpr int kThreads = kPoolThreads, kBlocksAtOnce = kPoolsAtOnce;
  PoolParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    each_of(block, p.count, [&](int64_t element) {
      const PlaneOf x = plane_of(p, element);
      C sum = 0;
      int32_t inside = 0;
      each_tap(p.window, x.window, [&](int32_t at, int32_t) {
        sum += load<C>(p.x, p.type, x.first + at * x.step);
        ++inside;
      });
      const int32_t of = p.counts_padding != 0 ? taps_covered(p.window, x.window) : inside;
      store<C>(p.out, p.type, element, sum / C(of));
    });
  }
};

template <class C>
struct LpPool {
  static constexpr int kThreads = kPoolThreads, kBlocksAtOnce = kPoolsAtOnce;
  PoolParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    each_of(block, p.count, [&](int64_t element) {
      const PlaneOf x = plane_of(p, element);
      C sum = 0;
      each_tap(p.window, x.window, [&](int32_t at, int32_t) {
        sum += std::pow(std::fabs(load<C>(p.x, p.type, x.first + at * x.step)), C(p.power));
      });
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
