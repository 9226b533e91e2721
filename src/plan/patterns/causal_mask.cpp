#include "plan/patterns/causal_mask.h"

namespace heddle::plan {

using ir::Node;
using ir::ValueId;

namespace {

// The number that all elements are.
std::optional<double> filled(const Rewriter& rw, ValueId id) {
  if (const auto number = rw.scalar(id)) return number;
  const Node* node = rw.maker(id);
  if (node == nullptr) return std::nullopt;
  if (node->is("Expand")) return filled(rw, node->inputs[0]);
  if (!node->is("ConstantOfShape")) return std::nullopt;
  const ir::Attribute* value = node->attributes.find("value");
  return value == nullptr ? 0 : std::get<ir::Tensor>(*value).get(0);
}

struct Triangle {
  bool lower;  // and the diagonal; else what lies above it
  double fill;
};

std::optional<Triangle> triangle(const Rewriter& rw, ValueId id) {
  const Node* node = rw.maker(id, "Trilu");
  if (node == nullptr) return std::nullopt;
  const auto fill = filled(rw, node->inputs[0]);
  const auto k = node->has_input(1) ? rw.scalar(node->inputs[1]) : 0;
  const bool upper = node->attributes.i64("upper", 1) != 0;
  if (!fill || *fill == 0 || k != (upper ? 1.0 : 0.0)) return std::nullopt;
  return Triangle{!upper, *fill};
}

std::optional<bool> negated(std::optional<bool> triangle) {
  return triangle ? std::optional(!*triangle) : std::nullopt;
}

}  // namespace

std::optional<bool> lower_triangle(const Rewriter& rw, ValueId id) {
  if (const auto found = triangle(rw, id)) return found->lower;
  const Node* node = rw.maker(id);
  if (node == nullptr) return std::nullopt;
  if (node->is("Cast")) return lower_triangle(rw, node->inputs[0]);
  if (node->is("Not")) return negated(lower_triangle(rw, node->inputs[0]));
  if (!node->is("Equal")) return std::nullopt;
  for (size_t i : {size_t{0}, size_t{1}}) {
    if (filled(rw, node->inputs[1 - i]) == 0.0) return negated(lower_triangle(rw, node->inputs[i]));
  }
  return std::nullopt;
}

bool hides_later_keys(const Rewriter& rw, ValueId id) {
  if (const auto drawn = triangle(rw, id)) return !drawn->lower && drawn->fill <= kVanishes;
  const Node* where = rw.maker(id, "Where");
  if (where == nullptr) return false;
  const auto sees = lower_triangle(rw, where->inputs[0]);
  if (!sees) return false;
  const auto seen = filled(rw, where->inputs[*sees ? 1 : 2]);
  const auto hidden = filled(rw, where->inputs[*sees ? 2 : 1]);
  return seen == 0.0 && hidden && *hidden <= kVanishes;
}

}  // namespace heddle::plan
