#include <algorithm>
#include <cmath>
#include <utility>

#include "plan/passes/passes.h"
#include "plan/passes/rewrite.h"
#include "plan/patterns/attention_operands.h"
#include "plan/patterns/causal_mask.h"

namespace heddle::plan {

using ir::kNoValue;
using ir::Node;
using ir::Tensor;
using ir::ValueId;

namespace {

// softmax(scale * q k' + mask), from the inside out.
struct Scores {
  std::vector<const Node*> interior;
  const Node* product = nullptr;  // q k'
  double scale = 1;
  ValueId mask = kNoValue;  // additive, or bool
  bool true_masks = false;  // bool: true means left out
  double fill = 0;          // bool: what stands in the masked places
  bool causal = false;
};

bool is_zero(const Rewriter& rw, ValueId id) {
  if (rw.scalar(id) == 0.0) return true;
  const Node* filled = rw.maker(id);
  if (filled == nullptr) return false;
  if (filled->is("Expand")) return is_zero(rw, filled->inputs[0]);
  if (!filled->is("ConstantOfShape")) return false;
  const ir::Attribute* value = filled->attributes.find("value");
  return value == nullptr || std::get<Tensor>(*value).get(0) == 0;
}

// The Softmax over the last axis that makes `id`, also behind the guard Where(IsNaN(s), 0, s).
const Node* softmax_behind(const Rewriter& rw, ValueId id, std::vector<const Node*>& interior) {
  if (const Node* where = rw.maker(id, "Where")) {
    const Node* nan = rw.maker(where->inputs[0], "IsNaN");
    if (nan == nullptr || nan->inputs[0] != where->inputs[2] || !is_zero(rw, where->inputs[1]))
      return nullptr;
    interior.insert(interior.end(), {where, nan});
    id = where->inputs[2];
  }
  const Node* softmax = rw.maker(id, "Softmax");
  if (softmax == nullptr) return nullptr;
  const auto axis = ir::normalize_axis(softmax->attributes.i64("axis", -1), rw.shape(id).size());
  if (!axis.ok() || *axis + 1 != rw.shape(id).size()) return nullptr;
  interior.push_back(softmax);
  return softmax;
}

bool add_mask(const Rewriter& rw, const Node& node, ValueId& inner, Scores& s) {
  if (node.is("Add")) {
    for (size_t i : {size_t{0}, size_t{1}}) {
      const Node* maker = rw.maker(node.inputs[i]);
      const bool scores = maker != nullptr && (maker->is("MatMul") || maker->is("Mul") || maker->is("Div"));
      if (!scores || rw.shape(node.inputs[i]) != rw.shape(node.outputs[0])) continue;
      // Of two products, the one over heads is q k'.
      if (!maker->is("MatMul") && !rw.scalar(maker->inputs[0]) && !rw.scalar(maker->inputs[1])) continue;
      s.mask = node.inputs[1 - i];
      inner = node.inputs[i];
      return true;
    }
    return false;
  }
  for (size_t i : {size_t{1}, size_t{2}}) {
    const auto fill = rw.scalar(node.inputs[i]);
    if (!fill || *fill > kVanishes) continue;
    s.mask = node.inputs[0];
    s.true_masks = i == 1;
    s.fill = *fill;
    inner = node.inputs[3 - i];
    return rw.shape(inner) == rw.shape(node.outputs[0]);
  }
  return false;
}

std::optional<Scores> match_scores(const Rewriter& rw, ValueId probabilities) {
  Scores s;
  const Node* softmax = softmax_behind(rw, probabilities, s.interior);
  if (softmax == nullptr) return std::nullopt;
  ValueId at = softmax->inputs[0];
  for (;;) {
    const Node* node = rw.maker(at);
    if (node == nullptr) return std::nullopt;
    s.interior.push_back(node);
    if (node->is("MatMul")) {
      s.product = node;
      return s;
    }
    if (node->is("Add") || node->is("Where")) {
      // A second mask, or one that is scaled afterwards, has no place in Attention.
      if (s.mask != kNoValue || s.scale != 1 || !add_mask(rw, *node, at, s)) return std::nullopt;
      continue;
    }
    const bool div = node->is("Div");
    if (!div && !node->is("Mul")) return std::nullopt;
    const size_t number = !div && rw.scalar(node->inputs[0]) ? 0 : 1;
    const auto factor = rw.scalar(node->inputs[number]);
    at = node->inputs[1 - number];
    if (!factor || *factor == 0 || rw.shape(at) != rw.shape(node->outputs[0])) return std::nullopt;
    s.scale *= div ? 1 / *factor : *factor;
  }
}

// Broadcasts to [batch, heads, q, k]; scores of three axes hold batch and heads in one, which a mask cannot
// tell apart.
bool mask_fits(const Rewriter& rw, ValueId mask, const ir::Shape& scores) {
  const ir::Shape& shape = rw.shape(mask);
  if (shape.size() > scores.size()) return false;
  const size_t lead = scores.size() - shape.size();
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i].is(1)) continue;
    if (!(shape[i] == scores[i + lead]) || (scores.size() == 3 && i + lead == 0)) return false;
  }
  return rw.dtype(mask) == ir::DType::kBool || ir::is_float(rw.dtype(mask));
}

// A mask that lets query i see keys 0 to i.
bool is_causal(const Rewriter& rw, const Scores& s, const ir::Shape& scores) {
  const auto& constant = rw.value(s.mask).constant;
  const auto queries = scores[scores.size() - 2];
  const ir::Shape& drawn = rw.shape(s.mask);
  if (!constant) {
    const size_t rank = drawn.size();
    if (rank < 2 || !(drawn[rank - 2] == queries) || !(drawn[rank - 1] == queries)) return false;
    if (!(scores.back() == queries)) return false;
    return s.fill == 0 ? hides_later_keys(rw, s.mask) : lower_triangle(rw, s.mask) == !s.true_masks;
  }
  if (!queries.is_static() || !(scores.back() == queries)) return false;
  const int64_t n = queries.value();
  if (n < 2 || constant->elements() != n * n) return false;
  for (int64_t i = 0; i < n * n; ++i) {
    const double value = constant->get(i);
    const bool wanted = i % n <= i / n;
    const bool seen = s.fill != 0 ? (value != 0) != s.true_masks : value == 0;
    if (seen != wanted || (s.fill == 0 && !seen && value > kVanishes)) return false;
  }
  return true;
}

Result<ValueId> mask_operand(Rewriter& rw, const Node& root, const Scores& s) {
  if (s.fill == 0) return s.mask;
  const ir::DType dtype = rw.dtype(root.outputs[0]);
  if (std::isinf(s.fill)) {
    return s.true_masks ? rw.emit("Not", {s.mask}, {}, root.name + "/attends") : Result<ValueId>(s.mask);
  }
  // Rows without any key: a finite fill weighs all keys alike, which only an additive mask says.
  const ValueId fill = rw.constant(Tensor::scalar(dtype, s.fill), root.name + "/fill");
  const ValueId zero = rw.constant(Tensor::scalar(dtype, 0), root.name + "/zero");
  return rw.emit("Where", {s.mask, s.true_masks ? fill : zero, s.true_masks ? zero : fill}, {},
                 root.name + "/mask");
}

Status finish(Rewriter& rw, const Node& root, ValueId attention, int64_t heads) {
  const ir::Shape rows = rw.shape(attention);
  const int64_t size = rows[2].value() / heads;
  const ValueId split = rw.constant(Tensor::of_i64({0, 0, heads, size}), root.name + "/heads");
  HEDDLE_TRY_ASSIGN(const ValueId by_head, rw.emit("Reshape", {attention, split}, {}, root.name + "/rows"));
  const ir::Attributes perm{{"perm", std::vector<int64_t>{0, 2, 1, 3}}};
  if (rw.shape(root.outputs[0]).size() == 4) return rw.replace(root, "Transpose", {by_head}, perm);
  HEDDLE_TRY_ASSIGN(const ValueId moved, rw.emit("Transpose", {by_head}, perm, root.name + "/by_head"));
  const auto spec = reshape_spec(rw.shape(moved), rw.shape(root.outputs[0]));
  const ValueId joined = rw.constant(Tensor::of_i64(*spec), root.name + "/joined");
  return rw.replace(root, "Reshape", {moved, joined});
}

Status match_attention(Rewriter& rw, const Node& root) {
  const ir::Shape result = rw.shape(root.outputs[0]);
  if (!ir::is_float(rw.dtype(root.outputs[0])) || (result.size() != 3 && result.size() != 4)) return {};
  auto s = match_scores(rw, root.inputs[0]);
  if (!s || !rw.closed(s->interior, root)) return {};
  const auto q = heads_of(rw, s->product->inputs[0], {.transposed = false, .scales = true});
  const auto k = heads_of(rw, s->product->inputs[1], {.transposed = true, .scales = true});
  const auto v = heads_of(rw, root.inputs[1], {.transposed = false, .scales = false});
  if (!q || !k || !v || !fit_together(*q, *k, *v)) return {};
  const ir::Shape scores = rw.shape(s->product->outputs[0]);
  if (s->mask != kNoValue && !mask_fits(rw, s->mask, scores)) return {};
  if (result.size() == 3) {
    const ir::Dim heads(q->heads);
    if (!reshape_spec({q->batch, heads, q->positions, v->size}, result)) return {};
  }
  ir::Attributes attributes{{"num_heads", q->heads}, {"scale", s->scale * q->scale * k->scale}};
  if (k->repeat > 1) attributes.set("kv_heads", k->heads);
  std::vector<ValueId> inputs;
  if (packed(rw, *q, *k, *v)) {
    HEDDLE_TRY_ASSIGN(const ValueId all, rows_of(rw, *q, root.name + "/qkv"));
    inputs = {all, kNoValue, kNoValue};
    attributes.set("packed", int64_t{1});
  } else {
    HEDDLE_TRY_ASSIGN(const ValueId q_rows, own_rows_of(rw, *q, root.name + "/q"));
    HEDDLE_TRY_ASSIGN(const ValueId k_rows, own_rows_of(rw, *k, root.name + "/k"));
    HEDDLE_TRY_ASSIGN(const ValueId v_rows, own_rows_of(rw, *v, root.name + "/v"));
    inputs = {q_rows, k_rows, v_rows};
  }
  if (s->mask != kNoValue && is_causal(rw, *s, scores)) {
    attributes.set("causal", int64_t{1});
  } else if (s->mask != kNoValue) {
    HEDDLE_TRY_ASSIGN(const ValueId mask, mask_operand(rw, root, *s));
    inputs.push_back(mask);
  }
  while (inputs.back() == kNoValue) inputs.pop_back();
  HEDDLE_TRY_ASSIGN(const ValueId attention,
                    rw.emit("Attention", std::move(inputs), std::move(attributes), root.name + "/attention"));
  return finish(rw, root, attention, q->heads);
}

}  // namespace

Result<ir::Graph> fuse_attention(ir::Graph graph) {
  Rewriter rewriter(std::move(graph));
  return rewriter.run([](Rewriter& rw, const Node& node) -> Status {
    return node.is("MatMul") ? match_attention(rw, node) : Status();
  });
}

}  // namespace heddle::plan
