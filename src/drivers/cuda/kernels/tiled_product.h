// tiled_product.h: products of matrices of f32, f16 and bf16; a block computes a tile of the result.
//
//   What       As Product of product.h, with sums in float. Operands may have any strides. Four elements are
//              read at once where they are neighbours and their address is a multiple of their size.
//   Order      k is cut into kParts parts, whose length depends on k alone. A part is added up from its first
//              term to its last. Parts r, r + 4, r + 8 and r + 12 give one of four sums; these give the
//              result. So the bits of a row depend neither on the tile's shape nor on other rows.
//   Shapes     Groups of threads take different parts at the same time: few tiles still fill a GPU.
#pragma once

#include "drivers/cuda/kernels/product.h"
#include "drivers/cuda/kernels/tile.h"

namespace heddle::cuda {

inline constexpr int kParts = 16, kSums = 4;
HEDDLE_DEVICE int64_t part_of(int64_t k) {  // its length
  constexpr int64_t kUnit = 16;
  return (k + kParts * kUnit - 1) / (kParts * kUnit) * kUnit;
}

struct F32 {
  using Bits = float;
  static constexpr Type kType = Type::kF32;
  static HEDDLE_DEVICE float of(Bits bits) { return bits; }
};
struct F16 {
  using Bits = uint16_t;
  static constexpr Type kType = Type::kF16;
  static HEDDLE_DEVICE float of(Bits bits) { return from_f16(bits); }
};
struct BF16 {
  using Bits = uint16_t;
  static constexpr Type kType = Type::kBF16;
  static HEDDLE_DEVICE float of(Bits bits) { return from_bf16(bits); }
};

// A tile of Rows * Down by Columns * Across elements: Down x Across threads in each of Groups, Rows x Columns
// elements a thread. Step elements of each group's part of k are in shared memory at a time.
template <int Rows, int Columns, int Down, int Across, int Groups, int Step>
struct TileShape {
  static constexpr int kOwnRows = Rows, kOwnColumns = Columns, kDown = Down, kAcross = Across;
  static constexpr int kGroups = Groups, kStep = Step;
  static constexpr int kRows = Rows * Down, kColumns = Columns * Across, kThreads = Down * Across * Groups;

  // Of one line of a tile in shared memory, in quads: an odd number spreads its columns over the banks.
  static constexpr int line(int extent) { return extent / 4 | 1; }
  static constexpr int kRowQuads = Groups * Step * line(kRows), kColumnQuads = Groups * Step * line(kColumns);
  static constexpr int kSumQuads = Groups * Down * kColumns;  // four rows of each thread
  static constexpr int kQuads = kRowQuads + kColumnQuads > kSumQuads ? kRowQuads + kColumnQuads : kSumQuads;
  static constexpr int kSharedBytes = kQuads * static_cast<int>(sizeof(Four<float>));
  static_assert(kSharedBytes <= 48 * 1024 && Rows % 4 == 0 && (Columns == 1 || Columns % 4 == 0));
  static_assert((Groups == kSums || Groups == kParts) && Step % 4 == 0);  // else the order is another one
  static_assert(kRows * Step * Groups % (4 * kThreads) == 0 &&
                kColumns * Step * Groups % (4 * kThreads) == 0);
};
using Tile4x8 = TileShape<4, 1, 1, 8, 16, 16>;
using Tile16x16 = TileShape<4, 4, 4, 4, 16, 16>;
using Tile32x32 = TileShape<4, 4, 8, 8, 4, 16>;
using Tile64x64 = TileShape<8, 8, 8, 8, 4, 8>;

// One of the two operands, from the tile's first row or column on.
struct TileSide {
  uint64_t data = 0;
  int64_t outer = 0, inner = 0;  // strides: between rows or columns, and along k
  int64_t count = 0;             // rows or columns that are left
  bool along_k = true;           // four elements of one row or column are read together, else four of one k
  bool aligned = false;          // all of these fours lie at addresses of their own size
  bool whole = false;            // ... none of them across the tile's end, and an int32_t counts to each
};

template <class Element, int Extent>
HEDDLE_DEVICE TileSide side_of(uint64_t data, int64_t first, int64_t outer, int64_t inner, int64_t count,
                               int64_t deepest) {
  constexpr uint64_t kBytes = sizeof(typename Element::Bits);
  TileSide side;
  side.data = data + static_cast<uint64_t>(first) * kBytes;
  side.outer = outer;
  side.inner = inner;
  side.count = count;
  side.along_k = inner == 1 || outer != 1;
  const int64_t unit = side.along_k ? inner : outer, other = side.along_k ? outer : inner;
  const bool lines = other % 4 == 0 || (side.along_k && count == 1);
  side.aligned = unit == 1 && lines && side.data % (4 * kBytes) == 0;
  side.whole = side.aligned && (side.along_k || count >= Extent || count % 4 == 0) &&
               Extent * outer + deepest * inner < INT32_MAX;
  return side;
}

template <class Element>
HEDDLE_DEVICE Four<float> aligned_quad(uint64_t address) {
  const auto four = *global<const Four<typename Element::Bits>>(address);
  Four<float> quad;
  HEDDLE_UNROLL
  for (int i = 0; i < 4; ++i) quad.v[i] = Element::of(four.v[i]);
  return quad;
}

// Four elements from (place, k) on; zeros beyond the rows or columns, and from k_end on.
template <class Element>
HEDDLE_DEVICE Four<float> quad_of(const TileSide& side, int64_t place, int64_t k, int64_t k_end) {
  using Bits = typename Element::Bits;
  const int64_t at = place * side.outer + k * side.inner;
  int64_t left = side.along_k ? k_end - k : side.count - place;
  if (side.along_k ? place >= side.count : k >= k_end) left = 0;
  if (left >= 4 && side.aligned)
    return aligned_quad<Element>(side.data + static_cast<uint64_t>(at) * sizeof(Bits));
  Four<float> quad{};
  if (left > 0) {
    const int64_t step = side.along_k ? side.inner : side.outer;
    HEDDLE_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (i < left) quad.v[i] = Element::of(global<const Bits>(side.data)[at + i * step]);
    }
  }
  return quad;
}

// Where the quad number `number` of a tile of Extent x Step elements for each group belongs.
struct TileSpot {
  int group, place, k;
};
template <int Extent, int Step>
HEDDLE_DEVICE TileSpot spot_of(int number, bool along_k) {
  if (along_k) {
    return {number / (Step / 4 * Extent), number / (Step / 4) % Extent, number % (Step / 4) * 4};
  }
  return {number / (Extent / 4 * Step), number % (Extent / 4) * 4, number / (Extent / 4) % Step};
}

// Lines of one k each, in shared memory.
template <int Step, int Line>
HEDDLE_DEVICE void put_quad(Four<float>* tile, const TileSpot& spot, bool along_k, const Four<float>& quad) {
  Four<float>* const at = tile + (spot.group * Step + spot.k) * Line + spot.place / 4;
  if (!along_k) {
    *at = quad;
    return;
  }
  HEDDLE_UNROLL
  for (int i = 0; i < 4; ++i) at[i * Line].v[spot.place % 4] = quad.v[i];
}

template <class Element, class Shape>
struct TiledProduct {
  static constexpr int kThreads = Shape::kThreads;
  static constexpr int kRowLine = Shape::line(Shape::kRows), kColumnLine = Shape::line(Shape::kColumns);
  static constexpr int kRowLoads = Shape::kRowQuads / kRowLine * (Shape::kRows / 4) / kThreads;
  static constexpr int kColumnLoads = Shape::kColumnQuads / kColumnLine * (Shape::kColumns / 4) / kThreads;
  static constexpr int kOwnRows = Shape::kOwnRows, kOwnColumns = Shape::kOwnColumns;

  ProductParams p;

  // What a thread has in registers.
  struct Mine {
    float part[kOwnRows][kOwnColumns] = {}, sum[kOwnRows][kOwnColumns] = {};
    Four<float> row[kRowLoads], column[kColumnLoads];  // of the next step
    // Elements from the side's beginning to each at step 0; kBeyond: it is beyond the last row or column.
    int32_t row_from[kRowLoads], column_from[kColumnLoads];
  };
  static constexpr int32_t kBeyond = -1;

  struct Lot {  // what the block computes
    TileSide rows, columns;
    int64_t batch, row, column;
    int64_t part;      // length of a part of k
    int steps, turns;  // in a part; parts that a group takes
    bool whole;        // no step of any group goes beyond its part or k, and both sides are whole
  };

  HEDDLE_DEVICE Lot lot_of(int64_t index, int64_t tall, int64_t wide) const {
    Lot lot;
    lot.batch = index / tall / wide;
    lot.row = index % tall * Shape::kRows;
    lot.column = index / tall % wide * Shape::kColumns;
    int64_t x = lot.row * p.x_row, y = lot.column * p.y_column;
    places_of(p.batch, lot.batch, [&](int axis, int64_t place) {
      x += place * p.x_batch[axis];
      y += place * p.y_batch[axis];
    });
    lot.part = part_of(p.k);
    const int64_t deepest = Shape::kGroups * lot.part;
    lot.rows = side_of<Element, Shape::kRows>(p.x, x, p.x_row, p.x_column, p.m - lot.row, deepest);
    lot.columns = side_of<Element, Shape::kColumns>(p.y, y, p.y_column, p.y_row, p.n - lot.column, deepest);
    lot.steps = static_cast<int>((lot.part + Shape::kStep - 1) / Shape::kStep);
    const int64_t turn = lot.part * Shape::kGroups;
    lot.turns = turn == 0 ? 0 : static_cast<int>((p.k + turn - 1) / turn);
    lot.whole = lot.rows.whole && lot.columns.whole && lot.part % Shape::kStep == 0 && turn > 0 &&
                lot.turns * turn == p.k;
    return lot;
  }

  HEDDLE_DEVICE static TileSpot row_spot(const Lot& lot, int thread, int i) {
    return spot_of<Shape::kRows, Shape::kStep>(i * kThreads + thread, lot.rows.along_k);
  }
  HEDDLE_DEVICE static TileSpot column_spot(const Lot& lot, int thread, int i) {
    return spot_of<Shape::kColumns, Shape::kStep>(i * kThreads + thread, lot.columns.along_k);
  }

  HEDDLE_DEVICE static void begin(const Lot& lot, int thread, Mine& my) {
    const auto from = [&](const TileSide& side, const TileSpot& spot) {
      if (spot.place >= side.count) return kBeyond;
      return static_cast<int32_t>(spot.place * side.outer + (spot.group * lot.part + spot.k) * side.inner);
    };
    HEDDLE_UNROLL
    for (int i = 0; i < kRowLoads; ++i) my.row_from[i] = from(lot.rows, row_spot(lot, thread, i));
    HEDDLE_UNROLL
    for (int i = 0; i < kColumnLoads; ++i) my.column_from[i] = from(lot.columns, column_spot(lot, thread, i));
  }

  // Of a whole lot a load is one addition and one comparison; else each finds its own limits.
  template <bool kWhole>
  HEDDLE_DEVICE void fetch(const Lot& lot, int thread, int turn, int step, Mine& my) const {
    const int64_t first = turn * Shape::kGroups * lot.part + step * Shape::kStep;
    const auto load = [&](const TileSide& side, int32_t from, const TileSpot& spot) {
      if constexpr (kWhole) {
        if (from == kBeyond) return Four<float>{};
        const auto at = static_cast<uint64_t>(from + first * side.inner);
        return aligned_quad<Element>(side.data + at * sizeof(typename Element::Bits));
      } else {
        const int64_t begin = (turn * Shape::kGroups + spot.group) * lot.part, end = begin + lot.part;
        return quad_of<Element>(side, spot.place, begin + step * Shape::kStep + spot.k,
                                end < p.k ? end : p.k);
      }
    };
    HEDDLE_UNROLL
    for (int i = 0; i < kRowLoads; ++i) my.row[i] = load(lot.rows, my.row_from[i], row_spot(lot, thread, i));
    HEDDLE_UNROLL
    for (int i = 0; i < kColumnLoads; ++i)
      my.column[i] = load(lot.columns, my.column_from[i], column_spot(lot, thread, i));
  }

  HEDDLE_DEVICE static void put(const Lot& lot, int thread, Four<float>* pool, const Mine& my) {
    HEDDLE_UNROLL
    for (int i = 0; i < kRowLoads; ++i) {
      put_quad<Shape::kStep, kRowLine>(pool, row_spot(lot, thread, i), lot.rows.along_k, my.row[i]);
    }
    HEDDLE_UNROLL
    for (int i = 0; i < kColumnLoads; ++i) {
      put_quad<Shape::kStep, kColumnLine>(pool + Shape::kRowQuads, column_spot(lot, thread, i),
                                          lot.columns.along_k, my.column[i]);
    }
  }

  // The thread's rows are quads `down`, `down` + Down and so on of the tile's; its columns likewise.
  HEDDLE_DEVICE static void multiply(int thread, const Four<float>* pool, Mine& my) {
    const int group = thread / (Shape::kDown * Shape::kAcross);
    const int down = thread / Shape::kAcross % Shape::kDown, across = thread % Shape::kAcross;
    const Four<float>* row = pool + group * Shape::kStep * kRowLine;
    const Four<float>* column = pool + Shape::kRowQuads + group * Shape::kStep * kColumnLine;
    HEDDLE_UNROLL
    for (int k = 0; k < Shape::kStep; ++k) {
      float x[kOwnRows], y[kOwnColumns];
      HEDDLE_UNROLL
      for (int q = 0; q < kOwnRows / 4; ++q) {
        const Four<float> quad = row[k * kRowLine + q * Shape::kDown + down];
        HEDDLE_UNROLL
        for (int i = 0; i < 4; ++i) x[4 * q + i] = quad.v[i];
      }
      if constexpr (kOwnColumns == 1) {
        y[0] = column[k * kColumnLine + across / 4].v[across % 4];
      } else {
        HEDDLE_UNROLL
        for (int q = 0; q < kOwnColumns / 4; ++q) {
          const Four<float> quad = column[k * kColumnLine + q * Shape::kAcross + across];
          HEDDLE_UNROLL
          for (int i = 0; i < 4; ++i) y[4 * q + i] = quad.v[i];
        }
      }
      HEDDLE_UNROLL
      for (int i = 0; i < kOwnRows; ++i) {
        HEDDLE_UNROLL
        for (int j = 0; j < kOwnColumns; ++j) my.part[i][j] = std::fma(x[i], y[j], my.part[i][j]);
      }
    }
  }

  HEDDLE_DEVICE static void end_part(Mine& my) {
    HEDDLE_UNROLL
    for (int i = 0; i < kOwnRows; ++i) {
      HEDDLE_UNROLL
      for (int j = 0; j < kOwnColumns; ++j) {
        my.sum[i][j] += my.part[i][j];
        my.part[i][j] = 0;
      }
    }
  }

  // Four rows of each thread, from `first` on, to where all groups' lie: [group][4 * down + i][column].
  HEDDLE_DEVICE static void put_sums(int thread, int first, Four<float>* pool, const Mine& my) {
    const int group = thread / (Shape::kDown * Shape::kAcross);
    const int down = thread / Shape::kAcross % Shape::kDown, across = thread % Shape::kAcross;
    HEDDLE_UNROLL
    for (int i = 0; i < kOwnRows; ++i) {
      if (i < first || i >= first + 4) continue;
      Four<float>* const line =
          pool + (group * 4 * Shape::kDown + 4 * down + i - first) * (Shape::kColumns / 4);
      if constexpr (kOwnColumns == 1) {
        line[across / 4].v[across % 4] = my.sum[i][0];
      } else {
        HEDDLE_UNROLL
        for (int q = 0; q < kOwnColumns / 4; ++q) {
          line[q * Shape::kAcross + across] = {my.sum[i][4 * q], my.sum[i][4 * q + 1], my.sum[i][4 * q + 2],
                                               my.sum[i][4 * q + 3]};
        }
      }
    }
  }

  HEDDLE_DEVICE void finish(const Lot& lot, int thread, int first, const Four<float>* pool) const {
    constexpr int kRegion = 4 * Shape::kDown * Shape::kColumns;
    for (int e = thread; e < kRegion; e += kThreads) {
      const int64_t i = lot.row + first * Shape::kDown + e / Shape::kColumns;
      const int64_t j = lot.column + e % Shape::kColumns;
      if (i >= p.m || j >= p.n) continue;
      float all = 0;
      HEDDLE_UNROLL
      for (int r = 0; r < kSums; ++r) {
        float sum = 0;
        HEDDLE_UNROLL
        for (int group = r; group < Shape::kGroups; group += kSums) {
          const int at = group * kRegion + e;
          sum += pool[at / 4].v[at % 4];
        }
        all += sum;
      }
      const int64_t element = (lot.batch * p.m + i) * p.n + j;
      store<float>(p.out, Element::kType, element, finished<float>(p, Element::kType, all, element, i, j));
    }
  }

  template <class Block>
  using Own = typename Block::template Own<Mine>;

  template <bool kWhole, class Block>
  HEDDLE_DEVICE void sum(Block& block, const Lot& lot, Four<float>* pool, Own<Block>& mine) const {
    block.each([&](int thread) {
      if constexpr (kWhole) begin(lot, thread, mine[thread]);
      fetch<kWhole>(lot, thread, 0, 0, mine[thread]);
    });
    for (int turn = 0, step = 0; turn < lot.turns;) {
      const bool last = step + 1 == lot.steps;
      const int next = last ? 0 : step + 1, next_turn = last ? turn + 1 : turn;
      block.each([&](int thread) { put(lot, thread, pool, mine[thread]); });
      block.each([&](int thread) {
        if (next_turn < lot.turns) fetch<kWhole>(lot, thread, next_turn, next, mine[thread]);
        multiply(thread, pool, mine[thread]);
        if (last) end_part(mine[thread]);
      });
      turn = next_turn;
      step = next;
    }
  }

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    Four<float>* const pool = block.template shared<Four<float>>(Shape::kQuads);
    Own<Block> mine(block);
    const int64_t tall = (p.m + Shape::kRows - 1) / Shape::kRows;
    const int64_t wide = (p.n + Shape::kColumns - 1) / Shape::kColumns;
    for (int64_t index = block.index(); index < p.batches * tall * wide; index += block.blocks()) {
      const Lot lot = lot_of(index, tall, wide);
      block.each([&](int thread) { mine[thread] = Mine(); });
      if (lot.whole) {
        sum<true>(block, lot, pool, mine);
      } else if (lot.turns > 0) {
        sum<false>(block, lot, pool, mine);
      }
      HEDDLE_UNROLL
      for (int first = 0; first < kOwnRows; first += 4) {
        block.each([&](int thread) { put_sums(thread, first, pool, mine[thread]); });
        block.each([&](int thread) { finish(lot, thread, first, pool); });
      }
    }
  }
};

}  // namespace heddle::cuda
