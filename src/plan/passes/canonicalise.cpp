#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "plan/passes/passes.h"
#include "plan/passes/rewrite.h"
#include "plan/patterns/movement.h"

namespace heddle::plan {

using ir::kNoValue;
using ir::Node;
using ir::ValueId;

namespace {

bool is_one_of(const Node& node, std::initializer_list<std::string_view> names) {
  return std::any_of(names.begin(), names.end(), [&](std::string_view name) { return node.is(name); });
}

struct ReshapeOperand {
  std::optional<std::vector<int64_t>> spec;  // else the node's own operand serves
  ir::Attributes attributes;
};

// How a Reshape of a value shaped like `from` gives the node's output.
std::optional<ReshapeOperand> reshape_operand(const Rewriter& rw, const Node& node, const ir::Shape& from) {
  if (auto spec = reshape_spec(from, rw.shape(node.outputs[0]))) return ReshapeOperand{std::move(spec), {}};
  if (!node.is("Reshape")) return std::nullopt;
  // Serves another input only when no 0 in it means "as the input has it".
  const auto dims = rw.value(node.inputs[1]).integers();
  const bool copies =
      !dims || std::any_of(dims->begin(), dims->end(), [](const ir::Dim& d) { return d.is(0); });
  if (copies && node.attributes.i64("allowzero") == 0) return std::nullopt;
  return ReshapeOperand{std::nullopt, node.attributes};
}

Status reshape(Rewriter& rw, const Node& node, ValueId from, ReshapeOperand operand) {
  ValueId shape = kNoValue;
  if (operand.spec) {
    shape = rw.constant(ir::Tensor::of_i64(*operand.spec), node.name + "/shape");
  } else {
    shape = node.inputs[1];
  }
  return rw.replace(node, "Reshape", {from, shape}, std::move(operand.attributes));
}

int cost(const Node& node) { return node.is("Transpose") ? 8 : node.is("Reshape") ? 2 : 3; }

// What goes when the chain's last node reads its source instead.
int saved(const Rewriter& rw, const Movement& m) {
  int total = 0;
  for (auto node = m.nodes.rbegin(); node != m.nodes.rend(); ++node) {
    if (node != m.nodes.rbegin() && rw.uses((*node)->outputs[0]) > 1) break;
    total += cost(**node);
  }
  return total;
}

// Reshape, Transpose, Squeeze, Unsqueeze, Flatten: the chain that ends here, or an end of it, as one
// Transpose and one Reshape or less.
Result<bool> shorten_movement(Rewriter& rw, const Node& node) {
  const ir::Shape& result = rw.shape(node.outputs[0]);
  for (size_t length = trace(rw, node, SIZE_MAX).nodes.size(); length > 0; --length) {
    const Movement m = trace(rw, node, length);
    const auto shorter = shorten(rw, m, result);
    if (!shorter) continue;
    if ((shorter->perm.empty() ? 0 : 8) + (shorter->reshape ? 2 : 0) >= saved(rw, m)) continue;
    if (shorter->perm.empty() && !shorter->reshape) {
      HEDDLE_TRY(rw.forward(node, m.source));
      return true;
    }
    ir::Shape moved;
    for (int64_t axis : shorter->perm) moved.push_back(rw.shape(m.source)[static_cast<size_t>(axis)]);
    if (shorter->perm.empty()) moved = rw.shape(m.source);
    const auto operand = reshape_operand(rw, node, moved);
    if (shorter->reshape && !operand) continue;
    ValueId from = m.source;
    if (!shorter->perm.empty()) {
      const ir::Attributes perm{{"perm", shorter->perm}};
      if (!shorter->reshape) {
        HEDDLE_TRY(rw.replace(node, "Transpose", {from}, perm));
        return true;
      }
      HEDDLE_TRY_ASSIGN(from, rw.emit("Transpose", {from}, perm, node.name + "/transposed"));
    }
    HEDDLE_TRY(reshape(rw, node, from, *operand));
    return true;
  }
  return false;
}

Status movement(Rewriter& rw, const Node& node) {
  HEDDLE_TRY_ASSIGN(const bool done, shorten_movement(rw, node));
  if (done || node.is("Transpose")) return {};
  const bool settled = node.is("Reshape") && rw.value(node.inputs[1]).is_constant();
  if (settled) return {};
  const auto spec = reshape_spec(rw.shape(node.inputs[0]), rw.shape(node.outputs[0]));
  return spec ? reshape(rw, node, node.inputs[0], {spec, {}}) : Status();
}

bool all_ones(const Rewriter& rw, ValueId id) {
  const auto steps = rw.ints(id);
  return steps && std::all_of(steps->begin(), steps->end(), [](int64_t s) { return s == 1; });
}

// The operand that a node passes on unchanged, if it does.
ValueId passed_on(const Rewriter& rw, const Node& node) {
  if (node.is("Identity") || node.is("Dropout")) return node.inputs[0];
  if (is_one_of(node, {"Concat", "Max", "Min"}) && node.inputs.size() == 1) return node.inputs[0];
  if (node.outputs.size() != 1 || node.inputs.empty() || node.inputs[0] == kNoValue) return kNoValue;
  const bool same_type = rw.value(node.inputs[0]).type == rw.value(node.outputs[0]).type;
  if (same_type && is_one_of(node, {"Cast", "Expand"})) return node.inputs[0];
  // Steps of one and as many elements as before: nothing is left out.
  if (same_type && node.is("Slice") && (!node.has_input(4) || all_ones(rw, node.inputs[4])))
    return node.inputs[0];
  if (same_type && node.is("Split")) return node.inputs[0];
  if (is_one_of(node, {"Mul", "Div", "Add", "Sub"})) {
    const double neutral = is_one_of(node, {"Mul", "Div"}) ? 1 : 0;
    const bool commutes = is_one_of(node, {"Mul", "Add"});
    for (size_t i : {size_t{1}, size_t{0}}) {
      if (i == 0 && !commutes) continue;
      const ValueId other = node.inputs[1 - i];
      if (rw.scalar(node.inputs[i]) == neutral && rw.value(other).type == rw.value(node.outputs[0]).type)
        return other;
    }
  }
  return kNoValue;
}

// x * sigmoid(x), x ^ 2: one spelling, with an operator of its own.
Status arithmetic(Rewriter& rw, const Node& node) {
  if (node.is("Mul")) {
    for (size_t i : {size_t{0}, size_t{1}}) {
      const Node* sigmoid = rw.maker(node.inputs[i], "Sigmoid");
      if (sigmoid == nullptr || sigmoid->inputs[0] != node.inputs[1 - i]) continue;
      if (!rw.closed({sigmoid}, node)) continue;
      return rw.replace(node, "Silu", {node.inputs[1 - i]});
    }
    if (node.inputs[0] == node.inputs[1] && ir::is_float(rw.dtype(node.inputs[0]))) {
      return rw.replace(node, "Square", {node.inputs[0]});
    }
  }
  if (node.is("Pow") && rw.scalar(node.inputs[1]) == 2.0 && ir::is_float(rw.dtype(node.inputs[0])) &&
      rw.shape(node.inputs[0]) == rw.shape(node.outputs[0])) {
    return rw.replace(node, "Square", {node.inputs[0]});
  }
  return {};
}

// The place of an extent among the inputs' shapes: what has it, and which axis.
std::optional<std::pair<ValueId, int64_t>> input_extent(const Rewriter& rw, const ir::Dim& dim) {
  for (ValueId input : rw.graph_inputs()) {
    const ir::Shape& shape = rw.shape(input);
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      if (shape[axis] == dim) return std::pair(input, static_cast<int64_t>(axis));
    }
  }
  return std::nullopt;
}

// The shape of an inner value from the inputs' shapes: what only tells a shape must not keep a value from
// being fused away.
Status shape_of_inputs(Rewriter& rw, const Node& node) {
  if (rw.maker(node.inputs[0]) == nullptr) return {};
  const auto dims = rw.value(node.outputs[0]).integers();
  if (!dims || dims->empty()) return {};
  for (const ir::Dim& dim : *dims) {
    if (!dim.is_static() && !input_extent(rw, dim)) return {};
  }
  std::vector<ValueId> parts;
  for (const ir::Dim& dim : *dims) {
    if (dim.is_static()) {
      parts.push_back(rw.constant(ir::Tensor::of_i64({dim.value()}), node.name + "/extent"));
      continue;
    }
    const auto [input, axis] = *input_extent(rw, dim);
    HEDDLE_TRY_ASSIGN(const ValueId shape, rw.emit("Shape", {input}, {}, node.name + "/input"));
    const ValueId index = rw.constant(ir::Tensor::of_i64({axis}), node.name + "/axis");
    HEDDLE_TRY_ASSIGN(const ValueId part, rw.emit("Gather", {shape, index}, {}, node.name + "/part"));
    parts.push_back(part);
  }
  return rw.replace(node, "Concat", std::move(parts), {{"axis", int64_t{0}}});
}

// The mean over all places of each channel. Of rank 3, the last axis is one of places when a convolution says
// so; elsewhere it may be what a normalisation averages over.
Status pooled(Rewriter& rw, const Node& node) {
  const size_t rank = rw.shape(node.inputs[0]).size();
  if (rw.dtype(node.inputs[0]) != ir::DType::kF32 || rank < 3 || rank > 5 || !node.has_input(1)) return {};
  if (rank == 3 && rw.maker(node.inputs[0], "Conv") == nullptr) return {};
  auto axes = rw.ints(node.inputs[1]);
  if (!axes || axes->size() != rank - 2) return {};
  for (int64_t& axis : *axes) axis += axis < 0 ? static_cast<int64_t>(rank) : 0;
  std::sort(axes->begin(), axes->end());
  for (size_t i = 0; i < axes->size(); ++i) {
    if ((*axes)[i] != static_cast<int64_t>(i) + 2) return {};
  }
  if (node.attributes.i64("keepdims", 1) == 1) return rw.replace(node, "GlobalAveragePool", {node.inputs[0]});
  HEDDLE_TRY_ASSIGN(const ValueId mean,
                    rw.emit("GlobalAveragePool", {node.inputs[0]}, {}, node.name + "/pool"));
  return rw.replace(node, "Squeeze", {mean, rw.constant(ir::Tensor::of_i64(*axes), node.name + "/axes")});
}

// An element-wise node broadcasts by itself: an Expand before it is only needed when nothing else has the
// full shape.
Status skip_expand(Rewriter& rw, const Node& node) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Node* expand = rw.maker(node.inputs[i], "Expand");
    if (expand == nullptr) continue;
    const ir::Shape full = rw.shape(node.outputs[0]);
    ir::Shape without{};
    bool fits = true;
    for (size_t j = 0; j < node.inputs.size() && fits; ++j) {
      if (node.inputs[j] == kNoValue) continue;
      auto shape = ir::broadcast(without, rw.shape(j == i ? expand->inputs[0] : node.inputs[j]));
      fits = shape.ok();
      if (fits) without = std::move(*shape);
    }
    if (!fits || without != full) continue;
    // These give x its shape, whatever the others have.
    if (i == 0 && is_one_of(node, {"PRelu", "Clip"})) continue;
    std::vector<ValueId> inputs = node.inputs;
    inputs[i] = expand->inputs[0];
    return rw.replace(node, node.op->name, std::move(inputs), node.attributes);
  }
  return {};
}

}  // namespace

Result<ir::Graph> canonicalise(ir::Graph graph) {
  Rewriter rewriter(std::move(graph));
  return rewriter.run([](Rewriter& rw, const Node& node) -> Status {
    const ValueId same = passed_on(rw, node);
    // An Identity of an input is an output's own value: replacing it by itself would change nothing.
    if (same != kNoValue) return rw.forward(node, same);
    if (is_one_of(node, {"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten"}))
      return movement(rw, node);
    if (is_one_of(node, {"Mul", "Pow"})) {
      HEDDLE_TRY(arithmetic(rw, node));
      if (rw.replaced()) return {};
    }
    if (node.is("ReduceMean")) return pooled(rw, node);
    if (node.is("Shape")) return shape_of_inputs(rw, node);
    if (node.op->dependence == ir::Dependence::kElementwise && node.inputs.size() > 1)
      return skip_expand(rw, node);
    return {};
  });
}

}  // namespace heddle::plan
