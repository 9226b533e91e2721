// matrix.h: products of bytes, and determinants.
#pragma once

#include "drivers/cuda/kernels/block.h"
#include "drivers/cuda/kernels/element.h"
#include "drivers/cuda/kernels/walk.h"

namespace heddle::cuda {

// out[.., i, j] = sum_k (x[.., i, k] - x_point) (y[.., k, j] - y_point), which wraps. Of each of the four:
// strides over the output's axes, and the step along k.
struct ByteProductParams {
  struct Factor {
    uint64_t data = 0;  // 0: a zero point of 0
    Type type = Type::kU8;
    int64_t strides[kAxes] = {}, step = 0;
  };
  Factor factors[4];  // x, y, x_point, y_point
  uint64_t out = 0;
  int64_t count = 0, k = 0;
  Axes axes;
};

struct ByteProduct {
  ByteProductParams p;

  HEDDLE_DEVICE uint32_t value(int factor, int64_t at) const {
    const ByteProductParams::Factor& from = p.factors[factor];
    if (from.data == 0) return 0;
    return from.type == Type::kI8 ? static_cast<uint32_t>(global<const int8_t>(from.data)[at])
                                  : global<const uint8_t>(from.data)[at];
  }

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    each_of(block, p.count, [&](int64_t element) {
      int64_t at[4] = {};
      places_of(p.axes, element, [&](int axis, int64_t place) {
        for (int f = 0; f < 4; ++f) at[f] += place * p.factors[f].strides[axis];
      });
      uint32_t sum = 0;
      for (int64_t k = 0; k < p.k; ++k) {
        uint32_t values[4];
        for (int f = 0; f < 4; ++f) values[f] = value(f, at[f] + k * p.factors[f].step);
        sum += (values[0] - values[2]) * (values[1] - values[3]);
      }
      global<uint32_t>(p.out)[element] = sum;
    });
  }
};

// Gaussian elimination in `work`, the largest element of a column as pivot. A block takes one matrix after
// another.
struct DeterminantParams {
  uint64_t in = 0, work = 0, out = 0;
  Type type = Type::kF32;
  int64_t count = 0, extent = 0;
};

template <class C>
struct Determinant {
  DeterminantParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    const int64_t n = p.extent;
    C* const product = block.template shared<C>(1);
    int64_t* const pivot = block.template shared<int64_t>(1);
    for (int64_t matrix = block.index(); matrix < p.count; matrix += block.blocks()) {
      C* const m = global<C>(p.work) + matrix * n * n;
      block.each([&](int thread) {
        if (thread == 0) *product = C(1);
        for (int64_t i = thread; i < n * n; i += block.threads())
          m[i] = load<C>(p.in, p.type, matrix * n * n + i);
      });
      for (int64_t column = 0; column < n && *product != C(0); ++column) {
        block.each([&](int thread) {
          if (thread != 0) return;
          int64_t found = column;
          for (int64_t row = column + 1; row < n; ++row) {
            if (std::fabs(m[row * n + column]) > std::fabs(m[found * n + column])) found = row;
          }
          *pivot = found;
        });
        block.each([&](int thread) {
          for (int64_t i = column + thread; i < n && *pivot != column; i += block.threads()) {
            const C upper = m[column * n + i];
            m[column * n + i] = m[*pivot * n + i];
            m[*pivot * n + i] = upper;
          }
        });
        block.each([&](int thread) {
          const C top = m[column * n + column];
          const int64_t rest = n - column - 1;
          for (int64_t i = thread; i < rest * rest && top != C(0); i += block.threads()) {
            const int64_t row = column + 1 + i / rest, at = column + 1 + i % rest;
            m[row * n + at] -= m[row * n + column] / top * m[column * n + at];
          }
          if (thread == 0) *product *= *pivot == column ? top : -top;
        });
      }
      block.each([&](int thread) {
        if (thread == 0) store<C>(p.out, p.type, matrix, *product);
      });
    }
  }
};

}  // namespace heddle::cuda
