// chain.h: a chain of element-wise operators in one kernel: an interpreter of a short program.
//
//   What       A step is an operator of scalar.h with at most three operands: numbers of the program, what
//              the step before made, or registers, which are shared memory of the thread's own. All threads
//              take the same steps, so no branch diverges; each takes two times four elements (of int64_t one
//              time), so that a step is decoded once for all of them.
//   Values     What a step makes is rounded to the type of the tensor that it stands for: the bits are those
//              of one launch for each operator.
//   Operands   Of the result's shape, of one element, or broadcast along any axes; four elements in a row
//              are read at once where their addresses allow it.
#pragma once

#include "drivers/cuda/kernels/block.h"
#include "drivers/cuda/kernels/quad.h"
#include "drivers/cuda/kernels/scalar.h"
#include "drivers/cuda/kernels/walk.h"

namespace heddle::cuda {

inline constexpr int kChainSources = 12, kChainResults = 8, kChainNumbers = 16, kChainSteps = 48;

enum class ChainOp : uint8_t {
  kSelect,
#define HEDDLE_FLOATS(name, op) k##op,
#define HEDDLE_NUMBERS(name, op) k##op,
#define HEDDLE_NUMBERS_U64(name, op) k##op,
#define HEDDLE_INTEGERS(name, op) k##op,
#include "drivers/cuda/kernels/scalars.inc"
#undef HEDDLE_FLOATS
#undef HEDDLE_NUMBERS
#undef HEDDLE_NUMBERS_U64
#undef HEDDLE_INTEGERS
};

// An operand of a step: a register, or from kFirstNumber on a number, or the last result.
inline constexpr uint8_t kFirstNumber = 64, kLast = 255, kNowhere = 255;

struct ChainStep {
  ChainOp op = ChainOp::kSame;
  uint8_t operands = 0, x[3] = {};
  Type rounds = Type::kF32;               // to this type
  uint8_t to = kNowhere, out = kNowhere;  // a register, a result
  float a = 0, b = 0;                     // Numbers
};

struct ChainSource {
  // How four elements in a row lie: next to each other at the place that the first has in the result, next to
  // each other, all at one place, or each by itself.
  enum class How : int32_t { kFlat, kRow, kOne, kEach };
  uint64_t data = 0;
  Type type = Type::kF32;
  How how = How::kFlat;
  int64_t strides[kAxes] = {};
};

struct ChainResult {
  uint64_t data = 0;
  Type type = Type::kF32;
};

struct ChainParams {
  int64_t count = 0;
  int32_t sources = 0, steps = 0, registers = 0;
  int32_t quads = 1;  // of a thread at a time, at most kQuads; 1 makes more blocks of few elements
  Axes axes;
  ChainSource in[kChainSources];  // source i is read into register i
  ChainResult out[kChainResults];
  uint64_t numbers[kChainNumbers] = {};  // of float the bits, below
  ChainStep step[kChainSteps];
};

template <class C>
struct Chain {
  static constexpr int kQuads = 8 / sizeof(C), kEach = kQuad * kQuads;
  ChainParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    const int threads = block.threads();
    C* const file = block.template shared<C>(p.registers * kEach * threads);
    block.each([&](int thread) {
      const int64_t tile = int64_t{threads} * kQuad * p.quads;
      for (int64_t begin = block.index() * tile; begin < p.count; begin += block.blocks() * tile) {
        int64_t first[kQuads];
        for (int q = 0; q < kQuads; ++q)
          first[q] = q < p.quads ? begin + (int64_t{q} * threads + thread) * kQuad : p.count;
        const auto at = [&](int r, int q) { return file + ((r * kQuads + q) * threads + thread) * kQuad; };
        for (int k = 0; k < p.sources; ++k) {
          for (int q = 0; q < kQuads; ++q) read(p.in[k], first[q], at(k, q));
        }
        walk(at, first);
      }
    });
  }

 private:
  // Four elements from `first` on; zeros beyond the last.
  HEDDLE_DEVICE void read(const ChainSource& in, int64_t first, C* to) const {
    using How = ChainSource::How;
    if (first >= p.count) {
      for (int e = 0; e < kQuad; ++e) to[e] = C(0);
      return;
    }
    if (in.how == How::kEach || first + kQuad > p.count) {
      for (int e = 0; e < kQuad; ++e)
        to[e] = first + e < p.count ? load<C>(in.data, in.type, place(in, first + e)) : C(0);
      return;
    }
    Quad<C> four;
    if (in.how == How::kOne) {
      const C one = load<C>(in.data, in.type, place(in, first));
      for (int e = 0; e < kQuad; ++e) four.x[e] = one;
    } else {
      const int64_t begin = in.how == How::kFlat ? first : place(in, first);
      read_quad(in.data, in.type, begin, begin + kQuad, four.x);
    }
    *reinterpret_cast<Quad<C>*>(to) = four;
  }

  HEDDLE_DEVICE int64_t place(const ChainSource& in, int64_t element) const {
    if (in.how == ChainSource::How::kFlat) return element;
    int64_t at = 0;
    places_of(p.axes, element, [&](int axis, int64_t along) { at += along * in.strides[axis]; });
    return at;
  }

  template <class At>
  HEDDLE_DEVICE void walk(const At& at, const int64_t* first) const {
    C last[kEach] = {};
    for (int n = 0; n < p.steps; ++n) {
      const ChainStep step = p.step[n];
      C x[3][kEach] = {};
      for (int k = 0; k < 3; ++k) {
        if (k < step.operands) take(step.x[k], at, last, x[k]);
      }
      apply(step, x, last);
      if (step.rounds != (std::is_same_v<C, float> ? Type::kF32 : Type::kI64)) {
        as_type(step.rounds, [&](auto as) {
          using A = decltype(as);
          for (int e = 0; e < kEach; ++e) last[e] = A::template read<C>(A::template write<C>(last[e]));
        });
      }
      if (step.to != kNowhere) {
        for (int q = 0; q < kQuads; ++q) {
          Quad<C> four;
          for (int e = 0; e < kQuad; ++e) four.x[e] = last[q * kQuad + e];
          *reinterpret_cast<Quad<C>*>(at(step.to, q)) = four;
        }
      }
      if (step.out != kNowhere) {
        for (int q = 0; q < kQuads; ++q)
          write_quad(p.out[step.out].data, p.out[step.out].type, first[q], p.count, last + q * kQuad);
      }
    }
  }

  template <class At>
  HEDDLE_DEVICE void take(uint8_t operand, const At& at, const C* last, C* x) const {
    if (operand == kLast) {
      for (int e = 0; e < kEach; ++e) x[e] = last[e];
    } else if (operand >= kFirstNumber) {
      const uint64_t bits = p.numbers[operand - kFirstNumber];
      C number;
      if constexpr (std::is_same_v<C, float>) {
        number = bits_as<float>(uint32_t(bits));
      } else {
        number = C(bits);
      }
      for (int e = 0; e < kEach; ++e) x[e] = number;
    } else {
      for (int q = 0; q < kQuads; ++q) {
        const Quad<C> four = *reinterpret_cast<const Quad<C>*>(at(operand, q));
        for (int e = 0; e < kQuad; ++e) x[q * kQuad + e] = four.x[e];
      }
    }
  }

  template <class Op>
  static HEDDLE_DEVICE void apply_all(const ChainStep& step, const C (&x)[3][kEach], C* y) {
    const Numbers numbers{step.a, step.b};
    for (int e = 0; e < kEach; ++e) {
      const C each[3] = {x[0][e], x[1][e], x[2][e]};
      y[e] = Op::template apply<C>(each, numbers);
    }
  }

  static HEDDLE_DEVICE void apply(const ChainStep& step, const C (&x)[3][kEach], C* y) {
    constexpr bool kFloats = std::is_same_v<C, float>;
    switch (step.op) {
#define HEDDLE_FLOATS(name, op)                       \
  case ChainOp::k##op:                                \
    if constexpr (kFloats) apply_all<op>(step, x, y); \
    break;
#define HEDDLE_NUMBERS(name, op) \
  case ChainOp::k##op:           \
    apply_all<op>(step, x, y);   \
    break;
#define HEDDLE_NUMBERS_U64(name, op) HEDDLE_NUMBERS(name, op)
#define HEDDLE_INTEGERS(name, op)                      \
  case ChainOp::k##op:                                 \
    if constexpr (!kFloats) apply_all<op>(step, x, y); \
    break;
#include "drivers/cuda/kernels/scalars.inc"
#undef HEDDLE_FLOATS
#undef HEDDLE_NUMBERS
#undef HEDDLE_NUMBERS_U64
#undef HEDDLE_INTEGERS
      case ChainOp::kSelect:
        apply_all<Select>(step, x, y);
        break;
    }
  }
};

}  // namespace heddle::cuda
