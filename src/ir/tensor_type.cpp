#include "ir/tensor_type.h"

#include <algorithm>
#include <cassert>

namespace heddle::ir {

Extents::Extents(std::span<const int64_t> dims) : rank_(static_cast<uint8_t>(dims.size())) {
  assert(dims.size() <= kMaxRank);
  std::copy(dims.begin(), dims.end(), dims_.begin());
}

void Extents::push_back(int64_t dim) {
  assert(rank_ < kMaxRank);
  dims_[rank_++] = dim;
}

int64_t Extents::elements() const {
  int64_t product = 1;
  for (int64_t dim : *this) product *= dim;
  return product;
}

bool operator==(const Extents& a, const Extents& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

std::string to_string(const Extents& e) { return to_string(to_shape(e)); }

bool TensorType::is_static() const {
  return std::all_of(shape.begin(), shape.end(), [](const Dim& d) { return d.is_static(); });
}

std::optional<Extents> TensorType::extents() const {
  if (!is_static() || shape.size() > kMaxRank) return std::nullopt;
  Extents extents;
  for (const Dim& dim : shape) extents.push_back(dim.value());
  return extents;
}

std::string to_string(const Shape& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) out += ", ";
    out += to_string(shape[i]);
  }
  return out + "]";
}

std::string to_string(const TensorType& type) { return text(type.dtype, to_string(type.shape)); }

Shape to_shape(const Extents& extents) { return Shape(extents.begin(), extents.end()); }

Result<int64_t> checked_elements(std::span<const int64_t> dims, DType dtype) {
  int64_t bytes = size_of(dtype);
  bool empty = false;
  for (size_t axis = 0; axis < dims.size(); ++axis) {
    if (dims[axis] < 0) {
      return Status::invalid("dimension ", axis, " of ", to_string(Shape(dims.begin(), dims.end())),
                             " is negative; extents are 0 or more");
    }
    empty = empty || dims[axis] == 0;
    // An empty tensor is checked too, as if 0 were 1: its strides are computed all the same.
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(dims[axis], 1), &bytes) || bytes > kMaxBytes) {
      return Status::invalid(name(dtype), to_string(Shape(dims.begin(), dims.end())),
                             " is too large; a tensor has at most ", kMaxBytes, " bytes");
    }
  }
  return empty ? 0 : bytes / size_of(dtype);
}

Result<Shape> broadcast(const Shape& a, const Shape& b) {
  const Shape& longer = a.size() >= b.size() ? a : b;
  const Shape& shorter = a.size() >= b.size() ? b : a;
  Shape out = longer;
  const size_t lead = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    const Dim& x = longer[lead + i];
    const Dim& y = shorter[i];
    if (x == y || y.is(1)) continue;
    if (x.is(1)) {
      out[lead + i] = y;
    } else if (!Dim::may_equal(x, y)) {
      return Status::invalid("shapes ", to_string(a), " and ", to_string(b), " do not broadcast: ", x,
                             " against ", y, "; right-aligned extents are equal, or one of them is 1");
    } else {
      const bool named_apart = !x.is_static() && !y.is_static() && !x.derived() && !y.derived();
      out[lead + i] = named_apart ? Dim::max(x, y) : Dim::clearer(x, y);
    }
  }
  return out;
}

Result<size_t> normalize_axis(int64_t axis, size_t rank) {
  const int64_t n = static_cast<int64_t>(rank);
  if (axis < -n || axis >= n) {
    if (rank == 0) return Status::invalid("axis ", axis, " is given for a scalar, which has no axes");
    return Status::invalid("axis ", axis, " is outside [", -n, ", ", n - 1, "]");
  }
  return static_cast<size_t>(axis < 0 ? axis + n : axis);
}

}  // namespace heddle::ir
