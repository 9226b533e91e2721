// matrix.cpp: products of matrices and vectors.
#include <algorithm>
#include <cmath>

#include "lanes.h"
#include "parts.h"

namespace heddle::torch_backend {
namespace {

// Products are of floats, i32 or i64; what is narrower wraps when it is cast back.
DType product_dtype(DType dtype) {
  if (is_float(dtype)) return wide(dtype);
  return dtype == DType::i32 ? dtype : DType::i64;
}

Value factor(Call& call, int argument) {
  const Value value = call.tensor(argument);
  return call.cast(value, product_dtype(call.dtype(value)));
}

Value multiply(Call& call, Value a, Value b) { return call.node("MatMul", {a, b}); }

Results product(Call& call) { return multiply(call, factor(call, 0), factor(call, 1)); }

Results dot(Call& call) { return multiply(call, factor(call, 0), factor(call, 1)); }

Results outer(Call& call) {
  return call.node("Mul", {call.unsqueeze(factor(call, 0), {1}), call.unsqueeze(factor(call, 1), {0})});
}

// product + beta * self. With a beta of 0 self does not count, NaN or not.
Value with_self(Call& call, Value product, int beta) {
  const DType dtype = call.dtype(product);
  if (call.is(beta, 0)) return product;
  const Value self = call.cast(call.tensor(0), dtype);
  const Value addend = call.is(beta, 1) ? self : call.node("Mul", {self, call.scalar(beta, dtype)});
  return call.node("Add", {product, addend});
}

Value scaled(Call& call, Value product, int alpha) {
  if (call.is(alpha, 1)) return product;
  return call.node("Mul", {product, call.scalar(alpha, call.dtype(product))});
}

// alpha * product + beta * self. With an alpha of 0 the product does not count.
Value added(Call& call, Value product, int beta, int alpha) {
  if (!call.is(alpha, 0)) return with_self(call, scaled(call, product, alpha), beta);
  const Value nothing = call.literal(0, call.dtype(product));
  const Value zeros = call.node("Where", {call.literal(0, DType::boolean), product, nothing});
  return with_self(call, zeros, beta);
}

// (self, a, b, beta, alpha); vectors and batches as MatMul has them.
Results add_product(Call& call) {
  return added(call, multiply(call, factor(call, 1), factor(call, 2)), 3, 4);
}

// A vector added to each row, which Linear takes in.
Results addmm(Call& call) {
  const Value self = call.tensor(0), a = factor(call, 1), b = factor(call, 2);
  const bool plain = call.is(3, 1) && call.is(4, 1) && is_float(call.dtype(a));
  if (!plain || call.rank(self) != 1 || call.shape(self)[0] != call.shape(b)[1] || !call.shape(self)[0])
    return add_product(call);
  return call.node("Linear", {a, b, call.cast(self, call.dtype(a))});
}

Results addmm_activation(Call& call) {
  const Value sum = addmm(call)[0];
  if (!call.flag(5)) return call.node("Relu", {sum});
  return call.node("Gelu", {sum}, {{"approximate", std::string("none")}});
}

Results addbmm(Call& call) {
  const Value all = multiply(call, factor(call, 1), factor(call, 2));
  return added(call, reduce(call, "ReduceSum", all, {0}, false), 3, 4);
}

Results addr(Call& call) {
  const Value product =
      call.node("Mul", {call.unsqueeze(factor(call, 1), {1}), call.unsqueeze(factor(call, 2), {0})});
  return with_self(call, scaled(call, product, 4), 3);
}

// Sums over the last axis of both.
Results inner(Call& call) {
  const Value a = factor(call, 0), b = factor(call, 1);
  if (call.rank(a) == 0 || call.rank(b) == 0) return call.node("Mul", {a, b});
  if (call.rank(b) < 3) return multiply(call, a, call.rank(b) == 1 ? b : call.swap_axes(b, 0, 1));
  std::vector<Int> sizes = sizes_of(call, a);
  sizes.pop_back();
  std::vector<Int> rows = sizes_of(call, b);
  const Int depth = rows.back();
  rows.pop_back();
  sizes.insert(sizes.end(), rows.begin(), rows.end());
  const Value matrix = call.reshape(b, {-1, depth});
  return call.reshape(multiply(call, a, call.swap_axes(matrix, 0, 1)), sizes);
}

Results linear_entry(Call& call) {
  const Value bias = call.has(2) ? factor(call, 2) : kAbsent;
  return linear(call, factor(call, 0), factor(call, 1), bias);
}

// self [rows, k], matrices [groups, k, n], where the groups of rows end.
Results rows_of_groups(Call& call) {
  return call.node("GroupedMatMul", {call.tensor(0), call.tensor(1), call.tensor(2)});
}

// All differences at once: products would lose the digits of near points.
Results distances(Call& call) {
  const Value a = widened(call, 0), b = widened(call, 1);
  const int rank = std::max(call.rank(a), call.rank(b));
  const double p = call.real(2);
  const DType dtype = call.dtype(a);
  const Value apart =
      call.node("Sub", {call.unsqueeze(a, {call.rank(a) - 1}), call.unsqueeze(b, {call.rank(b) - 2})});
  const std::vector<int64_t> last = {rank};
  if (call.shape(a).back() == 0) return reduce(call, "ReduceSum", apart, last, false);
  if (p == 2) return reduce(call, "ReduceL2", apart, last, false);
  const Value size = call.node("Abs", {apart});
  if (std::isinf(p)) return reduce(call, "ReduceMax", size, last, false);
  if (p == 1) return reduce(call, "ReduceSum", size, last, false);
  if (p == 0) {
    const Value differs = call.node("Not", {call.node("Equal", {apart, call.literal(0, dtype)})});
    return reduce(call, "ReduceSum", call.cast(differs, dtype), last, false);
  }
  const Value powers = call.node("Pow", {size, call.literal(p, dtype)});
  return call.node("Pow", {reduce(call, "ReduceSum", powers, last, false), call.literal(1 / p, dtype)});
}

// self, other, dim, along which both have three elements.
Results cross(Call& call) {
  const Term a = operand(call, 0);
  const Term b = operand(call, 1);
  const int axis = from_front(static_cast<int>(call.integer(2)), a.rank());
  const auto at = [&](const Term& x, int64_t i) {
    i %= 3;
    return Term(call, call.slice(x, axis, Int(i), Int(i + 1)));
  };
  std::vector<Value> parts;
  for (int64_t i = 0; i < 3; ++i) parts.push_back(at(a, i + 1) * at(b, i + 2) - at(a, i + 2) * at(b, i + 1));
  return call.node("Concat", parts, {{"axis", int64_t{axis}}});
}

Results trace(Call& call) {
  const Term x = operand(call, 0);
  const Term on_diagonal = positions(call, x, 0) == positions(call, x, 1);
  return Value(Lanes(select(on_diagonal, x, 0), {}, false).reduce("ReduceSum"));
}

}  // namespace

Value linear(Call& call, Value x, Value weight, Value bias) {
  const bool fits = is_float(call.dtype(x)) && call.rank(weight) == 2 && call.rank(x) > 0;
  if (fits && (!present(bias) || call.shape(bias) == Extents{call.shape(weight)[0]})) {
    std::vector<Value> inputs = {x, weight};
    if (present(bias)) inputs.push_back(bias);
    return call.node("Linear", inputs, {{"trans_w", int64_t{1}}});
  }
  const Value y = call.node("MatMul", {x, call.rank(weight) == 2 ? call.swap_axes(weight, 0, 1) : weight});
  return present(bias) ? call.node("Add", {y, bias}) : y;
}

std::span<const Entry> matrix_entries() {
  static constexpr Entry kEntries[] = {
      {"aten::mm", product},
      {"aten::bmm", product},
      {"aten::mv", product},
      {"aten::matmul", product},
      {"aten::linalg_matmul", product},
      {"aten::dot", dot},
      {"aten::vdot", dot},
      {"aten::outer", outer},
      {"aten::ger", outer},
      {"aten::inner", inner},
      {"aten::addmm", addmm},
      {"aten::_addmm_activation", addmm_activation},
      {"aten::addmv", add_product},
      {"aten::baddbmm", add_product},
      {"aten::addbmm", addbmm},
      {"aten::addr", addr},
      {"aten::linear", linear_entry},
      {"heddle::rows_of_groups", rows_of_groups},
      {"aten::linalg_cross", cross},
      {"aten::trace", trace},
      {"aten::_cdist_forward", distances},
      {"aten::cdist", distances},
  };
  return kEntries;
}

}  // namespace heddle::torch_backend
