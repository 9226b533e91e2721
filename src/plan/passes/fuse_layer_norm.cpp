#include <algorithm>
#include <utility>

#include "plan/passes/passes.h"
#include "plan/passes/rewrite.h"

namespace heddle::plan {

using ir::kNoValue;
using ir::Node;
using ir::Tensor;
using ir::ValueId;

namespace {

// A longer row is not worth a scale of ones, which the file does not hold.
constexpr int64_t kMaxScale = int64_t{1} << 16;

using Nodes = std::vector<const Node*>;

// The other operand of a commutative node, when one of them is `id`.
ValueId other_operand(const Node& node, ValueId id) {
  if (node.inputs[0] == id) return node.inputs[1];
  return node.inputs[1] == id ? node.inputs[0] : kNoValue;
}

// The first of the trailing axes a ReduceMean with kept dimensions goes over.
std::optional<size_t> trailing_axes(const Rewriter& rw, const Node& mean) {
  const size_t rank = rw.shape(mean.inputs[0]).size();
  if (mean.attributes.i64("keepdims", 1) != 1 || !mean.has_input(1) || rank == 0) return std::nullopt;
  const auto given = rw.ints(mean.inputs[1]);
  if (!given || given->empty()) return std::nullopt;
  std::vector<size_t> axes;
  for (int64_t a : *given) {
    const auto axis = ir::normalize_axis(a, rank);
    if (!axis.ok()) return std::nullopt;
    axes.push_back(*axis);
  }
  std::sort(axes.begin(), axes.end());
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] != rank - axes.size() + i) return std::nullopt;
  }
  return axes[0];
}

struct Centered {
  ValueId x;
  size_t axis;
};

// x - mean(x)
std::optional<Centered> centered(const Rewriter& rw, ValueId id, Nodes& interior) {
  const Node* sub = rw.maker(id, "Sub");
  if (sub == nullptr) return std::nullopt;
  const Node* mean = rw.maker(sub->inputs[1], "ReduceMean");
  if (mean == nullptr || mean->inputs[0] != sub->inputs[0]) return std::nullopt;
  const auto axis = trailing_axes(rw, *mean);
  if (!axis) return std::nullopt;
  interior.insert(interior.end(), {sub, mean});
  return Centered{sub->inputs[0], *axis};
}

// d of d ^ 2, however it is written.
std::optional<ValueId> squared(const Rewriter& rw, ValueId id, Nodes& interior) {
  const Node* square = rw.maker(id);
  if (square == nullptr) return std::nullopt;
  const bool squares = square->is("Square") ||
                       (square->is("Mul") && square->inputs[0] == square->inputs[1]) ||
                       (square->is("Pow") && rw.scalar(square->inputs[1]) == 2.0);
  if (!squares) return std::nullopt;
  interior.push_back(square);
  return square->inputs[0];
}

struct MeanSquare {
  ValueId of;
  size_t axis;
  double epsilon;
};

// mean(d ^ 2) + epsilon
std::optional<MeanSquare> mean_square(const Rewriter& rw, ValueId id, Nodes& interior) {
  const Node* add = rw.maker(id, "Add");
  if (add == nullptr) return std::nullopt;
  for (size_t i : {size_t{0}, size_t{1}}) {
    const auto epsilon = rw.scalar(add->inputs[1 - i]);
    const Node* mean = rw.maker(add->inputs[i], "ReduceMean");
    if (!epsilon || mean == nullptr) continue;
    const auto axis = trailing_axes(rw, *mean);
    if (!axis) continue;
    const auto of = squared(rw, mean->inputs[0], interior);
    if (!of) continue;
    interior.insert(interior.end(), {add, mean});
    return MeanSquare{*of, *axis, *epsilon};
  }
  return std::nullopt;
}

// mean((x - mean(x)) ^ 2) + epsilon, for the same x and axes. Gives epsilon.
std::optional<double> variance(const Rewriter& rw, ValueId id, const Centered& c, Nodes& interior) {
  const auto square = mean_square(rw, id, interior);
  if (!square || square->axis != c.axis) return std::nullopt;
  const auto again = centered(rw, square->of, interior);
  if (!again || again->x != c.x || again->axis != c.axis) return std::nullopt;
  return square->epsilon;
}

// sqrt(v) or v ^ 0.5; gives v.
std::optional<ValueId> square_root(const Rewriter& rw, ValueId id, Nodes& interior) {
  const Node* node = rw.maker(id);
  if (node == nullptr) return std::nullopt;
  if (!node->is("Sqrt") && !(node->is("Pow") && rw.scalar(node->inputs[1]) == 0.5)) return std::nullopt;
  interior.push_back(node);
  return node->inputs[0];
}

// 1 / sqrt(v) in one node or two; gives v.
std::optional<ValueId> inverse_root(const Rewriter& rw, ValueId id, Nodes& interior) {
  const Node* node = rw.maker(id);
  if (node == nullptr) return std::nullopt;
  interior.push_back(node);
  if (node->is("Rsqrt") || (node->is("Pow") && rw.scalar(node->inputs[1]) == -0.5)) return node->inputs[0];
  if (node->is("Reciprocal")) return square_root(rw, node->inputs[0], interior);
  if (node->is("Div") && rw.scalar(node->inputs[0]) == 1.0) return square_root(rw, node->inputs[1], interior);
  return std::nullopt;
}

// The constant as the scale or bias of a normalisation of `shape` from `axis` on.
std::optional<Tensor> parameter(const Rewriter& rw, ValueId id, const ir::Shape& shape, size_t axis) {
  if (id == kNoValue || !rw.value(id).is_constant()) return std::nullopt;
  const Tensor& t = *rw.value(id).constant;
  const size_t rank = t.extents().rank();
  if (rank > shape.size() || rank < shape.size() - axis) return std::nullopt;
  const size_t lead = shape.size() - rank;
  ir::Extents extents;
  for (size_t i = 0; i < rank; ++i) {
    const bool normalised = i + lead >= axis;
    if (!normalised && t.extents()[i] != 1) return std::nullopt;
    if (normalised && !shape[i + lead].is(t.extents()[i])) return std::nullopt;
    if (normalised) extents.push_back(t.extents()[i]);
  }
  return t.reshaped(extents);
}

Status to_norm(Rewriter& rw, const Node& root, std::string_view op, const Centered& c, double epsilon,
               std::optional<Tensor> scale) {
  const ir::Shape& shape = rw.shape(c.x);
  if (!scale) {
    ir::Extents extents;
    for (size_t i = c.axis; i < shape.size(); ++i) {
      if (!shape[i].is_static()) return {};
      extents.push_back(shape[i].value());
    }
    if (extents.elements() > kMaxScale) return {};
    scale = Tensor::zeros(rw.dtype(c.x), extents);
    for (int64_t i = 0; i < scale->elements(); ++i) scale->set(i, 1);
  }
  const auto axis = static_cast<int64_t>(c.axis) - static_cast<int64_t>(shape.size());
  return rw.replace(root, op, {c.x, rw.constant(std::move(*scale), root.name + "/scale")},
                    {{"axis", axis}, {"epsilon", epsilon}});
}

// (x - mean) / sqrt(variance + epsilon)
Status match_div(Rewriter& rw, const Node& root) {
  Nodes interior;
  const auto c = centered(rw, root.inputs[0], interior);
  if (!c) return {};
  const auto inside = square_root(rw, root.inputs[1], interior);
  if (!inside) return {};
  const auto epsilon = variance(rw, *inside, *c, interior);
  if (!epsilon || !rw.closed(interior, root)) return {};
  return to_norm(rw, root, "LayerNormalization", *c, *epsilon, std::nullopt);
}

// (x - mean) * rsqrt(variance + epsilon), and (x - mean) * (rsqrt(variance + epsilon) * scale)
Status match_mul(Rewriter& rw, const Node& root) {
  for (size_t i : {size_t{0}, size_t{1}}) {
    Nodes interior;
    const auto c = centered(rw, root.inputs[i], interior);
    if (!c) continue;
    const Node* product = rw.maker(root.inputs[1 - i], "Mul");
    for (size_t j : {size_t{0}, size_t{1}, size_t{2}}) {
      Nodes all = interior;
      std::optional<Tensor> scale;
      ValueId inverse = root.inputs[1 - i];
      if (j < 2) {
        if (product == nullptr) continue;
        scale = parameter(rw, product->inputs[1 - j], rw.shape(c->x), c->axis);
        if (!scale) continue;
        inverse = product->inputs[j];
        all.push_back(product);
      }
      const auto inside = inverse_root(rw, inverse, all);
      if (!inside) continue;
      const auto epsilon = variance(rw, *inside, *c, all);
      if (epsilon && rw.closed(all, root))
        return to_norm(rw, root, "LayerNormalization", *c, *epsilon, std::move(scale));
    }
  }
  return {};
}

// x / root, or x * inverse, where the root is that of mean(x ^ 2) + epsilon
Status match_rms(Rewriter& rw, const Node& root) {
  const bool div = root.is("Div");
  for (size_t i : {size_t{0}, size_t{1}}) {
    if (div && i == 1) return {};
    Nodes interior;
    const ValueId x = root.inputs[i];
    const auto inside =
        div ? square_root(rw, root.inputs[1], interior) : inverse_root(rw, root.inputs[1 - i], interior);
    if (!inside) continue;
    const auto square = mean_square(rw, *inside, interior);
    if (!square || square->of != x || !rw.closed(interior, root)) continue;
    return to_norm(rw, root, "RMSNormalization", {x, square->axis}, square->epsilon, std::nullopt);
  }
  return {};
}

bool all_one(const Tensor& t) {
  for (int64_t i = 0; i < t.elements(); ++i) {
    if (t.get(i) != 1) return false;
  }
  return true;
}

// A normalisation without scale takes a constant factor that follows it, LayerNormalization without bias an
// addend.
Status match_parameter(Rewriter& rw, const Node& node) {
  for (size_t i : {size_t{0}, size_t{1}}) {
    const Node* norm = rw.maker(node.inputs[i]);
    if (norm == nullptr) continue;
    const bool rms = norm->is("RMSNormalization");
    if (!norm->is("LayerNormalization") && (!rms || node.is("Add"))) continue;
    if (norm->has_input(2) || norm->outputs.size() != 1 || !rw.closed({norm}, node)) continue;
    const ir::Shape& shape = rw.shape(norm->inputs[0]);
    const auto axis = ir::normalize_axis(norm->attributes.i64("axis", -1), shape.size());
    if (!axis.ok()) continue;
    auto given = parameter(rw, other_operand(node, node.inputs[i]), shape, *axis);
    if (!given) continue;
    std::vector<ValueId> inputs{norm->inputs[0], norm->inputs[1]};
    if (node.is("Add")) {
      inputs.push_back(rw.constant(std::move(*given), node.name + "/bias"));
    } else {
      const auto& scale = rw.value(norm->inputs[1]).constant;
      if (!scale || !all_one(*scale)) continue;
      inputs[1] = rw.constant(std::move(*given), node.name + "/scale");
    }
    return rw.replace(node, norm->op->name, std::move(inputs), norm->attributes);
  }
  return {};
}

}  // namespace

Result<ir::Graph> fuse_layer_norm(ir::Graph graph) {
  Rewriter rewriter(std::move(graph));
  return rewriter.run([](Rewriter& rw, const Node& node) -> Status {
    if (node.is("Div")) {
      HEDDLE_TRY(match_div(rw, node));
      return rw.replaced() ? Status() : match_rms(rw, node);
    }
    if (node.is("Add")) return match_parameter(rw, node);
    if (!node.is("Mul")) return {};
    HEDDLE_TRY(match_mul(rw, node));
    if (!rw.replaced()) HEDDLE_TRY(match_rms(rw, node));
    return rw.replaced() ? Status() : match_parameter(rw, node);
  });
}

}  // namespace heddle::plan
