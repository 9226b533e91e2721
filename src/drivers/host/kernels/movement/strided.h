// strided.h: a view of an operand in the order in which an output is written.
//
//   What       Extents and strides, in elements, after axes that lie together were merged. Broadcasting is
//              stride 0; slices, transposes and reversals are strides as well. copy() writes a range of the
//              view's elements to contiguous memory.
//   Invariant  Linear and scalar views say so: they need no copy.
//   Threads    A value; copy() is a pure function over the caller's memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ir/tensor_type.h"

namespace heddle::host {

struct Strided {
  static constexpr size_t kMaxAxes = 2 * ir::kMaxRank;  // Tile has two for each of its operand's
  enum class Form : uint8_t { kLinear, kScalar, kOther };
  Form form = Form::kScalar;
  size_t rank = 0;
  int64_t start = 0;  // of the first element, from the operand's base
  std::array<int64_t, kMaxAxes> extents{};
  std::array<int64_t, kMaxAxes> strides{};

  static Strided make(std::span<const int64_t> extents, std::span<const int64_t> strides, int64_t start = 0);
  // An operand broadcast to `out` by NumPy's rule.
  static Strided broadcast(const ir::Extents& operand, const ir::Extents& out);

  int64_t offset_of(int64_t index) const;  // of the view's element `index`, row-major
  // Elements from `index` on that lie together; 1 when the innermost stride is not 1.
  int64_t run_at(int64_t index) const;
  // Elements [begin, begin + count) to `to`, each of `size` bytes (1, 2, 4 or 8).
  void copy(const std::byte* base, int64_t begin, int64_t count, int64_t size, std::byte* to) const;
};

std::array<int64_t, ir::kMaxRank> row_major(const ir::Extents& extents);
void fill(std::byte* to, const std::byte* element, int64_t count, int64_t size);

}  // namespace heddle::host
