// Products of matrices: MatMul, Gemm, and Linear with all that is fused onto it.
#include <algorithm>

#include "ir/ops/activation.h"
#include "ir/ops/rules.h"
#include "ir/ops/tables.h"
#include "ir/ops/walk.h"

namespace heddle::ir {

namespace {

Status check_products(const Value& a, const Value& b) {
  const bool known = is_float(a.type.dtype) || a.type.dtype == DType::kI32 || a.type.dtype == DType::kI64;
  if (!known) return Status::invalid("a is ", a.type, "; it has to be of a float dtype, i32 or i64");
  return same_dtype(a, "a", b, "b");
}

Status check_inner(const Dim& a, const Dim& b, const TensorType& x, const TensorType& y) {
  if (Dim::may_equal(a, b)) return {};
  return Status::invalid("the inner extents differ: ", a, " of ", x, " against ", b, " of ", y);
}

// NumPy's rule: a vector on the left is a row, on the right a column, and that axis is dropped from the
// result.
Inferred infer_matmul(const Node&, Operands in) {
  const TensorType& a = in[0]->type;
  const TensorType& b = in[1]->type;
  HEDDLE_TRY(check_products(*in[0], *in[1]));
  HEDDLE_TRY(check_rank(*in[0], "a", 1));
  HEDDLE_TRY(check_rank(*in[1], "b", 1));
  Shape left = a.shape;
  Shape right = b.shape;
  if (a.rank() == 1) left.insert(left.begin(), 1);
  if (b.rank() == 1) right.push_back(1);
  HEDDLE_TRY(check_inner(left.back(), right[right.size() - 2], a, b));
  HEDDLE_TRY_ASSIGN(Shape shape,
                    broadcast(Shape(left.begin(), left.end() - 2), Shape(right.begin(), right.end() - 2)));
  if (a.rank() > 1) shape.push_back(left[left.size() - 2]);
  if (b.rank() > 1) shape.push_back(right.back());
  return one(a.dtype, std::move(shape));
}

// c[m, n] = a[m, k] * b[k, n], for one matrix each. Row strides and column strides allow transposed reading;
// each sum runs over k in order, row by row, since whole models are checked against this.
template <class T>
void multiply(const T* a, int64_t a_row, int64_t a_column, const T* b, int64_t b_row, int64_t b_column, T* c,
              int64_t m, int64_t n, int64_t k) {
  for (int64_t i = 0; i < m; ++i) {
    T* row = c + i * n;
    std::fill(row, row + n, T{0});
    for (int64_t p = 0; p < k; ++p) {
      const T left = a[i * a_row + p * a_column];
      for (int64_t j = 0; j < n; ++j) row[j] += left * b[p * b_row + j * b_column];
    }
  }
}

template <class T>
std::vector<T> elements(const Tensor& t) {
  std::vector<T> values(static_cast<size_t>(t.elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t at = static_cast<int64_t>(i);
    values[i] = std::is_same_v<T, double> ? static_cast<T>(t.get(at)) : static_cast<T>(t.get_i64(at));
  }
  return values;
}

Extents with_matrix_axes(const Tensor& t, bool left) {
  Extents out;
  if (t.extents().rank() == 1 && left) out.push_back(1);
  for (int64_t extent : t.extents()) out.push_back(extent);
  if (t.extents().rank() == 1 && !left) out.push_back(1);
  return out;
}

Extents without_matrix_axes(const Extents& e) { return Extents(e.span().first(e.rank() - 2)); }

// T is double, or uint64_t, which wraps as 64-bit integers do without undefined behaviour.
template <class T>
void matmul(const Tensor& a, const Tensor& b, Tensor& out) {
  const Extents left = with_matrix_axes(a, true);
  const Extents right = with_matrix_axes(b, false);
  const int64_t m = left[left.rank() - 2];
  const int64_t k = left[left.rank() - 1];
  const int64_t n = right[right.rank() - 1];
  Extents batch = out.extents();
  const size_t rank = std::max(left.rank(), right.rank()) - 2;
  batch = Extents(batch.span().first(rank));
  const Strides left_batch(without_matrix_axes(left), rank);
  const Strides right_batch(without_matrix_axes(right), rank);
  const std::vector<T> x = elements<T>(a);
  const std::vector<T> y = elements<T>(b);
  std::vector<T> product(static_cast<size_t>(m * n));
  walk(batch, [&](const Index& index, int64_t flat) {
    multiply<T>(x.data() + left_batch.at(index) * m * k, k, 1, y.data() + right_batch.at(index) * k * n, n, 1,
                product.data(), m, n, k);
    for (int64_t i = 0; i < m * n; ++i) {
      const T value = product[static_cast<size_t>(i)];
      if constexpr (std::is_same_v<T, double>) {
        out.set(flat * m * n + i, value);
      } else {
        out.set_i64(flat * m * n + i, static_cast<int64_t>(value));
      }
    }
  });
}

Status reference_matmul(const Node&, DataIn in, DataOut out) {
  if (is_float(in[0]->dtype())) {
    matmul<double>(*in[0], *in[1], out[0]);
  } else {
    matmul<uint64_t>(*in[0], *in[1], out[0]);
  }
  return {};
}

Inferred infer_gemm(const Node& node, Operands in) {
  const TensorType& a = in[0]->type;
  const TensorType& b = in[1]->type;
  HEDDLE_TRY(accept(*in[0], "a", Accept::kFloat));
  HEDDLE_TRY(same_dtype(*in[0], "a", *in[1], "b"));
  HEDDLE_TRY(check_rank(*in[0], "a", 2, 2));
  HEDDLE_TRY(check_rank(*in[1], "b", 2, 2));
  const size_t ta = node.attributes.i64("transA") != 0 ? 1 : 0;
  const size_t tb = node.attributes.i64("transB") != 0 ? 1 : 0;
  HEDDLE_TRY(check_inner(a.shape[1 - ta], b.shape[tb], a, b));
  Shape shape = {a.shape[ta], b.shape[1 - tb]};
  if (const Value* c = optional_input(in, 2)) {
    HEDDLE_TRY(same_dtype(*in[0], "a", *c, "c"));
    const Result<Shape> joined = broadcast(shape, c->type.shape);
    if (!joined.ok() || !may_equal(joined.value(), shape)) {
      return Status::invalid("c is ", c->type, "; it has to broadcast to ", to_string(shape));
    }
  }
  return one(a.dtype, std::move(shape));
}

Status reference_gemm(const Node& node, DataIn in, DataOut out) {
  const bool ta = node.attributes.i64("transA") != 0;
  const bool tb = node.attributes.i64("transB") != 0;
  const double alpha = node.attributes.f64("alpha", 1);
  const double beta = node.attributes.f64("beta", 1);
  const Extents& a = in[0]->extents();
  const Extents& b = in[1]->extents();
  const int64_t m = a[ta ? 1 : 0];
  const int64_t k = a[ta ? 0 : 1];
  const int64_t n = b[tb ? 0 : 1];
  std::vector<double> product(static_cast<size_t>(m * n));
  multiply<double>(doubles(*in[0]).data(), ta ? 1 : k, ta ? m : 1, doubles(*in[1]).data(), tb ? 1 : n,
                   tb ? k : 1, product.data(), m, n, k);
  const Tensor* c = optional_input(in, 2);
  const Strides strides(c == nullptr ? Extents() : c->extents(), 2);
  walk(out[0].extents(), [&](const Index& index, int64_t flat) {
    const double added = c == nullptr ? 0 : beta * c->get(strides.at(index));
    out[0].set(flat, alpha * product[static_cast<size_t>(flat)] + added);
  });
  return {};
}

Inferred infer_linear(const Node& node, Operands in) {
  const TensorType& x = in[0]->type;
  const TensorType& w = in[1]->type;
  HEDDLE_TRY(activation_of(node));
  HEDDLE_TRY(accept(*in[0], "x", Accept::kFloat));
  HEDDLE_TRY(same_dtype(*in[0], "x", *in[1], "w"));
  HEDDLE_TRY(check_rank(*in[0], "x", 1));
  HEDDLE_TRY(check_rank(*in[1], "w", 2, 2));
  const size_t inner = node.attributes.i64("trans_w") != 0 ? 1 : 0;
  HEDDLE_TRY(check_inner(x.shape.back(), w.shape[inner], x, w));
  Shape shape = x.shape;
  shape.back() = w.shape[1 - inner];
  HEDDLE_TRY(check_addend(in, 2, "bias", {shape.back()}));
  HEDDLE_TRY(check_addend(in, 3, "residual", shape));
  return one(x.dtype, std::move(shape));
}

// y = activation(x @ w + bias) + residual: the residual comes after the activation, as in a transformer
// (unlike Conv).
Status reference_linear(const Node& node, DataIn in, DataOut out) {
  HEDDLE_TRY_ASSIGN(const Activation activation, activation_of(node));
  const bool transposed = node.attributes.i64("trans_w") != 0;
  const Extents& w = in[1]->extents();
  const int64_t k = w[transposed ? 1 : 0];
  const int64_t n = w[transposed ? 0 : 1];
  const int64_t m = n == 0 ? 0 : out[0].elements() / n;
  std::vector<double> y(static_cast<size_t>(m * n));
  multiply<double>(doubles(*in[0]).data(), k, 1, doubles(*in[1]).data(), transposed ? 1 : n,
                   transposed ? k : 1, y.data(), m, n, k);
  const Tensor* bias = optional_input(in, 2);
  const Tensor* residual = optional_input(in, 3);
  for (int64_t i = 0; i < m * n; ++i) {
    const double sum = y[static_cast<size_t>(i)] + (bias == nullptr ? 0 : bias->get(i % n));
    out[0].set(i, activate(activation, sum) + (residual == nullptr ? 0 : residual->get(i)));
  }
  return {};
}

}  // namespace

std::vector<OpDef> linear_ops() {
  using enum AttributeKind;
  return {
      {"MatMul", 2, 2, 1, 1, {}, infer_matmul, reference_matmul},
      {"Gemm",
       2,
       3,
       1,
       1,
       {{"alpha", kFloat}, {"beta", kFloat}, {"transA", kInt}, {"transB", kInt}},
       infer_gemm,
       reference_gemm},
      {"Linear",
       2,
       4,
       1,
       1,
       {{"activation", kString},
        {"activation_alpha", kFloat},
        {"activation_beta", kFloat},
        {"trans_w", kInt}},
       infer_linear,
       reference_linear},
  };
}

}  // namespace heddle::ir
