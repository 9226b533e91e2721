// convolution_tile.h: convolutions of f32, f16 and bf16 as products of tiles.
//
//   What       A block makes a tile of output channels by places of all images: the product of a tile of w
//              and one of the elements that the windows cover, which are picked while that tile is loaded. A
//              thread holds kRows x kColumns sums.
//   Order      A sum goes by channel, then by tap, from the first, by fmaf in f32, whatever the tile. Where
//              it is cut into chunks, the chunks' sums are added up from the first. An image's bits do not
//              depend on its batch: how many chunks there are only the image and w say.
//   Tiles      Two of each: the next one is loaded while this one is multiplied.
#pragma once

#include "drivers/cuda/kernels/convolution.h"

namespace heddle::cuda {

struct ConvolutionTileParams {
  uint64_t x = 0, w = 0, out = 0;
  Sliding window;                             // dilations may be negative
  Finish finish;                              // its type is that of all operands
  int32_t groups = 1, depth = 0;              // of a sum: channels times taps
  int32_t group_outputs = 1;                  // channels
  int64_t places = 0;                         // of the output, in all images
  int64_t x_group = 0, x_image = 0;           // elements
  int64_t out_channels = 1, out_plane = 1;    // of which the window's may be a part
  int32_t out_steps[kPlaneAxes] = {0, 0, 1};  // elements from one place to the next along each axis
  int32_t w_row = 0, w_channel = 0, w_steps[kPlaneAxes] = {0, 0, 1};
  int64_t w_group = 0;
  int32_t chunk = 0, chunks = 1;  // k of a sum's chunk, whole steps; chunks of a sum
  uint64_t partial = 0;           // 0: a block makes all chunks of a sum; else one, f32 [chunks, output]
  int64_t count = 0;              // of the output
};

// The chunks of sums that blocks have made apart.
struct ConvolutionChunksParams {
  uint64_t partial = 0, out = 0;
  Finish finish;
  int32_t chunks = 1;
  int64_t count = 0, plane = 1, out_channels = 1;
};

struct ConvolutionChunks {
  static constexpr int kThreads = 256;
  ConvolutionChunksParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    each_of(block, p.count, [&](int64_t element) {
      float sum = 0;
      for (int32_t chunk = 0; chunk < p.chunks; ++chunk)
        sum += global<const float>(p.partial)[chunk * p.count + element];
      const int64_t channel = element / p.plane % p.out_channels;
      store<float>(p.out, p.finish.type, element, finished<float>(p.finish, sum, channel, element));
    });
  }
};

// Elements of a wider type than they have in memory: the conversion is where they are put into a tile.
template <class Bits>
HEDDLE_DEVICE float widened(Bits bits, bool bf16) {
  if constexpr (std::is_same_v<Bits, float>) {
    return bits;
  } else {
    return bf16 ? from_bf16(bits) : from_f16(bits);
  }
}

// Bits is float, or uint16_t of f16 and bf16. kRows and kColumns are 4 or 8.
template <class Bits, int kRows, int kColumns>
struct ConvolutionTile {
  static constexpr int kThreads = 256;  // and no fewer
  static constexpr int kBlocksAtOnce = kRows * kColumns > 16 ? 2 : 3;
  static constexpr int kSide = 16;  // threads along each side of a tile
  static constexpr int kM = kSide * kRows, kN = kSide * kColumns, kDepth = 8;
  static constexpr int kLine = kM + 4;  // of a tile of w: threads that store side by side hit other banks
  static constexpr int kEachW = kM * kDepth / kThreads, kEachX = kN * kDepth / kThreads;
  static constexpr bool kTakesChunks = kRows * kColumns <= 32;  // more have no registers left for totals
  static constexpr int32_t kNowhere = -(1 << 30);               // outside every plane, whatever is added

  ConvolutionTileParams p;

  struct alignas(16) Tap {
    int32_t offset, z, y, x;  // in the plane
    int32_t w;                // in a row of w
  };
  struct Column {  // where the window of a thread's column begins
    Place first;
    int64_t x;
  };
  struct Sums {
    float at[kRows][kColumns];
  };
  struct alignas(16) Four {
    float at[4];
  };
  struct Tiles {  // in shared memory
    float *w, *x;
    Tap* taps;
  };
  struct Work {  // what a block makes
    int32_t chunk, group, first_row, first_step, end_step;
    int64_t first_place;
  };

  HEDDLE_DEVICE Tap tap_of(int32_t k) const {
    if (k >= p.depth) return {0, kNowhere, 0, 0, 0};
    const int32_t channel = k / p.window.taps;
    const Place tap = place_in(p.window.kernel, k - channel * p.window.taps);
    const int32_t z = tap.z * p.window.dilations[0], y = tap.y * p.window.dilations[1],
                  x = tap.x * p.window.dilations[2];
    return {channel * p.window.in_plane + (z * p.window.in[1] + y) * p.window.in[2] + x, z, y, x,
            channel * p.w_channel + tap.z * p.w_steps[0] + tap.y * p.w_steps[1] + tap.x * p.w_steps[2]};
  }

  HEDDLE_DEVICE Column column_of(int64_t place, int32_t group) const {
    if (place >= p.places) return {{kNowhere, 0, 0}, 0};
    const int64_t image = place / p.window.out_plane;
    const Place first = first_tap(p.window, static_cast<int32_t>(place - image * p.window.out_plane));
    const int64_t begin = (int64_t{first.z} * p.window.in[1] + first.y) * p.window.in[2] + first.x;
    return {first, image * p.x_image + group * p.x_group + begin};
  }

  // One k of a tile: the outer product of a column of w and a row of x.
  static HEDDLE_DEVICE void multiply(Sums& sums, const float* w, const float* x, int down, int across) {
    float a[kRows], b[kColumns];
    HEDDLE_UNROLL
    for (int r = 0; r < kRows; r += 4) {
      const Four four = *reinterpret_cast<const Four*>(w + r / 4 * (4 * kSide) + down * 4);
      HEDDLE_UNROLL
      for (int i = 0; i < 4; ++i) a[r + i] = four.at[i];
    }
    HEDDLE_UNROLL
    for (int c = 0; c < kColumns; c += 4) {
      const Four four = *reinterpret_cast<const Four*>(x + c / 4 * (4 * kSide) + across * 4);
      HEDDLE_UNROLL
      for (int i = 0; i < 4; ++i) b[c + i] = four.at[i];
    }
    HEDDLE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      HEDDLE_UNROLL
      for (int c = 0; c < kColumns; ++c) sums.at[r][c] = std::fma(a[r], b[c], sums.at[r][c]);
    }
  }

  static HEDDLE_DEVICE void add_up(Sums& totals, Sums& sums) {
    HEDDLE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      HEDDLE_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        totals.at[r][c] += sums.at[r][c];
        sums.at[r][c] = 0;
      }
    }
  }

  // The sums by way of shared memory, a row of each thread at a time, so that threads side by side store
  // elements side by side.
  template <class Block, class Own>
  HEDDLE_DEVICE void finish(Block& block, Own& sums, float* stage, const Work& work) const {
    typename Block::template Own<int64_t> outs(block);  // the element of a thread's column in channel 0
    block.each([&](int thread) {
      const int64_t place = work.first_place + thread % kN, image = place / p.window.out_plane;
      const Place at = place_in(p.window.out, static_cast<int32_t>(place - image * p.window.out_plane));
      const int64_t in_plane =
          int64_t{at.z} * p.out_steps[0] + int64_t{at.y} * p.out_steps[1] + int64_t{at.x} * p.out_steps[2];
      outs[thread] = place < p.places ? image * p.out_channels * p.out_plane + in_plane : -1;
    });
    HEDDLE_ROLLED
    for (int round = 0; round < kRows; ++round) {
      block.each([&](int thread) {
        const int down = thread / kSide, across = thread % kSide;
        HEDDLE_UNROLL
        for (int c = 0; c < kColumns; ++c)
          stage[down * kN + c / 4 * (4 * kSide) + across * 4 + c % 4] = sums[thread].at[0][c];
        HEDDLE_UNROLL
        for (int r = 0; r + 1 < kRows; ++r) {
          HEDDLE_UNROLL
          for (int c = 0; c < kColumns; ++c) sums[thread].at[r][c] = sums[thread].at[r + 1][c];
        }
      });
      block.each([&](int thread) {
        const int64_t to = outs[thread];
        if (to < 0) return;
        const int32_t begin = work.first_row + round / 4 * (4 * kSide) + round % 4;
        HEDDLE_ROLLED
        for (int down = thread / kN; down < kSide; down += kThreads / kN) {
          if (begin + down * 4 >= p.group_outputs) continue;
          const int64_t channel = int64_t{work.group} * p.group_outputs + begin + down * 4;
          const int64_t element = to + channel * p.out_plane;
          const float sum = 0 + stage[down * kN + thread % kN];  // no -0, as of a total of chunks
          if (p.partial != 0) {
            global<float>(p.partial)[work.chunk * p.count + element] = sum;
          } else {
            store<float>(p.out, p.finish.type, element, finished<float>(p.finish, sum, channel, element));
          }
        }
      });
    }
  }

  struct Loaded {
    Bits w[kEachW], x[kEachX];
  };
  HEDDLE_DEVICE void fetch(Loaded& loaded, const Work& work, const Tap* taps, const Column& column,
                           int thread, int32_t step) const {
    const Bits* const w = global<const Bits>(p.w) + work.group * p.w_group;
    const Tap of_w = taps[step % 2 * kDepth + thread % kDepth];
    HEDDLE_UNROLL
    for (int i = 0; i < kEachW; ++i) {
      const int32_t row = work.first_row + thread / kDepth + i * (kThreads / kDepth);
      const bool inside = row < p.group_outputs && of_w.z != kNowhere;
      loaded.w[i] = inside ? w[row * p.w_row + of_w.w] : Bits(0);
    }
    HEDDLE_UNROLL
    for (int i = 0; i < kEachX; ++i) {
      const Tap tap = taps[step % 2 * kDepth + thread / kN + i * (kThreads / kN)];
      const bool inside = within(column.first.z + tap.z, p.window.in[0]) &&
                          within(column.first.y + tap.y, p.window.in[1]) &&
                          within(column.first.x + tap.x, p.window.in[2]);
      loaded.x[i] = inside ? global<const Bits>(p.x)[column.x + tap.offset] : Bits(0);
    }
  }

  HEDDLE_DEVICE void put(const Loaded& loaded, const Tiles& tiles, int thread, int32_t step) const {
    const bool bf16 = p.finish.type == Type::kBF16;
    float* const to_w = tiles.w + step % 2 * (kDepth * kLine) + thread % kDepth * kLine + thread / kDepth;
    HEDDLE_UNROLL
    for (int i = 0; i < kEachW; ++i) to_w[i * (kThreads / kDepth)] = widened(loaded.w[i], bf16);
    float* const to_x = tiles.x + step % 2 * (kDepth * kN) + thread;
    HEDDLE_UNROLL
    for (int i = 0; i < kEachX; ++i) to_x[i * kThreads] = widened(loaded.x[i], bf16);
  }

  template <class Block>
  HEDDLE_DEVICE void make(Block& block, const Work& work, const Tiles& tiles) const {
    typename Block::template Own<Column> columns(block);
    typename Block::template Own<Sums> sums(block), totals(block);
    block.each([&](int thread) {
      columns[thread] = column_of(work.first_place + thread % kN, work.group);
      sums[thread] = {};
      totals[thread] = {};
      if (thread < 2 * kDepth) {  // of the first two steps
        const int32_t step = work.first_step + thread / kDepth;
        tiles.taps[step % 2 * kDepth + thread % kDepth] = tap_of(step * kDepth + thread % kDepth);
      }
    });
    block.each([&](int thread) {
      Loaded loaded;
      fetch(loaded, work, tiles.taps, columns[thread], thread, work.first_step);
      put(loaded, tiles, thread, work.first_step);
    });
    for (int32_t step = work.first_step; step < work.end_step; ++step) {
      block.each([&](int thread) {
        const bool more = step + 1 < work.end_step;
        Loaded loaded;
        if (more) fetch(loaded, work, tiles.taps, columns[thread], thread, step + 1);
        const float* const from_w = tiles.w + step % 2 * (kDepth * kLine);
        const float* const from_x = tiles.x + step % 2 * (kDepth * kN);
        HEDDLE_UNROLL
        for (int k = 0; k < kDepth; ++k)
          multiply(sums[thread], from_w + k * kLine, from_x + k * kN, thread / kSide, thread % kSide);
        if constexpr (kTakesChunks) {
          if ((step + 1) % (p.chunk / kDepth) == 0 || !more) add_up(totals[thread], sums[thread]);
        }
        if (more) put(loaded, tiles, thread, step + 1);
        // Of the tile after the next one; what stood there the phase before has read.
        if (thread < kDepth) tiles.taps[step % 2 * kDepth + thread] = tap_of((step + 2) * kDepth + thread);
      });
    }
    if constexpr (kTakesChunks) {
      finish(block, totals, tiles.x, work);
    } else {
      finish(block, sums, tiles.x, work);
    }
  }

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    const Tiles tiles = {block.template shared<float>(2 * kDepth * kLine),
                         block.template shared<float>(2 * kDepth * kN),
                         block.template shared<Tap>(2 * kDepth)};
    const int64_t down = (p.group_outputs + kM - 1) / kM, across = (p.places + kN - 1) / kN;
    const int64_t count = down * across * p.groups;
    const int32_t steps = (p.depth + kDepth - 1) / kDepth, chunk_steps = p.chunk / kDepth;
    for (int64_t item = block.index(); item < count * (p.partial != 0 ? p.chunks : 1);
         item += block.blocks()) {
      const int64_t tile = item % count;
      Work work;
      work.chunk = static_cast<int32_t>(item / count);
      work.group = static_cast<int32_t>(tile / down / across);
      work.first_row = static_cast<int32_t>(tile % down) * kM;
      work.first_place = tile / down % across * kN;
      work.first_step = work.chunk * chunk_steps;
      work.end_step =
          p.partial != 0 && work.first_step + chunk_steps < steps ? work.first_step + chunk_steps : steps;
      make(block, work, tiles);
    }
  }
};

}  // namespace heddle::cuda
