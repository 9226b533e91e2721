// ArgMax, ArgMin, TopK and running totals.
#include <limits>
#include <numeric>

#include "drivers/metal/lowering/lowering.h"
#include "drivers/metal/lowering/sorting.h"
#include "ir/tensor_type.h"

namespace heddle::metal {
namespace {

// The first of the greatest, or the last: then the lanes are turned round. Which of equals MPSGraph gives is
// not promised, so the greatest is found first, then the first place that holds it. NaN counts as greatest.
template <bool greatest>
Status lower_arg(Lowering& l) {
  const Emit& e = l.emit;
  Tensor x = l.inputs[0];
  const ir::Extents extents = extents_of(x);
  HEDDLE_TRY_ASSIGN(const size_t axis, ir::normalize_axis(l.attributes().i64("axis"), extents.rank()));
  const Axes axes{static_cast<int64_t>(axis)};
  const bool last = l.attributes().i64("select_last_index") != 0;
  const bool floats = ir::is_float(dtype_of(x));
  Tensor best = greatest ? e.greatest(x, axes) : e.least(x, axes);
  Tensor holds = e.equal(x, best);
  if (floats && greatest) holds = e.either(holds, e.is_nan(x));
  if (floats && !greatest) {
    // The least that is a number; of NaN only, any will do.
    best = e.least(e.choose(e.is_nan(x), e.like(std::numeric_limits<double>::infinity(), x), x), axes);
    holds = e.equal(x, best);
  }
  ir::Extents lane;
  for (size_t i = 0; i < extents.rank(); ++i) lane.push_back(i == axis ? extents[i] : 1);
  Tensor place = e.counting(axis, lane), none = e.whole(last ? -1 : extents[axis], ir::DType::kI32);
  Tensor found = e.choose(holds, place, none);
  found = last ? e.greatest(found, axes) : e.least(found, axes);
  Tensor all_nan = e.equal(found, none);
  found = e.choose(all_nan, e.whole(last ? extents[axis] - 1 : 0, ir::DType::kI32), found);
  l.outputs[0] = e.cast(found, ir::DType::kI64);
  return {};
}

// By an order of all, of which the first k are taken; of equals the first comes first.
Status lower_top_k(Lowering& l) {
  const Emit& e = l.emit;
  const ir::Extents extents = extents_of(l.inputs[0]);
  HEDDLE_TRY_ASSIGN(const size_t axis, ir::normalize_axis(l.attributes().i64("axis", -1), extents.rank()));
  const bool largest = l.attributes().i64("largest", 1) != 0;
  const int64_t k = at_least_one_axis(l.out_extents())[axis], lane = extents[axis];
  Axes to_last(extents.rank());
  std::iota(to_last.begin(), to_last.end(), 0);
  std::swap(to_last[axis], to_last.back());  // its own inverse
  Tensor turned = e.transpose(l.inputs[0], to_last);
  ir::Extents made = extents_of(turned);
  made[made.rank() - 1] = k;
  Tensor rows = e.reshape(turned, {extents.elements() / lane, lane});
  HEDDLE_TRY_ASSIGN(Tensor order, order_of_rows(e, rows, largest));
  order = e.slice(order, 1, 0, k);
  const auto back = [&](Tensor t) { return e.transpose(e.reshape(t, made), to_last); };
  l.outputs[0] = back(e.gather_elements(rows, order, 1));
  l.outputs[1] = e.cast(back(order), ir::DType::kI64);
  return {};
}

template <auto f>  // Emit::f(x, axis, exclusive, reverse)
Status running(Lowering& l) {
  HEDDLE_TRY_ASSIGN(const Axes given, l.integers(1, "axis"));
  HEDDLE_TRY_ASSIGN(const size_t axis, ir::normalize_axis(given[0], extents_of(l.inputs[0]).rank()));
  l.outputs[0] = (l.emit.*f)(l.inputs[0], axis, l.attributes().i64("exclusive") != 0,
                             l.attributes().i64("reverse") != 0);
  return {};
}

}  // namespace

std::span<const PathEntry> order_paths() {
  using enum Path;
  static constexpr PathEntry kEntries[] = {
      {"ArgMax", composed, lower_arg<true>, kWide,
       "MPSGraph promises neither the first of equals nor NaN's place"},
      {"ArgMin", composed, lower_arg<false>, kWide,
       "MPSGraph promises neither the first of equals nor NaN's place"},
      {"TopK", composed, lower_top_k, kPlain, "by an order of all: MPSGraph's own takes k up to 16"},
      {"CumSum", graph, running<&Emit::running_sum>, kWide, "f16 and bf16 are summed in f32"},
      {"CumProd", graph, running<&Emit::running_product>, kWide, "f16 and bf16 are multiplied in f32"},
  };
  return kEntries;
}

}  // namespace heddle::metal
