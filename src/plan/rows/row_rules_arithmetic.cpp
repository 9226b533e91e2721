#include <algorithm>

#include "plan/passes/rewrite.h"
#include "plan/rows/row_rules.h"

namespace heddle::plan {

namespace {

Rows all_fixed_but_first(const RowContext& c) {
  for (size_t i = 1; i < c.in.size(); ++i) {
    if (!c.fixed(i)) return Rows::mixed(text("takes operand ", i, " from the rows; it has to be fixed"));
  }
  return c.rows(0) ? c.in[0] : Rows::mixed("has no rows in its first operand");
}

// Works along one axis, which may not be that of the rows.
Rows along_axis(const RowContext& c, int64_t given, std::string_view verb) {
  const auto axis = ir::normalize_axis(given, c.shape(0).size());
  if (!axis.ok() || *axis == c.in[0].axis) {
    return Rows::mixed(text(verb, " axis ", c.in[0].axis, ", which holds the rows"));
  }
  return all_fixed_but_first(c);
}

Rows softmax(const RowContext& c) {
  return along_axis(c, c.node.attributes.i64("axis", -1), "normalises over");
}

// From an axis to the last.
Rows layer_norm(const RowContext& c) {
  const auto axis = ir::normalize_axis(c.node.attributes.i64("axis", -1), c.shape(0).size());
  if (!axis.ok() || (c.rows(0) && c.in[0].axis >= *axis)) {
    return Rows::mixed(text("normalises over axis ", c.in[0].axis, ", which holds the rows"));
  }
  return all_fixed_but_first(c);
}

// Examples along axis 0, channels along axis 1.
Rows by_example(const RowContext& c) {
  if (c.rows(0) && c.in[0].axis != 0) {
    return Rows::mixed(
        text("works across axis ", c.in[0].axis, ", which holds the rows; they have to be along axis 0"));
  }
  return all_fixed_but_first(c);
}

// Groups end at places among all rows.
Rows grouped_product(const RowContext&) {
  return Rows::mixed("takes the group of a row by its place among all rows");
}

// The indices of a pool count through the whole batch.
Rows max_pool(const RowContext& c) {
  if (c.node.outputs.size() > 1) return Rows::mixed("gives indices that count through all examples");
  return by_example(c);
}

// The sequence is axis 0 of x and y, the examples come after it, and after the directions.
Rows recurrent(const RowContext& c) {
  constexpr size_t kLengths = 4, kPeepholes = 7;
  if (!c.rows(0) || c.in[0].axis != 1) return Rows::mixed("needs the rows of x along axis 1");
  for (size_t i = 1; i < c.in.size(); ++i) {
    if (c.in[i].kind == Rows::Kind::kAbsent) continue;
    if (i < kLengths || i == kPeepholes) {
      if (!c.fixed(i)) return Rows::mixed("has weights that are not fixed");
      continue;
    }
    const size_t axis = i == kLengths ? 0 : 1;
    if (!c.rows(i) || c.in[i].axis != axis || !(c.in[i].block == c.in[0].block)) {
      return Rows::mixed(text("needs the rows of operand ", i, " along axis ", axis));
    }
  }
  return Rows::along(2, c.in[0].block);
}

// Every operand brings its own rows, in its first axis.
Rows linear_attention(const RowContext& c) {
  for (size_t i = 0; i < c.in.size(); ++i) {
    if (c.in[i].kind == Rows::Kind::kAbsent) continue;
    if (!c.rows(i) || c.in[i].axis != 0 || !(c.in[i].block == c.in[0].block))
      return Rows::mixed(text("needs the rows of operand ", i, " along axis 0"));
  }
  return c.in[0];
}

Rows batch_norm(const RowContext& c) {
  if (c.rows(0) && c.in[0].axis == 1) return Rows::mixed("scales axis 1, which holds the rows");
  return all_fixed_but_first(c);
}

Rows with_residual(const RowContext& c, Rows made) {
  if (!made.rows() || c.in.size() < 4 || c.in[3].kind == Rows::Kind::kAbsent) return made;
  const bool same = c.rows(3) && c.in[3].axis == made.axis && c.in[3].block == made.block;
  return same ? made : Rows::mixed("adds a residual whose rows lie elsewhere");
}

Rows linear(const RowContext& c) {
  if (!c.rows(0) || !c.fixed(1) || !c.fixed(2)) return Rows::mixed("has weights or bias that are not fixed");
  if (c.in[0].axis + 1 == c.shape(0).size())
    return Rows::mixed(text("sums over axis ", c.in[0].axis, ", which holds the rows"));
  return with_residual(c, c.in[0]);
}

Rows conv(const RowContext& c) {
  if (!c.rows(0) || !c.fixed(1) || !c.fixed(2)) return Rows::mixed("has weights or bias that are not fixed");
  if (c.in[0].axis != 0)
    return Rows::mixed(text("works across axis ", c.in[0].axis, ", which holds the rows"));
  return with_residual(c, c.in[0]);
}

// Rows that are rows of a, columns of b, or matrices of a stack.
Rows matmul(const RowContext& c) {
  const size_t ranks[] = {c.shape(0).size(), c.shape(1).size()};
  for (size_t i : {size_t{0}, size_t{1}}) {
    if (!c.rows(i)) continue;
    const size_t inner = i == 0 ? ranks[0] - 1 : ranks[1] - std::min<size_t>(ranks[1], 2);
    if (c.in[i].axis == inner)
      return Rows::mixed(text("sums over axis ", inner, " of operand ", i, ", which holds the rows"));
    const bool in_matrix = c.in[i].axis + 2 >= ranks[i];
    if (!in_matrix) continue;
    if (c.rows(1 - i)) return Rows::mixed("multiplies rows with rows");
    // The row axis of a, or the column axis of b; a vector operand drops one of the result's last two axes.
    const size_t from_end = i == 0 && ranks[1] > 1 ? 2 : 1;
    return Rows::along(c.result().size() - from_end, c.in[i].block);
  }
  if (ranks[0] < 2 || ranks[1] < 2) {
    const size_t i = c.rows(0) ? 0 : 1;
    return c.in[i];  // a stack times a fixed vector
  }
  return broadcast_rows(c, {0, 1}, 2);
}

Rows matmul_integer(const RowContext& c) {
  for (size_t i = 1; i < c.in.size(); ++i) {
    if (!c.fixed(i)) return Rows::mixed(text("takes operand ", i, " from the rows; it has to be fixed"));
  }
  // One zero point for all of a.
  if (c.in.size() > 2 && c.in[2].kind != Rows::Kind::kAbsent) {
    for (const ir::Dim& dim : c.shape(2)) {
      if (!dim.is(1)) return Rows::mixed("has a zero point for each row of the left operand");
    }
  }
  return matmul(c);
}

Rows gemm(const RowContext& c) {
  const size_t inner_a = c.node.attributes.i64("transA") != 0 ? 0 : 1;
  const size_t inner_b = c.node.attributes.i64("transB") != 0 ? 1 : 0;
  if (c.rows(0) && c.rows(1)) return Rows::mixed("multiplies rows with rows");
  Rows made;
  if (c.rows(0)) {
    if (c.in[0].axis == inner_a)
      return Rows::mixed(text("sums over axis ", inner_a, ", which holds the rows"));
    made = Rows::along(0, c.in[0].block);
  } else if (c.rows(1)) {
    if (c.in[1].axis == inner_b)
      return Rows::mixed(text("sums over axis ", inner_b, ", which holds the rows"));
    made = Rows::along(1, c.in[1].block);
  } else {
    return Rows::mixed("adds rows to a fixed product");
  }
  if (c.in.size() < 3 || c.in[2].kind == Rows::Kind::kAbsent) return made;
  const Rows added = c.rows(2) ? broadcast_rows(c, {2}, 0) : made;
  if (added.axis != made.axis || !(added.block == made.block))
    return Rows::mixed("adds rows that lie along another axis");
  const size_t lead = 2 - c.shape(2).size();
  const bool differs = c.fixed(2) && made.axis >= lead && !c.shape(2)[made.axis - lead].is(1);
  return differs ? Rows::mixed("adds a fixed matrix that differs from row to row") : made;
}

Rows attention(const RowContext& c) {
  for (size_t i = 0; i < 3 && i < c.in.size(); ++i) {
    if (c.in[i].kind == Rows::Kind::kAbsent) continue;
    if (!c.rows(i) || c.in[i].axis != 0 || !(c.in[i].block == c.in[0].block)) {
      return Rows::mixed(text("needs the rows of operand ", i, " along axis 0"));
    }
  }
  if (c.in.size() < 4 || c.in[3].kind == Rows::Kind::kAbsent) return c.in[0];
  const size_t lead = 4 - c.shape(3).size();
  if (c.rows(3)) {
    const bool fits = c.in[3].axis + lead == 0 && c.in[3].block == c.in[0].block;
    return fits ? c.in[0] : Rows::mixed("has a mask whose rows are not along the batch");
  }
  const bool shared = lead > 0 || c.shape(3)[0].is(1);
  return shared ? c.in[0] : Rows::mixed("has a fixed mask that differs from row to row");
}

Rows reduce(const RowContext& c) {
  const bool keeps = c.node.attributes.i64("keepdims", 1) != 0;
  if (!c.node.has_input(1)) {
    if (c.node.attributes.i64("noop_with_empty_axes") != 0) return c.in[0];
    return Rows::mixed(text("reduces over axis ", c.in[0].axis, ", which holds the rows"));
  }
  const auto dims = c.graph.values[c.node.inputs[1]].integers();
  const auto axes = dims ? static_dims(*dims) : std::nullopt;
  if (!axes) return Rows::mixed("reduces over axes that are not known");
  if (axes->empty() && c.node.attributes.i64("noop_with_empty_axes") != 0) return c.in[0];
  std::vector<size_t> over;
  for (int64_t a : *axes) {
    const auto axis = ir::normalize_axis(a, c.shape(0).size());
    if (axis.ok()) over.push_back(*axis);
  }
  if (over.empty() || std::count(over.begin(), over.end(), c.in[0].axis) > 0) {
    return Rows::mixed(text("reduces over axis ", c.in[0].axis, ", which holds the rows"));
  }
  const auto before = std::count_if(over.begin(), over.end(), [&](size_t a) { return a < c.in[0].axis; });
  return Rows::along(c.in[0].axis - (keeps ? 0 : static_cast<size_t>(before)), c.in[0].block);
}

Rows arg_reduce(const RowContext& c) {
  const auto axis = ir::normalize_axis(c.node.attributes.i64("axis"), c.shape(0).size());
  Rows made = along_axis(c, c.node.attributes.i64("axis"), "reduces over");
  if (made.rows() && c.node.attributes.i64("keepdims", 1) == 0 && *axis < made.axis) --made.axis;
  return made;
}

Rows top_k(const RowContext& c) { return along_axis(c, c.node.attributes.i64("axis", -1), "selects along"); }

Rows cumulative(const RowContext& c) {
  const auto dims = c.graph.values[c.node.inputs[1]].integers();
  const auto axis = dims ? static_dims(*dims) : std::nullopt;
  if (!axis || axis->size() != 1 || !c.fixed(1)) return Rows::mixed("runs along an axis that is not known");
  return along_axis(c, (*axis)[0], "runs along");
}

}  // namespace

std::vector<RowRule> arithmetic_row_rules() {
  std::vector<RowRule> rules = {{"MatMul", matmul},
                                {"Gemm", gemm},
                                {"Linear", linear},
                                {"GroupedMatMul", grouped_product},
                                {"Conv", conv},
                                {"ConvTranspose", conv},
                                {"ConvInteger", by_example},
                                {"MatMulInteger", matmul_integer},
                                {"MaxPool", max_pool},
                                {"RNN", recurrent},
                                {"GRU", recurrent},
                                {"LSTM", recurrent},
                                {"Attention", attention},
                                {"LinearAttention", linear_attention},
                                {"Softmax", softmax},
                                {"LogSoftmax", softmax},
                                {"LayerNormalization", layer_norm},
                                {"RMSNormalization", layer_norm},
                                {"BatchNormalization", batch_norm},
                                {"TopK", top_k, 1},
                                {"CumSum", cumulative},
                                {"CumProd", cumulative}};
  for (const char* name : {"LpPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool",
                           "InstanceNormalization", "GroupNormalization"}) {
    rules.push_back({name, by_example});
  }
  for (const char* name :
       {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL2", "ReduceSumSquare"}) {
    rules.push_back({name, reduce});
  }
  for (const char* name : {"ArgMax", "ArgMin"}) rules.push_back({name, arg_reduce});
  return rules;
}

}  // namespace heddle::plan
