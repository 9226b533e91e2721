// Operators about order along one axis: ArgMax, ArgMin, TopK, CumSum, CumProd.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ir/ops/rules.h"
#include "ir/ops/tables.h"
#include "ir/ops/walk.h"

namespace heddle::ir {

namespace {

// NaN counts as the greatest.
bool exceeds(const Tensor& t, int64_t a, int64_t b) {
  if (t.dtype() == DType::kU64)
    return static_cast<uint64_t>(t.get_i64(a)) > static_cast<uint64_t>(t.get_i64(b));
  if (!is_float(t.dtype())) return t.get_i64(a) > t.get_i64(b);
  const double x = t.get(a);
  const double y = t.get(b);
  return std::isnan(x) ? !std::isnan(y) : x > y;
}

Inferred infer_arg(const Node& node, Operands in) {
  const TensorType& type = in[0]->type;
  HEDDLE_TRY(accept(*in[0], "x", Accept::kNumber));
  HEDDLE_TRY_ASSIGN(const size_t axis, axis_of(node.attributes.i64("axis"), type));
  if (type.shape[axis].is(0))
    return Status::invalid("axis ", axis, " of ", type, " is empty; it needs an element");
  Shape shape = type.shape;
  if (node.attributes.i64("keepdims", 1) != 0) {
    shape[axis] = 1;
  } else {
    shape.erase(shape.begin() + static_cast<int64_t>(axis));
  }
  return one(DType::kI64, std::move(shape));
}

template <bool greatest>
Status reference_arg(const Node& node, DataIn in, DataOut out) {
  HEDDLE_TRY_ASSIGN(const size_t axis, axis_of(node.attributes.i64("axis"), in[0]->type()));
  const bool last = node.attributes.i64("select_last_index") != 0;
  const Lanes lanes(in[0]->extents(), axis);
  for (int64_t o = 0; o < lanes.outer; ++o) {
    for (int64_t i = 0; i < lanes.inner; ++i) {
      int64_t best = 0;
      for (int64_t a = 1; a < lanes.extent; ++a) {
        const int64_t x = lanes.at(o, a, i);
        const int64_t y = lanes.at(o, best, i);
        const bool better = greatest ? exceeds(*in[0], x, y) : exceeds(*in[0], y, x);
        const bool worse = greatest ? exceeds(*in[0], y, x) : exceeds(*in[0], x, y);
        if (better || (last && !worse)) best = a;
      }
      out[0].set_i64(o * lanes.inner + i, best);
    }
  }
  return {};
}

Inferred infer_top_k(const Node& node, Operands in) {
  const TensorType& type = in[0]->type;
  HEDDLE_TRY(accept(*in[0], "x", Accept::kNumberOrU64));
  HEDDLE_TRY_ASSIGN(const size_t axis, axis_of(node.attributes.i64("axis", -1), type));
  HEDDLE_TRY_ASSIGN(const Argument k, shape_argument(*in[1], "k"));
  if (k.dims.size() != 1) return Status::invalid("k is ", in[1]->type, "; it has to hold 1 element");
  const Dim& count = k.dims.front();
  const Dim& extent = type.shape[axis];
  const bool too_many = count.is_static() && extent.is_static() && count.value() > extent.value();
  if (too_many || (count.is_static() && count.value() < 0)) {
    return Status::invalid("k is ", count, "; axis ", axis, " of ", type, " allows 0 to ", extent);
  }
  Shape shape = type.shape;
  shape[axis] = count;
  return std::vector<Value>{typed(type.dtype, shape), typed(DType::kI64, shape)};
}

// Equal elements keep their order: the lower index comes first.
Status reference_top_k(const Node& node, DataIn in, DataOut out) {
  HEDDLE_TRY_ASSIGN(const size_t axis, axis_of(node.attributes.i64("axis", -1), in[0]->type()));
  const bool largest = node.attributes.i64("largest", 1) != 0;
  const Lanes from(in[0]->extents(), axis);
  const Lanes to(out[0].extents(), axis);
  std::vector<int64_t> order(static_cast<size_t>(from.extent));
  for (int64_t o = 0; o < from.outer; ++o) {
    for (int64_t i = 0; i < from.inner; ++i) {
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        if (!largest) std::swap(a, b);
        return exceeds(*in[0], from.at(o, a, i), from.at(o, b, i));
      });
      for (int64_t a = 0; a < to.extent; ++a) {
        const int64_t chosen = order[static_cast<size_t>(a)];
        copy_element(out[0], to.at(o, a, i), *in[0], from.at(o, chosen, i));
        out[1].set_i64(to.at(o, a, i), chosen);
      }
    }
  }
  return {};
}

Inferred infer_cumulative(const Node&, Operands in) {
  HEDDLE_TRY(accept(*in[0], "x", Accept::kNumber));
  HEDDLE_TRY(accept(*in[1], "axis", Accept::kIndex));
  if (in[1]->type.rank() != 0) HEDDLE_TRY(check_shape(*in[1], "axis", {1}));
  if (const auto axis = in[1]->integers();
      axis.has_value() && axis->size() == 1 && axis->front().is_static()) {
    HEDDLE_TRY(axis_of(axis->front().value(), in[0]->type));
  }
  return one(in[0]->type.dtype, in[0]->type.shape);
}

template <bool multiply>
Status reference_cumulative(const Node& node, DataIn in, DataOut out) {
  HEDDLE_TRY_ASSIGN(const size_t axis, axis_of(in[1]->get_i64(0), in[0]->type()));
  const bool exclusive = node.attributes.i64("exclusive") != 0;
  const bool reverse = node.attributes.i64("reverse") != 0;
  const bool floats = is_float(in[0]->dtype());
  const Lanes lanes(in[0]->extents(), axis);
  for (int64_t o = 0; o < lanes.outer; ++o) {
    for (int64_t i = 0; i < lanes.inner; ++i) {
      double real = multiply ? 1 : 0;
      int64_t whole = multiply ? 1 : 0;
      for (int64_t n = 0; n < lanes.extent; ++n) {
        const int64_t at = lanes.at(o, reverse ? lanes.extent - 1 - n : n, i);
        const double real_before = real;
        const int64_t whole_before = whole;
        if (floats) {
          real = multiply ? real * in[0]->get(at) : real + in[0]->get(at);
          out[0].set(at, exclusive ? real_before : real);
        } else {
          const int64_t x = in[0]->get_i64(at);
          whole = multiply ? wrap_mul(whole, x) : wrap_add(whole, x);
          out[0].set_i64(at, exclusive ? whole_before : whole);
        }
      }
    }
  }
  return {};
}

}  // namespace

std::vector<OpDef> order_ops() {
  using enum AttributeKind;
  const std::vector<AttributeDef> arg = {{"axis", kInt}, {"keepdims", kInt}, {"select_last_index", kInt}};
  const std::vector<AttributeDef> cumulative = {{"exclusive", kInt}, {"reverse", kInt}};
  return {
      {"ArgMax", 1, 1, 1, 1, arg, infer_arg, reference_arg<true>},
      {"ArgMin", 1, 1, 1, 1, arg, infer_arg, reference_arg<false>},
      {"TopK",
       2,
       2,
       2,
       2,
       {{"axis", kInt}, {"largest", kInt}, {"sorted", kInt}},
       infer_top_k,
       reference_top_k},
      {"CumSum", 2, 2, 1, 1, cumulative, infer_cumulative, reference_cumulative<false>},
      {"CumProd", 2, 2, 1, 1, cumulative, infer_cumulative, reference_cumulative<true>},
  };
}

}  // namespace heddle::ir
