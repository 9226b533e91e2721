// scatter.cpp: reading and writing along one axis with an index for every element, counting, writing slices.
#include <cmath>
#include <limits>

#include "bounds.h"
#include "lanes.h"

namespace heddle::torch_backend {
namespace {

// self, dim, index (and source) with an axis at least, and the axis.
struct Along {
  Term x;
  Term index;
  int64_t axis;
};

Along along(Call& call, DType dtype) {
  const Term x = lifted(given(call, 0).cast(dtype));
  const Term index = lifted(given(call, 2));
  return {x, without_negatives(index), from_front(static_cast<int>(call.integer(1)), x.rank())};
}

Value shaped_like(Call& call, Value x, Value model) {
  if (call.rank(x) == call.rank(model)) return x;
  return call.node("Reshape", {x, shape_of(call, model)}, {{"allowzero", int64_t{1}}});
}

Results gather(Call& call) {
  const Along at = along(call, call.result_dtype());
  const Value found = call.node("GatherElements", {at.x, at.index}, {{"axis", at.axis}});
  return shaped_like(call, found, call.tensor(2));
}

// ---- writing

Term written(const Along& at, const Term& base, const Term& source, std::string_view reduction) {
  Call& call = at.x.call();
  return {call, call.node("ScatterElements", {base, at.index, source},
                          {{"axis", at.axis}, {"reduction", std::string(reduction)}})};
}

Term spread(Call& call, Value number, Value model) {
  return {call, call.node("Expand", {number, shape_of(call, model)})};
}

// The part of a source that the index has extents for.
Term source_of(Call& call, const Along& at, DType dtype) {
  Term source = lifted(given(call, 3).cast(dtype));
  for (int axis = 0; axis < source.rank(); ++axis) {
    const Int have = call.size_of(source, axis);
    const Int take = call.size_of(at.index, axis);
    const bool equal = have.known && take.known && *have.known == *take.known;
    const bool free = !have.known || !take.known;
    if (!equal && !free) source = {call, call.slice(source, axis, 0, take)};
  }
  return source;
}

DType reduced_in(DType dtype) { return dtype == DType::boolean ? DType::i64 : wide(dtype); }

Results scatter(Call& call) {  // self, dim, index, src
  const Along at = along(call, call.result_dtype());
  return shaped_like(call, written(at, at.x, source_of(call, at, at.x.dtype()), "none"), call.tensor(0));
}

Results scatter_value(Call& call) {
  const Along at = along(call, call.result_dtype());
  const Term source = spread(call, call.scalar(3, at.x.dtype()), at.index);
  return shaped_like(call, written(at, at.x, source, "none"), call.tensor(0));
}

Results scatter_add(Call& call) {
  const Along at = along(call, reduced_in(call.result_dtype()));
  return shaped_like(call, written(at, at.x, source_of(call, at, at.x.dtype()), "add"), call.tensor(0));
}

// ---- with a reduction: self, dim, index, src, reduce, include_self

struct Kind {
  std::string_view name;
  std::string_view reduction;
  double neutral;  // of floats
};

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr Kind kKinds[] = {{"sum", "add", 0},    {"add", "add", 0},      {"mean", "add", 0},
                           {"prod", "mul", 1},   {"multiply", "mul", 1}, {"amax", "max", -kInf},
                           {"amin", "min", kInf}};

const Kind& kind_named(Call& call, std::string_view name) {
  for (const Kind& kind : kKinds) {
    if (kind.name == name) return kind;
  }
  call.unsupported("reduce has to be sum, prod, mean, amax or amin");
}

// Whole numbers have no infinity: their own bounds stand for it.
Term neutral_of(const Kind& kind, const Term& x) {
  if (x.real() || std::isfinite(kind.neutral)) return x.like(kind.neutral);
  const int bits = static_cast<int>(heddle::size_of(x.dtype())) * 8;
  const bool free_of_sign = x.dtype() == DType::u8;
  const double least = free_of_sign ? 0 : -std::ldexp(1, bits - 1);
  const double most = free_of_sign ? 255 : std::ldexp(1, bits - 1) - (bits == 64 ? 0 : 1);
  return x.like(kind.neutral < 0 ? least : most);
}

Term reduced(const Along& at, const Term& source, std::string_view name, bool include_self) {
  Call& call = at.x.call();
  const Kind& kind = kind_named(call, name);
  if (include_self && name != "mean") return written(at, at.x, source, kind.reduction);

  // Where something is written, and how much of it.
  const Term ones = spread(call, call.literal(1, DType::i64), at.index);
  const Term none = spread(call, call.literal(0, DType::i64), at.x);
  const Term count = written(at, none, ones, "add");
  const Term base = include_self ? at.x : select(count > 0, neutral_of(kind, at.x), at.x);
  const Term total = written(at, base, source, kind.reduction);
  if (name != "mean") return total;
  const Term parts = include_self ? count + 1 : greater(count, count.like(1));
  const DType dtype = wide(total.dtype());
  const Term divisor = parts.cast(dtype);
  if (total.real()) return total.cast(dtype) / divisor;
  const Term quotient = total / divisor;  // towards 0; PyTorch's is the floor
  return select((total < 0) & (quotient * divisor != total), quotient - 1, quotient);
}

Results scatter_reduce(Call& call) {
  const Along at = along(call, reduced_in(call.result_dtype()));
  const bool include_self = call.op() != "aten::scatter_reduce.two" || call.flag(5);
  const Term result = reduced(at, source_of(call, at, at.x.dtype()), call.text(4), include_self);
  return shaped_like(call, result, call.tensor(0));
}

Results scatter_value_reduce(Call& call) {
  const Along at = along(call, reduced_in(call.result_dtype()));
  const Term source = spread(call, call.scalar(3, at.x.dtype()), at.index);
  return shaped_like(call, reduced(at, source, call.text(4), true), call.tensor(0));
}

// self, dim, index of rank 1, source, reduce, include_self. PyTorch rounds after each element.
Results index_reduce(Call& call) {
  const DType dtype = call.result_dtype();
  Along at = along(call, dtype == DType::boolean ? DType::i64 : dtype);
  const Term source = lifted(given(call, 3).cast(at.x.dtype()));
  std::vector<Int> shape(static_cast<size_t>(source.rank()), Int(1));
  shape[static_cast<size_t>(at.axis)] = Int(-1);
  at.index = {call, call.node("Expand", {call.reshape(at.index, shape), shape_of(call, source)})};
  return shaped_like(call, reduced(at, source, call.text(4), call.flag(5)), call.tensor(0));
}

// ---- counting

// A graph has to have them: it refuses nothing by a number that is known only when it runs.
void check_bounds(Call& call, bool whole) {
  if (call.is_computed(2) || call.is_computed(3))
    call.unsupported("bounds have to be fixed numbers in a graph");
  if (!call.is_known(2) || !call.is_known(3)) return;  // an eager call's were looked at before
  const double low = whole ? std::trunc(call.known(2)) : call.known(2);
  const double high = whole ? std::trunc(call.known(3)) : call.known(3);
  if (low == high) call.unsupported("bounds that the values decide are not offered in a graph");
  const std::string wrong = wrong_with_bounds(low, high);
  if (!wrong.empty()) throw Error(ErrorCode::invalid, wrong);
}

// self, bins, min, max. Floats are rounded as PyTorch's CPU rounds them, whole numbers are reckoned with as
// PyTorch's CUDA does; what is outside, or NaN, is counted in a bin of its own, which goes.
Results histc(Call& call) {
  const DType dtype = call.result_dtype();
  if (dtype == DType::boolean) call.unsupported("bools are not counted in bins");
  check_bounds(call, !is_float(dtype));
  const DType in = is_float(dtype) ? wide(dtype) : DType::i64;
  const auto stepped = [&](const Term& x) { return is_float(dtype) ? rounded(x) : x; };
  // A whole bound may lie beyond the values' own type.
  const auto bound = [&](int argument) {
    return Term(call, call.scalar(argument, is_float(dtype) ? dtype : in)).cast(in);
  };
  const int64_t bins = call.integer(1);
  const Term x = {call, call.reshape(call.cast(call.tensor(0), in), {Int(-1)})};
  const Term low = bound(2);
  const Term high = bound(3);
  const Term away = stepped(stepped(x - low) * stepped(x.like(static_cast<double>(bins))));
  const Term last = {call, call.literal(static_cast<double>(bins - 1), DType::i64)};
  const Term bin = lesser(stepped(away / stepped(high - low)).cast(DType::i64), last);
  const Term place = select((x >= low) & (x <= high), bin, last + 1);
  const Term none = spread(call, call.literal(0, DType::i64), iota(call, bins + 1));
  const Term ones = spread(call, call.literal(1, DType::i64), place);
  return call.slice(written({none, place, 0}, none, ones, "add"), 0, 0, bins);
}

// ---- slices: the elements before, the source, the elements after

Results joined(Call& call, const Term& x, const Term& source, int axis, Int begin, Int end) {
  std::vector<Value> parts;
  if (!begin.known || *begin.known != 0) parts.push_back(call.slice(x, axis, 0, begin));
  parts.push_back(source);
  if (!end.known || *end.known != INT64_MAX) parts.push_back(call.slice(x, axis, end, INT64_MAX));
  if (parts.size() == 1) return call.node("Identity", {source});
  return call.node("Concat", parts, {{"axis", int64_t{axis}}});
}

Results select_scatter(Call& call) {  // self, src, dim, index
  const Term x = given(call, 0);
  const int axis = from_front(static_cast<int>(call.integer(2)), x.rank());
  const Term source = {call, call.unsqueeze(given(call, 1).cast(x.dtype()), {axis})};
  const Int at = call.size(3);
  if (!at.known) {
    const Term here = positions(call, x, axis) == Term(call, at.value);
    return Value(select(here, source, x));
  }
  const Int past = *at.known == -1 ? Int(INT64_MAX) : Int(*at.known + 1);
  return joined(call, x, source, axis, at, past);
}

Results slice_scatter(Call& call) {  // self, src, dim, start, end, step
  const Term x = given(call, 0);
  const Term source = given(call, 1).cast(x.dtype());
  const int axis = from_front(static_cast<int>(call.integer(2)), x.rank());
  const Int begin = call.has(3) ? call.size(3) : Int(0);
  const Int end = call.has(4) ? call.size(4) : Int(INT64_MAX);
  if (call.shape(source).at(static_cast<size_t>(axis)) == 0) return Value(x.apply("Identity"));
  const int64_t step = call.integer(5);
  if (step == 1) return joined(call, x, source, axis, begin, end);
  const Value places = call.slice(iota(call, call.size_of(x, axis)), 0, begin, end, step);
  std::vector<Int> shape(static_cast<size_t>(x.rank()), Int(1));
  shape[static_cast<size_t>(axis)] = Int(-1);
  const Term index = {call, call.node("Expand", {call.reshape(places, shape), shape_of(call, source)})};
  return Value(written({x, index, axis}, x, source, "none"));
}

}  // namespace

std::span<const Entry> scatter_entries() {
  static constexpr Entry kEntries[] = {
      {"aten::gather", gather},
      {"aten::scatter.src", scatter},
      {"aten::scatter.value", scatter_value},
      {"aten::scatter.reduce", scatter_reduce},
      {"aten::scatter.value_reduce", scatter_value_reduce},
      {"aten::scatter_add", scatter_add},
      {"aten::scatter_reduce.two", scatter_reduce},
      {"aten::index_reduce", index_reduce},
      {"aten::histc", histc},
      {"aten::select_scatter", select_scatter},
      {"aten::slice_scatter", slice_scatter},
  };
  return kEntries;
}

}  // namespace heddle::torch_backend
