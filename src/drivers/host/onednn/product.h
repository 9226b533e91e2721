// product.h: y = activation(x @ w + bias) + residual over a LinearWeight, cut in one way.
//
//   What       Product::make() prepares the primitives of a Way; run_piece() computes one piece, from memory
//              and scratch that the caller names.
//   Invariant  Every element of y belongs to one piece. All pieces together give the bits of the whole, where
//              linear.h says so.
//   Threads    Any number at once, each with scratch of its own.
#pragma once

#include <cstddef>
#include <vector>

#include "drivers/host/onednn/linear_weight.h"
#include "drivers/host/onednn/primitive.h"
#include "drivers/host/onednn/product_way.h"
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
    Ref<const Primitive> primitive;
  };
  struct Piece {
    int64_t row, column;
    Size size;
  };
  struct Block {
    int64_t row, column;
    const Kind* kind;
  };

  Status add_kind(const Engine& engine, Size size);
  const Kind& kind_of(Size size) const;
  // oneDNN's fast kernels want rows that lie side by side: a part of several rows is computed apart.
  bool is_apart(Size size) const { return size.rows > 1 && size.columns < p_.n; }
  uint64_t apart_bytes(Size size, int64_t element) const;
  uint64_t narrow_bytes(Size size) const;  // of the block's rows of x in bf16
  Status run_block(const ProductMemory& memory, const Block& block, std::byte* scratch) const;

  ProductProblem p_;
  Ref<const LinearWeight> weight_;
  Way way_;
  Cut cut_{};
  std::vector<Piece> pieces_;
  std::vector<Kind> kinds_;
  bool fast_ = true;
  uint64_t scratch_bytes_ = 0;
};

ProductShape shape_of(const Engine& engine, const ProductProblem& problem, const LinearWeight& weight);

}  // namespace heddle::host
