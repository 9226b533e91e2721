// lanes.cpp: reductions over lanes.
#include "lanes.h"

namespace heddle::torch_backend {
namespace {

Term position(const Lanes& lanes, std::string_view op, const Term& x) {
  const Term found = x.apply(op, {{"axis", lanes.axes().at(0)}, {"keepdims", int64_t{1}}});
  return lanes.finished(found);
}

}  // namespace

Lanes::Lanes(const Term& x, const std::vector<int64_t>& axes, bool keep) : x_(lifted(x)), keep_(keep) {
  const int rank = x.rank();
  if (rank == 0) {
    axes_ = {0};
    keep_ = false;
    return;
  }
  for (const int64_t axis : axes) axes_.push_back(from_front(static_cast<int>(axis), rank));
  for (int axis = 0; axes.empty() && axis < rank; ++axis) axes_.push_back(axis);
}

Term Lanes::reduced(std::string_view op, const Term& other, bool keep) const {
  Call& call = x_.call();
  return other.with(op, call.vector(std::span<const int64_t>(axes_)), {{"keepdims", int64_t{keep ? 1 : 0}}});
}

Term Lanes::finished(const Term& spread) const {
  return keep_ ? spread : Term(x_.call(), x_.call().squeeze(spread, axes_));
}

Term Lanes::count() const {
  Call& call = x_.call();
  int64_t known = 1;
  for (const int64_t axis : axes_) {
    const std::optional<int64_t> extent = call.shape(x_).at(static_cast<size_t>(axis));
    if (!extent) {
      const Value extents = call.node("Gather", {call.node("Shape", {x_}), call.vector(axes_)});
      return Term(call, call.node("ReduceProd", {extents}, {{"keepdims", int64_t{0}}})).cast(x_.dtype());
    }
    known *= *extent;
  }
  return x_.like(static_cast<double>(known));
}

Lanes lanes_of(const Term& x, int dims, int keep) {
  Call& call = x.call();
  const bool given = dims >= 0 && call.has(dims);
  return {x, given ? call.integers(dims) : std::vector<int64_t>(), keep >= 0 && call.flag(keep)};
}

Term position_of_greatest(const Lanes& lanes) {
  const Term& x = lanes.x();
  return position(lanes, "ArgMax", x.boolean() ? x.cast(DType::i64) : x);
}

// To ArgMin a NaN is the greatest.
Term position_of_least(const Lanes& lanes) {
  const Term& x = lanes.x();
  if (x.real()) return position(lanes, "ArgMax", -x);
  return position(lanes, "ArgMin", x.boolean() ? x.cast(DType::i64) : x);
}

// A lane whose greatest is infinite has no finite shift.
Term logsumexp(const Lanes& lanes) {
  const Term most = lanes.spread("ReduceMax", lanes.x());
  const Term shift = select(is_infinite(most), 0, most);
  const Term total = lanes.spread("ReduceSum", exp(lanes.x() - shift));
  return lanes.finished(log(total) + shift);
}

}  // namespace heddle::torch_backend
