// GroupedMatMul: each row times the matrix of its group, as mixtures of experts take them.
//
// Inputs a [M, K], b [G, K, N] (with trans_b [G, N, K]), ends [G] of i32 or i64, which ascend; output [M, N].
// A row's group is the number of ends that are not beyond it; what is past the last end gives 0.
#include <algorithm>
#include <vector>

#include "ir/ops/rules.h"
#include "ir/ops/tables.h"

namespace heddle::ir {

namespace {

Inferred infer_grouped_product(const Node& node, Operands in) {
  HEDDLE_TRY(accept(*in[0], "a", Accept::kFloat));
  HEDDLE_TRY(same_dtype(*in[0], "a", *in[1], "b"));
  HEDDLE_TRY(accept(*in[2], "ends", Accept::kIndex));
  HEDDLE_TRY(check_rank(*in[0], "a", 2, 2));
  HEDDLE_TRY(check_rank(*in[1], "b", 3, 3));
  HEDDLE_TRY(check_rank(*in[2], "ends", 1, 1));
  const bool transposed = node.attributes.i64("trans_b") != 0;
  const Shape &a = in[0]->type.shape, &b = in[1]->type.shape;
  const Dim &k = b[transposed ? 2 : 1], &n = b[transposed ? 1 : 2];
  if (!Dim::may_equal(a[1], k))
    return Status::invalid("the inner extents differ: ", a[1], " of ", in[0]->type, " against ", k, " of ",
                           in[1]->type);
  HEDDLE_TRY(check_shape(*in[2], "ends", {b[0]}));
  return one(in[0]->type.dtype, {a[0], n});
}

Status reference_grouped_product(const Node& node, DataIn in, DataOut out) {
  const Tensor &a = *in[0], &b = *in[1], &ends = *in[2];
  const bool transposed = node.attributes.i64("trans_b") != 0;
  std::vector<int64_t> sorted;
  for (int64_t g = 0; g < ends.elements(); ++g) sorted.push_back(ends.get_i64(g));
  std::ranges::sort(sorted);
  const int64_t groups = ends.elements(), k = a.extents()[1], n = out[0].extents()[1];
  for (int64_t row = 0; row < a.extents()[0]; ++row) {
    const int64_t group = std::ranges::upper_bound(sorted, row) - sorted.begin();
    for (int64_t column = 0; column < n; ++column) {
      double sum = 0;
      for (int64_t i = 0; group < groups && i < k; ++i) {
        const int64_t at = transposed ? column * k + i : i * n + column;
        sum += a.get(row * k + i) * b.get(group * k * n + at);
      }
      out[0].set(row * n + column, sum);
    }
  }
  return {};
}

}  // namespace

std::vector<OpDef> grouped_product_ops() {
  using enum AttributeKind;
  return {
      {"GroupedMatMul", 3, 3, 1, 1, {{"trans_b", kInt}}, infer_grouped_product, reference_grouped_product}};
}

}  // namespace heddle::ir
