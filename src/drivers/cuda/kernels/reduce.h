// reduce.h: many elements to one: sums, extremes and their like. A team of threads makes each element.
//
//   Order      That of the joins depends on the number of elements alone, not on how many are made.
#pragma once

#include "drivers/cuda/kernels/block.h"
#include "drivers/cuda/kernels/quad.h"
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
  int32_t lanes = kWarp;  // of a team
  int32_t in_a_row = 0;   // the elements that make one lie next to each other
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
    C* const words = block.template shared<C>(block.threads() / kWarp);
    const int lanes = p.lanes, teams = block.threads() / lanes;
    const auto join = [](C a, C b) { return What::template join<C>(a, b); };
    for (int64_t first = block.index() * teams; first < p.outputs; first += block.blocks() * teams) {
      typename Block::template Own<C> all(block);
      block.each([&](int thread) {
        const int64_t made = first + thread / lanes;
        all[thread] = made < p.outputs ? part(made, thread % lanes) : What::template first<C>();
      });
      combine_teams(block, all, words, lanes, join);
      block.each([&](int thread) {
        const int64_t made = first + thread / lanes;
        if (thread % lanes != 0 || made >= p.outputs) return;
        C result = std::is_floating_point_v<C> ? C(p.empty) : C(p.empty_integer);
        if (p.count > 0) result = What::template finish<C>(all[thread], p.count);
        store<C>(p.out, p.out_type, made, result);
      });
    }
  }

 private:
  // What one lane sees of the elements of `made`.
  HEDDLE_DEVICE C part(int64_t made, int lane) const {
    int64_t begin = 0;
    places_of(p.kept, made, [&](int axis, int64_t place) { begin += place * p.kept_strides[axis]; });
    C all[kQuad];
    for (int e = 0; e < kQuad; ++e) all[e] = What::template first<C>();
    for (int64_t i = int64_t{lane} * kQuad; i < p.count; i += int64_t{p.lanes} * kQuad) {
      C x[kQuad];
      if (p.in_a_row != 0) {
        read_quad(p.in, p.in_type, begin + i, begin + p.count, x);
      } else {
        for (int e = 0; e < kQuad; ++e)
          x[e] = i + e < p.count ? load<C>(p.in, p.in_type, begin + place(i + e)) : C(0);
      }
      for (int e = 0; e < kQuad; ++e) {
        if (i + e < p.count) all[e] = What::template join<C>(all[e], What::template of<C>(x[e]));
      }
    }
    for (int e = 1; e < kQuad; ++e) all[0] = What::template join<C>(all[0], all[e]);
    return all[0];
  }

  HEDDLE_DEVICE int64_t place(int64_t element) const {
    int64_t at = 0;
    places_of(p.reduced, element, [&](int axis, int64_t along) { at += along * p.reduced_strides[axis]; });
    return at;
  }
};

}  // namespace heddle::cuda
