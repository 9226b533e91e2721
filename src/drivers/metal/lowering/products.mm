// MatMul, Gemm, Linear and MatMulInteger.
#include "drivers/metal/lowering/products.h"

#include <algorithm>

namespace heddle::metal {
namespace {

// Two plain matrices are what MPSGraph hands to its NDArray multiplication, which is wrong when three threads
// are in it. A third axis, of 1, keeps it with the graph's own kernels.
Tensor whole_product(const Lowering& l, Tensor x, Tensor y) {
  const Emit& e = l.emit;
  const bool plain = extents_of(x).rank() == 2 && extents_of(y).rank() == 2;
  if (!plain || !l.defences.products_by_graph) return e.matmul(x, y);
  ir::Extents out{extents_of(x)[0], extents_of(y)[1]};
  return e.reshape(e.matmul(e.with_rank(x, 3), e.with_rank(y, 3)), out);
}

// Cut until every part is one that MPSGraph multiplies rightly.
Tensor cut_product(const Lowering& l, Tensor x, Tensor y) {
  const Emit& e = l.emit;
  const Limits& limits = e.limits();
  const size_t row = extents_of(x).rank() - 2, column = row + 1;
  const int64_t rows = extents_of(x)[row], terms = extents_of(x)[column], columns = extents_of(y)[column];
  std::vector<Tensor> parts;
  for (int64_t begin = 0; rows > limits.product_extent && begin < rows; begin += limits.product_extent) {
    const int64_t count = std::min(limits.product_extent, rows - begin);
    parts.push_back(cut_product(l, e.slice(x, row, begin, count), y));
  }
  if (!parts.empty()) return e.concat(parts, row);
  for (int64_t begin = 0; columns > limits.product_extent && begin < columns;
       begin += limits.product_extent) {
    const int64_t count = std::min(limits.product_extent, columns - begin);
    parts.push_back(cut_product(l, x, e.slice(y, column, begin, count)));
  }
  if (!parts.empty()) return e.concat(parts, column);
  const bool crowded = std::min(rows, columns) >= limits.product_crowd;
  const int64_t most =
      crowded ? std::min(limits.product_extent, limits.product_terms) : limits.product_extent;
  if (terms <= most) return whole_product(l, x, y);
  Tensor total = nil;
  for (int64_t begin = 0; begin < terms; begin += most) {
    const int64_t count = std::min(most, terms - begin);
    Tensor part = whole_product(l, e.slice(x, column, begin, count), e.slice(y, row, begin, count));
    total = total == nil ? part : e.add(total, part);
  }
  return total;
}

// As one leading axis; of 1 where it is to broadcast.
Tensor with_one_batch(const Emit& e, Tensor t, const ir::Extents& batch) {
  const ir::Extents from = extents_of(t);
  ir::Extents matrix(from.span().last(2)), whole = batch;
  int64_t own = 1;
  for (size_t i = 0; i + 2 < from.rank(); ++i) own *= from[i];
  for (const int64_t extent : matrix) whole.push_back(extent);
  if (own > 1) t = e.broadcast(t, whole);
  return e.reshape(t, {own > 1 ? batch.elements() : 1, matrix[0], matrix[1]});
}

}  // namespace

Tensor product(const Lowering& l, Tensor x, Tensor y) {
  const Emit& e = l.emit;
  const ir::Extents left = extents_of(x), right = extents_of(y);
  const bool integers = ir::is_integer(dtype_of(x));
  const auto multiplied = [&] { return integers ? e.product_of_integers(x, y) : cut_product(l, x, y); };
  if (static_cast<int64_t>(std::max(left.rank(), right.rank())) <= e.limits().product_axes)
    return multiplied();
  const ir::Extents batch = common(ir::Extents(left.span().first(left.rank() - 2)),
                                   ir::Extents(right.span().first(right.rank() - 2)));
  x = with_one_batch(e, x, batch), y = with_one_batch(e, y, batch);
  ir::Extents out = batch;
  out.push_back(left[left.rank() - 2]);
  out.push_back(right[right.rank() - 1]);
  return e.reshape(multiplied(), out);
}

namespace {

// A vector on the left is a row, on the right a column.
Status lower_matmul(Lowering& l) {
  const Emit& e = l.emit;
  Tensor x = l.inputs[0], y = l.inputs[1];
  const ir::Extents right = l.extents(1);
  if (l.extents(0).rank() == 1) x = e.with_rank(x, 2);
  if (right.rank() == 1) y = e.reshape(y, {right[0], 1});
  const size_t rank = std::max(extents_of(x).rank(), extents_of(y).rank());
  l.outputs[0] = product(l, e.with_rank(x, rank), e.with_rank(y, rank));
  return {};
}

Status lower_gemm(Lowering& l) {
  const Emit& e = l.emit;
  const double alpha = l.attributes().f64("alpha", 1), beta = l.attributes().f64("beta", 1);
  Tensor x = l.attributes().i64("transA") != 0 ? e.swap_last(l.inputs[0]) : l.inputs[0];
  Tensor y = l.attributes().i64("transB") != 0 ? e.swap_last(l.inputs[1]) : l.inputs[1];
  Tensor out = product(l, x, y);
  if (alpha != 1) out = e.mul(out, e.like(alpha, out));
  if (l.has(2)) {
    Tensor added = beta == 1 ? l.inputs[2] : e.mul(l.inputs[2], e.like(beta, out));
    out = e.add(out, added);
  }
  l.outputs[0] = out;
  return {};
}

// activation(x @ w + bias) + residual
Status lower_linear(Lowering& l) {
  const Emit& e = l.emit;
  HEDDLE_TRY_ASSIGN(const ir::Activation activation, ir::activation_of(l.node));
  Tensor w = l.attributes().i64("trans_w") != 0 ? e.swap_last(l.inputs[1]) : l.inputs[1];
  const ir::Extents x = l.extents(0);
  const int64_t inner = x[x.rank() - 1];
  Tensor out = product(l, e.reshape(l.inputs[0], {x.elements() / inner, inner}), w);
  if (l.has(2)) out = e.add(out, l.inputs[2]);
  out = e.reshape(e.activate(out, activation), l.out_extents());
  if (l.has(3)) out = e.add(out, l.inputs[3]);
  l.outputs[0] = out;
  return {};
}

Tensor less_zero_point(const Lowering& l, size_t operand, size_t point) {
  Tensor x = l.emit.cast(l.inputs[operand], ir::DType::kF32);
  if (!l.has(point)) return x;
  return l.emit.sub(x, l.emit.cast(l.inputs[point], ir::DType::kF32));
}

// Products of bytes are exact in f32 as long as their sum stays below 2^24: 258 terms at a time.
Status lower_matmul_integer(Lowering& l) {
  const Emit& e = l.emit;
  constexpr int64_t kTerms = (1 << 24) / (255 * 255);
  Tensor x = less_zero_point(l, 0, 2), y = less_zero_point(l, 1, 3);
  if (l.extents(0).rank() == 1) x = e.with_rank(x, 2);
  if (l.extents(1).rank() == 1) y = e.reshape(y, {l.extents(1)[0], 1});
  const size_t rank = std::max(extents_of(x).rank(), extents_of(y).rank());
  x = e.with_rank(x, rank);
  y = e.with_rank(y, rank);
  const int64_t inner = extents_of(x)[rank - 1];
  Tensor total = nil;
  for (int64_t begin = 0; begin < inner; begin += kTerms) {
    const int64_t count = std::min(kTerms, inner - begin);
    Tensor part = e.cast(product(l, e.slice(x, rank - 1, begin, count), e.slice(y, rank - 2, begin, count)),
                         ir::DType::kI32);
    total = total == nil ? part : e.add(total, part);
  }
  l.outputs[0] = total;
  return {};
}

}  // namespace

std::span<const PathEntry> product_paths() {
  using enum Path;
  constexpr std::string_view kAxis = "with an axis of 1 in front: two plain matrices reach the NDArray "
                                     "multiplication, wrong from 3 threads on; "
                                     "integers by multiply and sum, which MPSGraph's product does not take";
  static constexpr PathEntry kEntries[] = {
      {"MatMul", composed, lower_matmul, kWide | kHalves, kAxis},
      {"Gemm", composed, lower_gemm, kWide | kHalves, kAxis},
      {"Linear", composed, lower_linear, kWide | kHalves, kAxis},
      {"GroupedMatMul", refused, nullptr, kPlain,
       "the plan makes it of others: MPSGraph has no such product"},
      {"MatMulInteger", composed, lower_matmul_integer, kPlain,
       "in f32, 258 terms at a time, which is exact: MPSGraph's product takes floats only"},
  };
  return kEntries;
}

}  // namespace heddle::metal
