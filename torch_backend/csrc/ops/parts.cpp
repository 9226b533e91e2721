// parts.cpp: the steps of parts.h that belong to no operator.
#include "parts.h"

#include <algorithm>
#include <numeric>

namespace heddle::torch_backend {

Int plus(Call& call, const Int& a, const Int& b) {
  if (a.known && b.known) return *a.known + *b.known;
  return Int(call.node("Add", {call.rank0(a), call.rank0(b)}));
}

Int times(Call& call, const Int& a, const Int& b) {
  if (a.known && b.known) return *a.known * *b.known;
  if (a.known == 1) return b;
  if (b.known == 1) return a;
  return Int(call.node("Mul", {call.rank0(a), call.rank0(b)}));
}

std::vector<Int> sizes_of(Call& call, Value value) {
  std::vector<Int> sizes;
  for (int axis = 0; axis < call.rank(value); ++axis) sizes.push_back(call.size_of(value, axis));
  return sizes;
}

Value widened(Call& call, int argument) {
  const Value value = call.tensor(argument);
  return present(value) ? call.cast(value, wide(call.dtype(value))) : value;
}

int axis_in(int64_t axis, int rank) { return from_front(static_cast<int>(axis), std::max(rank, 1)); }

std::vector<int64_t> per_axis(const Call& call, int argument, size_t axes,
                              const std::vector<int64_t>& otherwise) {
  std::vector<int64_t> numbers = call.integers(argument);
  if (numbers.empty()) numbers = otherwise;
  if (numbers.size() == 1) numbers.assign(axes, numbers[0]);
  if (numbers.size() != axes)
    call.unsupported("its lists of numbers have to be as long as the image has axes");
  return numbers;
}

std::vector<int64_t> order_with_last(int rank, int axis) {
  std::vector<int64_t> order;
  for (int i = 0; i < rank; ++i) {
    if (i != axis) order.push_back(i);
  }
  order.push_back(axis);
  return order;
}

Value identity(Call& call, Value value) { return call.node("Identity", {value}); }

Value reduce(Call& call, std::string_view op, Value value, const std::vector<int64_t>& axes, bool keep) {
  return call.node(op, {value, call.vector(axes)},
                   {{"keepdims", int64_t{keep}}, {"noop_with_empty_axes", int64_t{1}}});
}

Value constant_i64(Call& call, const Shape& shape, const std::vector<int64_t>& values) {
  return call.constant(Tensor::of<int64_t>(shape, values));
}

Value regroup(Call& call, Value value, const std::vector<int64_t>& extents) {
  return call.node("Reshape", {value, call.vector(extents)});
}

}  // namespace heddle::torch_backend
