// tensor_attention.h: attention of f16 and bf16 on tensor cores, in heads of at most 128 elements.
//
//   What       As attention.h: FlashAttention (Dao et al. 2022, Dao 2023) with an online softmax (Milakov and
//              Gimelshein 2018). A warp takes 16 queries of one head; a block's warps share tiles of keys and
//              values, of which the next is under way while one is used. Scores, sums and the result are
//              f32; the weights are rounded to the operands' type, and their sum is one of the rounded ones:
//              the product with a column of ones.
//   Parts      kParts warps may take the same queries: each makes the scores of some keys of a tile, and
//              then some columns of the result. That is for few queries.
//   Bits       Of one query they depend on its own scores and values only: a product's elements do not depend
//              on each other (fragment.h), tiles of keys begin at the same keys for all, the greatest of
//              some numbers is the same in any order, and what is masked adds 0. Neither the warps of a block
//              nor kParts change any.
#pragma once

#include "drivers/cuda/kernels/attention.h"
#include "drivers/cuda/kernels/fragment.h"
#include "drivers/cuda/kernels/scalar.h"

namespace heddle::cuda {

// Warps that take the same queries where those are few.
template <int kWidth>
inline constexpr int kPartsOf = kWidth == 64 ? 4 : 2;

// How a block lies in shared memory, in 16-bit words.
template <int kWidth, int kParts>
struct TensorShape {
  static constexpr int kKeys = kWidth <= 64 ? 64 : 32;  // of a tile
  static constexpr int kMostWarps = kParts > 1 ? kParts : 4;
  // Of a multiprocessor: as many as leave a warp so many registers that none goes to memory (compute
  // capability 9.0).
  static constexpr int kMultiprocessorWarps = kWidth == (kParts == 1 ? 32 : 64) ? 16 : 12;
  // 16 bytes more than a row holds: eight rows in a row lie in different banks.
  static constexpr int kStride = kWidth + kSpan, kWeightStride = kKeys + kSpan;
  static constexpr int kBuffer = 2 * kKeys * kStride;  // a tile of keys and one of values
  static constexpr int kGroupWords = kParts == 1 ? 0 : kFragment * (kWeightStride + 2 * kParts);
  static_assert(kMostWarps * kFragment * kStride <= kBuffer * kParts);  // queries lie in one at first
  static_assert(kKeys % (kParts * kFragment) == 0 && kWidth % (kParts * kFragment) == 0);
  static HEDDLE_ANYWHERE int groups_of(int threads) { return threads / (kWarp * kParts); }
  static HEDDLE_ANYWHERE int rows_of(int threads) { return groups_of(threads) * kFragment; }
  static HEDDLE_ANYWHERE int bytes_of(int threads) {
    return (2 * kBuffer + groups_of(threads) * kGroupWords) * static_cast<int>(sizeof(uint16_t));
  }
  static_assert((2 * kBuffer + kMostWarps / kParts * kGroupWords) * 2 <= 48 * 1024);
};

template <Type kType, int kWidth, int kParts>
struct TensorAttention {
  using Shape = TensorShape<kWidth, kParts>;
  static constexpr bool kNewer = true;  // compute capability 8.0
  static constexpr int kThreads = kWarp * Shape::kMostWarps;
  static constexpr int kBlocksAtOnce = Shape::kMultiprocessorWarps / Shape::kMostWarps;
  static constexpr int kKeys = Shape::kKeys, kStride = Shape::kStride;
  static constexpr int kSteps = kWidth / kFragment, kKeySteps = kKeys / kFragment;
  // Of a warp: pairs of 8 keys whose scores it makes, and of 8 columns of the result.
  static constexpr int kKeyPairs = kKeySteps / kParts, kColumnPairs = kSteps / kParts;
  AttentionParams p;

 private:
  static constexpr float kLog2OfE = 1.44269504f, kMost = 3.4e+38f;

  struct Masks {  // types; those of f64 come as f32
    template <class F>
    static HEDDLE_DEVICE void as_type(Type type, F f) {
      if (type == Type::kBool) return f(AsBool());
      NarrowFloats::as_type(type, f);
    }
  };
  struct Mine {
    Left queries[kSteps], weights[kKeySteps], loaded;
    float scores[2 * kKeyPairs][4];
    float out[2 * kColumnPairs][4], sum[4];
  };
  struct Both {  // of a thread's two queries
    float v[2];
  };
  using Rows = HeadRows;
  struct Tile {
    int b, h, first;  // query
    int count;
    int keys;  // that any query of it sees
    Rows queries, key_rows, value_rows;
  };
  struct Memory {
    uint16_t *buffers, *weights;
    float* greatest;
  };
  // Where a thread stands: its queries are `row` and `row + 8` of the tile, its keys or columns `pair` and
  // `pair + 1` of each eight.
  struct Seat {
    int lane, part, group, row, pair;
    explicit HEDDLE_DEVICE Seat(int thread)
        : lane(thread % kWarp),
          part(thread / kWarp % kParts),
          group(thread / (kWarp * kParts)),
          row(group * kFragment + lane / 4),
          pair(lane % 4 * 2) {}
    HEDDLE_DEVICE int key(int behind) const { return part * kKeyPairs * kFragment + pair + behind; }
  };

  static HEDDLE_DEVICE Rows rows_at(uint64_t data, int64_t first, int64_t step, int64_t count, int extent) {
    const uint64_t from = data + static_cast<uint64_t>(first) * sizeof(uint16_t);
    return {from, step, static_cast<int>(count), extent, from % sizeof(Span) == 0 && step % kSpan == 0};
  }

  // `lines` rows of kWidth elements from row `first` on, zeros where there are none. Addresses are computed
  // for each line: where pointers go along, nvcc 13.0 does not come to an end.
  template <class Block>
  static HEDDLE_DEVICE void copy(Block& block, Copies<Block>& copies, int thread, uint16_t* to,
                                 const Rows& rows, int first, int lines) {
    constexpr int kSpans = kWidth / kSpan;
    static_assert(kWarp % kSpans == 0);
    const int column = thread % kSpans * kSpan, begin = thread / kSpans, step = block.threads() / kSpans;
    const int left = rows.extent - column, count = left < 0 ? 0 : left < kSpan ? left : kSpan;
    const int64_t bytes = rows.step * static_cast<int64_t>(sizeof(uint16_t));
    for (int line = begin; line < lines; line += step) {
      const int there = first + line < rows.count ? count : 0;
      const uint64_t from =
          rows.data + static_cast<uint64_t>((first + line) * bytes) + column * sizeof(uint16_t);
      uint16_t* const at = to + line * kStride + column;
      if (rows.aligned) {
        copies.start(at, from, there);
      } else {
        Span span{};
        HEDDLE_UNROLL
        for (int e = 0; e < kSpan; ++e) {
          if (e < there) span.v[e] = global<const uint16_t>(from)[e];
        }
        *reinterpret_cast<Span*>(at) = span;
      }
    }
  }

  template <class Block>
  static HEDDLE_DEVICE void copy_tile(Block& block, Copies<Block>& copies, int thread, uint16_t* buffer,
                                      const Tile& tile, int begin) {
    copy(block, copies, thread, buffer, tile.key_rows, begin, kKeys);
    copy(block, copies, thread, buffer + kKeys * kStride, tile.value_rows, begin, kKeys);
  }

  // f(n, c, how far behind the thread's first key) of the scores of one query.
  template <class F>
  static HEDDLE_DEVICE void each_of_row(F f) {
    HEDDLE_UNROLL
    for (int n = 0; n < 2 * kKeyPairs; ++n) {
      f(n, 0, n * 8);
      f(n, 1, n * 8 + 1);
    }
  }
  // f(n, c, which of the thread's two queries, key of the tile) of every score of the thread.
  template <class F>
  static HEDDLE_DEVICE void each_score(const Seat& seat, F f) {
    HEDDLE_UNROLL
    for (int n = 0; n < 2 * kKeyPairs; ++n) {
      HEDDLE_UNROLL
      for (int c = 0; c < 4; ++c) f(n, c, c / 2, seat.key(n * 8 + c % 2));
    }
  }

  // What the mask has for each score, as it lies in memory. Nothing waits for it here. Beyond the last query
  // it is the last one's.
  HEDDLE_DEVICE void read_biases(const Seat& seat, Mine& mine, const Tile& tile, int begin) const {
    if (p.mask == 0) return;
    const int64_t* const strides = p.mask_strides;
    const int64_t origin = tile.b * strides[0] + tile.h * strides[1] + begin * strides[3];
    const int first = seat.key(0), keys = static_cast<int>(p.keys) - begin - first;
    Masks::as_type(p.mask_type, [&](auto as) {
      using Word = typename decltype(as)::Word;
      HEDDLE_UNROLL
      for (int which = 0; which < 2; ++which) {
        const int row = seat.row + which * 8, last = tile.count - 1;
        const Word* const words =
            unshared<const Word>(p.mask) + origin + (tile.first + (row < last ? row : last)) * strides[2];
        if (strides[3] == 0) {
          const float all = as_float(words[0]);
          each_of_row([&](int n, int c, int) { mine.scores[n][which * 2 + c] = all; });
        } else {
          each_of_row([&](int n, int c, int key) {
            mine.scores[n][which * 2 + c] = key < keys ? as_float(words[first + key]) : 0.0f;
          });
        }
      }
    });
  }
  template <class Word>
  static HEDDLE_DEVICE float as_float(Word word) {
    if constexpr (sizeof(Word) == sizeof(float)) {
      return word;
    } else {
      return bits_as<float>(uint32_t{word});
    }
  }

  // Sums of products go on from the bias, divided by what they will be multiplied by. A finite one stays
  // finite: a row that is masked with the least float everywhere has equal weights.
  HEDDLE_DEVICE void begin_scores(const Seat& seat, Mine& mine) const {
    if (p.mask == 0) {
      return each_score(seat, [&](int n, int c, int, int) { mine.scores[n][c] = 0; });
    }
    const float scale = static_cast<float>(p.scale), by = 1 / scale, size = fabsf(scale) * kLog2OfE;
    const float most = size > 1 ? kMost / size : kMost;
    const auto begin = [&](float bias) {
      return fabsf(bias) == INFINITY ? bias * by : fminf(fmaxf(bias * by, -most), most);
    };
    Masks::as_type(p.mask_type, [&](auto as) {
      using A = decltype(as);
      using Word = typename A::Word;
      each_score(seat, [&](int n, int c, int, int) {
        float& score = mine.scores[n][c];
        if constexpr (std::is_same_v<A, AsBool>) {
          score = bits_as<uint32_t>(score) != 0 ? 0.0f : -INFINITY * by;
        } else if constexpr (sizeof(Word) < sizeof score) {
          score = begin(A::template read<float>(static_cast<Word>(bits_as<uint32_t>(score))));
        } else {
          score = begin(score);
        }
      });
    });
  }

  template <class Block>
  static HEDDLE_DEVICE void make_scores(Block& block, typename Block::template Own<Mine>& mine,
                                        const uint16_t* keys, int count) {
    HEDDLE_UNROLL
    for (int n = 0; n < kKeyPairs; ++n) {
      if (kParts == 1 && n * kFragment >= count) break;
      HEDDLE_UNROLL
      for (int step = 0; step < kSteps; ++step) {
        load_matrices<false>(block, mine, [&](int thread, Mine& m) {
          const Seat seat(thread);
          const int key = (seat.part * kKeyPairs + n) * kFragment + seat.lane / 16 * 8 + seat.lane % 8;
          return Matrices{m.loaded.v, keys + key * kStride + step * kFragment + seat.lane / 8 % 2 * 8};
        });
        multiply<kType>(block, mine, [&](Mine& m) {
          return Factors{m.scores[2 * n], m.queries[step], {m.loaded.v[0], m.loaded.v[1]}};
        });
        multiply<kType>(block, mine, [&](Mine& m) {
          return Factors{m.scores[2 * n + 1], m.queries[step], {m.loaded.v[2], m.loaded.v[3]}};
        });
      }
    }
  }

  // The sums become logarithms of weights to the base of 2; the greatest of the thread's.
  HEDDLE_DEVICE Both finish_scores(const Seat& seat, Mine& mine, const Tile& tile, int begin) const {
    const float scale = static_cast<float>(p.scale) * kLog2OfE;
    Both greatest = {{-INFINITY, -INFINITY}};
    const auto each = [&](auto is_seen) {
      each_score(seat, [&](int n, int c, int which, int key) {
        float& score = mine.scores[n][c];
        score = is_seen(which, key) ? score * scale : -INFINITY;
        greatest.v[which] = fmaxf(greatest.v[which], score);
      });
    };
    const int next = begin + kKeys;
    if (next <= p.keys && (p.causal == 0 || next <= tile.first + 1)) {
      each([](int, int) { return true; });
      return greatest;
    }
    int seen[2];  // keys of the tile
    HEDDLE_UNROLL
    for (int which = 0; which < 2; ++which) {
      const int row = tile.first + seat.row + which * 8, keys = static_cast<int>(p.keys);
      seen[which] = (p.causal != 0 && row + 1 < keys ? row + 1 : keys) - begin;
    }
    each([&](int which, int key) { return key < seen[which]; });
    return greatest;
  }

  // The scores become weights, and what was summed up so far shrinks with the greatest's growth.
  static HEDDLE_DEVICE void weigh(const Seat& seat, Mine& mine, Both& greatest, const Both& of_tile,
                                  uint16_t* weights) {
    float from[2];
    HEDDLE_UNROLL
    for (int which = 0; which < 2; ++which) {
      const float grown = fmaxf(greatest.v[which], of_tile.v[which]);
      from[which] = grown == -INFINITY ? 0.0f : grown;
      const float kept = power_of_two(greatest.v[which] - from[which]);
      greatest.v[which] = grown;
      HEDDLE_UNROLL
      for (int c = 2 * which; c < 2 * which + 2; ++c) {
        mine.sum[c] *= kept;
        HEDDLE_UNROLL
        for (int n = 0; n < 2 * kColumnPairs; ++n) mine.out[n][c] *= kept;
      }
    }
    HEDDLE_UNROLL
    for (int n = 0; n < 2 * kKeyPairs; ++n) {
      HEDDLE_UNROLL
      for (int which = 0; which < 2; ++which) {
        const uint32_t both = packed<kType>(power_of_two(mine.scores[n][2 * which] - from[which]),
                                            power_of_two(mine.scores[n][2 * which + 1] - from[which]));
        if constexpr (kParts == 1) {
          mine.weights[n / 2].v[n % 2 * 2 + which] = both;
        } else {
          const int row = seat.row + which * 8, key = seat.key(n * 8);
          *reinterpret_cast<uint32_t*>(weights + row * Shape::kWeightStride + key) = both;
        }
      }
    }
  }

  template <class Block>
  static HEDDLE_DEVICE void add_values(Block& block, typename Block::template Own<Mine>& mine,
                                       const uint16_t* values, int count) {
    HEDDLE_UNROLL
    for (int step = 0; step < kKeySteps; ++step) {
      if (step * kFragment >= count) break;
      multiply<kType>(block, mine, [&](Mine& m) {
        const uint32_t ones = packed<kType>(1, 1);
        return Factors{m.sum, m.weights[step], {ones, ones}};
      });
      HEDDLE_UNROLL
      for (int n = 0; n < kColumnPairs; ++n) {
        load_matrices<true>(block, mine, [&](int thread, Mine& m) {
          const Seat seat(thread);
          const int column = (seat.part * kColumnPairs + n) * kFragment + seat.lane / 16 * 8;
          return Matrices{m.loaded.v, values + (step * kFragment + seat.lane % 16) * kStride + column};
        });
        multiply<kType>(block, mine, [&](Mine& m) {
          return Factors{m.out[2 * n], m.weights[step], {m.loaded.v[0], m.loaded.v[1]}};
        });
        multiply<kType>(block, mine, [&](Mine& m) {
          return Factors{m.out[2 * n + 1], m.weights[step], {m.loaded.v[2], m.loaded.v[3]}};
        });
      }
    }
  }

  HEDDLE_DEVICE void write(const Seat& seat, const Mine& mine, const Tile& tile) const {
    const bool aligned = p.out % sizeof(uint32_t) == 0 && p.value_extent % 2 == 0;
    HEDDLE_UNROLL
    for (int which = 0; which < 2; ++which) {
      const int row = seat.row + which * 8;
      if (row >= tile.count) continue;
      const int64_t query = tile.b * p.queries + tile.first + row;
      const int64_t begin = (query * p.heads + tile.h) * p.value_extent;
      const float sum = mine.sum[2 * which], share = sum == 0.0f ? 0.0f : 1.0f / sum;
      HEDDLE_UNROLL
      for (int n = 0; n < 2 * kColumnPairs; ++n) {
        const int at = (seat.part * 2 * kColumnPairs + n) * 8 + seat.pair;
        const uint32_t both =
            packed<kType>(mine.out[n][2 * which] * share, mine.out[n][2 * which + 1] * share);
        const uint64_t to = p.out + static_cast<uint64_t>(begin + at) * sizeof(uint16_t);
        if (aligned) {
          if (at < p.value_extent) *unshared<uint32_t>(to) = both;
          continue;
        }
        if (at < p.value_extent) *unshared<uint16_t>(to) = static_cast<uint16_t>(both);
        if (at + 1 < p.value_extent) *unshared<uint16_t>(to + sizeof(uint16_t)) = uint16_t(both >> 16);
      }
    }
  }

  // The greatest score of each query among all parts' keys.
  template <class Block>
  static HEDDLE_DEVICE void join_parts(Block& block, typename Block::template Own<Both>& of_tile,
                                       float* greatest) {
    block.each([&](int thread) {
      const Seat seat(thread);
      if (seat.pair != 0) return;
      HEDDLE_UNROLL
      for (int which = 0; which < 2; ++which)
        greatest[(seat.row + which * 8) * kParts + seat.part] = of_tile[thread].v[which];
    });
    block.each_alone([&](int thread) {
      const Seat seat(thread);
      HEDDLE_UNROLL
      for (int which = 0; which < 2; ++which) {
        HEDDLE_UNROLL
        for (int part = 0; part < kParts; ++part)
          of_tile[thread].v[which] =
              fmaxf(of_tile[thread].v[which], greatest[(seat.row + which * 8) * kParts + part]);
      }
    });
  }

  // Each warp reads what lies in 16 rows as the left factors of its products.
  template <class Block, class F>
  static HEDDLE_DEVICE void load_left(Block& block, typename Block::template Own<Mine>& mine,
                                      const uint16_t* from, int stride, F to) {
    load_matrices<false>(block, mine, [&](int thread, Mine& m) {
      const Seat seat(thread);
      return Matrices{to(m), from + (seat.group * kFragment + seat.lane % 16) * stride + seat.lane / 16 * 8};
    });
  }

  template <class Block>
  HEDDLE_DEVICE void take(Block& block, const Tile& tile, const Memory& memory) const {
    typename Block::template Own<Mine> mine(block);
    typename Block::template Own<Both> greatest(block), of_tile(block);
    Copies<Block> copies;
    block.each([&](int thread) {
      mine[thread] = {};
      greatest[thread] = {{-INFINITY, -INFINITY}};
    });
    uint16_t* const second = memory.buffers + Shape::kBuffer;
    block.each_alone([&](int thread) {
      copy(block, copies, thread, second, tile.queries, 0, Shape::rows_of(block.threads()));
      if (tile.keys == 0) return;
      copy_tile(block, copies, thread, memory.buffers, tile, 0);
      read_biases(Seat(thread), mine[thread], tile, 0);
    });
    copies.arrive(block);
    HEDDLE_UNROLL
    for (int step = 0; step < kSteps; ++step)
      load_left(block, mine, second + step * kFragment, kStride, [&](Mine& m) { return m.queries[step].v; });
    block.each([](int) {});  // all have read the queries, whose place is the second tile's
    int turn = 0;
    for (int begin = 0; begin < tile.keys; begin += kKeys, turn ^= 1) {
      const int next = begin + kKeys, count = tile.keys - begin;
      const uint16_t* const keys = memory.buffers + turn * Shape::kBuffer;
      block.each_alone([&](int thread) {
        if (next < tile.keys)
          copy_tile(block, copies, thread, memory.buffers + (turn ^ 1) * Shape::kBuffer, tile, next);
        begin_scores(Seat(thread), mine[thread]);
      });
      make_scores(block, mine, keys, count);
      block.each_alone(
          [&](int thread) { of_tile[thread] = finish_scores(Seat(thread), mine[thread], tile, begin); });
      block.combine_warps(
          of_tile,
          [](const Both& a, const Both& b) { return Both{{fmaxf(a.v[0], b.v[0]), fmaxf(a.v[1], b.v[1])}}; },
          4);
      if constexpr (kParts > 1) join_parts(block, of_tile, memory.greatest);
      block.each_alone([&](int thread) {
        weigh(Seat(thread), mine[thread], greatest[thread], of_tile[thread], memory.weights);
        if (next < tile.keys) read_biases(Seat(thread), mine[thread], tile, next);
      });
      if constexpr (kParts > 1) {
        block.each([](int) {});
        HEDDLE_UNROLL
        for (int step = 0; step < kKeySteps; ++step)
          load_left(block, mine, memory.weights + step * kFragment, Shape::kWeightStride,
                    [&](Mine& m) { return m.weights[step].v; });
      }
      add_values(block, mine, keys + kKeys * kStride, count);
      copies.arrive(block);
    }
    block.each_alone([&](int thread) { write(Seat(thread), mine[thread], tile); });
  }

 public:
  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    const int rows = Shape::rows_of(block.threads());
    Memory memory{block.template shared<uint16_t>(2 * Shape::kBuffer), nullptr, nullptr};
    if constexpr (kParts > 1) {
      memory.weights = block.template shared<uint16_t>(rows * Shape::kWeightStride);
      memory.greatest = block.template shared<float>(rows * kParts);
    }
    const int64_t tiles = quotient(p.queries + rows - 1, rows), heads = p.batch * p.heads;
    for (int64_t item = block.index(); item < heads * tiles; item += block.blocks()) {
      // The last queries first: where attention is causal they have the most keys.
      const int64_t turn = quotient(item, heads), of_batch = item - turn * heads;
      const int64_t first = (tiles - 1 - turn) * rows, left = p.queries - first;
      const int64_t b = quotient(of_batch, p.heads), h = of_batch - b * p.heads;
      const int64_t shared = quotient(h, p.sharing), seen = left < rows ? p.queries : first + rows;
      Tile tile{static_cast<int>(b),
                static_cast<int>(h),
                static_cast<int>(first),
                static_cast<int>(left < rows ? left : rows),
                0,
                {},
                {},
                {}};
      tile.keys = static_cast<int>(p.causal != 0 && seen < p.keys ? seen : p.keys);
      tile.queries =
          rows_at(p.q, (b * p.queries + first) * p.q_row + h * p.extent, p.q_row, tile.count, p.extent);
      tile.key_rows = rows_at(p.k, b * p.keys * p.k_row + shared * p.extent, p.k_row, tile.keys, p.extent);
      tile.value_rows =
          rows_at(p.v, b * p.keys * p.v_row + shared * p.value_extent, p.v_row, tile.keys, p.value_extent);
      take(block, tile, memory);
    }
  }
};

}  // namespace heddle::cuda
