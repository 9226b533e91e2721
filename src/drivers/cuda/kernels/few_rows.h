// few_rows.h: products of f32 matrices of few rows; a cluster of blocks computes a tile of the result.
//
//   What       As TiledProduct of tiled_product.h, of one pair of matrices. x lies along k, y as it comes;
//              k is not 0.
//   Order      That of the tiles, bit for bit: the block of rank r adds up parts r, r + 4, r + 8 and r + 12
//              of k, a group of threads each, and so has one of the four sums. It sends each other block its
//              quarter of the tile, and finishes its own.
//   Speed      k is read by four times as many blocks as there are tiles: few tiles fill a GPU. Stages of k
//              are on their way to shared memory before the first is multiplied. What is left is mostly time
//              that one thing waits for another: the launch, the first stage, the other blocks' sums.
#pragma once

#include "drivers/cuda/kernels/tiled_product.h"

namespace heddle::cuda {

// A tile of Rows * Down by 4 * Across elements: Down x Across threads in each group, Rows x 4 elements a
// thread. Step elements of each group's part of k are a stage; so many Stages are in shared memory at a time.
template <int Rows, int Down, int Across, int Step, int Stages>
struct FewRowsShape {
  static constexpr int kOwnRows = Rows, kDown = Down, kAcross = Across, kStep = Step, kStages = Stages;
  static constexpr int kGroups = kParts / kSums;
  static constexpr int kRows = Rows * Down, kColumns = 4 * Across, kThreads = Down * Across * kGroups;
  static constexpr int kLine = Step / 4 | 1;  // quads of k of a row; odd: rows are spread over the banks
  static constexpr int kRowQuads = kGroups * kRows * kLine;
  static constexpr int kAlongK = kGroups * kColumns * kLine, kAcrossK = kGroups * Step * kColumns / 4;
  static constexpr int kStageQuads = kRowQuads + (kAlongK > kAcrossK ? kAlongK : kAcrossK);
  static constexpr int kSteps = kStages * kStageQuads;
  static constexpr int kTileQuads = kRows * kColumns / 4, kShareQuads = kTileQuads / kSums;
  static constexpr int kPoolQuads = kSteps > kGroups* kTileQuads ? kSteps : kGroups * kTileQuads;
  static constexpr int kSharedBytes =
      (kPoolQuads + kTileQuads) * static_cast<int>(sizeof(Four<float>)) + kArriveBytes;
  static constexpr int kRowLoads = kGroups * kRows * Step / 4 / kThreads;
  static constexpr int kColumnLoads = kGroups * kColumns * Step / 4 / kThreads;
  static constexpr int kEnds =
      (4 * kShareQuads + kThreads - 1) / kThreads;  // elements that a thread finishes
  static_assert(kSharedBytes <= 48 * 1024 && Stages > 1 && Step % 16 == 0 && kTileQuads % kSums == 0);
  static_assert(kRowLoads * kThreads * 4 == kGroups * kRows * Step);
  static_assert(kColumnLoads * kThreads * 4 == kGroups * kColumns * Step);
};
// More rows a thread take less reading of shared memory, up to the registers of 128 threads.
using Few8x16 = FewRowsShape<1, 8, 4, 32, 3>;
using Few8x32 = FewRowsShape<2, 4, 8, 32, 2>;
using Few8x64 = FewRowsShape<4, 2, 16, 16, 2>;
using Few16x32 = FewRowsShape<4, 4, 8, 16, 2>;
using Few24x32 = FewRowsShape<6, 4, 8, 16, 2>;
using Few32x32 = FewRowsShape<8, 4, 8, 16, 2>;

template <class Shape>
struct FewRows {
  static constexpr int kThreads = Shape::kThreads, kBlocksAtOnce = 512 / kThreads, kCluster = kSums;
  static constexpr int kOwnRows = Shape::kOwnRows, kGroups = Shape::kGroups, kStep = Shape::kStep;
  static constexpr int kStages = Shape::kStages, kLine = Shape::kLine;
  static constexpr int32_t kBeyond = -1;
  static constexpr bool kFollows = true;

  ProductParams p;

  struct Mine {  // what a thread has in registers
    float part[kOwnRows][4] = {};
    // Elements from the side's beginning to where its group's part of each row or column begins; kBeyond:
    // there is nothing of it.
    int32_t row_from[Shape::kRowLoads], column_from[Shape::kColumnLoads];
    Followers<float> followers[Shape::kEnds];
  };

  struct Lot {  // what the block computes
    TileSide rows, columns;
    int rank;
    int64_t row, column;
    int64_t part;  // length of a part of k
    bool whole;    // no part ends before another, and both sides are whole
  };

  HEDDLE_DEVICE Lot lot_of(int64_t index) const {
    Lot lot;
    const int64_t wide = (p.n + Shape::kColumns - 1) / Shape::kColumns, tile = index / kCluster;
    lot.rank = static_cast<int>(index % kCluster);
    const int64_t down = quotient(tile, wide);
    lot.row = down * Shape::kRows;
    lot.column = (tile - down * wide) * Shape::kColumns;
    lot.part = part_of(p.k);
    lot.rows = side_of<F32, Shape::kRows>(p.x, lot.row * p.x_row, p.x_row, 1, p.m - lot.row, p.k);
    lot.columns = side_of<F32, Shape::kColumns>(p.y, lot.column * p.y_column, p.y_column, p.y_row,
                                                p.n - lot.column, p.k);
    lot.whole = lot.rows.whole && lot.columns.whole && quotient(p.k, lot.part) * lot.part == p.k;
    return lot;
  }

  HEDDLE_DEVICE static int64_t first_of(const Lot& lot, int group) {  // of the group's part of k
    return (lot.rank + group * kSums) * lot.part;
  }

  template <bool kAlongK>
  HEDDLE_DEVICE static TileSpot column_spot(int thread, int i) {
    return spot_of<Shape::kColumns, kStep>(i * kThreads + thread, kAlongK);
  }
  HEDDLE_DEVICE static TileSpot row_spot(int thread, int i) {
    return spot_of<Shape::kRows, kStep>(i * kThreads + thread, true);
  }

  // Of a whole lot nothing is copied that is beyond its rows, its columns, its part or k: what is in shared
  // memory there makes only sums that nobody takes.
  template <bool kAlongK>
  HEDDLE_DEVICE void begin(const Lot& lot, int thread, Mine& my) const {
    // All are less than INT32_MAX; 64 bits would take longer, and the first load waits for it.
    const auto k = static_cast<int32_t>(p.k), part = static_cast<int32_t>(lot.part);
    const auto from = [&](const TileSide& side, const TileSpot& spot) {
      const int32_t first = (lot.rank + spot.group * kSums) * part;
      if (spot.place >= side.count || first >= k) return kBeyond;
      return spot.place * static_cast<int32_t>(side.outer) + first * static_cast<int32_t>(side.inner);
    };
    HEDDLE_UNROLL
    for (int i = 0; i < Shape::kRowLoads; ++i) my.row_from[i] = from(lot.rows, row_spot(thread, i));
    HEDDLE_UNROLL
    for (int i = 0; i < Shape::kColumnLoads; ++i)
      my.column_from[i] = from(lot.columns, column_spot<kAlongK>(thread, i));
  }
  template <class Block>
  HEDDLE_DEVICE static void load(Block& block, const Lot& lot, const TileSide& side, int32_t from, int k,
                                 Four<float>* to) {
    if (from == kBeyond || k >= static_cast<int>(lot.part)) return;
    const int32_t at = from + k * static_cast<int32_t>(side.inner);
    block.copy(to, side.data + static_cast<uint64_t>(int64_t{at}) * sizeof(float));
  }
  template <bool kAlongK, class Block>
  HEDDLE_DEVICE static void load_columns(Block& block, const Lot& lot, int thread, int step,
                                         Four<float>* stage, const Mine& my) {
    HEDDLE_UNROLL
    for (int i = 0; i < Shape::kColumnLoads; ++i) {
      const TileSpot spot = column_spot<kAlongK>(thread, i);
      load(block, lot, lot.columns, my.column_from[i], step + spot.k, column_place<kAlongK>(stage, spot));
    }
  }
  template <class Block>
  HEDDLE_DEVICE static void load_rows(Block& block, const Lot& lot, int thread, int step, Four<float>* stage,
                                      const Mine& my) {
    HEDDLE_UNROLL
    for (int i = 0; i < Shape::kRowLoads; ++i) {
      const TileSpot spot = row_spot(thread, i);
      load(block, lot, lot.rows, my.row_from[i], step + spot.k, row_place(stage, spot));
    }
  }

  // Of any other lot each load finds its own limits.
  template <bool kAlongK>
  HEDDLE_DEVICE void fetch_and_put(const Lot& lot, int thread, int step, Four<float>* pool) const {
    const auto load = [&](const TileSide& side, const TileSpot& spot) {
      const int64_t first = first_of(lot, spot.group), end = first + lot.part;
      return quad_of<F32>(side, spot.place, first + step + spot.k, end < p.k ? end : p.k);
    };
    HEDDLE_ROLLED
    for (int i = 0; i < Shape::kRowLoads; ++i) {
      const TileSpot spot = row_spot(thread, i);
      *row_place(pool, spot) = load(lot.rows, spot);
    }
    HEDDLE_ROLLED
    for (int i = 0; i < Shape::kColumnLoads; ++i) {
      const TileSpot spot = column_spot<kAlongK>(thread, i);
      *column_place<kAlongK>(pool, spot) = load(lot.columns, spot);
    }
  }

  // Rows lie along k in shared memory, columns as they do in y.
  HEDDLE_DEVICE static Four<float>* row_place(Four<float>* pool, const TileSpot& spot) {
    return pool + (spot.group * Shape::kRows + spot.place) * kLine + spot.k / 4;
  }
  template <bool kAlongK>
  HEDDLE_DEVICE static Four<float>* column_place(Four<float>* pool, const TileSpot& spot) {
    Four<float>* const columns = pool + Shape::kRowQuads;
    if constexpr (kAlongK) {
      return columns + (spot.group * Shape::kColumns + spot.place) * kLine + spot.k / 4;
    } else {
      return columns + (spot.group * kStep + spot.k) * (Shape::kColumns / 4) + spot.place / 4;
    }
  }

  // The thread's rows are `down`, `down` + Down and so on; its columns likewise where they lie along k, else
  // four beside each other. `length`: of k, a multiple of four.
  template <bool kAlongK>
  HEDDLE_DEVICE static void multiply(int thread, int length, const Four<float>* pool, Mine& my) {
    const int group = thread / (Shape::kDown * Shape::kAcross);
    const int down = thread / Shape::kAcross % Shape::kDown, across = thread % Shape::kAcross;
    const Four<float>* const rows = pool + (group * Shape::kRows + down) * kLine;
    const Four<float>* const columns = pool + Shape::kRowQuads +
                                       (kAlongK ? (group * Shape::kColumns + across) * kLine
                                                : group * kStep * (Shape::kColumns / 4) + across);
    HEDDLE_UNROLL_BY(2)
    for (int k = 0; k < length; k += 4) {
      Four<float> x[kOwnRows], y[4];
      HEDDLE_UNROLL
      for (int r = 0; r < kOwnRows; ++r) x[r] = rows[r * Shape::kDown * kLine + k / 4];
      HEDDLE_UNROLL
      for (int j = 0; j < 4; ++j)
        y[j] = columns[kAlongK ? j * Shape::kAcross * kLine + k / 4 : (k + j) * (Shape::kColumns / 4)];
      HEDDLE_UNROLL
      for (int i = 0; i < 4; ++i) {
        HEDDLE_UNROLL
        for (int r = 0; r < kOwnRows; ++r) {
          HEDDLE_UNROLL
          for (int j = 0; j < 4; ++j) {
            const float factor = kAlongK ? y[j].v[i] : y[i].v[j];
            my.part[r][j] = std::fma(x[r].v[i], factor, my.part[r][j]);
          }
        }
      }
    }
  }

  template <bool kAlongK>
  HEDDLE_DEVICE static void put_parts(int thread, Four<float>* pool, const Mine& my) {
    const int group = thread / (Shape::kDown * Shape::kAcross);
    const int down = thread / Shape::kAcross % Shape::kDown, across = thread % Shape::kAcross;
    HEDDLE_UNROLL
    for (int r = 0; r < kOwnRows; ++r) {
      Four<float>* const line =
          pool + group * Shape::kTileQuads + (down + r * Shape::kDown) * (Shape::kColumns / 4);
      if constexpr (kAlongK) {
        HEDDLE_UNROLL
        for (int j = 0; j < 4; ++j) {
          const int column = across + j * Shape::kAcross;
          line[column / 4].v[column % 4] = my.part[r][j];
        }
      } else {
        line[across] = {my.part[r][0], my.part[r][1], my.part[r][2], my.part[r][3]};
      }
    }
  }

  template <bool kAlongK>
  HEDDLE_DEVICE void add_up(const Lot& lot, int thread, int step, const Four<float>* stage, Mine& my) const {
    const int left = static_cast<int>(lot.part) - step, group = thread / (Shape::kDown * Shape::kAcross);
    if (first_of(lot, group) < p.k) multiply<kAlongK>(thread, left < kStep ? left : kStep, stage, my);
  }

  template <bool kAlongK, class Block, class Own>
  HEDDLE_DEVICE void sum_whole(Block& block, const Lot& lot, Four<float>* pool, Own& mine) const {
    const int part = static_cast<int>(lot.part);
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
    if (p.y_is_constant != 0) {
      HEDDLE_UNROLL
      for (int stage = 0; stage < kStages; ++stage) columns_at(stage * kStep, stage);
      block.follow();
      HEDDLE_UNROLL
      for (int stage = 0; stage < kStages; ++stage) rows_at(stage * kStep, stage);
    } else {
      block.follow();
      HEDDLE_UNROLL
      for (int stage = 0; stage < kStages; ++stage) {
        columns_at(stage * kStep, stage);
        rows_at(stage * kStep, stage);
      }
    }
    block.template await_copies<kStages - 1>();
    int stage = 0;
    HEDDLE_ROLLED
    for (int step = 0;;) {
      block.each_alone([&](int thread) {
        add_up<kAlongK>(lot, thread, step, pool + stage * Shape::kStageQuads, mine[thread]);
      });
      step += kStep;
      if (step >= part) break;
      block.template await_copies<kStages - 2>();  // and the stage before this one is free
      columns_at(step + (kStages - 1) * kStep, stage);
      rows_at(step + (kStages - 1) * kStep, stage);
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    block.each([](int) {});  // all have multiplied: their sums may lie where the stages do
  }

  template <bool kAlongK, class Block, class Own>
  HEDDLE_DEVICE void sum_any(Block& block, const Lot& lot, Four<float>* pool, Own& mine) const {
    block.follow();
    HEDDLE_ROLLED
    for (int step = 0; step < static_cast<int>(lot.part); step += kStep) {
      block.each([&](int thread) { fetch_and_put<kAlongK>(lot, thread, step, pool); });
      block.each([&](int thread) { add_up<kAlongK>(lot, thread, step, pool, mine[thread]); });
    }
  }

  template <bool kWhole, bool kAlongK, class Block, class Own>
  HEDDLE_DEVICE void sum(Block& block, const Lot& lot, Four<float>* pool, Own& mine) const {
    if constexpr (kWhole) {
      sum_whole<kAlongK>(block, lot, pool, mine);
    } else {
      sum_any<kAlongK>(block, lot, pool, mine);
    }
    block.each([&](int thread) { put_parts<kAlongK>(thread, pool, mine[thread]); });
  }

  // The sum of this block's parts, to whoever finishes it: [rank][quad].
  template <class Block>
  HEDDLE_DEVICE static void send(Block& block, int rank, int thread, const Four<float>* pool,
                                 Four<float>* sums) {
    for (int quad = thread; quad < Shape::kTileQuads; quad += kThreads) {
      Four<float> all{};
      HEDDLE_UNROLL
      for (int group = 0; group < kGroups; ++group) {
        HEDDLE_UNROLL
        for (int i = 0; i < 4; ++i) all.v[i] += pool[group * Shape::kTileQuads + quad].v[i];
      }
      block.put(sums + rank * Shape::kShareQuads + quad % Shape::kShareQuads, quad / Shape::kShareQuads, all);
    }
  }

  // f(number, place among the block's own elements, element of the result, row, column).
  template <class F>
  HEDDLE_DEVICE void each_end(const Lot& lot, int thread, F f) const {
    HEDDLE_UNROLL
    for (int i = 0; i < Shape::kEnds; ++i) {
      const int place = i * kThreads + thread, at = lot.rank * 4 * Shape::kShareQuads + place;
      const int64_t row = lot.row + at / Shape::kColumns, column = lot.column + at % Shape::kColumns;
      if (place < 4 * Shape::kShareQuads && row < p.m && column < p.n)
        f(i, place, row * p.n + column, row, column);
    }
  }

  HEDDLE_DEVICE void finish(const Lot& lot, int thread, const Four<float>* sums, const Mine& my) const {
    each_end(lot, thread, [&](int i, int place, int64_t element, int64_t, int64_t) {
      float all = 0;
      HEDDLE_UNROLL
      for (int rank = 0; rank < kCluster; ++rank)
        all += sums[rank * Shape::kShareQuads + place / 4].v[place % 4];
      global<float>(p.out)[element] = finished(p, all, my.followers[i]);
    });
  }

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    Four<float>* const pool = block.template shared<Four<float>>(Shape::kPoolQuads);
    Four<float>* const sums = block.template shared<Four<float>>(Shape::kTileQuads);
    typename Block::template Own<Mine> mine(block);
    block.arrive(Shape::kTileQuads);  // the sums of all four blocks, its own among them
    const Lot lot = lot_of(block.index());
    block.each_alone([&](int thread) { mine[thread] = Mine(); });
    if (lot.whole) {
      if (lot.columns.along_k) {
        sum<true, true>(block, lot, pool, mine);
      } else {
        sum<true, false>(block, lot, pool, mine);
      }
    } else if (lot.columns.along_k) {
      sum<false, true>(block, lot, pool, mine);
    } else {
      sum<false, false>(block, lot, pool, mine);
    }
    // On their way while sums are sent; earlier there are no registers for them.
    block.each_alone([&](int thread) {
      each_end(lot, thread, [&](int i, int, int64_t element, int64_t row, int64_t column) {
        mine[thread].followers[i] = followers_of<float>(p, Type::kF32, element, row, column);
      });
    });
    block.await();
    block.each_alone([&](int thread) { send(block, lot.rank, thread, pool, sums); });
    block.await_puts();
    block.each_alone([&](int thread) { finish(lot, thread, sums, mine[thread]); });
  }
};

}  // namespace heddle::cuda
