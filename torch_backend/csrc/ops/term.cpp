// term.cpp: the functions that several entries share.
#include "term.h"

#include <cmath>

#include "../bounds.h"
#include "../since.h"

namespace heddle::torch_backend {

// Near zero 1 + x would lose x's digits.
Term log1p(const Term& x) {
  const Term near = 2 * (x / (2 + x)).apply("Atanh");
  return select(abs(x) < 0.5, near, log(1 + x));
}

// Elu is exp(x) - 1 below zero, digits kept; exp(x) - 1 = exp(x) (1 - exp(-x)) above.
Term expm1(const Term& x) { return select(x > 0, exp(x) * -(-x).apply("Elu"), x.apply("Elu")); }

Term trunc(const Term& x) { return select(x < 0, x.apply("Ceil"), floor(x)); }

Term sign_bit(const Term& x) {
  const bool twice = x.dtype() == DType::f64;
  const Term held = x.cast(twice ? DType::f64 : DType::f32);
  return held.apply("BitCast", {{"to", std::string(twice ? "i64" : "i32")}}) < 0;
}

Term copy_sign(const Term& x, const Term& sign) {
  const Term size = abs(x);
  return select(sign_bit(sign), -size, size);
}

namespace {

Term bound(Call& call, int argument, Bound side) {
  const DType dtype = wide(call.result_dtype());
  const std::optional<WholeRange> range = range_of(dtype);
  if (!range) return number(call, argument);
  if (call.is_fixable(argument))
    call.unsupported("a bound of whole numbers has to be a fixed number in a graph");
  if (call.is_known(argument)) {  // an eager call's was looked at before
    const std::string wrong = wrong_with_bound(*range, side, std::trunc(call.known(argument)));
    if (!wrong.empty()) throw Error(ErrorCode::invalid, wrong);
  }
  if (!kBoundsMayLieOutside && !call.is_computed(argument)) return number(call, argument);
  const Term held(call, call.scalar(argument, DType::i64));
  return lesser(greater(held, held.like(range->lowest)), held.like(range->highest)).cast(dtype);
}

}  // namespace

Term least(Call& call, int argument) { return bound(call, argument, Bound::least); }
Term greatest(Call& call, int argument) { return bound(call, argument, Bound::greatest); }

Term without_negatives(const Term& index) {
  return index.cast(DType::i64).with("BitwiseAnd", index.call().rank0(Int(INT64_MAX)));
}

std::vector<Int> sizes(Call& call, Value value) {
  std::vector<Int> all;
  for (int axis = 0; axis < call.rank(value); ++axis) all.push_back(call.size_of(value, axis));
  return all;
}

Value shape_of(Call& call, Value value) {
  std::vector<int64_t> known;
  for (const std::optional<int64_t>& extent : call.shape(value)) {
    if (!extent) return call.node("Shape", {value});
    known.push_back(*extent);
  }
  return call.vector(std::span<const int64_t>(known));
}

Term iota(Call& call, const Int& count) {
  return {call, call.node("Range", {call.rank0(0), call.rank0(count), call.rank0(1)})};
}

Term positions(Call& call, Value value, int axis) {
  const int rank = call.rank(value);
  std::vector<Int> shape(static_cast<size_t>(rank), Int(1));
  const int front = from_front(axis, rank);
  shape[static_cast<size_t>(front)] = Int(-1);
  return {call, call.reshape(iota(call, call.size_of(value, front)), shape)};
}

Term lifted(const Term& x) { return x.rank() == 0 ? Term(x.call(), x.call().unsqueeze(x, {0})) : x; }

}  // namespace heddle::torch_backend
