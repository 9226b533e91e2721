// reduce.h: many elements to one: sums, extremes and their like. A team of threads makes each element.
//
//   Rows       Where the last axis goes, threads beside each other are a team, with four elements each at a
//              time.
//   Columns    Where it stays, threads beside each other make neighbours of the result, which come of
//              neighbours in memory: each has a part of the elements, and the first ones join the parts.
//   Order      That of the joins depends on the number of elements and on which of the two it is, not on how
//              many are made nor on how they lie.
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
  int32_t lanes = kWarp;  // of a team; of columns the parts
  int32_t columns = 0;    // else rows
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
      return sum < 0 ? C(0) : C(std::sqrt(double(sum)));  // squares of integers wrap
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

// Types of elements that are reduced in C.
template <class C>
struct ReducedTypes : AllTypes {};
template <>
struct ReducedTypes<float> : NarrowFloats {};
template <>
struct ReducedTypes<double> {
  template <class F>
  static HEDDLE_DEVICE void as_type(Type, F f) {
    f(As<double>());
  }
};

template <class What, class C>
struct Reduce {
  static constexpr int kThreads = 512, kBlocksAtOnce = 1;  // so that nothing is spilled
  // What a thread reads at once: of a row quads, of columns elements. Integers have many types, each of which
  // has its own code.
  static constexpr int kQuadsAtOnce = std::is_floating_point_v<C> ? 2 : 1;
  static constexpr int kElementsAtOnce = std::is_floating_point_v<C> ? 8 : 4;
  ReduceParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    if (p.columns != 0) {
      of_columns(block);
    } else {
      of_rows(block);
    }
  }

 private:
  static HEDDLE_DEVICE C joined(C a, C b) { return What::template join<C>(a, b); }

  template <class Block>
  HEDDLE_DEVICE void of_rows(Block& block) const {
    C* const words = block.template shared<C>(block.threads() / kWarp);
    const int lanes = p.lanes, teams = block.threads() / lanes;
    for (int64_t first = block.index() * teams; first < p.outputs; first += block.blocks() * teams) {
      typename Block::template Own<C> all(block);
      block.each_alone([&](int thread) {
        const int64_t made = first + thread / lanes;
        all[thread] = made < p.outputs ? part_of_row(made, thread % lanes) : What::template first<C>();
      });
      combine_teams(block, all, words, lanes, joined);
      block.each_alone([&](int thread) {
        const int64_t made = first + thread / lanes;
        if (thread % lanes == 0 && made < p.outputs) finish(made, all[thread]);
      });
    }
  }

  template <class Block>
  HEDDLE_DEVICE void of_columns(Block& block) const {
    C* const words = block.template shared<C>(block.threads());
    const int parts = p.lanes, columns = block.threads() / parts;
    for (int64_t first = block.index() * columns; first < p.outputs; first += block.blocks() * columns) {
      block.each([&](int thread) {
        const int64_t made = first + thread % columns;
        if (made < p.outputs) words[thread] = part_of_column(made, thread / columns);
      });
      block.each([&](int thread) {
        const int64_t made = first + thread;
        if (thread >= columns || made >= p.outputs) return;
        C all = words[thread];
        for (int part = 1; part < parts; ++part) all = joined(all, words[part * columns + thread]);
        finish(made, all);
      });
    }
  }

  HEDDLE_DEVICE void finish(int64_t made, C all) const {
    C result = std::is_floating_point_v<C> ? C(p.empty) : C(p.empty_integer);
    if (p.count > 0) result = What::template finish<C>(all, p.count);
    store<C>(p.out, p.out_type, made, result);
  }

  // Where the elements of `made` begin, and how far from there one of them lies.
  HEDDLE_DEVICE int64_t origin(int64_t made) const {
    int64_t at = 0;
    places_of(p.kept, made, [&](int axis, int64_t along) { at += along * p.kept_strides[axis]; });
    return at;
  }
  HEDDLE_DEVICE int64_t place(int64_t element) const {
    if (p.reduced.rank == 1) return element * p.reduced_strides[0];
    int64_t at = 0;
    places_of(p.reduced, element, [&](int axis, int64_t along) { at += along * p.reduced_strides[axis]; });
    return at;
  }

  struct Joined {  // every fourth element for itself, so that a join need not wait for the one before
    C each[kQuad];

    HEDDLE_DEVICE Joined() {
      for (int e = 0; e < kQuad; ++e) each[e] = What::template first<C>();
    }
    HEDDLE_DEVICE void take(int e, C x) { each[e] = joined(each[e], What::template of<C>(x)); }
    HEDDLE_DEVICE C all() const {
      C all = each[0];
      for (int e = 1; e < kQuad; ++e) all = joined(all, each[e]);
      return all;
    }
  };

  // Of the quads of `made` every p.lanes-th.
  HEDDLE_DEVICE C part_of_row(int64_t made, int lane) const {
    if (p.count == 0) return What::template first<C>();
    const int64_t begin = origin(made), step = int64_t{p.lanes} * kQuad;
    Joined all;
    if (p.in_a_row == 0) {
      for (int64_t first = int64_t{lane} * kQuad; first < p.count; first += step) {
        HEDDLE_UNROLL
        for (int e = 0; e < kQuad; ++e) {
          const int64_t i = first + e;
          if (i < p.count) all.take(e, load<C, ReducedTypes<C>>(p.in, p.in_type, begin + place(i)));
        }
      }
      return all.all();
    }
    ReducedTypes<C>::as_type(p.in_type, [&](auto as) {
      using A = decltype(as);
      using Word = typename A::Word;
      const Word* const from = global<const Word>(p.in) + begin;
      const bool aligned = begin % kQuad == 0 && p.in % alignof(Quad<Word>) == 0;
      for (int64_t first = int64_t{lane} * kQuad; first < p.count; first += kQuadsAtOnce * step) {
        Quad<Word> words[kQuadsAtOnce];
        int counts[kQuadsAtOnce];
        HEDDLE_UNROLL
        for (int n = 0; n < kQuadsAtOnce; ++n) {
          const int64_t i = first + n * step, left = p.count - i;
          counts[n] = left < kQuad ? static_cast<int>(left) : kQuad;
          if (aligned && counts[n] == kQuad) {
            words[n] = *reinterpret_cast<const Quad<Word>*>(from + i);
          } else {
            HEDDLE_UNROLL
            for (int e = 0; e < kQuad; ++e) {
              if (e < counts[n]) words[n].x[e] = from[i + e];
            }
          }
        }
        HEDDLE_UNROLL
        for (int n = 0; n < kQuadsAtOnce; ++n) {
          HEDDLE_UNROLL
          for (int e = 0; e < kQuad; ++e) {
            if (e < counts[n]) all.take(e, A::template read<C>(words[n].x[e]));
          }
        }
      }
    });
    return all.all();
  }

  // Of the elements of `made` every p.lanes-th.
  HEDDLE_DEVICE C part_of_column(int64_t made, int part) const {
    if (p.count == 0) return What::template first<C>();
    const int64_t begin = origin(made), step = p.lanes;
    Joined all;
    ReducedTypes<C>::as_type(p.in_type, [&](auto as) {
      using A = decltype(as);
      using Word = typename A::Word;
      const Word* const from = global<const Word>(p.in) + begin;
      for (int64_t first = part; first < p.count; first += kElementsAtOnce * step) {
        Word words[kElementsAtOnce];
        HEDDLE_UNROLL
        for (int n = 0; n < kElementsAtOnce; ++n) {
          const int64_t i = first + n * step;
          if (i < p.count) words[n] = from[place(i)];
        }
        HEDDLE_UNROLL
        for (int n = 0; n < kElementsAtOnce; ++n) {
          if (first + n * step < p.count) all.take(n % kQuad, A::template read<C>(words[n]));
        }
      }
    });
    return all.all();
  }
};

}  // namespace heddle::cuda
