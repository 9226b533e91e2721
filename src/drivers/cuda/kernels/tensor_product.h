// tensor_product.h: products of f32 matrices on tensor cores; a block computes a tile of the result.
//
//   What       As TiledProduct of tiled_product.h, of f32. x lies along k, y as it comes; k is not 0.
//   Split      A factor is the sum of two TF32: a rounded one, and what that leaves, of which the last of 24
//              bits may be lost. Three products of these are added, and the fourth, of what both leave, is
//              not: it is 2^-22 of the product at most (Ootomo and Yokota 2022, "Recovering single precision
//              accuracy from Tensor Cores"; CUTLASS calls it 3xTF32).
//   Order      Tensor cores round towards zero. They add the products of a step, 3 * kStep, and such sums are
//              added in f32: of many terms the error is no greater than that of f32, on average. Which group
//              of warps takes which steps the shape says: a row's bits depend on the shape, and not on the
//              rows beside it.
//   Infinite   An infinite factor, or one that becomes so when it is rounded, leaves what is no number, and a
//              sum that is rounded towards zero is never infinite. Elements that are no numbers, or near the
//              greatest one, are computed again, one product after another, which takes far longer.
//   Where      Compute capability 8.0 and newer.
#pragma once

#include "drivers/cuda/kernels/fragment.h"
#include "drivers/cuda/kernels/tiled_product.h"

namespace heddle::cuda {

// A warp has Rows x 16 rows by Columns x 8 columns, a group Down x Across warps. Each group takes kStep
// elements of k at a time; so many Stages are in shared memory. `Blocks`: that a multiprocessor has at once.
template <int Rows, int Columns, int Down, int Across, int Groups, int Stages, int Blocks>
struct TensorTile {
  static constexpr int kWarpRows = Rows, kWarpColumns = Columns, kDown = Down, kAcross = Across;
  static constexpr int kGroups = Groups, kStages = Stages, kBlocksAtOnce = Blocks, kStep = 16;
  static constexpr int kRows = Rows * kFragment * Down, kColumns = Columns * kSpan * Across;
  static constexpr int kThreads = kWarp * Down * Across * Groups;
  static constexpr int kRowQuads = kRows * kStep / 4, kColumnQuads = kColumns * kStep / 4;
  static constexpr int kGroupQuads = kRowQuads + kColumnQuads, kStageQuads = Groups * kGroupQuads;
  static constexpr int kTileQuads = kRows * kColumns / 4;
  static constexpr int kPoolQuads =
      Stages * kStageQuads > Groups* kTileQuads ? Stages * kStageQuads : Groups * kTileQuads;
  static constexpr int kSharedBytes = kPoolQuads * static_cast<int>(sizeof(Four<float>));
  static constexpr int kRowLoads = Groups * kRowQuads / kThreads;
  static constexpr int kColumnLoads = Groups * kColumnQuads / kThreads;
  static_assert(kSharedBytes <= 48 * 1024 && Stages > 1 && kColumns % 32 == 0);
  static_assert(kRowLoads * kThreads == Groups * kRowQuads);
  static_assert(kColumnLoads * kThreads == Groups * kColumnQuads);
};
// More groups leave a product of few tiles sooner, and take more of the GPU.
using Tensor64x64 = TensorTile<2, 4, 2, 2, 1, 3, 3>;
using Tensor64x32By2 = TensorTile<2, 4, 2, 1, 2, 3, 3>;
using Tensor32x32By4 = TensorTile<1, 2, 2, 2, 4, 3, 1>;

template <class Shape>
struct TensorProduct {
  static constexpr bool kNewer = true, kFollows = true;
  static constexpr int kThreads = Shape::kThreads, kBlocksAtOnce = Shape::kBlocksAtOnce;
  static constexpr int kStep = Shape::kStep, kGroups = Shape::kGroups, kStages = Shape::kStages;
  static constexpr int kWarpRows = Shape::kWarpRows, kWarpColumns = Shape::kWarpColumns;
  static constexpr int32_t kBeyond = -1;

  ProductParams p;

  // Which of eight products is which does not matter: each thread takes two that lie beside each other.
  struct alignas(8) Two {
    float v[2];
  };
  struct Mine {  // what a thread has in registers
    float sum[kWarpRows][kWarpColumns][4] = {}, part[kWarpRows][kWarpColumns][4];
    Two rows[kWarpRows][2], columns[kWarpColumns];  // what is multiplied next
    Left left[kWarpRows], left_rest[kWarpRows];
    Right right[kWarpColumns], right_rest[kWarpColumns];
    // Elements from the side's beginning to each of its quads at step 0; kBeyond: there is nothing of it.
    int32_t row_from[Shape::kRowLoads], column_from[Shape::kColumnLoads];
    int row_at, column_at[kWarpColumns];  // floats from a stage's beginning to what it multiplies first
  };

  struct Lot {  // what the block computes
    TileSide rows, columns;
    int64_t x, y;  // elements before its first row, and its first column
    int64_t batch, row, column;
    int steps;
    bool whole;  // no step goes beyond k, and both sides are whole
  };

  HEDDLE_DEVICE Lot lot_of(int64_t index) const {
    Lot lot;
    const int64_t tall = (p.m + Shape::kRows - 1) / Shape::kRows;
    const int64_t wide = (p.n + Shape::kColumns - 1) / Shape::kColumns;
    const int64_t band = quotient(index, tall);
    lot.batch = quotient(band, wide);
    lot.row = (index - band * tall) * Shape::kRows;
    lot.column = (band - lot.batch * wide) * Shape::kColumns;
    lot.x = lot.row * p.x_row;
    lot.y = lot.column * p.y_column;
    places_of(p.batch, lot.batch, [&](int axis, int64_t place) {
      lot.x += place * p.x_batch[axis];
      lot.y += place * p.y_batch[axis];
    });
    lot.rows = side_of<F32, Shape::kRows>(p.x, lot.x, p.x_row, 1, p.m - lot.row, p.k);
    lot.columns = side_of<F32, Shape::kColumns>(p.y, lot.y, p.y_column, p.y_row, p.n - lot.column, p.k);
    lot.steps = static_cast<int>((p.k + kGroups * kStep - 1) / (kGroups * kStep));
    lot.whole = lot.rows.whole && lot.columns.whole && p.k % (kGroups * kStep) == 0;
    return lot;
  }

  // ---- shared memory

  // What a warp reads at once lies in different banks: of every second pair of rows, or columns that lie
  // along k, the halves of four quads have changed places, and the quads of one k lie as it says.
  HEDDLE_DEVICE static int along_place(int place, int quad) {
    return place * (kStep / 4) + (quad ^ (place & 2));
  }
  HEDDLE_DEVICE static int across_place(int k, int quad) {
    return k * (Shape::kColumns / 4) + (quad ^ (k & 6));
  }

  struct Spot {
    int place, k, quad;  // of a step of all groups; `quad`: where it lies in a stage
  };
  HEDDLE_DEVICE static Spot spot_along(int number, int quads, int first) {
    constexpr int kDeep = kStep / 4;
    const int group = number / quads, own = number % quads, place = own / kDeep, quad = own % kDeep;
    return {place, group * kStep + 4 * quad, group * Shape::kGroupQuads + first + along_place(place, quad)};
  }
  HEDDLE_DEVICE static Spot row_spot(int thread, int i) {
    return spot_along(i * kThreads + thread, Shape::kRowQuads, 0);
  }
  template <bool kAlongK>
  HEDDLE_DEVICE static Spot column_spot(int thread, int i) {
    const int number = i * kThreads + thread;
    if constexpr (kAlongK) return spot_along(number, Shape::kColumnQuads, Shape::kRowQuads);
    constexpr int kWide = Shape::kColumns / 4;
    const int group = number / Shape::kColumnQuads, own = number % Shape::kColumnQuads, k = own / kWide;
    return {own % kWide * 4, group * kStep + k,
            group * Shape::kGroupQuads + Shape::kRowQuads + across_place(k, own % kWide)};
  }

  template <bool kAlongK>
  HEDDLE_DEVICE static void begin(const Lot& lot, int thread, Mine& my) {
    const auto from = [](const TileSide& side, const Spot& spot) {
      if (spot.place >= side.count) return kBeyond;
      return spot.place * static_cast<int32_t>(side.outer) + spot.k * static_cast<int32_t>(side.inner);
    };
    HEDDLE_UNROLL
    for (int i = 0; i < Shape::kRowLoads; ++i) my.row_from[i] = from(lot.rows, row_spot(thread, i));
    HEDDLE_UNROLL
    for (int i = 0; i < Shape::kColumnLoads; ++i)
      my.column_from[i] = from(lot.columns, column_spot<kAlongK>(thread, i));
  }

  // Of a whole lot nothing is copied that is beyond its rows or its columns: what is in shared memory there
  // makes only sums that nobody takes.
  template <class Block>
  HEDDLE_DEVICE static void load(Block& block, const Lot& lot, const TileSide& side, int32_t from, int step,
                                 Four<float>* to) {
    if (from == kBeyond || step >= lot.steps) return;
    const int32_t at = from + step * (kGroups * kStep) * static_cast<int32_t>(side.inner);
    block.copy(to, side.data + static_cast<uint64_t>(int64_t{at}) * sizeof(float));
  }
  template <class Block>
  HEDDLE_DEVICE static void load_rows(Block& block, const Lot& lot, int thread, int step, Four<float>* stage,
                                      const Mine& my) {
    HEDDLE_UNROLL
    for (int i = 0; i < Shape::kRowLoads; ++i)
      load(block, lot, lot.rows, my.row_from[i], step, stage + row_spot(thread, i).quad);
  }
  template <bool kAlongK, class Block>
  HEDDLE_DEVICE static void load_columns(Block& block, const Lot& lot, int thread, int step,
                                         Four<float>* stage, const Mine& my) {
    HEDDLE_UNROLL
    for (int i = 0; i < Shape::kColumnLoads; ++i)
      load(block, lot, lot.columns, my.column_from[i], step, stage + column_spot<kAlongK>(thread, i).quad);
  }

  // Of any other lot each load finds its own limits.
  template <bool kAlongK>
  HEDDLE_DEVICE void fetch_and_put(const Lot& lot, int thread, int step, Four<float>* stage) const {
    const int64_t first = int64_t{step} * (kGroups * kStep);
    HEDDLE_ROLLED
    for (int i = 0; i < Shape::kRowLoads; ++i) {
      const Spot spot = row_spot(thread, i);
      stage[spot.quad] = quad_of<F32>(lot.rows, spot.place, first + spot.k, p.k);
    }
    HEDDLE_ROLLED
    for (int i = 0; i < Shape::kColumnLoads; ++i) {
      const Spot spot = column_spot<kAlongK>(thread, i);
      stage[spot.quad] = quad_of<F32>(lot.columns, spot.place, first + spot.k, p.k);
    }
  }

  // ---- registers

  struct Seat {              // where a thread's elements are
    int group, row, column;  // the first of its warp, in the tile
    int line, pair;          // its row, or column, of a fragment, and the first of its two of eight
    explicit HEDDLE_DEVICE Seat(int thread) {
      const int warp = thread / kWarp, lane = thread % kWarp;
      group = warp / (Shape::kDown * Shape::kAcross);
      row = warp / Shape::kAcross % Shape::kDown * kWarpRows * kFragment;
      column = warp % Shape::kAcross * kWarpColumns * kSpan;
      line = lane / 4;
      pair = lane % 4 * 2;
    }
  };

  template <bool kAlongK>
  HEDDLE_DEVICE static void find(int thread, Mine& my) {
    const Seat seat(thread);
    const int rows = seat.group * Shape::kGroupQuads, columns = rows + Shape::kRowQuads;
    my.row_at = 4 * (rows + along_place(seat.row + seat.line, seat.pair / 4)) + seat.pair % 4;
    HEDDLE_UNROLL
    for (int c = 0; c < kWarpColumns; ++c) {
      const int place = seat.column + c * kSpan + seat.line;
      my.column_at[c] = kAlongK ? 4 * (columns + along_place(place, seat.pair / 4)) + seat.pair % 4
                                : 4 * (columns + across_place(seat.pair, place / 4)) + place % 4;
    }
  }

  // Eight of k, from `k` on, which is 0 or 8: the second half of four quads lies where the first does, but
  // for one bit.
  template <bool kAlongK>
  HEDDLE_DEVICE static void fetch(int k, const Four<float>* stage, Mine& my) {
    const float* const floats = stage->v;
    HEDDLE_UNROLL
    for (int r = 0; r < kWarpRows; ++r) {
      HEDDLE_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int row = (2 * r + half) * kSpan;
        my.rows[r][half] = *reinterpret_cast<const Two*>(floats + (my.row_at ^ k) + row * kStep);
      }
    }
    HEDDLE_UNROLL
    for (int c = 0; c < kWarpColumns; ++c) {
      if constexpr (kAlongK) {
        my.columns[c] = *reinterpret_cast<const Two*>(floats + (my.column_at[c] ^ k));
      } else {
        const float* const first = floats + my.column_at[c] + k * Shape::kColumns;
        my.columns[c] = {first[0], first[Shape::kColumns]};
      }
    }
  }

  // A TF32, to the nearest, and what it leaves: of its 12 bits a tensor core takes 11.
  HEDDLE_DEVICE static void split(float x, uint32_t& rounded, uint32_t& rest) {
    constexpr uint32_t kHalf = (~kTf32Bits + 1) / 2;
    rounded = (bits_as<uint32_t>(x) + kHalf) & kTf32Bits;
    rest = bits_as<uint32_t>(x - bits_as<float>(rounded));
  }
  HEDDLE_DEVICE static void split_all(Mine& my) {
    HEDDLE_UNROLL
    for (int r = 0; r < kWarpRows; ++r) {
      HEDDLE_UNROLL
      for (int half = 0; half < 2; ++half) {
        split(my.rows[r][half].v[0], my.left[r].v[half], my.left_rest[r].v[half]);
        split(my.rows[r][half].v[1], my.left[r].v[half + 2], my.left_rest[r].v[half + 2]);
      }
    }
    HEDDLE_UNROLL
    for (int c = 0; c < kWarpColumns; ++c) {
      split(my.columns[c].v[0], my.right[c].v[0], my.right_rest[c].v[0]);
      split(my.columns[c].v[1], my.right[c].v[1], my.right_rest[c].v[1]);
    }
  }

  template <class F>
  HEDDLE_DEVICE static void each_fragment(F f) {
    HEDDLE_UNROLL
    for (int r = 0; r < kWarpRows; ++r) {
      HEDDLE_UNROLL
      for (int c = 0; c < kWarpColumns; ++c) f(r, c);
    }
  }
  HEDDLE_DEVICE static void begin_part(Mine& my) {
    each_fragment([&](int r, int c) {
      HEDDLE_UNROLL
      for (int i = 0; i < 4; ++i) my.part[r][c][i] = 0;
    });
  }
  HEDDLE_DEVICE static void end_part(Mine& my) {
    each_fragment([&](int r, int c) {
      HEDDLE_UNROLL
      for (int i = 0; i < 4; ++i) my.sum[r][c][i] += my.part[r][c][i];
    });
  }

  template <class Block>
  using Own = typename Block::template Own<Mine>;

  // The small ones first.
  template <class Block>
  HEDDLE_DEVICE static void multiply_all(Block& block, Own<Block>& mine) {
    const auto each_with = [&](auto left, auto right) {
      each_fragment([&](int r, int c) {
        multiply_tf32(block, mine,
                      [&](Mine& my) { return Factors{my.part[r][c], (my.*left)[r], (my.*right)[c]}; });
      });
    };
    each_with(&Mine::left_rest, &Mine::right);
    each_with(&Mine::left, &Mine::right_rest);
    each_with(&Mine::left, &Mine::right);
  }

  // ---- the sum

  // What is multiplied next comes from shared memory while this is: the last of a stage is in registers when
  // all have passed the barrier behind which that is filled again.
  template <bool kAlongK, class Block>
  HEDDLE_DEVICE void sum_whole(Block& block, const Lot& lot, Four<float>* pool, Own<Block>& mine) const {
    block.each_alone([&](int thread) { begin<kAlongK>(lot, thread, mine[thread]); });
    const auto columns_at = [&](int step, int stage) {
      block.each_alone([&](int thread) {
        load_columns<kAlongK>(block, lot, thread, step, pool + stage * Shape::kStageQuads, mine[thread]);
      });
    };
    const auto rows_at = [&](int step, int stage) {
      block.each_alone([&](int thread) {
        load_rows(block, lot, thread, step, pool + stage * Shape::kStageQuads, mine[thread]);
      });
      block.end_copies();
    };
    const auto fetch_at = [&](int k, int stage) {
      block.each_alone(
          [&](int thread) { fetch<kAlongK>(k, pool + stage * Shape::kStageQuads, mine[thread]); });
    };
    if (p.y_is_constant == 0) block.follow();
    HEDDLE_UNROLL
    for (int stage = 0; stage < kStages; ++stage) columns_at(stage, stage);
    if (p.y_is_constant != 0) block.follow();
    HEDDLE_UNROLL
    for (int stage = 0; stage < kStages; ++stage) rows_at(stage, stage);
    block.template await_copies<kStages - 1>();
    fetch_at(0, 0);
    int stage = 0;
    HEDDLE_ROLLED
    for (int step = 0; step < lot.steps; ++step) {
      const int next = stage + 1 == kStages ? 0 : stage + 1;
      block.each_alone([&](int thread) {
        begin_part(mine[thread]);
        split_all(mine[thread]);
      });
      fetch_at(kSpan, stage);
      multiply_all(block, mine);
      block.each_alone([&](int thread) { split_all(mine[thread]); });
      block.template await_copies<kStages - 2>();
      columns_at(step + kStages, stage);
      rows_at(step + kStages, stage);
      fetch_at(0, next);
      multiply_all(block, mine);
      block.each_alone([&](int thread) { end_part(mine[thread]); });
      stage = next;
    }
    block.each([](int) {});  // all have multiplied: their sums may lie where the stages do
  }

  template <bool kAlongK, class Block>
  HEDDLE_DEVICE void sum_any(Block& block, const Lot& lot, Four<float>* pool, Own<Block>& mine) const {
    block.follow();
    HEDDLE_ROLLED
    for (int step = 0; step < lot.steps; ++step) {
      block.each([&](int thread) { fetch_and_put<kAlongK>(lot, thread, step, pool); });
      block.each_alone([&](int thread) { begin_part(mine[thread]); });
      HEDDLE_ROLLED
      for (int k = 0; k < kStep; k += kSpan) {
        block.each_alone([&](int thread) {
          fetch<kAlongK>(k, pool, mine[thread]);
          split_all(mine[thread]);
        });
        multiply_all(block, mine);
      }
      block.each([&](int thread) { end_part(mine[thread]); });
    }
  }

  template <bool kAlongK, class Block>
  HEDDLE_DEVICE void sum(Block& block, const Lot& lot, Four<float>* pool, Own<Block>& mine) const {
    block.each_alone([&](int thread) {
      mine[thread] = Mine();
      find<kAlongK>(thread, mine[thread]);
    });
    if (lot.whole) {
      sum_whole<kAlongK>(block, lot, pool, mine);
    } else {
      sum_any<kAlongK>(block, lot, pool, mine);
    }
  }

  // ---- the end

  HEDDLE_DEVICE static void put_sums(int thread, Four<float>* pool, const Mine& my) {
    const Seat seat(thread);
    each_fragment([&](int r, int c) {
      HEDDLE_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int row = seat.row + r * kFragment + half * kSpan + seat.line;
        const int column = seat.column + c * kSpan + seat.pair;
        float* const at = pool[seat.group * Shape::kTileQuads].v + row * Shape::kColumns + column;
        *reinterpret_cast<Two*>(at) = {my.sum[r][c][2 * half], my.sum[r][c][2 * half + 1]};
      }
    });
  }

  static HEDDLE_DEVICE bool is_doubtful(float sum) {
    constexpr float kGreat = 1e38f;
    return !(std::fabs(sum) < kGreat);
  }
  // Those of `left` sums of a row that are doubtful.
  HEDDLE_DEVICE void sum_again(const Lot& lot, int64_t i, int64_t j, int left, Four<float>& sums) const {
    const auto at = [](uint64_t data, int64_t element) { return global<const float>(data)[element]; };
    const int64_t x = lot.x + (i - lot.row) * p.x_row, y = lot.y + (j - lot.column) * p.y_column;
    Four<float> again{};
    HEDDLE_UNROLL_BY(4)
    for (int64_t k = 0; k < p.k; ++k) {
      const float factor = at(p.x, x + k);
      HEDDLE_UNROLL
      for (int e = 0; e < 4; ++e) {
        if (e < left) again.v[e] = std::fma(factor, at(p.y, y + k * p.y_row + e * p.y_column), again.v[e]);
      }
    }
    HEDDLE_UNROLL
    for (int e = 0; e < 4; ++e) {
      if (is_doubtful(sums.v[e])) sums.v[e] = again.v[e];
    }
  }

  // Four of a row, or as many as the row has left.
  HEDDLE_DEVICE void finish(const Lot& lot, int thread, const Four<float>* pool) const {
    constexpr int kWide = Shape::kColumns / 4;
    const bool together = ends_in_some(p, 4);
    HEDDLE_UNROLL_BY(2)
    for (int quad = thread; quad < Shape::kTileQuads; quad += kThreads) {
      const int64_t i = lot.row + quad / kWide, j = lot.column + quad % kWide * 4;
      if (i >= p.m || j >= p.n) continue;
      const int64_t element = (lot.batch * p.m + i) * p.n + j;
      const int left = p.n - j < 4 ? static_cast<int>(p.n - j) : 4;
      Four<float> all{};
      bool doubtful = false;
      HEDDLE_UNROLL
      for (int e = 0; e < 4; ++e) {
        HEDDLE_UNROLL
        for (int group = 0; group < kGroups; ++group) all.v[e] += pool[group * Shape::kTileQuads + quad].v[e];
        doubtful = doubtful || (e < left && is_doubtful(all.v[e]));
      }
      if (doubtful) sum_again(lot, i, j, left, all);
      if (together) {
        EndOfSome<As<float>>::finish(p, all.v, element, i, j);
        continue;
      }
      HEDDLE_UNROLL
      for (int e = 0; e < 4; ++e) {
        if (e >= left) continue;
        const auto end = followers_of<float>(p, Type::kF32, element + e, i, j + e);
        global<float>(p.out)[element + e] = finished(p, all.v[e], end);
      }
    }
  }

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    Four<float>* const pool = block.template shared<Four<float>>(Shape::kPoolQuads);
    Own<Block> mine(block);
    const Lot lot = lot_of(block.index());
    if (lot.columns.along_k) {
      sum<true>(block, lot, pool, mine);
    } else {
      sum<false>(block, lot, pool, mine);
    }
    block.each([&](int thread) { put_sums(thread, pool, mine[thread]); });
    block.each_alone([&](int thread) { finish(lot, thread, pool); });
  }
};

}  // namespace heddle::cuda
