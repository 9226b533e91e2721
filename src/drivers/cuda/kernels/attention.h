// attention.h: softmax(scale * q k' + bias) v of each head, over the keys in tiles.
//
//   What       A query's greatest score so far, the sum of its weights and its weighted values go from tile
//              to tile; where the greatest grows they shrink. So no row of scores is kept.
//   Bits       Of one query they depend on its own scores and values only: the order of keys and of elements
//              is fixed, and what is masked adds 0.
#pragma once

#include "drivers/cuda/kernels/block.h"
#include "drivers/cuda/kernels/tile.h"

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

// Heads of at most kWidth elements: a block takes a tile of queries of one head and walks the keys in tiles.
// A thread has 4 queries. Of the scores it makes those of every kColumns-th key, of the result 4 elements.
template <Type kType, int kWidth>
struct TiledAttention {
  static constexpr int kThreads = 256, kKeys = 32, kOwn = 4;
  static constexpr int kBlocksAtOnce = 3;  // one computes while another waits for its barrier
  static constexpr int kColumns = kWidth / kOwn, kGroups = kThreads / kColumns;
  static constexpr int kRows = kOwn * kGroups, kOwnKeys = kKeys / kColumns;
  // Fours from one row to the next: one more than it holds, so that rows begin in different banks.
  static constexpr int kStride = kColumns + 1, kScoreStride = kGroups + 1;
  static constexpr int kSharedBytes = 16 * (kRows * kStride + kKeys * kStride + kKeys * kScoreStride);
  AttentionParams p;

  struct Queries {
    Four<float> out[kOwn], scores[kOwnKeys], greatest, sum;
  };
  struct Tile {  // of queries
    int64_t b, h, first, count;
  };

  // The first kTaken rows of `extent` elements each, 0 behind them.
  template <int kTaken>
  static HEDDLE_DEVICE void load_rows(int thread, Four<float>* to, uint64_t from, int64_t at,
                                      int64_t row_step, int64_t count, int extent) {
    for (int i = thread; i < kTaken * kWidth; i += kThreads) {
      const int row = i / kWidth, e = i % kWidth;
      const bool inside = row < count && e < extent;
      to[row * kStride + e / kOwn].v[e % kOwn] =
          inside ? load<float>(from, kType, at + row * row_step + e) : 0.0f;
    }
  }

  HEDDLE_DEVICE void load_biases(int thread, Four<float>* scores, const Tile& tile, int64_t begin) const {
    for (int i = thread; i < kRows * kKeys; i += kThreads) {
      const int row = i / kKeys, key = i % kKeys;
      const bool inside = row < tile.count && begin + key < p.keys;
      scores[key * kScoreStride + row / kOwn].v[row % kOwn] =
          inside ? bias_of<float>(p, tile.b, tile.h, tile.first + row, begin + key) : -INFINITY;
    }
  }

  HEDDLE_DEVICE void score(int thread, Queries& own, const Four<float>* queries, const Four<float>* keys,
                           Four<float>* scores) const {
    const int group = thread / kColumns, column = thread % kColumns;
    HEDDLE_UNROLL
    for (int n = 0; n < kOwnKeys; ++n) own.scores[n] = {};
    for (int e = 0; e * kOwn < p.extent; ++e) {
      Four<float> q[kOwn];
      HEDDLE_UNROLL
      for (int r = 0; r < kOwn; ++r) q[r] = queries[(group * kOwn + r) * kStride + e];
      HEDDLE_UNROLL
      for (int n = 0; n < kOwnKeys; ++n) {
        const Four<float> k = keys[(column + n * kColumns) * kStride + e];
        HEDDLE_UNROLL
        for (int r = 0; r < kOwn; ++r) {
          HEDDLE_UNROLL
          for (int i = 0; i < kOwn; ++i) own.scores[n].v[r] = fmaf(q[r].v[i], k.v[i], own.scores[n].v[r]);
        }
      }
    }
    HEDDLE_UNROLL
    for (int n = 0; n < kOwnKeys; ++n) {
      Four<float>& biased = scores[(column + n * kColumns) * kScoreStride + group];
      const Four<float> bias = biased;
      HEDDLE_UNROLL
      for (int r = 0; r < kOwn; ++r) own.scores[n].v[r] = own.scores[n].v[r] * float(p.scale) + bias.v[r];
      biased = own.scores[n];
    }
  }

  // The scores become weights, and what was summed up so far shrinks with the greatest's growth.
  HEDDLE_DEVICE void weigh(int thread, Queries& own, const Four<float>* scores) const {
    const int group = thread / kColumns;
    Four<float> greatest = own.greatest;
    for (int key = 0; key < kKeys; ++key) {
      const Four<float> each = scores[key * kScoreStride + group];
      HEDDLE_UNROLL
      for (int r = 0; r < kOwn; ++r) greatest.v[r] = each.v[r] > greatest.v[r] ? each.v[r] : greatest.v[r];
    }
    HEDDLE_UNROLL
    for (int r = 0; r < kOwn; ++r) {
      const float kept = weight_of(own.greatest.v[r], greatest.v[r]);
      own.sum.v[r] *= kept;
      HEDDLE_UNROLL
      for (int e = 0; e < kOwn; ++e) own.out[r].v[e] *= kept;
      HEDDLE_UNROLL
      for (int n = 0; n < kOwnKeys; ++n) own.scores[n].v[r] = weight_of(own.scores[n].v[r], greatest.v[r]);
    }
    own.greatest = greatest;
  }

  static HEDDLE_DEVICE void add_values(int thread, Queries& own, const Four<float>* weights,
                                       const Four<float>* values, int count) {
    const int group = thread / kColumns, column = thread % kColumns;
    for (int key = 0; key < count; ++key) {
      const Four<float> weight = weights[key * kScoreStride + group], value = values[key * kStride + column];
      HEDDLE_UNROLL
      for (int r = 0; r < kOwn; ++r) {
        own.sum.v[r] += weight.v[r];
        HEDDLE_UNROLL
        for (int e = 0; e < kOwn; ++e) own.out[r].v[e] = fmaf(weight.v[r], value.v[e], own.out[r].v[e]);
      }
    }
  }

  HEDDLE_DEVICE void write(int thread, const Queries& own, const Tile& tile) const {
    const int group = thread / kColumns, column = thread % kColumns;
    HEDDLE_UNROLL
    for (int r = 0; r < kOwn; ++r) {
      const int64_t i = tile.first + group * kOwn + r;
      const int64_t row = ((tile.b * p.queries + i) * p.heads + tile.h) * p.value_extent;
      HEDDLE_UNROLL
      for (int e = 0; e < kOwn; ++e) {
        const int at = column * kOwn + e;
        if (group * kOwn + r >= tile.count || at >= p.value_extent) continue;
        store<float>(p.out, kType, row + at, own.sum.v[r] == 0.0f ? 0.0f : own.out[r].v[e] / own.sum.v[r]);
      }
    }
  }

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    Four<float>* const queries = block.template shared<Four<float>>(kRows * kStride);
    Four<float>* const rows = block.template shared<Four<float>>(kKeys * kStride);  // of keys, then of values
    Four<float>* const scores = block.template shared<Four<float>>(kKeys * kScoreStride);
    typename Block::template Own<Queries> own(block);
    const int64_t tiles = (p.queries + kRows - 1) / kRows;
    for (int64_t item = block.index(); item < p.batch * p.heads * tiles; item += block.blocks()) {
      const int64_t first = item % tiles * kRows, left = p.queries - first;
      const Tile tile{item / tiles / p.heads, item / tiles % p.heads, first, left < kRows ? left : kRows};
      const int64_t shared = tile.h / p.sharing, past = tile.b * p.keys;
      // Nobody in the tile may see more.
      const int64_t seen = first + tile.count, keys = p.causal != 0 && seen < p.keys ? seen : p.keys;
      const auto is_used = [&](int thread) { return thread / kColumns * kOwn < tile.count; };
      block.each([&](int thread) {
        own[thread] = {};
        own[thread].greatest = {{-INFINITY, -INFINITY, -INFINITY, -INFINITY}};
        load_rows<kRows>(thread, queries, p.q, (tile.b * p.queries + first) * p.q_row + tile.h * p.extent,
                         p.q_row, tile.count, p.extent);
      });
      for (int64_t begin = 0; begin < keys; begin += kKeys) {
        const int64_t count = keys - begin < kKeys ? keys - begin : kKeys;
        block.each([&](int thread) {
          load_rows<kKeys>(thread, rows, p.k, (past + begin) * p.k_row + shared * p.extent, p.k_row, count,
                           p.extent);
          load_biases(thread, scores, tile, begin);
        });
        block.each([&](int thread) {
          if (is_used(thread)) score(thread, own[thread], queries, rows, scores);
        });
        block.each([&](int thread) {
          load_rows<kKeys>(thread, rows, p.v, (past + begin) * p.v_row + shared * p.value_extent, p.v_row,
                           count, p.value_extent);
          if (is_used(thread)) weigh(thread, own[thread], scores);
        });
        block.each([&](int thread) {
          HEDDLE_UNROLL
          for (int n = 0; n < kOwnKeys; ++n)
            scores[(thread % kColumns + n * kColumns) * kScoreStride + thread / kColumns] =
                own[thread].scores[n];
        });
        block.each([&](int thread) {
          if (is_used(thread)) add_values(thread, own[thread], scores, rows, static_cast<int>(count));
        });
      }
      block.each([&](int thread) { write(thread, own[thread], tile); });
    }
  }
};

}  // namespace heddle::cuda
