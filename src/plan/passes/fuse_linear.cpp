#include <algorithm>
#include <cstring>
#include <utility>

#include "plan/passes/passes.h"
#include "plan/passes/rewrite.h"
#include "plan/patterns/epilogue.h"
#include "plan/patterns/movement.h"

namespace heddle::plan {

using ir::kNoValue;
using ir::Node;
using ir::Tensor;
using ir::ValueId;

namespace {

// A Linear that only `reader` reads, so that it may become part of it.
const Node* absorbable(const Rewriter& rw, ValueId id, const Node& reader) {
  const Node* linear = rw.maker(id, "Linear");
  return linear != nullptr && rw.closed({linear}, reader) ? linear : nullptr;
}

// The constant as [n], when adding it to [.., n] means adding a vector along the last axis.
std::optional<Tensor> as_vector(const Rewriter& rw, ValueId id, int64_t n, size_t rank) {
  if (id == kNoValue || !rw.value(id).is_constant()) return std::nullopt;
  const Tensor& t = *rw.value(id).constant;
  if (t.extents().rank() > rank) return std::nullopt;
  if (t.elements() == 1) {
    Tensor out = Tensor::zeros(t.dtype(), {n});
    for (int64_t i = 0; i < n; ++i) out.set(i, t.get(0));
    return out;
  }
  if (t.elements() != n || t.extents()[t.extents().rank() - 1] != n) return std::nullopt;
  return t.reshaped({n});
}

bool constant_matrix(const Rewriter& rw, ValueId id) {
  return id != kNoValue && rw.value(id).is_constant() && rw.shape(id).size() == 2;
}

Status from_matmul(Rewriter& rw, const Node& node) {
  const ValueId x = node.inputs[0];
  ValueId weight = node.inputs[1];
  if (!ir::is_float(rw.dtype(x)) || rw.shape(x).size() < 2) return {};
  ir::Attributes attributes;
  // Weights that lie in the file as [n, k] stay there.
  if (const Node* transpose = rw.maker(weight, "Transpose");
      transpose != nullptr && rw.shape(weight).size() == 2) {
    if (permutation(*transpose, 2) == std::vector<int64_t>{1, 0}) {
      weight = transpose->inputs[0];
      attributes.set("trans_w", int64_t{1});
    }
  }
  return constant_matrix(rw, weight) ? replace_product(rw, node, "Linear", {x, weight}, attributes)
                                     : Status();
}

// Matrices that lie as [groups, n, k] stay there.
Status absorb_transpose(Rewriter& rw, const Node& grouped) {
  const Node* transpose = rw.maker(grouped.inputs[1], "Transpose");
  if (transpose == nullptr || permutation(*transpose, 3) != std::vector<int64_t>{0, 2, 1}) return {};
  const int64_t other = grouped.attributes.i64("trans_b") != 0 ? 0 : 1;
  return rw.replace(grouped, "GroupedMatMul", {grouped.inputs[0], transpose->inputs[0], grouped.inputs[2]},
                    {{"trans_b", other}});
}

Status from_gemm(Rewriter& rw, const Node& node) {
  const bool has_c = node.has_input(2);
  const ir::Attributes& a = node.attributes;
  if (a.i64("transA") != 0 || a.f64("alpha", 1) != 1 || (has_c && a.f64("beta", 1) != 1)) return {};
  const ir::Dim& columns = rw.shape(node.outputs[0])[1];
  if (!ir::is_float(rw.dtype(node.inputs[0])) || !constant_matrix(rw, node.inputs[1]) || !columns.is_static())
    return {};
  std::vector<ValueId> inputs{node.inputs[0], node.inputs[1]};
  if (has_c) {
    auto bias = as_vector(rw, node.inputs[2], columns.value(), 2);
    if (!bias) return {};
    inputs.push_back(rw.constant(std::move(*bias), node.name + "/bias"));
  }
  ir::Attributes attributes;
  if (a.i64("transB") != 0) attributes.set("trans_w", int64_t{1});
  return replace_product(rw, node, "Linear", std::move(inputs), std::move(attributes));
}

Status absorb_bias(Rewriter& rw, const Node& add) {
  for (size_t i : {size_t{0}, size_t{1}}) {
    const Node* linear = absorbable(rw, add.inputs[i], add);
    if (linear == nullptr || linear->has_input(kBias) || linear->has_input(kResidual)) continue;
    const ir::Shape& shape = rw.shape(add.inputs[i]);
    if (!linear->attributes.str("activation").empty() || !shape.back().is_static()) continue;
    auto bias = as_vector(rw, add.inputs[1 - i], shape.back().value(), shape.size());
    if (!bias) continue;
    std::vector<ValueId> inputs = four_inputs(*linear);
    inputs[kBias] = rw.constant(std::move(*bias), add.name + "/bias");
    return replace_product(rw, add, "Linear", std::move(inputs), linear->attributes);
  }
  return {};
}

// Reshape(Linear(Reshape(x))) that only regroups rows, Transpose(Linear(Transpose(x))) that only permutes
// them: rows are independent, so the movement before meets the one after and mostly cancels it.
Status absorb_movement(Rewriter& rw, const Node& node) {
  const Node* linear = absorbable(rw, node.inputs[0], node);
  if (linear == nullptr || linear->has_input(kResidual)) return {};
  const Node* before = rw.maker(linear->inputs[0], node.op->name);
  if (before == nullptr) return {};
  const ValueId x = linear->inputs[0];
  const ValueId source = before->inputs[0];
  ValueId moved = source;
  ir::Shape rows = rw.shape(source);
  if (node.is("Transpose")) {
    const auto last = static_cast<int64_t>(rw.shape(x).size()) - 1;
    const auto first_perm = permutation(*before, rw.shape(x).size());
    const auto second_perm = permutation(node, rw.shape(x).size());
    if (first_perm.back() != last || second_perm.back() != last) return {};
    std::vector<int64_t> both;
    for (int64_t axis : second_perm) both.push_back(first_perm[static_cast<size_t>(axis)]);
    if (!std::is_sorted(both.begin(), both.end())) {
      HEDDLE_TRY_ASSIGN(moved, rw.emit("Transpose", {source}, {{"perm", both}}, node.name + "/rows"));
    }
  } else {
    const ir::Shape& result = rw.shape(node.outputs[0]);
    if (rows.empty() || result.size() != rows.size() || !(rows.back() == rw.shape(x).back())) return {};
    if (!std::equal(rows.begin(), rows.end() - 1, result.begin())) return {};
    if (!(result.back() == rw.shape(node.inputs[0]).back())) return {};
  }
  std::vector<ValueId> inputs = linear->inputs;
  inputs[0] = moved;
  return replace_product(rw, node, "Linear", std::move(inputs), linear->attributes);
}

}  // namespace

Result<ir::Graph> fuse_linear(ir::Graph graph) {
  Rewriter rewriter(std::move(graph));
  return rewriter.run([](Rewriter& rw, const Node& node) -> Status {
    if (node.is("MatMul")) return from_matmul(rw, node);
    if (node.is("Gemm")) return from_gemm(rw, node);
    if (node.is("GroupedMatMul")) return absorb_transpose(rw, node);
    if (node.is("Reshape") || node.is("Transpose")) return absorb_movement(rw, node);
    if (node.is("Add")) {
      HEDDLE_TRY(absorb_bias(rw, node));
      return rw.replaced() ? Status() : absorb_residual(rw, node, absorbable);
    }
    const auto activation = activation_attributes(rw, node);
    if (!activation) return {};
    const Node* linear = absorbable(rw, node.inputs[0], node);
    if (linear == nullptr || linear->has_input(kResidual) || !linear->attributes.str("activation").empty())
      return {};
    return absorb_activation(rw, node, *linear, *activation);
  });
}

}  // namespace heddle::plan
