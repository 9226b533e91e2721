// indexing.cpp: reading and writing elements by index tensors.
#include <algorithm>

#include "term.h"

namespace heddle::torch_backend {
namespace {

// ---- index lists: self[:, i, :, k]

// Where the index tensors of a list stand, and what they are, broadcast to one shape.
struct IndexList {
  std::vector<int> axes;
  std::vector<Term> indices;
  int depth = 0;        // the rank of the indices
  bool in_row = false;  // the axes follow each other: the indices' axes take their place, else the front
};

Term as_index(const Term& index) {
  const bool ready = index.dtype() == DType::i64 || index.dtype() == DType::i32;
  return ready ? index : index.cast(DType::i64);
}

IndexList index_list(Call& call, int argument) {
  IndexList list;
  const std::vector<Value> given = call.tensors(argument);
  for (size_t axis = 0; axis < given.size(); ++axis) {
    if (given[axis].id == GraphBuilder::absent().id) continue;
    const Term index = {call, given[axis]};
    if (index.boolean()) call.unsupported("a mask among the indices; nonzero() makes indices of it");
    list.axes.push_back(static_cast<int>(axis));
    list.indices.push_back(index.cast(DType::i64));
    list.depth = std::max(list.depth, index.rank());
  }
  if (list.axes.empty()) call.unsupported("a list of indices without an index");
  list.in_row = list.axes.back() - list.axes.front() + 1 == static_cast<int>(list.axes.size());
  return list;
}

// One tensor of shape [..., number of indices].
Term stacked(Call& call, const IndexList& list) {
  Term shared = list.indices[0];
  for (size_t i = 1; i < list.indices.size(); ++i) shared = shared + list.indices[i];
  const Value shape = shape_of(call, shared);
  std::vector<Value> columns;
  for (const Term& index : list.indices)
    columns.push_back(call.unsqueeze(call.node("Expand", {index, shape}), {-1}));
  return {call, columns.size() == 1 ? columns[0] : call.node("Concat", columns, {{"axis", int64_t{-1}}})};
}

bool identity(const std::vector<int64_t>& order) {
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

Term ordered(const Term& x, const std::vector<int64_t>& order) {
  return identity(order) ? x : Term(x.call(), x.call().transpose(x, order));
}

// The axes of x, those with an index first.
std::vector<int64_t> indexed_first(const IndexList& list, int rank) {
  std::vector<int64_t> order(list.axes.begin(), list.axes.end());
  for (int axis = 0; axis < rank; ++axis) {
    if (std::ranges::find(list.axes, axis) == list.axes.end()) order.push_back(axis);
  }
  return order;
}

// From [indices' axes, the rest] to where the result has them.
std::vector<int64_t> in_place(const IndexList& list, int rank) {
  const int before = list.in_row ? list.axes.front() : 0;
  std::vector<int64_t> order;
  for (int axis = 0; axis < before; ++axis) order.push_back(list.depth + axis);
  for (int axis = 0; axis < list.depth; ++axis) order.push_back(axis);
  for (int axis = list.depth + before; axis < rank; ++axis) order.push_back(axis);
  return order;
}

int result_rank(const IndexList& list, int rank) {
  return rank - static_cast<int>(list.axes.size()) + list.depth;
}

Results index(Call& call) {
  const Term x = given(call, 0);
  const IndexList list = index_list(call, 1);
  if (list.axes.size() == 1)
    return Value(x.with("Gather", list.indices[0], {{"axis", int64_t{list.axes[0]}}}));
  const Term first = ordered(x, indexed_first(list, x.rank()));
  const Term found = first.with("GatherND", stacked(call, list));
  return Value(ordered(found, in_place(list, result_rank(list, x.rank()))));
}

// ---- writing

// Bools are added up as numbers. f16 and bf16 are rounded after each element, as PyTorch does here.
DType written_in(DType dtype, bool reduced) {
  return reduced && dtype == DType::boolean ? DType::i64 : dtype;
}

// One mask and one number: no indices are needed.
std::optional<Term> put_under_mask(Call& call) {
  const std::vector<Value> given = call.tensors(1);
  if (given.size() != 1 || call.flag(3) || call.rank(call.tensor(2)) != 0) return std::nullopt;
  const Term mask = {call, given[0]};
  if (!mask.boolean()) return std::nullopt;
  const Term x = {call, call.tensor(0)};
  std::vector<Int> shape = sizes(call, mask);
  shape.resize(static_cast<size_t>(x.rank()), Int(1));
  return select({call, call.reshape(mask, shape)}, {call, call.cast(call.tensor(2), x.dtype())}, x);
}

std::vector<Int> joined(std::initializer_list<std::span<const Int>> parts) {
  std::vector<Int> all;
  for (const std::span<const Int> part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// The first `count` axes as one; none: x itself.
Term outer_as_one(const Term& x, size_t count) {
  if (count < 2) return x;
  const std::vector<Int> extents = sizes(x.call(), x);
  int64_t product = 1;
  for (const Int& extent : std::span(extents).first(count))
    product = extent.known && product >= 0 ? product * *extent.known : -1;
  const std::vector<Int> outer{Int(product)};
  return {x.call(), x.call().reshape(x, joined({outer, std::span(extents).subspan(count)}))};
}

Term expanded(const Term& x, const std::vector<Int>& shape) { return {x.call(), x.call().expand(x, shape)}; }

// A column of points: `numbers`, which vary along the axes of `shape` from `at` on, in extents `own`.
Value column(const Term& numbers, size_t at, const std::vector<Int>& own, const std::vector<Int>& shape) {
  Call& call = numbers.call();
  std::vector<Int> alone(shape.size(), Int(1));
  std::ranges::copy(own, alone.begin() + static_cast<int64_t>(at));
  return call.unsqueeze(call.expand(call.reshape(numbers, alone), shape), {-1});
}

Value side_by_side(Call& call, const std::vector<Value>& columns) {
  return columns.size() == 1 ? columns[0] : call.node("Concat", columns, {{"axis", int64_t{-1}}});
}

// Where ScatterND writes. No axis of x is moved: the run may write into its memory.
struct Places {
  Term x;                   // the axes before a row of indexed ones as one
  Value points;             // [.., one column for each axis of x up to the last indexed one]
  std::vector<Int> read;    // the shape that values broadcast to: what reading would give
  std::vector<Int> values;  // and are reshaped to, if it is another
};

Places places_of(Call& call, const Term& given, const IndexList& list) {
  Term shared = list.indices[0];
  for (size_t i = 1; i < list.indices.size(); ++i) shared = shared + list.indices[i];
  const std::vector<Int> depth = sizes(call, shared);
  const std::vector<Int> extents = sizes(call, given);
  const auto past = static_cast<size_t>(list.axes.back()) + 1;
  const std::span<const Int> after = std::span(extents).subspan(past);
  std::vector<Value> columns;
  if (list.in_row) {
    const auto first = static_cast<size_t>(list.axes.front());
    const std::span<const Int> before = std::span(extents).first(first);
    const Term x = outer_as_one(given, first);
    std::vector<Int> outer;
    if (first > 0) outer.push_back(call.size_of(x, 0));
    const std::vector<Int> shape = joined({outer, depth});
    if (first > 0) columns.push_back(column(iota(call, outer[0]), 0, outer, shape));
    for (const Term& index : list.indices)
      columns.push_back(column(expanded(index, depth), outer.size(), depth, shape));
    return {x, side_by_side(call, columns), joined({before, depth, after}), joined({shape, after})};
  }
  std::vector<Int> between;  // the axes without an index that one with an index follows
  for (size_t axis = 0; axis < past; ++axis) {
    if (std::ranges::find(list.axes, static_cast<int>(axis)) == list.axes.end())
      between.push_back(extents[axis]);
  }
  const std::vector<Int> shape = joined({depth, between});
  size_t indexed = 0;
  for (size_t axis = 0; axis < past; ++axis) {
    if (std::ranges::find(list.axes, static_cast<int>(axis)) != list.axes.end()) {
      columns.push_back(column(expanded(list.indices[indexed++], depth), 0, depth, shape));
    } else {
      const size_t at = depth.size() + axis - indexed;
      columns.push_back(column(iota(call, extents[axis]), at, {extents[axis]}, shape));
    }
  }
  const std::vector<Int> read = joined({shape, after});
  return {given, side_by_side(call, columns), read, read};
}

// A shape of the same rank is the same one here.
Value shaped(Call& call, Value value, const std::vector<Int>& shape) {
  return call.rank(value) == static_cast<int>(shape.size()) ? value : call.reshape(value, shape);
}

// Values of the shape Places::read replace those of argument 0, or are added to them.
Results written(Call& call, const Places& to, const Term& values, std::string_view reduction) {
  const Value all = call.node("ScatterND", {to.x, to.points, shaped(call, values, to.values)},
                              {{"reduction", std::string(reduction)}});
  return shaped(call, all, sizes(call, call.tensor(0)));
}

Results index_put(Call& call) {  // self, indices, values, accumulate
  if (const std::optional<Term> done = put_under_mask(call)) return Value(*done);
  const bool add = call.flag(3);
  const DType dtype = written_in(call.result_dtype(), add);
  const Term x = given(call, 0).cast(dtype);
  const Places to = places_of(call, x, index_list(call, 1));
  return written(call, to, expanded(given(call, 2).cast(dtype), to.read), add ? "add" : "none");
}

// ---- one axis, an index of rank 0 or 1

Term flat(const Term& index) { return {index.call(), index.call().reshape(as_index(index), {Int(-1)})}; }

// Rows of argument 0, in this dtype, along the axis that argument 1 names.
Places rows_at(Call& call, DType dtype, const Term& index) {
  const Term x = lifted(given(call, 0).cast(dtype));
  const int axis = from_front(static_cast<int>(call.integer(1)), x.rank());
  return places_of(call, x, {{axis}, {flat(index)}, 1, true});
}

Results index_select(Call& call) {  // self, dim, index
  const Term x = given(call, 0);
  const Term wide = lifted(x);
  const int64_t axis = from_front(static_cast<int>(call.integer(1)), wide.rank());
  const Term found = wide.with("Gather", flat(without_negatives(given(call, 2))), {{"axis", axis}});
  return Value(x.rank() == 0 ? Term(call, call.reshape(found, {})) : found);
}

Results index_add(Call& call) {  // self, dim, index, source, alpha
  const DType dtype = written_in(call.result_dtype(), true);
  Term source = given(call, 3).cast(dtype);
  if (!call.is(4, 1))
    source = (source.cast(wide(dtype)) * Term(call, call.scalar(4, wide(dtype)))).cast(dtype);
  return written(call, rows_at(call, dtype, without_negatives(given(call, 2))), source, "add");
}

Results index_copy(Call& call) {  // self, dim, index, source
  const Places to = rows_at(call, call.result_dtype(), without_negatives(given(call, 2)));
  return written(call, to, given(call, 3), "none");
}

Results index_filled(Call& call, Value value) {
  const Places to = rows_at(call, call.result_dtype(), given(call, 2));
  return written(call, to, expanded({call, value}, to.read), "none");
}

Results index_fill_scalar(Call& call) { return index_filled(call, call.scalar(3, call.result_dtype())); }
Results index_fill_tensor(Call& call) {
  return index_filled(call, call.cast(call.tensor(3), call.result_dtype()));
}

// ---- flat positions

Results take(Call& call) {
  const Value x = call.reshape(call.tensor(0), {Int(-1)});
  return call.node("Gather", {x, as_index(given(call, 1))}, {{"axis", int64_t{0}}});
}

Results put(Call& call) {  // self, index, source, accumulate
  const bool add = call.flag(3);
  const DType dtype = written_in(call.result_dtype(), add);
  const Value x = call.reshape(call.cast(call.tensor(0), dtype), {Int(-1)});
  const Value source = call.reshape(call.cast(call.tensor(2), dtype), {Int(-1)});
  const Value written = call.node("ScatterElements", {x, flat(given(call, 1)), source},
                                  {{"axis", int64_t{0}}, {"reduction", std::string(add ? "add" : "none")}});
  return call.node("Reshape", {written, shape_of(call, call.tensor(0))}, {{"allowzero", int64_t{1}}});
}

Results embedding(Call& call) {  // weight, indices
  return Value(given(call, 0).with("Gather", without_negatives(given(call, 1)), {{"axis", int64_t{0}}}));
}

// self, mask, source: the mask's n-th place takes the n-th element of the source.
Results masked_scatter(Call& call) {
  const Term x = given(call, 0);
  const bool known = std::ranges::all_of(call.result_shape(), [](const auto& n) { return n.has_value(); });
  const Value shape = known ? call.result_shape_vector() : shape_of(call, x);
  const Value mask = call.node("Expand", {given(call, 1).cast(DType::boolean), shape});
  const Term row = {call, call.reshape(mask, {Int(-1)})};
  const Term nth = row.cast(DType::i64).with("CumSum", call.rank0(0)) - 1;
  const Term source = {call, call.reshape(call.cast(call.tensor(2), x.dtype()), {Int(-1)})};
  const Term held = {call, call.node("Clip", {nth, nth.like(0), call.rank0(call.size_of(source, 0))})};
  // One more element, for the places after the mask's last one.
  const Value longer =
      call.node("Concat", {source, call.unsqueeze(call.literal(0, x.dtype()), {0})}, {{"axis", int64_t{0}}});
  const Value taken = call.node("Gather", {longer, held}, {{"axis", int64_t{0}}});
  const Term spread = {call, call.node("Reshape", {taken, shape}, {{"allowzero", int64_t{1}}})};
  return Value(select({call, mask}, spread, x));
}

}  // namespace

std::span<const Entry> indexing_entries() {
  static constexpr Entry kEntries[] = {
      {"aten::index.Tensor", index},
      {"aten::_unsafe_index.Tensor", index},
      {"aten::index_put", index_put},
      {"aten::_unsafe_index_put", index_put},
      {"aten::_index_put_impl", index_put},
      {"aten::index_select", index_select},
      {"aten::index_add", index_add},
      {"aten::index_copy", index_copy},
      {"aten::index_fill.int_Scalar", index_fill_scalar},
      {"aten::index_fill.int_Tensor", index_fill_tensor},
      {"aten::take", take},
      {"aten::put", put},
      {"aten::embedding", embedding},
      {"aten::masked_scatter", masked_scatter},
  };
  return kEntries;
}

}  // namespace heddle::torch_backend
