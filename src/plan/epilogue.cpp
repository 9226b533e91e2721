#include "plan/epilogue.h"

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

Status absorb_activation(Rewriter& rw, const Node& node, const Node& product, std::string_view activation) {
  ir::Attributes attributes = product.attributes;
  attributes.set("activation", std::string(activation));
  return replace_product(rw, node, product.op->name, product.inputs, std::move(attributes));
}

std::string_view activation_name(const Node& node) {
  if (node.is("Relu")) return "relu";
  if (node.is("Tanh")) return "tanh";
  if (node.is("Sigmoid")) return "sigmoid";
  if (node.is("Silu")) return "silu";
  if (node.is("Gelu")) return node.attributes.str("approximate", "none") == "tanh" ? "gelu_tanh" : "gelu";
  return {};
}

}  // namespace heddle::plan
