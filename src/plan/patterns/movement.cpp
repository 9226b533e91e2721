#include "plan/patterns/movement.h"

#include <algorithm>
#include <utility>

namespace heddle::plan {

using ir::Dim;
using ir::Node;
using ir::ValueId;

namespace {

struct Link {
  const Node* node;
  ValueId input;
  ValueId output;
};

Movement start(const Rewriter& rw, ValueId source) {
  Movement m;
  m.source = source;
  const ir::Shape& shape = rw.shape(source);
  m.base.assign(shape.size(), 0);
  for (size_t i = 0; i < shape.size(); ++i) {
    m.axes.emplace_back();
    if (!shape[i].is(1)) m.axes.back().push_back({i, shape[i], 1});
  }
  return m;
}

bool is_reshape(const Node& node) {
  return node.is("Reshape") || node.is("Squeeze") || node.is("Unsqueeze") || node.is("Flatten");
}

bool regroup(Movement& m, const ir::Shape& to) {
  std::vector<Piece> flat;
  for (const auto& axis : m.axes) flat.insert(flat.end(), axis.begin(), axis.end());
  auto axes = plan::regroup(std::move(flat), to);
  if (axes) m.axes = std::move(*axes);
  return axes.has_value();
}

// Keeps `count` positions of one axis, from `first` on.
bool cut(Movement& m, size_t axis, int64_t first, int64_t count) {
  std::vector<Piece>& pieces = m.axes[axis];
  if (pieces.empty()) return first == 0 && count == 1;
  if (pieces.size() != 1 || !pieces[0].stride.is_static() || !pieces[0].extent.is_static()) return false;
  if (first < 0 || count < 1 || first + count > pieces[0].extent.value()) return false;
  m.base[pieces[0].axis] += first * pieces[0].stride.value();
  pieces[0].extent = count;
  if (count == 1) pieces.clear();
  return true;
}

bool pick(const Rewriter& rw, Movement& m, const Node& gather) {
  const auto indices = rw.ints(gather.inputs[1]);
  const auto axis = ir::normalize_axis(gather.attributes.i64("axis"), m.axes.size());
  const Dim& extent = rw.shape(gather.inputs[0])[axis.ok() ? *axis : 0];
  if (!axis.ok() || !indices || indices->size() != 1 || !extent.is_static()) return false;
  const int64_t index = (*indices)[0] < 0 ? (*indices)[0] + extent.value() : (*indices)[0];
  if (rw.shape(gather.inputs[1]).size() > 1 || !cut(m, *axis, index, 1)) return false;
  if (rw.shape(gather.inputs[1]).empty()) m.axes.erase(m.axes.begin() + static_cast<std::ptrdiff_t>(*axis));
  return true;
}

bool slice(const Rewriter& rw, Movement& m, const Node& node) {
  const auto starts = rw.ints(node.inputs[1]);
  const auto ends = rw.ints(node.inputs[2]);
  if (!starts || !ends || starts->size() != ends->size()) return false;
  std::vector<int64_t> axes(starts->size());
  for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
  if (node.has_input(3)) {
    const auto given = rw.ints(node.inputs[3]);
    if (!given || given->size() != axes.size()) return false;
    axes = *given;
  }
  if (node.has_input(4)) {
    const auto steps = rw.ints(node.inputs[4]);
    if (!steps || std::any_of(steps->begin(), steps->end(), [](int64_t s) { return s != 1; })) return false;
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto axis = ir::normalize_axis(axes[i], m.axes.size());
    if (!axis.ok() || !rw.shape(node.inputs[0])[*axis].is_static()) return false;
    const int64_t extent = rw.shape(node.inputs[0])[*axis].value();
    const auto clamped = [&](int64_t at) {
      return std::clamp<int64_t>(at < 0 ? at + extent : at, 0, extent);
    };
    const int64_t first = clamped((*starts)[i]);
    if (!cut(m, *axis, first, clamped((*ends)[i]) - first)) return false;
  }
  return true;
}

bool split(const Rewriter& rw, Movement& m, const Node& node, ValueId part) {
  const auto axis = ir::normalize_axis(node.attributes.i64("axis"), m.axes.size());
  if (!axis.ok()) return false;
  int64_t first = 0;
  for (ValueId output : node.outputs) {
    const Dim& extent = rw.shape(output)[*axis];
    if (!extent.is_static()) return false;
    if (output == part) return cut(m, *axis, first, extent.value());
    first += extent.value();
  }
  return false;
}

// Axes of extent 1 that are repeated: a piece that stays where it is.
bool expand(const Rewriter& rw, Movement& m, const Link& link) {
  const ir::Shape& from = rw.shape(link.input);
  const ir::Shape& to = rw.shape(link.output);
  m.axes.insert(m.axes.begin(), to.size() - from.size(), std::vector<Piece>{});
  for (size_t i = 0; i < to.size(); ++i) {
    const Dim had = i < to.size() - from.size() ? Dim(1) : from[i - (to.size() - from.size())];
    if (had == to[i]) continue;
    if (!had.is(1) || !to[i].is_static() || to[i].value() < 1) return false;
    m.axes[i] = {{0, to[i], 0}};
  }
  return true;
}

// The other operand of a Mul or Div by a constant scalar that does not change the shape.
std::optional<std::pair<ValueId, double>> scaled(const Rewriter& rw, const Node& node) {
  const bool div = node.is("Div");
  if (!div && !node.is("Mul")) return std::nullopt;
  for (size_t i : {size_t{1}, size_t{0}}) {
    const auto factor = rw.scalar(node.inputs[i]);
    const ValueId other = node.inputs[1 - i];
    if (!factor || (div && i == 0) || *factor == 0) continue;
    if (rw.shape(node.inputs[i]).size() > rw.shape(other).size() || !ir::is_float(rw.dtype(other))) continue;
    return std::pair(other, div ? 1.0 / *factor : *factor);
  }
  return std::nullopt;
}

bool follow(const Rewriter& rw, Movement& m, const Link& link) {
  const Node& node = *link.node;
  if (is_reshape(node)) return regroup(m, rw.shape(link.output));
  if (node.is("Transpose")) {
    std::vector<std::vector<Piece>> axes;
    for (int64_t axis : permutation(node, m.axes.size())) axes.push_back(m.axes[static_cast<size_t>(axis)]);
    m.axes = std::move(axes);
    return true;
  }
  if (node.is("Gather")) return pick(rw, m, node);
  if (node.is("Slice")) return slice(rw, m, node);
  if (node.is("Split")) return split(rw, m, node, link.output);
  if (node.is("Expand")) return expand(rw, m, link);
  m.scale *= scaled(rw, node)->second;
  return true;
}

// Walks from `at` towards the inputs; the last link is the first node of the chain.
void extend(const Rewriter& rw, std::vector<Link>& chain, ValueId at, MovementOptions options,
            size_t longest) {
  while (chain.size() < longest) {
    const Node* node = rw.maker(at);
    if (node == nullptr) return;
    ValueId input = ir::kNoValue;
    if (is_reshape(*node) || node->is("Transpose") ||
        (options.picks &&
         (node->is("Gather") || node->is("Slice") || node->is("Split") || node->is("Expand")))) {
      input = node->inputs[0];
    } else if (options.scales) {
      const auto factor = scaled(rw, *node);
      if (factor) input = factor->first;
    }
    if (input == ir::kNoValue) return;
    chain.push_back({node, input, at});
    at = input;
  }
}

Movement simulate(const Rewriter& rw, const std::vector<Link>& chain, ValueId result) {
  Movement m = start(rw, chain.empty() ? result : chain.back().input);
  for (auto link = chain.rbegin(); link != chain.rend(); ++link) {
    Movement next = m;
    if (follow(rw, next, *link)) {
      m = std::move(next);
      m.nodes.push_back(link->node);
    } else {
      m = start(rw, link->output);
    }
  }
  return m;
}

}  // namespace

std::optional<std::vector<std::vector<Piece>>> regroup(std::vector<Piece> pieces, const ir::Shape& to) {
  std::vector<std::vector<Piece>> axes;
  size_t next = 0;
  for (const Dim& dim : to) {
    if (dim.is(0)) return std::nullopt;
    axes.emplace_back();
    for (Dim need = dim; !need.is(1);) {
      if (next == pieces.size() || pieces[next].extent.is(0)) return std::nullopt;
      Piece& piece = pieces[next];
      if (const auto rest = Dim::divide_exact(need, piece.extent)) {
        axes.back().push_back(piece);
        need = *rest;
        ++next;
      } else if (const auto inner = Dim::divide_exact(piece.extent, need)) {
        axes.back().push_back({piece.axis, need, piece.stride * *inner});
        piece.extent = *inner;
        need = 1;
      } else {
        return std::nullopt;
      }
    }
  }
  if (next != pieces.size()) return std::nullopt;
  return axes;
}

bool Movement::whole() const {
  if (scale != 1) return false;
  return std::all_of(nodes.begin(), nodes.end(),
                     [](const Node* node) { return is_reshape(*node) || node->is("Transpose"); });
}

Movement trace(const Rewriter& rw, ValueId id, MovementOptions options) {
  std::vector<Link> chain;
  extend(rw, chain, id, options, SIZE_MAX);
  return simulate(rw, chain, id);
}

Movement trace(const Rewriter& rw, const Node& last, size_t longest) {
  std::vector<Link> chain{{&last, last.inputs[0], last.outputs[0]}};
  extend(rw, chain, last.inputs[0], {}, longest);
  return simulate(rw, chain, last.outputs[0]);
}

std::optional<size_t> whole_axis(const Rewriter& rw, const Movement& m, size_t result_axis) {
  const std::vector<Piece>& pieces = m.axes[result_axis];
  if (pieces.size() != 1 || !pieces[0].stride.is(1)) return std::nullopt;
  const size_t axis = pieces[0].axis;
  if (!(pieces[0].extent == rw.shape(m.source)[axis])) return std::nullopt;
  return axis;
}

std::optional<ShortMovement> shorten(const Rewriter& rw, const Movement& m, const ir::Shape& result) {
  if (!m.whole()) return std::nullopt;
  const ir::Shape& from = rw.shape(m.source);
  std::vector<Piece> merged;
  for (const auto& axis : m.axes) {
    for (const Piece& piece : axis) {
      if (!merged.empty() && merged.back().axis == piece.axis &&
          merged.back().stride == piece.stride * piece.extent) {
        merged.back() = {piece.axis, merged.back().extent * piece.extent, piece.stride};
      } else {
        merged.push_back(piece);
      }
    }
  }
  std::vector<int64_t> order;
  for (const Piece& piece : merged) {
    if (!piece.stride.is(1) || !(piece.extent == from[piece.axis])) return std::nullopt;
    order.push_back(static_cast<int64_t>(piece.axis));
  }
  ShortMovement out;
  if (std::is_sorted(order.begin(), order.end())) {
    out.reshape = from != result;
    return out;
  }
  // Axes of extent 1 go where the result has them too, so that the Transpose alone may do; the rest go last.
  std::vector<int64_t> ones;
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i].is(1)) ones.push_back(static_cast<int64_t>(i));
  }
  size_t next_one = 0;
  size_t next = 0;
  for (const Dim& dim : result) {
    if (dim.is(1) && next_one < ones.size()) {
      out.perm.push_back(ones[next_one++]);
    } else if (next < order.size()) {
      out.perm.push_back(order[next++]);
    }
  }
  while (next < order.size()) out.perm.push_back(order[next++]);
  while (next_one < ones.size()) out.perm.push_back(ones[next_one++]);
  ir::Shape moved;
  for (int64_t axis : out.perm) moved.push_back(from[static_cast<size_t>(axis)]);
  out.reshape = moved != result;
  return out;
}

std::optional<std::vector<int64_t>> reshape_spec(const ir::Shape& from, const ir::Shape& to) {
  std::vector<int64_t> spec;
  bool inferred = false;
  bool empty = false;
  for (size_t i = 0; i < to.size(); ++i) {
    const bool same = i < from.size() && from[i] == to[i];
    if (to[i].is_static() && to[i].value() > 0) {
      spec.push_back(to[i].value());
    } else if (same) {
      spec.push_back(0);
      empty = empty || to[i].is(0);
    } else if (!inferred && !to[i].is_static()) {
      spec.push_back(-1);
      inferred = true;
    } else {
      return std::nullopt;
    }
  }
  if (inferred && empty) return std::nullopt;  // what times 0 gives 0 is not known
  return spec;
}

}  // namespace heddle::plan
