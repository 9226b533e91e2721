// rows.h: softmax and normalisations. A block takes one row after another.
#pragma once

#include "drivers/cuda/kernels/block.h"
#include "drivers/cuda/kernels/scalar.h"
#include "drivers/cuda/kernels/walk.h"

namespace heddle::cuda {

// Element `a` of row (o, i) lies at (o * extent + a) * inner + i.
struct SoftmaxParams {
  uint64_t in = 0, out = 0;
  Type type = Type::kF32;
  int64_t rows = 0, extent = 0, inner = 1;
  int32_t logarithm = 0;
  int32_t lanes = 0;  // of a team, held_rows.h
};

template <class C>
struct Softmax {
  SoftmaxParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    C* const values = block.template shared<C>(block.threads());
    for (int64_t row = block.index(); row < p.rows; row += block.blocks()) {
      const int64_t begin = row / p.inner * p.extent * p.inner + row % p.inner;
      const auto x = [&](int64_t a) { return load<C>(p.in, p.type, begin + a * p.inner); };
      block.each([&](int thread) {
        C greatest = C(-INFINITY);
        for (int64_t a = thread; a < p.extent; a += block.threads()) {
          const C each = x(a);
          greatest = greatest > each ? greatest : each;
        }
        values[thread] = greatest;
      });
      combine_all(block, values, [](C a, C b) { return a > b ? a : b; });
      typename Block::template Own<C> greatest(block), sum(block);
      block.each([&](int thread) { greatest[thread] = values[0]; });
      block.each([&](int thread) {
        C all = 0;
        for (int64_t a = thread; a < p.extent; a += block.threads()) all += std::exp(x(a) - greatest[thread]);
        values[thread] = all;
      });
      combine_all(block, values, [](C a, C b) { return a + b; });
      block.each([&](int thread) { sum[thread] = p.logarithm != 0 ? std::log(values[0]) : values[0]; });
      block.each([&](int thread) {
        for (int64_t a = thread; a < p.extent; a += block.threads()) {
          const C above = x(a) - greatest[thread];
          const C y = p.logarithm != 0 ? above - sum[thread] : std::exp(above) / sum[thread];
          store<C>(p.out, p.type, begin + a * p.inner, y);
        }
      });
    }
  }
};

// y = (x - mean) / sqrt(variance + epsilon) * scale + bias, row by row of `size` elements. Which scale an
// element has its place in the row says, by `axes` and strides, and the row's group.
struct NormParams {
  uint64_t in = 0, out = 0, scale = 0, bias = 0;  // bias 0: none
  Type type = Type::kF32, scale_type = Type::kF32, bias_type = Type::kF32;
  int32_t centred = 1;
  int64_t rows = 0, size = 0;
  Axes axes;
  int64_t scale_strides[kAxes] = {}, bias_strides[kAxes] = {};
  int64_t groups = 1, group_step = 0;  // row r begins at parameter r % groups * group_step
  double epsilon = 0;
  int32_t lanes = 0, in_a_row = 0;  // held_rows.h: of a team; element i has scale i and bias i
};

struct NormPlace {
  int64_t scale, bias;
};
HEDDLE_DEVICE NormPlace place_of(const NormParams& p, int64_t row, int64_t element) {
  NormPlace at{row % p.groups * p.group_step, row % p.groups * p.group_step};
  places_of(p.axes, element, [&](int axis, int64_t along) {
    at.scale += along * p.scale_strides[axis];
    at.bias += along * p.bias_strides[axis];
  });
  return at;
}

template <class C>
struct Norm {
  NormParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    C* const values = block.template shared<C>(block.threads());
    for (int64_t row = block.index(); row < p.rows; row += block.blocks()) {
      const int64_t begin = row * p.size;
      typename Block::template Own<C> mean(block), scale(block);
      const auto sum_of = [&](auto&& term) {
        block.each([&](int thread) {
          C all = 0;
          for (int64_t i = thread; i < p.size; i += block.threads())
            all += term(load<C>(p.in, p.type, begin + i), thread);
          values[thread] = all;
        });
        combine_all(block, values, [](C a, C b) { return a + b; });
      };
      block.each([&](int thread) { mean[thread] = C(0); });
      if (p.centred != 0) {
        sum_of([](C x, int) { return x; });
        block.each([&](int thread) { mean[thread] = values[0] / C(p.size); });
      }
      sum_of([&](C x, int thread) { return (x - mean[thread]) * (x - mean[thread]); });
      block.each([&](int thread) { scale[thread] = C(1) / std::sqrt(values[0] / C(p.size) + C(p.epsilon)); });
      block.each([&](int thread) {
        for (int64_t i = thread; i < p.size; i += block.threads()) {
          const NormPlace at = place_of(p, row, i);
          const C shift = p.bias == 0 ? C(0) : load<C>(p.bias, p.bias_type, at.bias);
          const C normal = (load<C>(p.in, p.type, begin + i) - mean[thread]) * scale[thread];
          store<C>(p.out, p.type, begin + i, normal * load<C>(p.scale, p.scale_type, at.scale) + shift);
        }
      });
    }
  }
};

// y = (x - mean) / sqrt(var + epsilon) * scale + bias, each of the channel.
struct ChannelNormParams {
  uint64_t in = 0, out = 0, scale = 0, bias = 0, mean = 0, variance = 0;
  Type type = Type::kF32, parameters[4] = {};  // scale, bias, mean, variance
  int64_t count = 0, plane = 1, channels = 1;
  double epsilon = 0;
};

template <class C>
struct ChannelNorm {
  ChannelNormParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    each_of(block, p.count, [&](int64_t i) {
      const int64_t c = i / p.plane % p.channels;
      const C above = load<C>(p.in, p.type, i) - load<C>(p.mean, p.parameters[2], c);
      const C scaled = above / std::sqrt(load<C>(p.variance, p.parameters[3], c) + C(p.epsilon));
      store<C>(p.out, p.type, i,
               scaled * load<C>(p.scale, p.parameters[0], c) + load<C>(p.bias, p.parameters[1], c));
    });
  }
};

}  // namespace heddle::cuda
