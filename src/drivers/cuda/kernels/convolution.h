// convolution.h: convolutions of any type, one element a thread: what convolution_tile.h does not take.
//
//   What       y[n, m] = activation(conv(x[n], w[m]) + bias[m] + residual[n, m]); what is absent has address
//              0. Each group has channels of its own; w is [M, C / group, taps], transposed
//              [C, M / group, taps].
//   Order      The sum of an element goes by tap, then by channel, always from the first.
#pragma once

#include "drivers/cuda/kernels/block.h"
#include "drivers/cuda/kernels/product.h"
#include "drivers/cuda/kernels/window.h"

namespace heddle::cuda {

// What follows a sum.
struct Finish {
  uint64_t bias = 0, residual = 0;
  Type type = Type::kF32;
  Act act = Act::kNone;
  Numbers numbers;
};

template <class C>
HEDDLE_DEVICE C finished(const Finish& finish, C sum, int64_t channel, int64_t element) {
  if (finish.bias != 0) sum += load<C>(finish.bias, finish.type, channel);
  if (finish.residual != 0) sum += load<C>(finish.residual, finish.type, element);
  return activated<C>(finish.act, sum, finish.numbers);
}

struct ConvolutionParams {
  uint64_t x = 0, w = 0, out = 0;
  uint64_t x_zero = 0, w_zero = 0;  // of integers: what is subtracted first
  Type x_type = Type::kF32, w_type = Type::kF32, out_type = Type::kF32;
  int32_t transposed = 0;
  Sliding window;
  Finish finish;
  int64_t count = 0;                              // of the output
  int64_t out_channels = 1, channels = 1;         // of an image
  int64_t group_channels = 1, group_outputs = 1;  // of a group
  int64_t w_zero_step = 0;                        // from one output channel's to the next one's
  int32_t channels_last = 0;  // of x, w and the output: they lie beside each other; not transposed
};

// C is float, double, or int64_t of 8-bit integers.
template <class C>
struct Convolution {
  static constexpr int kThreads = 256, kBlocksAtOnce = 3;  // so that nothing is spilled
  ConvolutionParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    each_of(block, p.count, [&](int64_t element) {
      const bool last = p.channels_last != 0;
      const int64_t inner = last ? p.out_channels : p.window.out_plane, line = element / inner;
      const int64_t outer = last ? p.window.out_plane : p.out_channels, image = line / outer;
      const int64_t m = last ? element - line * inner : line - image * outer;
      const auto at = static_cast<int32_t>(last ? line - image * outer : element - line * inner);
      const int64_t group = m / p.group_outputs, taps = p.window.taps;
      const C x_zero = p.x_zero == 0 ? C(0) : load<C>(p.x_zero, p.x_type, 0);
      const C w_zero = p.w_zero == 0 ? C(0) : load<C>(p.w_zero, p.w_type, m * p.w_zero_step);
      // From one channel's to the next one's, and from one place or tap to the next one.
      const int64_t x_step = last ? 1 : p.window.in_plane, x_place = last ? p.channels : 1;
      const int64_t w_tap = last ? p.group_channels : 1;
      const int64_t x = image * p.channels * p.window.in_plane + group * p.group_channels * x_step;
      // Where the first channel's weights begin.
      int64_t w = m * p.group_channels * taps, w_step = last ? 1 : taps;
      if (p.transposed != 0) {
        w_step = p.group_outputs * taps;
        w = group * p.group_channels * w_step + m % p.group_outputs * taps;
      }
      C sum = 0;
      const auto add = [&](int32_t from, int32_t tap) {
        for (int64_t c = 0; c < p.group_channels; ++c) {
          const C factor = load<C>(p.w, p.w_type, w + c * w_step + tap * w_tap) - w_zero;
          sum += (load<C>(p.x, p.x_type, x + c * x_step + from * x_place) - x_zero) * factor;
        }
      };
      if (p.transposed != 0) {
        each_window_on(p.window, at, add);
      } else {
        each_tap(p.window, at, add);
      }
      if constexpr (std::is_floating_point_v<C>) sum = finished<C>(p.finish, sum, m, element);
      store<C>(p.out, p.out_type, element, sum);
    });
  }
};

}  // namespace heddle::cuda
