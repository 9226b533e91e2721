// reduction.cpp: sums, products, extremes, moments and norms over axes, and running sums.
#include <cmath>

#include "lanes.h"

namespace heddle::torch_backend {
namespace {

// An entry that reduces argument 0, taken in the dtype of the result's computation. `dims` and `keep` are
// the positions of these arguments.
template <Term (*f)(const Lanes&), int dims = -1, int keep = -1>
Results reduced(Call& call) {
  return Value(f(lanes_of(rounded(operand(call, 0)), dims, keep)));
}

// ---- sums, products, truths; sums of bools that stay bools are "any"

Term sum(const Lanes& lanes) { return lanes.reduce(lanes.x().boolean() ? "ReduceMax" : "ReduceSum"); }
Term product(const Lanes& lanes) { return lanes.reduce(lanes.x().boolean() ? "ReduceMin" : "ReduceProd"); }
Term mean(const Lanes& lanes) { return lanes.reduce("ReduceMean"); }
Term greatest(const Lanes& lanes) { return lanes.reduce("ReduceMax"); }
Term least(const Lanes& lanes) { return lanes.reduce("ReduceMin"); }

Term sum_of_numbers(const Lanes& lanes) {
  const Term& x = lanes.x();
  if (!x.real()) return sum(lanes);
  return lanes.reduce("ReduceSum", select(is_nan(x), 0, x));
}

template <Term (*f)(const Lanes&), int dims = -1, int keep = -1>
Results of_truths(Call& call) {
  const Term x = given(call, 0).cast(DType::boolean);
  const bool none = dims >= 0 && call.has(dims < 0 ? 0 : dims) && call.integers(dims < 0 ? 0 : dims).empty();
  return Value(none ? x : f(lanes_of(x, dims, keep)));
}

template <int dims>
Results count_nonzero(Call& call) {
  const Lanes lanes = lanes_of(given(call, 0).cast(DType::boolean).cast(DType::i64), dims, -1);
  return Value(lanes.reduce("ReduceSum"));
}

// ---- extremes

template <Term (*extreme)(const Lanes&), Term (*position)(const Lanes&)>
Results extreme_with_position(Call& call) {
  const Lanes lanes = lanes_of(operand(call, 0), 1, 2);
  return {extreme(lanes), position(lanes)};
}

Results least_and_greatest(Call& call) {
  const Lanes lanes = lanes_of(operand(call, 0), 1, 2);
  return {least(lanes), greatest(lanes)};
}

// self, dim, keepdim; without dim in the flattened tensor, whatever the result's rank.
template <Term (*position)(const Lanes&)>
Results position_in(Call& call) {
  const DType dtype = call.dtype(call.tensor(0));
  const Term x = given(call, 0).cast(wide(dtype));
  if (call.has(1)) return Value(position(lanes_of(x, 1, 2)));
  const Term flat = {call, call.reshape(x, {Int(-1)})};
  const Value found = position(Lanes(flat, {0}, false));
  return call.reshape(found, std::vector<Int>(call.result_shape().size(), Int(1)));
}

// ---- moments: self, dim, correction, keepdim

struct Moments {
  Term variance;
  Term mean;
};

Moments moments(Call& call) {
  const Lanes lanes = lanes_of(operand(call, 0), 1, 3);
  const Term& x = lanes.x();
  const Term middle = lanes.spread("ReduceMean", x);
  const Term away = x - middle;
  const Term correction = call.has(2) ? number(call, 2) : x.like(1);
  const Term freedom = greater(lanes.count() - correction, x.like(0));
  return {lanes.reduce("ReduceSum", away * away) / freedom, lanes.finished(middle)};
}

Results variance(Call& call) { return Value(moments(call).variance); }
Results deviation(Call& call) { return Value(sqrt(moments(call).variance)); }
Results variance_and_mean(Call& call) {
  const Moments both = moments(call);
  return {both.variance, both.mean};
}
Results deviation_and_mean(Call& call) {
  const Moments both = moments(call);
  return {sqrt(both.variance), both.mean};
}

// ---- norms: self, p, then dims and keep where the entry has them

Term norm_of(const Lanes& lanes, double p) {
  const Term size = abs(lanes.x());
  if (p == 2) return sqrt(lanes.reduce("ReduceSum", size * size));
  if (p == 1) return lanes.reduce("ReduceSum", size);
  if (p == INFINITY) return lanes.reduce("ReduceMax", size);
  if (p == -INFINITY) return lanes.reduce("ReduceMin", size);
  if (p == 0) return lanes.reduce("ReduceSum", (size != 0).cast(size.dtype()));
  return pow(lanes.reduce("ReduceSum", pow(size, size.like(p))), size.like(1 / p));
}

template <int dims = -1, int keep = -1>
Results norm(Call& call) {
  const double p = call.has(1) ? call.known(1) : 2;
  return Value(norm_of(lanes_of(operand(call, 0), dims, keep), p));
}

// ---- sums of exponentials

Results sum_of_exponentials(Call& call) { return Value(logsumexp(lanes_of(operand(call, 0), 1, 2))); }

// ---- running: self, dim

template <Name op>
Results running(Call& call) {
  const Term x = rounded(operand(call, 0));
  if (x.rank() == 0) return Value(x.apply("Identity"));
  return Value(x.with(op.text, call.rank0(call.integer(1))));
}

// ---- losses: self, target, reduction (0 none, 1 mean, 2 sum)

}  // namespace

std::span<const Entry> reduction_entries() {
  static constexpr Entry kEntries[] = {
      {"aten::sum", reduced<sum>},
      {"aten::sum.dim_IntList", reduced<sum, 1, 2>},
      {"aten::nansum", reduced<sum_of_numbers, 1, 2>},
      {"aten::mean", reduced<mean>},
      {"aten::mean.dim", reduced<mean, 1, 2>},
      {"aten::prod", reduced<product>},
      {"aten::prod.dim_int", reduced<product, 1, 2>},
      {"aten::max", reduced<greatest>},
      {"aten::min", reduced<least>},
      {"aten::amax", reduced<greatest, 1, 2>},
      {"aten::amin", reduced<least, 1, 2>},
      {"aten::any", of_truths<greatest>},
      {"aten::any.dim", of_truths<greatest, 1, 2>},
      {"aten::any.dims", of_truths<greatest, 1, 2>},
      {"aten::all", of_truths<least>},
      {"aten::all.dim", of_truths<least, 1, 2>},
      {"aten::all.dims", of_truths<least, 1, 2>},
      {"aten::count_nonzero", count_nonzero<1>},
      {"aten::count_nonzero.dim_IntList", count_nonzero<1>},
      {"aten::max.dim", extreme_with_position<greatest, position_of_greatest>},
      {"aten::min.dim", extreme_with_position<least, position_of_least>},
      {"aten::aminmax", least_and_greatest},
      {"aten::argmax", position_in<position_of_greatest>},
      {"aten::argmin", position_in<position_of_least>},
      {"aten::var.correction", variance},
      {"aten::std.correction", deviation},
      {"aten::var_mean.correction", variance_and_mean},
      {"aten::std_mean.correction", deviation_and_mean},
      {"aten::norm.Scalar", norm<>, Numbers::known},
      {"aten::norm.ScalarOpt_dtype", norm<>, Numbers::known},
      {"aten::norm.ScalarOpt_dim", norm<2, 3>, Numbers::known},
      {"aten::norm.ScalarOpt_dim_dtype", norm<2, 3>, Numbers::known},
      {"aten::linalg_vector_norm", norm<2, 3>, Numbers::known},
      {"aten::logsumexp", sum_of_exponentials},
      {"aten::cumsum", running<"CumSum">},
      {"aten::cumprod", running<"CumProd">},
  };
  return kEntries;
}

}  // namespace heddle::torch_backend
