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

std::vector<int64_t> inverse(const std::vector<int64_t>& order) {
  std::vector<int64_t> back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return back;
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

Results index_put(Call& call) {  // self, indices, values, accumulate
  if (const std::optional<Term> done = put_under_mask(call)) return Value(*done);
  const bool add = call.flag(3);
  const DType dtype = written_in(call.result_dtype(), add);
  const Term x = given(call, 0).cast(dtype);
  const IndexList list = index_list(call, 1);
  const std::vector<int64_t> order = indexed_first(list, x.rank());
  const Term first = ordered(x, order);
  const Term places = stacked(call, list);

  // The values broadcast to what reading would give.
  std::vector<Int> shape = sizes(call, places);
  shape.pop_back();
  const std::vector<Int> extents = sizes(call, first);
  shape.insert(shape.end(), extents.begin() + static_cast<int64_t>(list.axes.size()), extents.end());
  const std::vector<int64_t> there = in_place(list, result_rank(list, x.rank()));
  std::vector<Int> read;
  for (const int64_t axis : there) read.push_back(shape[static_cast<size_t>(axis)]);
  const Term values = {call, call.expand(given(call, 2).cast(dtype), read)};
  const Value written = call.node("ScatterND", {first, places, ordered(values, inverse(there))},
                                  {{"reduction", std::string(add ? "add" : "none")}});
  return Value(ordered({call, written}, inverse(order)));
}

// ---- one axis, an index of rank 0 or 1

// x with `dim` in front.
struct Fronted {
  Term x;
  std::vector<int64_t> back;
};
Fronted fronted(const Term& given, int64_t dim) {
  const Term x = lifted(given);
  const int front = from_front(static_cast<int>(dim), x.rank());
  std::vector<int64_t> order = {front};
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (axis != front) order.push_back(axis);
  }
  return {ordered(x, order), inverse(order)};
}

Term flat(const Term& index) { return {index.call(), index.call().reshape(as_index(index), {Int(-1)})}; }

Term shaped_like(const Term& x, const Term& model) {
  return x.rank() == model.rank() ? x : Term(x.call(), x.call().reshape(x, sizes(x.call(), model)));
}

// Rows of x at the index replaced by, or added to, `rows` of shape [index, the other axes].
Results rows_written(Call& call, const Fronted& to, const Term& index, const Term& rows,
                     std::string_view reduction) {
  const Value places = call.unsqueeze(flat(index), {-1});
  const Value written = call.node("ScatterND", {to.x, places, rows}, {{"reduction", std::string(reduction)}});
  return Value(shaped_like(ordered({call, written}, to.back), given(call, 0)));
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
  const int64_t dim = call.integer(1);
  Term source = given(call, 3).cast(dtype);
  if (!call.is(4, 1))
    source = (source.cast(wide(dtype)) * Term(call, call.scalar(4, wide(dtype)))).cast(dtype);
  return rows_written(call, fronted(given(call, 0).cast(dtype), dim), without_negatives(given(call, 2)),
                      fronted(source, dim).x, "add");
}

Results index_copy(Call& call) {  // self, dim, index, source
  const int64_t dim = call.integer(1);
  return rows_written(call, fronted(given(call, 0), dim), without_negatives(given(call, 2)),
                      fronted(given(call, 3), dim).x, "none");
}

Results index_filled(Call& call, Value value) {
  const Fronted to = fronted(given(call, 0), call.integer(1));
  std::vector<Int> shape = sizes(call, to.x);
  shape[0] = call.size_of(flat(given(call, 2)), 0);
  return rows_written(call, to, given(call, 2), {call, call.expand(value, shape)}, "none");
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
