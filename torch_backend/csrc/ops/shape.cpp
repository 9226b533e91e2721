// shape.cpp: views: other shapes, orders and parts of the same elements. Eager views are PyTorch's own; these
// entries are for traced graphs and for the _copy forms.
#include <algorithm>
#include <limits>

#include "../table.h"
#include "parts.h"

namespace heddle::torch_backend {
namespace {

// To the result's shape where that is known: -1 says nothing beside an extent of 0.
Results reshaped(Call& call, const std::vector<Int>& sizes) {
  std::vector<Int> known;
  for (const std::optional<int64_t>& extent : call.result_shape()) {
    if (extent) known.push_back(*extent);
  }
  const bool all = known.size() == call.result_shape().size();
  return call.reshape(call.tensor(0), all ? known : sizes);
}

Results view(Call& call) { return reshaped(call, call.ints(1)); }
Results view_as(Call& call) { return reshaped(call, sizes_of(call, call.tensor(1))); }

Results flatten(Call& call) {
  const Value x = call.tensor(0);
  const int rank = call.rank(x);
  const int first = axis_in(call.integer(1), rank), last = axis_in(call.integer(2), rank);
  if (rank == 0) return reshaped(call, {1});
  const std::vector<Int> sizes = sizes_of(call, x);
  std::vector<Int> joined(sizes.begin(), sizes.begin() + first);
  joined.push_back(sizes[static_cast<size_t>(first)]);
  for (int axis = first + 1; axis <= last; ++axis)
    joined.back() = times(call, joined.back(), sizes[static_cast<size_t>(axis)]);
  joined.insert(joined.end(), sizes.begin() + last + 1, sizes.end());
  return reshaped(call, joined);
}

Results unflatten(Call& call) {
  const Value x = call.tensor(0);
  std::vector<Int> sizes = sizes_of(call, x);
  const int axis = axis_in(call.integer(1), call.rank(x));
  const std::vector<Int> parts = call.ints(2);
  const auto at = sizes.erase(sizes.begin() + axis);
  sizes.insert(at, parts.begin(), parts.end());
  return reshaped(call, sizes);
}

// -1 keeps an extent, as broadcasting against 1 does.
Results expand(Call& call) {
  std::vector<Int> sizes = call.ints(1);
  for (Int& size : sizes) {
    if (size.known == -1) size = 1;
  }
  return call.expand(call.tensor(0), sizes);
}
Results expand_as(Call& call) { return call.expand(call.tensor(0), sizes_of(call, call.tensor(1))); }

Results copy(Call& call) {  // self, src: what self becomes
  return call.expand(call.cast(call.tensor(1), call.result_dtype()), sizes_of(call, call.tensor(0)));
}

Results permute(Call& call) {
  std::vector<int64_t> order = call.integers(1);
  const int rank = call.rank(call.tensor(0));
  for (int64_t& axis : order) axis = axis_in(axis, rank);
  return call.transpose(call.tensor(0), order);
}

Results transpose(Call& call) {
  const Value x = call.tensor(0);
  const int rank = call.rank(x);
  if (rank == 0) return identity(call, x);
  return call.swap_axes(x, axis_in(call.integer(1), rank), axis_in(call.integer(2), rank));
}

Results matrix_transpose(Call& call) {
  const Value x = call.tensor(0);
  return call.rank(x) < 2 ? identity(call, x) : call.swap_axes(x, 0, 1);
}

Results movedim(Call& call) {
  const Value x = call.tensor(0);
  const int rank = call.rank(x);
  std::vector<int64_t> from = call.integers(1), to = call.integers(2);
  std::vector<int64_t> order(static_cast<size_t>(rank), -1);
  for (size_t i = 0; i < from.size(); ++i) {
    from[i] = axis_in(from[i], rank);
    if (rank > 0) order[static_cast<size_t>(axis_in(to[i], rank))] = from[i];
  }
  int64_t next = 0;
  for (int64_t& axis : order) {
    if (axis >= 0) continue;
    while (std::ranges::count(from, next) != 0) ++next;
    axis = next++;
  }
  return call.transpose(x, order);
}

Results unsqueeze(Call& call) {
  const Value x = call.tensor(0);
  return call.unsqueeze(x, {axis_in(call.integer(1), call.rank(x) + 1)});
}

// Of the axes named, those of extent 1. What is not known before the call is taken for larger, as PyTorch's
// tracer does.
Value squeezed(Call& call, const std::vector<int64_t>& axes) {
  const Value x = call.tensor(0);
  const Extents shape = call.shape(x);
  std::vector<int64_t> ones;
  for (int axis = 0; axis < call.rank(x); ++axis) {
    const bool named = std::ranges::any_of(axes, [&](int64_t a) { return axis_in(a, call.rank(x)) == axis; });
    if (named && shape[static_cast<size_t>(axis)] == 1) ones.push_back(axis);
  }
  return ones.empty() ? identity(call, x) : call.squeeze(x, ones);
}

Results squeeze_all(Call& call) {
  std::vector<int64_t> axes;
  for (int axis = 0; axis < call.rank(call.tensor(0)); ++axis) axes.push_back(axis);
  return squeezed(call, axes);
}
Results squeeze(Call& call) { return squeezed(call, call.integers(1)); }

Results select(Call& call) {
  const Value x = call.tensor(0);
  return call.node("Gather", {x, call.rank0(call.size(2))},
                   {{"axis", int64_t{axis_in(call.integer(1), call.rank(x))}}});
}

Results slice(Call& call) {
  const Value x = call.tensor(0);
  const Int begin = call.has(2) ? call.size(2) : Int(0), end = call.has(3) ? call.size(3) : Int(kEnd);
  return call.slice(x, axis_in(call.integer(1), call.rank(x)), begin, end, call.integer(4));
}

Results narrow(Call& call) {
  const Value x = call.tensor(0);
  const int axis = axis_in(call.integer(1), call.rank(x));
  Int begin = call.size(2);
  if (begin.known && *begin.known < 0) begin = plus(call, begin, call.size_of(x, axis));
  return call.slice(x, axis, begin, plus(call, begin, call.size(3)));
}

Results parts(Call& call, int axis, const std::vector<Int>& sizes) {
  return Results(call.nodes("Split", {call.tensor(0), call.vector(sizes)}, sizes.size(),
                            {{"axis", static_cast<int64_t>(axis)}}));
}

// The last one is what is left.
Results parts_of(Call& call, int axis, int64_t size) {
  const int64_t extent = call.extent(call.tensor(0), axis);
  std::vector<Int> sizes;
  for (int64_t begin = 0; begin < extent; begin += size) sizes.push_back(std::min(size, extent - begin));
  if (sizes.empty()) sizes.push_back(0);
  return parts(call, axis, sizes);
}

Results split(Call& call) {
  return parts_of(call, axis_in(call.integer(2), call.rank(call.tensor(0))), call.integer(1));
}

Results chunk(Call& call) {
  const Value x = call.tensor(0);
  const int axis = axis_in(call.integer(2), call.rank(x));
  const int64_t count = call.integer(1), extent = call.extent(x, axis);
  if (extent == 0) return parts(call, axis, std::vector<Int>(static_cast<size_t>(count), Int(0)));
  return parts_of(call, axis, (extent + count - 1) / count);
}

Results split_with_sizes(Call& call) {
  return parts(call, axis_in(call.integer(2), call.rank(call.tensor(0))), call.ints(1));
}

Results unbind(Call& call) {
  const Value x = call.tensor(0);
  const int axis = axis_in(call.integer(1), call.rank(x));
  std::vector<Value> slices;
  for (int64_t i = 0; i < call.extent(x, axis); ++i) {
    slices.push_back(call.node("Gather", {x, call.rank0(i)}, {{"axis", static_cast<int64_t>(axis)}}));
  }
  return Results(std::move(slices));
}

// Windows of `size` elements, one every `step`: a new axis behind all others.
Results unfold(Call& call) {
  const Value x = call.tensor(0);
  const int64_t size = call.integer(2), step = call.integer(3);
  if (call.rank(x) == 0) return call.slice(call.reshape(x, {1}), 0, 0, size);
  const int axis = axis_in(call.integer(1), call.rank(x));
  const int64_t count = (call.extent(x, axis) - size) / step + 1;
  std::vector<int64_t> places;
  for (int64_t i = 0; i < count * size; ++i) places.push_back(i / size * step + i % size);
  const Value windows = call.node("Gather", {x, constant_i64(call, {count, size}, places)},
                                  {{"axis", static_cast<int64_t>(axis)}});
  return call.transpose(windows, order_with_last(call.rank(windows), axis + 1));
}

Results diagonal(Call& call) {
  const Value x = call.tensor(0);
  const int rank = call.rank(x), a = axis_in(call.integer(2), rank), b = axis_in(call.integer(3), rank);
  const int64_t offset = call.integer(1), rows = call.extent(x, a), columns = call.extent(x, b);
  std::vector<int64_t> order, places;
  for (int axis = 0; axis < rank; ++axis) {
    if (axis != a && axis != b) order.push_back(axis);
  }
  std::vector<Int> flat;
  for (const int64_t axis : order) flat.push_back(call.size_of(x, static_cast<int>(axis)));
  flat.push_back(rows * columns);
  order.insert(order.end(), {a, b});
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t column = row + offset;
    if (column >= 0 && column < columns) places.push_back(row * columns + column);
  }
  return call.node("Gather", {call.reshape(call.transpose(x, order), flat), call.vector(places)},
                   {{"axis", int64_t{rank - 2}}});
}

}  // namespace

std::span<const Entry> shape_entries() {
  static constexpr Entry kEntries[] = {
      {"aten::view", view},
      {"aten::view_copy", view},
      {"aten::_unsafe_view", view},
      {"aten::reshape", view},
      {"aten::_reshape_alias", view},
      {"aten::_reshape_copy", view},
      {"aten::view_as", view_as},
      {"aten::reshape_as", view_as},
      {"aten::flatten.using_ints", flatten},
      {"aten::unflatten.int", unflatten},
      {"aten::expand", expand},
      {"aten::expand_copy", expand},
      {"aten::broadcast_to", expand},
      {"aten::expand_as", expand_as},
      {"aten::copy", copy},
      {"aten::permute", permute},
      {"aten::permute_copy", permute},
      {"aten::transpose.int", transpose},
      {"aten::transpose_copy.int", transpose},
      {"aten::t", matrix_transpose},
      {"aten::t_copy", matrix_transpose},
      {"aten::movedim.intlist", movedim},
      {"aten::movedim.int", movedim},
      {"aten::unsqueeze", unsqueeze},
      {"aten::unsqueeze_copy", unsqueeze},
      {"aten::squeeze", squeeze_all},
      {"aten::squeeze.dim", squeeze},
      {"aten::squeeze.dims", squeeze},
      {"aten::squeeze_copy", squeeze_all},
      {"aten::squeeze_copy.dim", squeeze},
      {"aten::squeeze_copy.dims", squeeze},
      {"aten::select.int", select},
      {"aten::select_copy.int", select},
      {"aten::slice.Tensor", slice},
      {"aten::slice_copy.Tensor", slice},
      {"aten::narrow", narrow},
      {"aten::narrow_copy", narrow},
      {"aten::split.Tensor", split},
      {"aten::split_copy.Tensor", split},
      {"aten::chunk", chunk},
      {"aten::split_with_sizes", split_with_sizes},
      {"aten::split_with_sizes_copy", split_with_sizes},
      {"aten::unbind.int", unbind},
      {"aten::unbind_copy.int", unbind},
      {"aten::unfold", unfold},
      {"aten::unfold_copy", unfold},
      {"aten::diagonal", diagonal},
      {"aten::diagonal_copy", diagonal},
  };
  return kEntries;
}

}  // namespace heddle::torch_backend
