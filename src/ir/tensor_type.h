// tensor_type.h: dtype and shape of a tensor, symbolic or concrete.
//
//   What       Shape is for compilation (a Dim may be symbolic). Extents is for running (numbers only, no
//              heap).
//   Invariant  Rank at most kMaxRank.
//   Threads    Values; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "ir/dim.h"
#include "ir/dtype.h"

namespace heddle::ir {

inline constexpr size_t kMaxRank = 8;
inline constexpr int64_t kMaxBytes = int64_t{1} << 46;  // a larger tensor is a mistake

using Shape = std::vector<Dim>;

class Extents {
 public:
  Extents() = default;
  Extents(std::initializer_list<int64_t> dims)
      : Extents(std::span<const int64_t>(dims.begin(), dims.size())) {}
  explicit Extents(std::span<const int64_t> dims);  // at most kMaxRank, asserted: callers validate first

  size_t rank() const { return rank_; }
  int64_t operator[](size_t axis) const { return dims_[axis]; }
  int64_t& operator[](size_t axis) { return dims_[axis]; }
  const int64_t* begin() const { return dims_.data(); }
  const int64_t* end() const { return dims_.data() + rank_; }
  std::span<const int64_t> span() const { return {dims_.data(), rank_}; }
  void push_back(int64_t dim);
  int64_t elements() const;  // product, 1 for rank 0; only for extents that passed checked_elements()
  friend bool operator==(const Extents& a, const Extents& b);
  friend std::string to_string(const Extents& e);  // "[2, 3]"

 private:
  std::array<int64_t, kMaxRank> dims_{};
  uint8_t rank_ = 0;
};

struct TensorType {
  DType dtype = DType::kF32;
  Shape shape;

  bool is_static() const;
  std::optional<Extents> extents() const;  // when static
  size_t rank() const { return shape.size(); }
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

std::string to_string(const Shape& shape);      // "[batch, 3, 224, 224]"
std::string to_string(const TensorType& type);  // "f32[batch, 3, 224, 224]"
Shape to_shape(const Extents& extents);

// Elements of a shape; invalid when a dimension is negative or the product, in bytes, passes kMaxBytes.
Result<int64_t> checked_elements(std::span<const int64_t> dims, DType dtype);
// NumPy's rule: align right, 1 stretches; a symbolic Dim equals itself, and wins over 1. A symbolic Dim
// against a static one above 1 takes the static one: at run time anything else is refused. So are symbols
// that turn out unequal, which is why two different names give max(a, b) here, and a plain name wins over a
// derived one. Extents that can never be equal are invalid, naming both shapes.
Result<Shape> broadcast(const Shape& a, const Shape& b);
Result<size_t> normalize_axis(int64_t axis, size_t rank);  // -rank <= axis < rank
// A Slice's step, no longer than its axis: a longer one reads no second element either, and its product with
// a stride might not fit.
inline int64_t step_within(int64_t step, int64_t extent) {
  const int64_t most = extent > 1 ? extent : 1;
  return step > most ? most : step < -most ? -most : step;
}

}  // namespace heddle::ir
