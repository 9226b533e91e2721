// walk.h: row-major visits of all elements, for the references.
//
//   What       walk() calls back with each multi-index; Strides turn a multi-index into the place of an
//              element.
//   Threads    Pure; any thread.
#pragma once

#include <array>
#include <cstring>
#include <vector>

#include "base/status.h"
#include "ir/tensor.h"

namespace heddle::ir {

using Index = std::array<int64_t, kMaxRank>;

// f(index, flat): flat counts from 0.
template <class F>
void walk(const Extents& extents, F f) {
  Index index{};
  const int64_t count = extents.elements();
  for (int64_t flat = 0; flat < count; ++flat) {
    f(static_cast<const Index&>(index), flat);
    for (size_t axis = extents.rank(); axis-- > 0;) {
      if (++index[axis] < extents[axis]) break;
      index[axis] = 0;
    }
  }
}

class Strides {
 public:
  explicit Strides(const Extents& extents) : Strides(extents, extents.rank()) {}
  // For indices of a tensor of rank `rank` over which `extents` is broadcast.
  Strides(const Extents& extents, size_t rank) {
    const size_t lead = rank - extents.rank();
    int64_t step = 1;
    for (size_t axis = extents.rank(); axis-- > 0;) {
      steps_[lead + axis] = extents[axis] == 1 ? 0 : step;
      step *= extents[axis];
    }
  }
  int64_t operator[](size_t axis) const { return steps_[axis]; }
  int64_t at(const Index& index) const {
    int64_t offset = 0;
    for (size_t axis = 0; axis < kMaxRank; ++axis) offset += steps_[axis] * index[axis];
    return offset;
  }

 private:
  std::array<int64_t, kMaxRank> steps_{};
};

// Of an index that counts from the end when it is negative.
inline Result<int64_t> place_of(int64_t index, int64_t extent) {
  const int64_t at = index < 0 ? index + extent : index;
  if (at >= 0 && at < extent) return at;
  return Status::invalid("index ", index, " is outside [", -extent, ", ", extent - 1, "]");
}

inline void copy_element(Tensor& to, int64_t to_index, const Tensor& from, int64_t from_index) {
  const int64_t size = size_of(from.dtype());
  std::memcpy(static_cast<char*>(to.mutable_data()) + to_index * size,
              static_cast<const char*>(from.data()) + from_index * size, static_cast<size_t>(size));
}

inline std::vector<double> doubles(const Tensor& t) {
  std::vector<double> values(static_cast<size_t>(t.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = t.get(static_cast<int64_t>(i));
  return values;
}

// Everything left of `axis`, the axis itself, everything right of it: element (o, a, i) lies at
// (o * extent + a) * inner + i.
struct Lanes {
  int64_t outer = 1;
  int64_t extent = 1;
  int64_t inner = 1;
  Lanes(const Extents& e, size_t axis) : extent(e[axis]) {
    for (size_t i = 0; i < axis; ++i) outer *= e[i];
    for (size_t i = axis + 1; i < e.rank(); ++i) inner *= e[i];
  }
  int64_t at(int64_t o, int64_t a, int64_t i) const { return (o * extent + a) * inner + i; }
};

// Wrapping arithmetic of 64-bit integers, without undefined behaviour.
inline int64_t wrap_add(int64_t a, int64_t b) { return static_cast<int64_t>(uint64_t(a) + uint64_t(b)); }
inline int64_t wrap_sub(int64_t a, int64_t b) { return static_cast<int64_t>(uint64_t(a) - uint64_t(b)); }
inline int64_t wrap_mul(int64_t a, int64_t b) { return static_cast<int64_t>(uint64_t(a) * uint64_t(b)); }

}  // namespace heddle::ir
