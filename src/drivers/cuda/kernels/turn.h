// turn.h: matrices turned: [matrices, rows, columns] to [matrices, columns, rows].
//
//   What       A block takes one tile after another through shared memory, so that both sides are read and
//              written along their rows.
#pragma once

#include "drivers/cuda/kernels/block.h"
#include "drivers/cuda/kernels/element.h"
#include "drivers/cuda/kernels/walk.h"

namespace heddle::cuda {

struct TurnParams {
  uint64_t from = 0, to = 0;
  int64_t matrices = 0, rows = 0, columns = 0;  // of `from`
};

inline constexpr int kTurnTile = 64, kTurnRow = kTurnTile + 1;  // a row's elements, apart from the next one's

template <class Bits>
struct Turn {
  static constexpr int kThreads = 256;
  TurnParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    Bits* const tile = block.template shared<Bits>(kTurnTile * kTurnRow);
    const int64_t down = (p.rows + kTurnTile - 1) / kTurnTile;
    const int64_t across = (p.columns + kTurnTile - 1) / kTurnTile;
    for (int64_t n = block.index(); n < p.matrices * down * across; n += block.blocks()) {
      const int64_t line = quotient(n, across), matrix = quotient(line, down);
      const int64_t row = (line - matrix * down) * kTurnTile, column = (n - line * across) * kTurnTile;
      const int64_t first = matrix * p.rows * p.columns;
      block.each([&](int thread) {
        for (int i = thread; i < kTurnTile * kTurnTile; i += block.threads()) {
          const int r = i / kTurnTile, c = i % kTurnTile;
          if (row + r < p.rows && column + c < p.columns)
            tile[r * kTurnRow + c] = global<const Bits>(p.from)[first + (row + r) * p.columns + column + c];
        }
      });
      block.each([&](int thread) {
        for (int i = thread; i < kTurnTile * kTurnTile; i += block.threads()) {
          const int r = i % kTurnTile, c = i / kTurnTile;
          if (row + r < p.rows && column + c < p.columns)
            global<Bits>(p.to)[first + (column + c) * p.rows + row + r] = tile[r * kTurnRow + c];
        }
      });
    }
  }
};

}  // namespace heddle::cuda
