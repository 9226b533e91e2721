#include "plan/patterns/epilogue.h"

#include <limits>
#include <string>
#include <utility>

namespace heddle::plan {

using ir::kNoValue;
using ir::Node;
using ir::ValueId;

std::vector<ValueId> four_inputs(const Node& product) {
  std::vector<ValueId> inputs = product.inputs;
  inputs.resize(4, kNoValue);
  return inputs;
}

Status replace_product(Rewriter& rw, const Node& node, std::string_view op, std::vector<ValueId> inputs,
                       ir::Attributes attributes) {
  while (inputs.back() == kNoValue) inputs.pop_back();
  return rw.replace(node, op, std::move(inputs), std::move(attributes));
}

Status absorb_residual(Rewriter& rw, const Node& add, Absorbable absorbable) {
  // The second operand first: exporters write shortcut + branch or branch + shortcut; with two products the
  // later one is free to wait for the other.
  for (size_t i : {size_t{1}, size_t{0}}) {
    const ValueId other = add.inputs[1 - i];
    const Node* product = absorbable(rw, add.inputs[i], add);
    if (product == nullptr || product->has_input(kResidual) || other == add.inputs[i]) continue;
    if (!(rw.value(other).type == rw.value(add.inputs[i]).type)) continue;
    std::vector<ValueId> inputs = four_inputs(*product);
    inputs[kResidual] = other;
    return replace_product(rw, add, product->op->name, std::move(inputs), product->attributes);
  }
  return {};
}

Status absorb_activation(Rewriter& rw, const Node& node, const Node& product,
                         const ir::Attributes& activation) {
  ir::Attributes attributes = product.attributes;
  for (const auto& [name, value] : activation) attributes.set(name, value);
  return replace_product(rw, node, product.op->name, product.inputs, std::move(attributes));
}

namespace {

ir::Attributes named(std::string_view activation) { return {{"activation", std::string(activation)}}; }

ir::Attributes tuned(std::string_view activation, double alpha, double beta) {
  return {{"activation", std::string(activation)}, {"activation_alpha", alpha}, {"activation_beta", beta}};
}

std::optional<ir::Attributes> clip(const Rewriter& rw, const Node& node) {
  double bounds[2] = {std::numeric_limits<float>::lowest(), std::numeric_limits<float>::max()};
  for (size_t i : {size_t{0}, size_t{1}}) {
    if (!node.has_input(i + 1)) continue;
    const auto bound = rw.scalar(node.inputs[i + 1]);
    if (!bound) return std::nullopt;
    bounds[i] = *bound;
  }
  if (!(bounds[0] <= bounds[1])) return std::nullopt;
  return tuned("clip", bounds[0], bounds[1]);
}

}  // namespace

std::optional<ir::Attributes> activation_attributes(const Rewriter& rw, const Node& node) {
  if (node.is("Relu")) return named("relu");
  if (node.is("Tanh")) return named("tanh");
  if (node.is("Sigmoid")) return named("sigmoid");
  if (node.is("Silu")) return named("silu");
  if (node.is("HardSwish")) return named("hard_swish");
  const ir::Attributes& given = node.attributes;
  if (node.is("Gelu")) return named(given.str("approximate", "none") == "tanh" ? "gelu_tanh" : "gelu");
  if (node.is("LeakyRelu")) return tuned("leaky_relu", given.f64("alpha", 0.01), 0);
  if (node.is("HardSigmoid")) return tuned("hard_sigmoid", given.f64("alpha", 0.2), given.f64("beta", 0.5));
  return node.is("Clip") ? clip(rw, node) : std::nullopt;
}

}  // namespace heddle::plan
