// convolution_direct.h: convolutions of f32, f16 and bf16 whose groups have few output channels: depthwise
// ones.
//
//   What       A block makes a piece of one channel of one image: the channel's weights lie in shared memory,
//              a thread makes one element after another.
//   Order      That of convolution_tile.h.
#pragma once

#include "drivers/cuda/kernels/convolution_tile.h"

namespace heddle::cuda {

struct ConvolutionDirectParams {
  uint64_t x = 0, w = 0, out = 0;
  Sliding window;
  Finish finish;                  // its type is that of all operands
  int64_t planes = 0;             // of the output
  int32_t pieces = 1, piece = 0;  // of a plane, and elements of a piece
  int32_t channels = 1, out_channels = 1, group_channels = 1, group_outputs = 1;
};

template <class Bits>
struct ConvolutionDirect {
  ConvolutionDirectParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    const int32_t depth = p.group_channels * p.window.taps;
    float* const weights = block.template shared<float>(depth);
    const bool bf16 = p.finish.type == Type::kBF16;
    for (int64_t item = block.index(); item < p.planes * p.pieces; item += block.blocks()) {
      const int64_t plane = item / p.pieces, image = plane / p.out_channels;
      const auto channel = static_cast<int32_t>(plane - image * p.out_channels);
      const auto begin = static_cast<int32_t>(item - plane * p.pieces) * p.piece;
      const int32_t end = begin + p.piece < p.window.out_plane ? begin + p.piece : p.window.out_plane;
      block.each([&](int thread) {
        for (int32_t k = thread; k < depth; k += block.threads())
          weights[k] = widened(global<const Bits>(p.w)[int64_t{channel} * depth + k], bf16);
      });
      const int64_t first = image * p.channels + channel / p.group_outputs * p.group_channels;
      const Bits* const x = global<const Bits>(p.x) + first * p.window.in_plane;
      block.each([&](int thread) {
        for (int32_t at = begin + thread; at < end; at += block.threads()) {
          float sum = 0;
          for (int32_t c = 0; c < p.group_channels; ++c) {
            const Bits* const from = x + int64_t{c} * p.window.in_plane;
            each_tap(p.window, at, [&](int32_t place, int32_t tap) {
              sum = std::fma(weights[c * p.window.taps + tap], widened(from[place], bf16), sum);
            });
          }
          const int64_t element = plane * p.window.out_plane + at;
          store<float>(p.out, p.finish.type, element, finished<float>(p.finish, sum, channel, element));
        }
      });
    }
  }
};

}  // namespace heddle::cuda
