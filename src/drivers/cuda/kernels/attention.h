// attention.h: softmax(scale * q k' + bias) v of each head, over the keys in tiles.
//
//   What       A query's greatest score so far, the sum of its weights and its weighted values go from tile
//              to tile; where the greatest grows they shrink. So no row of scores is kept.
//   Bits       Of one query they depend on its own scores and values only: the order of keys and of elements
//              is fixed, and what is masked adds 0.
#pragma once

#include "drivers/cuda/kernels/block.h"
#include "drivers/cuda/kernels/tile.h"
#include "drivers/cuda/kernels/walk.h"

namespace heddle::cuda {

struct AttentionParams {
  uint64_t q = 0, k = 0, v = 0, mask = 0, out = 0;  // mask 0: none
  uint64_t sums = 0;                                // Attention: like out, of C
  Type type = Type::kF32, mask_type = Type::kBool;
  int32_t causal = 0;
  int32_t heads = 0, sharing = 1;  // of queries, and how many of them read one head of keys
  int32_t extent = 0, value_extent = 0;
  int64_t batch = 0, queries = 0, keys = 0;
  int64_t q_row = 0, k_row = 0, v_row = 0;  // from one position to the next
  int64_t mask_strides[4] = {};             // batch, head, query, key
  double scale = 1;
};

struct HeadRows {  // of q, k or v
  uint64_t data;
  int64_t step;  // elements from one row to the next
  int count, extent;
  bool aligned;
};

// What is added to a score.
template <class C>
HEDDLE_DEVICE C bias_of(const AttentionParams& p, int64_t b, int64_t h, int64_t i, int64_t j) {
  if (p.causal != 0 && j > i) return C(-INFINITY);
  if (p.mask == 0) return C(0);
  const int64_t* const strides = p.mask_strides;
  const int64_t at = b * strides[0] + h * strides[1] + i * strides[2] + j * strides[3];
  const C value = load<C>(p.mask, p.mask_type, at);
  return p.mask_type != Type::kBool ? value : value != C(0) ? C(0) : C(-INFINITY);
}

// exp(x - greatest), where a greatest of -infinity says that there is nothing yet.
template <class C>
HEDDLE_DEVICE C weight_of(C x, C greatest) {
  return greatest == C(-INFINITY) ? C(0) : std::exp(x - greatest);
}

// Heads of any size: a block takes one query after another, a thread one key of a tile, then elements of v.
template <class C>
struct Attention {
  AttentionParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    C* const values = block.template shared<C>(block.threads());
    typename Block::template Own<C> score(block), greatest(block), sum(block);
    const int64_t rows = p.batch * p.queries * p.heads;
    for (int64_t row = block.index(); row < rows; row += block.blocks()) {
      const int64_t h = row % p.heads, i = row / p.heads % p.queries, b = row / p.heads / p.queries;
      const int64_t q = (b * p.queries + i) * p.q_row + h * p.extent;
      const int64_t k = b * p.keys * p.k_row + h / p.sharing * p.extent;
      const int64_t v = b * p.keys * p.v_row + h / p.sharing * p.value_extent;
      C* const sums = global<C>(p.sums) + row * p.value_extent;
      block.each([&](int thread) {
        greatest[thread] = C(-INFINITY);
        sum[thread] = C(0);
        for (int64_t e = thread; e < p.value_extent; e += block.threads()) sums[e] = C(0);
      });
      for (int64_t begin = 0; begin < p.keys; begin += block.threads()) {
        const int64_t left = p.keys - begin, count = left < block.threads() ? left : block.threads();
        block.each([&](int thread) {
          score[thread] = C(-INFINITY);
          if (thread < count) {
            const int64_t j = begin + thread;
            C dot = 0;
            for (int64_t e = 0; e < p.extent; ++e)
              dot += load<C>(p.q, p.type, q + e) * load<C>(p.k, p.type, k + j * p.k_row + e);
            score[thread] = dot * C(p.scale) + bias_of<C>(p, b, h, i, j);
          }
          values[thread] = score[thread];
        });
        combine_all(block, values, [](C x, C y) { return x > y ? x : y; });
        typename Block::template Own<C> kept(block);
        block.each([&](int thread) {
          const C before = greatest[thread];
          greatest[thread] = before > values[0] ? before : values[0];
          kept[thread] = weight_of(before, greatest[thread]);
        });
        block.each([&](int thread) { values[thread] = weight_of(score[thread], greatest[thread]); });
        block.each([&](int thread) {
          sum[thread] *= kept[thread];
          for (int64_t n = 0; n < count; ++n) sum[thread] += values[n];
          for (int64_t e = thread; e < p.value_extent; e += block.threads()) {
            C all = sums[e] * kept[thread];
            for (int64_t n = 0; n < count; ++n)
              all += values[n] * load<C>(p.v, p.type, v + (begin + n) * p.v_row + e);
            sums[e] = all;
          }
        });
      }
      block.each([&](int thread) {
        for (int64_t e = thread; e < p.value_extent; e += block.threads())
          store<C>(p.out, p.type, row * p.value_extent + e,
                   sum[thread] == C(0) ? C(0) : sums[e] / sum[thread]);
      });
    }
  }
};

// Types of masks of narrow floats.
struct MaskTypes {
  template <class F>
  static HEDDLE_DEVICE void as_type(Type type, F f) {
    if (type == Type::kBool) return f(AsBool());
    if (type == Type::kF64) return f(As<double>());
    NarrowFloats::as_type(type, f);
  }
};

// How a block of TiledAttention with `threads` threads, a power of two, lies in shared memory.
template <int kWidth>
struct AttentionShape {
  static constexpr int kKeys = 32, kColumns = kWidth / 4;
  // Fours from one row to the next: one more than it holds, so that rows begin in different banks.
  static constexpr int kStride = kColumns + 1;
  // Values have memory of their own, and come with the keys, where there is enough of it.
  static constexpr bool kApart = kWidth <= 64;
  static constexpr int kLines = (kApart ? 2 : 1) * kKeys;  // of keys and values
  static HEDDLE_ANYWHERE int rows_of(int threads) { return threads / kColumns * 4; }
  static HEDDLE_ANYWHERE int score_stride(int threads) { return (threads / kColumns) | 1; }
  static HEDDLE_ANYWHERE int bytes_of(int threads) {
    const int fours = (rows_of(threads) + kLines) * kStride + kKeys * score_stride(threads);
    return fours * static_cast<int>(sizeof(Four<float>));
  }
  static HEDDLE_ANYWHERE int most_threads() {
    int threads = 256;
    while (bytes_of(threads) > 48 * 1024) threads /= 2;
    return threads;
  }
};

// Heads of at most kWidth elements: a block takes a tile of queries of one head and walks the keys in tiles.
// A thread has 4 queries. Of their scores it makes those of every kColumns-th key, of the result 4 elements.
// How many queries a tile has, by the threads of a block, changes no bits.
template <Type kType, int kWidth>
struct TiledAttention {
  using Shape = AttentionShape<kWidth>;
  static constexpr int kThreads = Shape::most_threads(), kBlocksAtOnce = 512 / kThreads;
  static constexpr int kKeys = Shape::kKeys, kColumns = Shape::kColumns, kStride = Shape::kStride;
  static constexpr int kOwn = 4, kOwnKeys = kKeys / kColumns;
  static constexpr bool kApart = Shape::kApart;
  static constexpr int kLoads = 4;  // of keys that are in flight, and as many of values
  static_assert(kWarp % kColumns == 0 && kKeys % kColumns == 0);
  AttentionParams p;

 private:
  using Element = std::conditional_t<
      kType == Type::kF32, As<float>,
      std::conditional_t<kType == Type::kF16, AsHalf<from_f16, to_f16>, AsHalf<from_bf16, to_bf16>>>;
  using Word = typename Element::Word;
  using Words = Four<Word>;

  struct Own {
    Four<float> out[kOwn];
    Four<float> scores[kOwnKeys];
    uint32_t biases[kOwnKeys][kOwn];  // as they lie in memory
  };
  using Rows = HeadRows;
  struct Tile {
    int64_t b, h, first;
    int count, rows, groups;  // of queries that there are, that there is place for, and a quarter of those
    Rows queries;
  };

  static HEDDLE_DEVICE Rows rows_at(uint64_t data, int64_t first, int64_t step, int64_t count, int extent) {
    const uint64_t from = data + static_cast<uint64_t>(first) * sizeof(Word);
    const bool aligned = from % sizeof(Words) == 0 && step % 4 == 0 && extent % 4 == 0;
    return {from, step, static_cast<int>(count), extent, aligned};
  }

  // Four elements of a row; 0 where it has none.
  static HEDDLE_DEVICE Words words_at(const Rows& rows, int row, int four) {
    Words words{};
    const int left = rows.extent - four * 4;
    if (row >= rows.count || left <= 0) return words;
    const uint64_t at = rows.data + static_cast<uint64_t>(row * rows.step + four * 4) * sizeof(Word);
    if (rows.aligned) return *unshared<const Words>(at);
    HEDDLE_UNROLL
    for (int e = 0; e < 4; ++e) {
      if (e < left) words.v[e] = unshared<const Word>(at)[e];
    }
    return words;
  }

  // A thread's fours of row `line` and of each `step` rows on. They stay in registers until all are on
  // their way; put() then makes them numbers in shared memory.
  template <int kCount>
  static HEDDLE_DEVICE void fetch(int thread, const Rows& rows, int line, int step, Words (&words)[kCount]) {
    HEDDLE_UNROLL
    for (int n = 0; n < kCount; ++n)
      words[n] = words_at(rows, line + thread / kColumns + n * step, thread % kColumns);
  }
  template <int kCount>
  static HEDDLE_DEVICE void put(int thread, Four<float>* to, int line, int step, int end,
                                const Words (&words)[kCount]) {
    HEDDLE_UNROLL
    for (int n = 0; n < kCount; ++n) {
      Four<float> numbers;
      HEDDLE_UNROLL
      for (int e = 0; e < 4; ++e) numbers.v[e] = Element::template read<float>(words[n].v[e]);
      const int at = line + thread / kColumns + n * step;
      if (at < end) to[at * kStride + thread % kColumns] = numbers;
    }
  }

  // f(n, r, row of the tile, key of the tile) of every score of the thread.
  template <class F>
  static HEDDLE_DEVICE void each_score(int thread, int groups, F f) {
    HEDDLE_UNROLL
    for (int n = 0; n < kOwnKeys; ++n) {
      HEDDLE_UNROLL
      for (int r = 0; r < kOwn; ++r)
        f(n, r, thread / kColumns + r * groups, thread % kColumns + n * kColumns);
    }
  }

  // Nothing waits for what is read here before the scores are made.
  HEDDLE_DEVICE void read_biases(int thread, Own& own, const Tile& tile, int64_t begin) const {
    if (p.mask == 0) return;
    const int64_t* const strides = p.mask_strides;
    const int64_t origin =
        tile.b * strides[0] + tile.h * strides[1] + tile.first * strides[2] + begin * strides[3];
    const int64_t keys = p.keys - begin;
    MaskTypes::as_type(p.mask_type, [&](auto as) {
      using MaskWord = typename decltype(as)::Word;
      if constexpr (sizeof(MaskWord) <= sizeof(uint32_t)) {
        each_score(thread, tile.groups, [&](int n, int r, int row, int key) {
          if (row >= tile.count || key >= keys) return;
          const MaskWord word =
              unshared<const MaskWord>(p.mask)[origin + row * strides[2] + key * strides[3]];
          if constexpr (sizeof word == sizeof(uint32_t)) {
            own.biases[n][r] = bits_as<uint32_t>(word);
          } else {
            own.biases[n][r] = word;
          }
        });
      }
    });
  }

  HEDDLE_DEVICE void add_biases(int thread, Own& own, const Tile& tile, int64_t begin) const {
    const float scale = float(p.scale);
    const auto each = [&](auto bias_of_score) {
      each_score(thread, tile.groups, [&](int n, int r, int row, int key) {
        const int64_t i = tile.first + row, j = begin + key;
        float& score = own.scores[n].v[r];
        if (row >= tile.count || j >= p.keys || (p.causal != 0 && j > i)) {
          score = -INFINITY;
        } else {
          score = score * scale + bias_of_score(n, r, i, j);
        }
      });
    };
    if (p.mask == 0) return each([](int, int, int64_t, int64_t) { return 0.0f; });
    if (p.mask_type == Type::kF64) {
      return each([&](int, int, int64_t i, int64_t j) { return bias_of<float>(p, tile.b, tile.h, i, j); });
    }
    if (p.mask_type == Type::kBool) {
      return each([&](int n, int r, int64_t, int64_t) {
        return static_cast<uint8_t>(own.biases[n][r]) != 0 ? 0.0f : -INFINITY;
      });
    }
    NarrowFloats::as_type(p.mask_type, [&](auto as) {
      using A = decltype(as);
      each([&](int n, int r, int64_t, int64_t) {
        if constexpr (sizeof(typename A::Word) == sizeof(float)) {
          return bits_as<float>(own.biases[n][r]);
        } else {
          return A::template read<float>(static_cast<typename A::Word>(own.biases[n][r]));
        }
      });
    });
  }

  HEDDLE_DEVICE void score(int thread, Own& own, const Tile& tile, const Four<float>* queries,
                           const Four<float>* keys) const {
    const int group = thread / kColumns, column = thread % kColumns, fours = (p.extent + 3) / 4;
    HEDDLE_UNROLL
    for (int n = 0; n < kOwnKeys; ++n) own.scores[n] = {};
    HEDDLE_ROLLED
    for (int four = 0; four < fours; ++four) {
      Four<float> q[kOwn];
      HEDDLE_UNROLL
      for (int r = 0; r < kOwn; ++r) q[r] = queries[(group + r * tile.groups) * kStride + four];
      HEDDLE_UNROLL
      for (int n = 0; n < kOwnKeys; ++n) {
        const Four<float> k = keys[(column + n * kColumns) * kStride + four];
        HEDDLE_UNROLL
        for (int e = 0; e < 4; ++e) {
          HEDDLE_UNROLL
          for (int r = 0; r < kOwn; ++r) own.scores[n].v[r] = fmaf(q[r].v[e], k.v[e], own.scores[n].v[r]);
        }
      }
    }
  }

  static HEDDLE_DEVICE Four<float> greatest_of_own(const Own& own) {
    Four<float> greatest = own.scores[0];
    HEDDLE_UNROLL
    for (int n = 1; n < kOwnKeys; ++n) greatest = greater(greatest, own.scores[n]);
    return greatest;
  }
  static HEDDLE_DEVICE Four<float> greater(const Four<float>& a, const Four<float>& b) {
    Four<float> each;
    HEDDLE_UNROLL
    for (int r = 0; r < kOwn; ++r) each.v[r] = a.v[r] > b.v[r] ? a.v[r] : b.v[r];
    return each;
  }
  static HEDDLE_DEVICE Four<float> added(const Four<float>& a, const Four<float>& b) {
    Four<float> each;
    HEDDLE_UNROLL
    for (int r = 0; r < kOwn; ++r) each.v[r] = a.v[r] + b.v[r];
    return each;
  }

  // The scores become weights, and what was summed up so far shrinks with the greatest's growth.
  static HEDDLE_DEVICE void weigh(Own& own, Four<float>& greatest, Four<float>& sum,
                                  const Four<float>& of_tile) {
    const Four<float> grown = greater(greatest, of_tile);
    HEDDLE_UNROLL
    for (int r = 0; r < kOwn; ++r) {
      const float kept = weight_of(greatest.v[r], grown.v[r]);
      sum.v[r] *= kept;
      HEDDLE_UNROLL
      for (int e = 0; e < 4; ++e) own.out[r].v[e] *= kept;
      HEDDLE_UNROLL
      for (int n = 0; n < kOwnKeys; ++n) {
        own.scores[n].v[r] = weight_of(own.scores[n].v[r], grown.v[r]);
        sum.v[r] += own.scores[n].v[r];
      }
    }
    greatest = grown;
  }

  static HEDDLE_DEVICE void add_values(int thread, Own& own, const Four<float>* weights, int score_stride,
                                       const Four<float>* values, int count) {
    const int group = thread / kColumns, column = thread % kColumns;
    HEDDLE_UNROLL_BY(4)
    for (int key = 0; key < count; ++key) {
      const Four<float> weight = weights[key * score_stride + group], value = values[key * kStride + column];
      HEDDLE_UNROLL
      for (int r = 0; r < kOwn; ++r) {
        HEDDLE_UNROLL
        for (int e = 0; e < 4; ++e) own.out[r].v[e] = fmaf(weight.v[r], value.v[e], own.out[r].v[e]);
      }
    }
  }

  HEDDLE_DEVICE void write(int thread, const Own& own, const Four<float>& sum, const Tile& tile) const {
    const int group = thread / kColumns, at = thread % kColumns * 4;
    const bool aligned = p.out % sizeof(Words) == 0 && p.value_extent % 4 == 0;
    HEDDLE_UNROLL
    for (int r = 0; r < kOwn; ++r) {
      const int row = group + r * tile.groups;
      if (row >= tile.count) continue;
      const int64_t begin = ((tile.b * p.queries + tile.first + row) * p.heads + tile.h) * p.value_extent;
      const float share = sum.v[r] == 0.0f ? 0.0f : 1.0f / sum.v[r];
      Words words;
      HEDDLE_UNROLL
      for (int e = 0; e < 4; ++e) words.v[e] = Element::template write<float>(own.out[r].v[e] * share);
      const uint64_t to = p.out + static_cast<uint64_t>(begin + at) * sizeof(Word);
      if (aligned && at < p.value_extent) {
        *unshared<Words>(to) = words;
        continue;
      }
      HEDDLE_UNROLL
      for (int e = 0; e < 4; ++e) {
        if (at + e < p.value_extent) unshared<Word>(to)[e] = words.v[e];
      }
    }
  }

  template <class Block>
  HEDDLE_DEVICE void take(Block& block, const Tile& tile, Four<float>* pool, Four<float>* weights) const {
    constexpr Four<float> kNone = {{-INFINITY, -INFINITY, -INFINITY, -INFINITY}};
    typename Block::template Own<Own> own(block);
    typename Block::template Own<Four<float>> greatest(block), of_tile(block), sum(block);
    const int step = block.threads() / kColumns, score_stride = Shape::score_stride(block.threads());
    Four<float>* const keys = pool + tile.rows * kStride;
    Four<float>* const values = kApart ? keys + kKeys * kStride : keys;
    // Nobody in the tile may see more.
    const int64_t seen = tile.first + tile.count, end = p.causal != 0 && seen < p.keys ? seen : p.keys;
    const int64_t shared = quotient(tile.h, p.sharing), past = tile.b * p.keys;
    const auto is_used = [&](int thread) { return thread / kColumns < tile.count; };
    block.each_alone([&](int thread) {
      own[thread] = {};
      greatest[thread] = kNone;
      sum[thread] = {};
    });
    for (int64_t begin = 0; begin < end; begin += kKeys) {
      const int64_t count = end - begin < kKeys ? end - begin : kKeys;
      const Rows k = rows_at(p.k, (past + begin) * p.k_row + shared * p.extent, p.k_row, count, p.extent);
      const Rows v =
          rows_at(p.v, (past + begin) * p.v_row + shared * p.value_extent, p.v_row, count, p.value_extent);
      block.each([&](int thread) {
        Words of_queries[kOwn], of_keys[kLoads], of_values[kLoads];
        if (begin == 0) fetch(thread, tile.queries, 0, step, of_queries);
        for (int line = 0; line < kKeys; line += kLoads * step) {
          fetch(thread, k, line, step, of_keys);
          if (kApart) fetch(thread, v, line, step, of_values);
          put(thread, keys, line, step, kKeys, of_keys);
          if (kApart) put(thread, values, line, step, kKeys, of_values);
        }
        if (begin == 0) put(thread, pool, 0, step, tile.rows, of_queries);
      });
      block.each_alone([&](int thread) {
        of_tile[thread] = kNone;
        if (!is_used(thread)) return;
        read_biases(thread, own[thread], tile, begin);
        score(thread, own[thread], tile, pool, keys);
        add_biases(thread, own[thread], tile, begin);
        of_tile[thread] = greatest_of_own(own[thread]);
      });
      block.combine_warps(
          of_tile, [](const Four<float>& a, const Four<float>& b) { return greater(a, b); }, kColumns);
      block.each([&](int thread) {
        if (!is_used(thread)) return;
        weigh(own[thread], greatest[thread], sum[thread], of_tile[thread]);
        HEDDLE_UNROLL
        for (int n = 0; n < kOwnKeys; ++n)
          weights[(thread % kColumns + n * kColumns) * score_stride + thread / kColumns] =
              own[thread].scores[n];
      });
      if constexpr (!kApart) {
        block.each([&](int thread) {
          Words words[kLoads];
          for (int line = 0; line < kKeys; line += kLoads * step) {
            fetch(thread, v, line, step, words);
            put(thread, values, line, step, kKeys, words);
          }
        });
      }
      block.each([&](int thread) {
        if (is_used(thread))
          add_values(thread, own[thread], weights, score_stride, values, static_cast<int>(count));
      });
    }
    block.combine_warps(
        sum, [](const Four<float>& a, const Four<float>& b) { return added(a, b); }, kColumns);
    block.each_alone([&](int thread) { write(thread, own[thread], sum[thread], tile); });
  }

 public:
  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    const int rows = Shape::rows_of(block.threads());
    Four<float>* const pool =  // queries, keys, values
        block.template shared<Four<float>>((rows + Shape::kLines) * kStride);
    Four<float>* const weights =
        block.template shared<Four<float>>(kKeys * Shape::score_stride(block.threads()));
    const int64_t tiles = quotient(p.queries + rows - 1, rows);
    for (int64_t item = block.index(); item < p.batch * p.heads * tiles; item += block.blocks()) {
      const int64_t of_tile = quotient(item, tiles), first = (item - of_tile * tiles) * rows;
      const int64_t b = quotient(of_tile, p.heads), left = p.queries - first;
      Tile tile{b,    of_tile - b * p.heads, first, static_cast<int>(left < rows ? left : rows),
                rows, rows / kOwn,           {}};
      tile.queries = rows_at(p.q, (tile.b * p.queries + first) * p.q_row + tile.h * p.extent, p.q_row,
                             tile.count, p.extent);
      take(block, tile, pool, weights);
    }
  }
};

}  // namespace heddle::cuda
