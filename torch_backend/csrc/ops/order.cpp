// order.cpp: operators that need the elements of an axis in order.
#include <bit>
#include <cmath>

#include "lanes.h"

namespace heddle::torch_backend {
namespace {

struct Sorted {
  Term values;
  Term positions;
};

// The first k in order; equals keep theirs, and a NaN counts as the greatest. A bool is sorted as a number.
Sorted sorted(const Term& given, int64_t axis, Int k, bool descending) {
  Call& call = given.call();
  const Term x = given.boolean() ? given.cast(DType::i64) : given;
  const std::vector<Value> both =
      call.nodes("TopK", {x, call.vector(std::vector<Int>{k})}, 2,
                 {{"axis", axis}, {"largest", int64_t{descending ? 1 : 0}}, {"sorted", int64_t{1}}});
  return {{call, both[0]}, {call, both[1]}};
}

// Of an axis that rank 0 does not have, the results are given back without it.
Results unlifted(Call& call, const Sorted& both, bool flat) {
  if (!flat) return {both.values, both.positions};
  return {call.squeeze(both.values, {0}), call.squeeze(both.positions, {0})};
}

int64_t axis_of(const Term& lifted, int64_t dim) { return from_front(static_cast<int>(dim), lifted.rank()); }

Results top_k(Call& call) {  // self, k, dim, largest, sorted
  const Term x = lifted(operand(call, 0));
  const Sorted both = sorted(x, axis_of(x, call.integer(2)), call.size(1), call.flag(3));
  return unlifted(call, both, call.rank(call.tensor(0)) == 0);
}

// dim, descending stand at `dim`.
template <int dim>
Results sort(Call& call) {
  const Term x = lifted(operand(call, 0));
  const int64_t axis = axis_of(x, call.integer(dim));
  const Int all = call.size_of(x, static_cast<int>(axis));
  return unlifted(call, sorted(x, axis, all, call.flag(dim + 1)), call.rank(call.tensor(0)) == 0);
}

// ---- one element of each sorted lane

// `place` counts in the sorted lane; its shape is x's with an extent of 1 along the axis.
Results placed(const Lanes& lanes, const Sorted& all, const Term& place) {
  const AttributeList along = {{"axis", lanes.axes().at(0)}};
  return {lanes.finished(all.values.with("GatherElements", place, along)),
          lanes.finished(all.positions.with("GatherElements", place, along))};
}

Sorted ascending(const Lanes& lanes) {
  const int64_t axis = lanes.axes().at(0);
  return sorted(lanes.x(), axis, lanes.x().call().size_of(lanes.x(), static_cast<int>(axis)), false);
}

Results kth_value(Call& call) {  // self, k, dim, keepdim
  const Lanes lanes = lanes_of(operand(call, 0), 2, 3);
  const int64_t axis = lanes.axes().at(0);
  const Sorted first = sorted(lanes.x(), axis, call.integer(1), false);
  const auto last = [&](const Term& x) {
    return lanes.finished({call, call.slice(x, static_cast<int>(axis), -1, INT64_MAX)});
  };
  return {last(first.values), last(first.positions)};
}

// The lower one of two middles. Of lanes with a NaN it is the first NaN, or (`skip`) the middle of the rest.
Results middle(const Lanes& lanes, bool skip) {
  const Term& x = lanes.x();
  Call& call = x.call();
  const Term ones = {call, call.node("Expand", {call.literal(1, DType::i64), shape_of(call, x)})};
  const Term count = lanes.spread("ReduceSum", ones);
  const Sorted all = ascending(lanes);
  if (!x.real()) return placed(lanes, all, (count - 1) / 2);
  const Term numbers = count - lanes.spread("ReduceSum", is_nan(x).cast(DType::i64));
  const Term among = greater(numbers - 1, numbers.like(0)) / 2;
  if (skip) return placed(lanes, all, among);
  return placed(lanes, all, select(numbers < count, numbers, among));
}

template <bool skip>
Results median_along(Call& call) {
  return middle(lanes_of(operand(call, 0), 1, 2), skip);
}

template <bool skip>
Results median(Call& call) {
  const Term flat = {call, call.reshape(operand(call, 0), {Int(-1)})};
  if (call.shape(flat).at(0) == 0) {
    if (!flat.real()) call.unsupported("no whole number is the median of none");
    return Value(flat.like(NAN));
  }
  return middle(Lanes(flat, {0}, false), skip).front();
}

// ---- places in a sorted sequence, each found by halving it

// How often a sequence is halved until one place is left. A traced graph that may get any sequence halves as
// often as the longest one that memory has addresses for.
int halvings(const Int& length) {
  constexpr int kAddressBits = 47;
  return length.known ? static_cast<int>(std::bit_width(static_cast<uint64_t>(*length.known))) : kAddressBits;
}

Term elements_at(const Term& sequence, const Term& places) {
  if (sequence.rank() == 1) return sequence.with("Gather", places);
  return sequence.with("GatherElements", places, {{"axis", int64_t{-1}}});
}

// The elements that are looked at are those that PyTorch's CPU looks at: they decide, where one is a NaN.
Results place_among(Call& call, const Term& sequence, const Term& values, bool right) {
  const Int length = call.is_eager() ? Int(call.extent(sequence, -1)) : call.size_of(sequence, -1);
  const bool is_short = length.known && *length.known < (1 << 30);  // of two places the sum is an i32
  const DType dtype = is_short ? DType::i32 : DType::i64;
  const Term all = Term(call, call.rank0(length)).cast(dtype);
  const Term last = all - 1;
  Term begin = {call, call.node("Expand", {call.literal(0, dtype), shape_of(call, values)})};
  Term end = {call, call.node("Expand", {all, shape_of(call, values)})};
  for (int i = halvings(length); i-- > 0;) {
    const Term middle = (begin + end).with("BitShift", begin.like(1), {{"direction", std::string("RIGHT")}});
    const Term element = elements_at(sequence, lesser(middle, last));
    const Term is_before = right ? element > values : element >= values;
    begin = lesser(select(is_before, begin, middle + 1), end);  // no further, once they have met
    end = select(is_before, middle, end);
  }
  return Value(begin);
}

Term compared(Call& call, int argument, bool number) {
  const DType dtype = call.common({0, 1});
  const Value value = number ? call.scalar(argument, dtype) : call.cast(call.tensor(argument), dtype);
  return {call, call.cast(value, wide(dtype == DType::boolean ? DType::i64 : dtype))};
}

// sorted_sequence, self, out_int32, right, side, sorter
template <Scalar scalar = Scalar::none>
Results search_sorted(Call& call) {
  Term sequence = compared(call, 0, false);
  if (call.has(5)) sequence = sequence.with("GatherElements", call.tensor(5), {{"axis", int64_t{-1}}});
  const bool right = call.has(4) ? call.text(4) == "right" : call.flag(3);
  return place_among(call, sequence, compared(call, 1, scalar == Scalar::right), right);
}

// self, boundaries, out_int32, right
template <Scalar scalar = Scalar::none>
Results bucketize(Call& call) {
  return place_among(call, compared(call, 1, false), compared(call, 0, scalar == Scalar::left), call.flag(3));
}

}  // namespace

std::span<const Entry> order_entries() {
  static constexpr Entry kEntries[] = {
      {"aten::topk", top_k},
      {"aten::sort", sort<1>},
      {"aten::sort.stable", sort<2>},
      {"aten::kthvalue", kth_value},
      {"aten::median", median<false>},
      {"aten::nanmedian", median<true>},
      {"aten::median.dim", median_along<false>},
      {"aten::nanmedian.dim", median_along<true>},
      {"aten::searchsorted.Tensor", search_sorted<>},
      {"aten::searchsorted.Scalar", search_sorted<Scalar::right>},
      {"aten::bucketize.Tensor", bucketize<>},
      {"aten::bucketize.Scalar", bucketize<Scalar::left>},
  };
  return kEntries;
}

}  // namespace heddle::torch_backend
