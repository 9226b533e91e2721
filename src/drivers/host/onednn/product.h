// product.h: y = activation(x @ w + bias) + residual over a LinearWeight, cut in one way.
//
//   What       Product::make() prepares the primitives of a Way; run_piece() computes one piece, from memory
//              and scratch that the caller names. Where the engine has RowBits, blocks are of the counts of
//              rows of a RowPlan, the largest that is left first, and K may be summed in parts.
//   Invariant  Every element of y belongs to one piece. All pieces together give the bits of the whole, where
//              linear.h says so.
//   Threads    Any number at once, each with scratch of its own.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "drivers/host/onednn/linear_weight.h"
#include "drivers/host/onednn/primitive.h"
#include "drivers/host/onednn/product_way.h"
#include "drivers/host/onednn/row_bits.h"
#include "ir/ops/activation.h"

namespace heddle::host {

struct ProductProblem {
  int64_t m = 0, k = 0, n = 0;
  bool bias = false, residual = false;
  bool narrow_x = false, narrow_y = false, narrow_residual = false;  // bf16 in memory
  ir::Activation activation = {};
};

struct ProductMemory {
  const std::byte* x;
  const std::byte* w;  // of a weight that is not packed
  const float* bias;
  const std::byte* residual;
  std::byte* y;
};

class Product {
 public:
  static Result<Ref<const Product>> make(const Engine& engine, const ProductProblem& problem,
                                         Ref<const LinearWeight> weight, const Way& way);
  // Whole, by a plan that is only tried. It need not have one row if its rows divide those of the problem.
  static Result<Ref<const Product>> make(const Engine& engine, const ProductProblem& problem,
                                         Ref<const LinearWeight> weight, const RowPlan& plan);

  const Way& way() const { return way_; }
  size_t pieces() const { return pieces_.size(); }
  bool fast() const { return fast_; }  // oneDNN's kernels compute all of it, not its reference
  std::vector<Ref<const Primitive>> primitives() const;
  uint64_t scratch_bytes() const { return scratch_bytes_; }  // of one piece
  Status run_piece(const ProductMemory& memory, size_t piece, std::byte* scratch) const;

 private:
  struct Size {
    int64_t rows, columns;
    friend bool operator==(const Size&, const Size&) = default;
  };
  struct Kind {  // of block: there are few, however many rows
    Size size;
    std::vector<Ref<const Primitive>> primitives;  // for each part of K
  };
  struct Piece {
    int64_t row, column;
    Size size;
    std::vector<int64_t> blocks;  // rows of each
  };
  struct Block {
    int64_t row, column;
    const Kind* kind;
  };

  Product(const ProductProblem& problem, Ref<const LinearWeight> weight, const Way& way, const Cut& cut,
          RowPlan plan)
      : p_(problem), weight_(std::move(weight)), way_(way), cut_(cut), plan_(std::move(plan)) {}
  static Result<Ref<const Product>> make(const Engine& engine, std::shared_ptr<Product> product);
  std::vector<int64_t> blocks_of(int64_t rows) const;  // of a piece
  Status add_kind(const Engine& engine, Size size);
  const Kind& kind_of(Size size) const;
  uint64_t partial_bytes(Size size) const;  // of the sums over a part of K
  Status run_depths(const Kind& kind, std::span<const void*> addresses, std::byte* scratch) const;
  // oneDNN's fast kernels want rows that lie side by side: a part of several rows is computed apart.
  bool is_apart(Size size) const { return size.rows > 1 && size.columns < p_.n; }
  uint64_t apart_bytes(Size size, int64_t element) const;
  uint64_t narrow_bytes(Size size) const;  // of the block's rows of x in bf16
  Status run_block(const ProductMemory& memory, const Block& block, std::byte* scratch) const;

  ProductProblem p_;
  Ref<const LinearWeight> weight_;
  Way way_;
  Cut cut_;
  RowPlan plan_;  // no rows: a block has as many as the way says
  std::vector<Piece> pieces_;
  std::vector<Kind> kinds_;
  bool fast_ = true;
  uint64_t scratch_bytes_ = 0;
};

ProductShape shape_of(const Engine& engine, const ProductProblem& problem, const LinearWeight& weight);

}  // namespace heddle::host
