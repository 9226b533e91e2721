// reduce.h: many elements to one: sums, extremes and their like. A block makes one element after another.
#pragma once

#include "drivers/cuda/kernels/block.h"
#include "drivers/cuda/kernels/scalar.h"
#include "drivers/cuda/kernels/walk.h"

namespace heddle::cuda {

struct ReduceParams {
  uint64_t in = 0, out = 0;
  Type in_type = Type::kF32, out_type = Type::kF32;
  int64_t outputs = 0, count = 0;  // of elements made, and of those that each is made of
  Axes kept, reduced;
  int64_t kept_strides[kAxes] = {}, reduced_strides[kAxes] = {};
  double empty = 0;  // what no elements give; of integers the next
  int64_t empty_integer = 0;
};

struct SumOf {
  template <class C>
  static HEDDLE_DEVICE C first() {
    return C(0);
  }
  template <class C>
  static HEDDLE_DEVICE C of(C x) {
    return x;
  }
  template <class C>
  static HEDDLE_DEVICE C join(C a, C b) {
    return C(Wrapping<C>(a) + Wrapping<C>(b));
  }
  template <class C>
  static HEDDLE_DEVICE C finish(C sum, int64_t) {
    return sum;
  }
};
struct MeanOf : SumOf {
  template <class C>
  static HEDDLE_DEVICE C finish(C sum, int64_t count) {
    return sum / C(count);
  }
};
struct SquaresOf : SumOf {
  template <class C>
  static HEDDLE_DEVICE C of(C x) {
    return C(Wrapping<C>(x) * Wrapping<C>(x));
  }
};
struct LengthOf : SquaresOf {
  template <class C>
  static HEDDLE_DEVICE C finish(C sum, int64_t) {
    if constexpr (std::is_floating_point_v<C>) {
      return std::sqrt(sum);
    } else {
      return C(std::sqrt(double(sum)));
    }
  }
};
struct ProductOf : SumOf {
  template <class C>
  static HEDDLE_DEVICE C first() {
    return C(1);
  }
  template <class C>
  static HEDDLE_DEVICE C join(C a, C b) {
    return C(Wrapping<C>(a) * Wrapping<C>(b));
  }
};
// NaN wins over every number.
struct GreatestOf : SumOf {
  template <class C>
  static HEDDLE_DEVICE C first() {
    return std::is_floating_point_v<C> ? C(-INFINITY) : C(INT64_MIN);
  }
  template <class C>
  static HEDDLE_DEVICE C join(C a, C b) {
    return is_nan(a) || a > b ? a : b;
  }
};
struct LeastOf : SumOf {
  template <class C>
  static HEDDLE_DEVICE C first() {
    return std::is_floating_point_v<C> ? C(INFINITY) : C(INT64_MAX);
  }
  template <class C>
  static HEDDLE_DEVICE C join(C a, C b) {
    return is_nan(a) || a < b ? a : b;
  }
};

template <class What, class C>
struct Reduce {
  ReduceParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    C* const values = block.template shared<C>(block.threads());
    for (int64_t made = block.index(); made < p.outputs; made += block.blocks()) {
      int64_t begin = 0;
      places_of(p.kept, made, [&](int axis, int64_t place) { begin += place * p.kept_strides[axis]; });
      block.each([&](int thread) {
        C all = What::template first<C>();
        for (int64_t i = thread; i < p.count; i += block.threads()) {
          int64_t at = begin;
          places_of(p.reduced, i, [&](int axis, int64_t place) { at += place * p.reduced_strides[axis]; });
          all = What::template join<C>(all, What::template of<C>(load<C>(p.in, p.in_type, at)));
        }
        values[thread] = all;
      });
      combine_all(block, values, [](C a, C b) { return What::template join<C>(a, b); });
      block.each([&](int thread) {
        if (thread != 0) return;
        C result = std::is_floating_point_v<C> ? C(p.empty) : C(p.empty_integer);
        if (p.count > 0) result = What::template finish<C>(values[0], p.count);
        store<C>(p.out, p.out_type, made, result);
      });
    }
  }
};

}  // namespace heddle::cuda
