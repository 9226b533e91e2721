// Reductions over axes.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "ir/ops/rules.h"
#include "ir/ops/tables.h"
#include "ir/ops/walk.h"

namespace heddle::ir {

namespace {

// One flag per axis of x. No axes: all of them, unless noop_with_empty_axes.
Result<std::vector<char>> reduced_axes(const Node& node, const TensorType& type,
                                       const std::vector<int64_t>& axes) {
  if (axes.empty()) {
    return std::vector<char>(type.rank(), node.attributes.i64("noop_with_empty_axes") != 0 ? 0 : 1);
  }
  std::vector<char> flags(type.rank(), 0);
  HEDDLE_TRY_ASSIGN(const std::vector<size_t> distinct, axes_of(axes, type));
  for (size_t axis : distinct) flags[axis] = 1;
  return flags;
}

Inferred infer_over(const Node& node, Operands in) {
  const TensorType& type = in[0]->type;
  std::vector<int64_t> axes;
  if (const Value* argument = optional_input(in, 1)) {
    HEDDLE_TRY_ASSIGN(axes, number_argument(*argument, "axes"));
  }
  HEDDLE_TRY_ASSIGN(const std::vector<char> reduced, reduced_axes(node, type, axes));
  const bool keep = node.attributes.i64("keepdims", 1) != 0;
  Shape shape;
  for (size_t axis = 0; axis < type.rank(); ++axis) {
    if (reduced[axis] == 0) {
      shape.push_back(type.shape[axis]);
    } else if (keep) {
      shape.push_back(1);
    }
  }
  return one(type.dtype, std::move(shape));
}

// The shapes of a whole vector of extents: their product or sum is followed.
template <bool multiply>
Inferred infer_total(const Node& node, Operands in) {
  HEDDLE_TRY(accept(*in[0], "x", Accept::kNumber));
  HEDDLE_TRY_ASSIGN(std::vector<Value> out, infer_over(node, in));
  const std::optional<std::vector<Dim>> dims = in[0]->integers();
  const std::optional<Extents> extents = out[0].type.extents();
  const bool wide = in[0]->type.dtype == DType::kI64 || in[0]->type.dtype == DType::kI32;
  if (!wide || !dims.has_value() || !extents.has_value() || extents->elements() != 1) return out;
  Dim total(multiply ? 1 : 0);
  const auto saturated = [&] { return total.is(Dim::kHuge) || total.is(-Dim::kHuge); };
  for (const Dim& dim : *dims) {
    total = multiply ? total * dim : total + dim;
    if (saturated()) return out;
  }
  return one(out[0].type.dtype, out[0].type.shape, std::vector<Dim>{total});
}

Inferred infer_number(const Node& node, Operands in) {
  HEDDLE_TRY(accept(*in[0], "x", Accept::kNumber));
  return infer_over(node, in);
}

// Of bools, too.
Inferred infer_extreme(const Node& node, Operands in) {
  if (in[0]->type.dtype != DType::kBool) HEDDLE_TRY(accept(*in[0], "x", Accept::kNumber));
  return infer_over(node, in);
}

// What one output element collects: floats in double, integers in 64 bits.
struct Sum {
  double real = 0;
  int64_t whole = 0;
  int64_t count = 0;
  void take(double x) { real += x; }
  void take(int64_t x) { whole = wrap_add(whole, x); }
};
struct Mean : Sum {
  void finish() {
    real /= static_cast<double>(count);
    whole = count == 0 ? 0 : whole / count;
  }
};
struct Total : Sum {
  void finish() {}
};
struct SumSquare : Total {
  void take(double x) { real += x * x; }
  void take(int64_t x) { whole = wrap_add(whole, wrap_mul(x, x)); }
};
struct Length : SumSquare {
  // Squares of integers wrap: a sum below 0 has no root.
  void finish() {
    real = std::sqrt(real);
    whole = whole < 0 ? 0 : static_cast<int64_t>(std::sqrt(static_cast<double>(whole)));
  }
};
struct Product : Total {
  Product() { real = 1, whole = 1; }
  void take(double x) { real *= x; }
  void take(int64_t x) { whole = wrap_mul(whole, x); }
};
// NaN wins over every number. Of no elements: the number below (above) all others.
struct Greatest : Total {
  void take(double x) { real = count == 0 || std::isnan(x) || x > real ? x : real; }
  void take(int64_t x) { whole = count == 0 ? x : std::max(whole, x); }
};
struct Least : Total {
  void take(double x) { real = count == 0 || std::isnan(x) || x < real ? x : real; }
  void take(int64_t x) { whole = count == 0 ? x : std::min(whole, x); }
};

struct Limits {
  int64_t least;
  int64_t greatest;
};
Limits limits_of(DType dtype) {
  if (dtype == DType::kBool) return {0, 1};
  const int64_t sign = is_unsigned(dtype) ? 0 : 1;
  const int64_t greatest = static_cast<int64_t>(~uint64_t{0} >> (64 + sign - 8 * size_of(dtype)));
  return {sign == 0 ? 0 : -greatest - 1, greatest};
}

template <class Collector>
void set_empty(Collector& result, DType dtype) {
  if (is_float(dtype)) {
    if constexpr (std::is_same_v<Collector, Greatest>) result.real = -INFINITY;
    if constexpr (std::is_same_v<Collector, Least>) result.real = INFINITY;
  } else {
    if constexpr (std::is_same_v<Collector, Greatest>) result.whole = limits_of(dtype).least;
    if constexpr (std::is_same_v<Collector, Least>) result.whole = limits_of(dtype).greatest;
  }
}

template <class Collector>
Status reduce(const Node& node, DataIn in, DataOut out) {
  const Tensor* argument = optional_input(in, 1);
  const std::vector<int64_t> axes = argument == nullptr ? std::vector<int64_t>{} : argument->to_i64();
  HEDDLE_TRY_ASSIGN(const std::vector<char> reduced, reduced_axes(node, in[0]->type(), axes));
  Extents kept = in[0]->extents();
  for (size_t axis = 0; axis < kept.rank(); ++axis) {
    if (reduced[axis] != 0) kept[axis] = 1;
  }
  const bool floats = is_float(in[0]->dtype());
  const Strides strides(kept);
  std::vector<Collector> results(static_cast<size_t>(kept.elements()));
  walk(in[0]->extents(), [&](const Index& index, int64_t flat) {
    Collector& result = results[static_cast<size_t>(strides.at(index))];
    floats ? result.take(in[0]->get(flat)) : result.take(in[0]->get_i64(flat));
    ++result.count;
  });
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].count == 0) set_empty(results[i], in[0]->dtype());
    results[i].finish();
    const int64_t at = static_cast<int64_t>(i);
    floats ? out[0].set(at, results[i].real) : out[0].set_i64(at, results[i].whole);
  }
  return {};
}

OpDef entry(std::string_view name, decltype(OpDef::infer) infer, Reference reference) {
  using enum AttributeKind;
  return {name, 1, 2, 1, 1, {{"keepdims", kInt}, {"noop_with_empty_axes", kInt}}, infer, reference};
}

}  // namespace

std::vector<OpDef> reduce_ops() {
  return {
      entry("ReduceSum", infer_total<false>, reduce<Total>),
      entry("ReduceProd", infer_total<true>, reduce<Product>),
      entry("ReduceMean", infer_number, reduce<Mean>),
      entry("ReduceMax", infer_extreme, reduce<Greatest>),
      entry("ReduceMin", infer_extreme, reduce<Least>),
      entry("ReduceL2", infer_number, reduce<Length>),
      entry("ReduceSumSquare", infer_number, reduce<SumSquare>),
  };
}

}  // namespace heddle::ir
