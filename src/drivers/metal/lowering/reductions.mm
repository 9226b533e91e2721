// Reductions over any axes. MPSGraph's keep the axes with extent 1; settling gives the node's shape.
#include <numeric>

#include "drivers/metal/lowering/lowering.h"
#include "ir/tensor_type.h"

namespace heddle::metal {
namespace {

Result<Axes> axes_of(const Lowering& l) {
  Axes given;
  if (l.has(1)) {
    HEDDLE_TRY_ASSIGN(given, l.integers(1, "axes"));
  }
  const size_t rank = at_least_one_axis(l.extents(0)).rank();
  if (given.empty() && l.attributes().i64("noop_with_empty_axes") == 0) {
    given.resize(rank);
    std::iota(given.begin(), given.end(), 0);
  }
  for (int64_t& axis : given) {
    HEDDLE_TRY_ASSIGN(const size_t normal, ir::normalize_axis(axis, rank));
    axis = static_cast<int64_t>(normal);
  }
  return given;
}

template <class F>
Status reduce(Lowering& l, F&& f) {
  HEDDLE_TRY_ASSIGN(const Axes axes, axes_of(l));
  l.outputs[0] = f(l.emit, l.inputs[0], axes);
  return {};
}

template <auto f>  // Emit::f(x, axes)
Status plain(Lowering& l) {
  return reduce(l, [](const Emit& e, Tensor x, const Axes& axes) { return (e.*f)(x, axes); });
}

Status lower_mean(Lowering& l) {
  return reduce(l, [](const Emit& e, Tensor x, const Axes& axes) {
    if (ir::is_float(dtype_of(x))) return e.mean(x, axes);
    int64_t count = 1;
    for (const int64_t axis : axes) count *= extents_of(x)[static_cast<size_t>(axis)];
    Tensor total = e.sum(e.cast(x, ir::DType::kI64), axes);
    return e.cast(e.quotient(total, e.whole(count, ir::DType::kI64)), dtype_of(x));
  });
}

Status lower_sum_square(Lowering& l) {
  return reduce(l, [](const Emit& e, Tensor x, const Axes& axes) { return e.sum(e.mul(x, x), axes); });
}

Status lower_length(Lowering& l) {
  if (!ir::is_float(dtype_of(l.inputs[0])))
    return Status::unsupported("the length of integers has no exact root on Metal");
  return reduce(l,
                [](const Emit& e, Tensor x, const Axes& axes) { return e.sqrt(e.sum(e.mul(x, x), axes)); });
}

// Over bool: all and any are the least and the greatest of 0 and 1.
template <auto f>
Status extreme(Lowering& l) {
  return reduce(l, [](const Emit& e, Tensor x, const Axes& axes) {
    const ir::DType dtype = dtype_of(x);
    if (dtype != ir::DType::kBool) return (e.*f)(x, axes);
    return e.cast((e.*f)(e.cast(x, ir::DType::kI32), axes), dtype);
  });
}

}  // namespace

std::span<const PathEntry> reduction_paths() {
  using enum Path;
  constexpr std::string_view kSummed = "f16 and bf16 are summed in f32";
  static constexpr PathEntry kEntries[] = {
      {"ReduceSum", graph, plain<&Emit::sum>, kWide, kSummed},
      {"ReduceProd", graph, plain<&Emit::product>, kWide, kSummed},
      {"ReduceMean", composed, lower_mean, kWide, "integers are summed in i64 and divided"},
      {"ReduceMax", graph, extreme<&Emit::greatest>, kWide, "the operator that keeps NaN"},
      {"ReduceMin", graph, extreme<&Emit::least>, kWide, "the operator that keeps NaN"},
      {"ReduceL2", composed, lower_length, kWide, "MPSGraph has no such operator"},
      {"ReduceSumSquare", composed, lower_sum_square, kWide, "MPSGraph has no such operator"},
  };
  return kEntries;
}

}  // namespace heddle::metal
