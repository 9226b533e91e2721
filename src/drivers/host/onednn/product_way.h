// product_way.h: the ways in which a product of some rows can be cut, and which is taken unmeasured.
//
//   What       A Way cuts the rows into parts and the columns into panels; part times panel is a piece, which
//              one thread computes, a block of rows after the other. ways_alone() are the ways of a caller
//              that no thread helps, one panel after the other; ways_shared() those of a team.
//   Why        oneDNN's own choice of blocks is good on one processor and bad on another, and no rule knows
//              which: unmeasured, a product is cut as little as its threads need.
//   Invariant  Only functions of the shape and the team's width. A product whose bits would depend on its
//              panels (rows_only) is not cut into panels, unless it has one row.
//   Rungs      Row counts at which ways are measured: powers of two. A product takes its rung's decision, the
//              rung being the largest that is not above its rows, in blocks of no more rows than were
//              measured. Below the lowest rung, and where the rung has no decision, it takes the default; so
//              it does from twice the highest rung of a team on, where that decision is not to share.
//   Threads    Any.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace heddle::host {

struct Way {
  int64_t block = 0;   // rows that a primitive computes at once; 0: all of the part's
  int64_t parts = 1;   // of the rows
  int64_t panels = 1;  // of the columns
  friend bool operator==(const Way&, const Way&) = default;
};
std::string to_string(const Way& way);  // "whole", "4 x 2 pieces by 16 rows": parts of rows x panels

struct ProductShape {
  int64_t m, k, n;
  int64_t columns_together = 1;  // of the weight's layout: no panel ends inside them
  bool rows_only = false;
  bool bf16 = false;
};

// The simplest first.
std::vector<Way> ways_alone(const ProductShape& shape);
std::vector<Way> ways_shared(const ProductShape& shape, int width);

// Unmeasured: for `width` threads, in at most `width` pieces. A caller without help computes the whole.
Way default_shared(const ProductShape& shape, int width);

// 0: such a product is not measured.
int64_t rung_alone(int64_t m);
int64_t rung_shared(int64_t m, int width);

// What a Way means for a shape. Parts, panels and blocks are of one size, but for the last ones. The last
// block of a part has up to a quarter more rows than the others: a few rows alone would wait for the weight.
struct Cut {
  int64_t rows;     // of a part
  int64_t columns;  // of a panel
  int64_t block;    // rows of a block
  int64_t blocks_of(int64_t rows_of_part) const {
    return std::max<int64_t>((rows_of_part + block - 1 - block / 4) / block, 1);
  }
  friend bool operator==(const Cut&, const Cut&) = default;
};
Cut cut(const ProductShape& shape, const Way& way);
// The way without its block where that cuts nothing.
Way without_idle_block(const ProductShape& shape, Way way);
// How many pieces that makes; panels that have no columns are none.
int64_t pieces_of(const ProductShape& shape, const Way& way);

}  // namespace heddle::host
