// Elementwise: a chain of element-wise operators fused into one node, with the chain as a nested graph.
#include "ir/ops/rules.h"
#include "ir/ops/tables.h"

namespace heddle::ir {

namespace {

Status check_body(const Graph* body, const Node& node) {
  if (body == nullptr) return Status::invalid("attribute 'body' is null; it has to be a graph");
  HEDDLE_TRY(validate(*body));
  if (body->inputs.size() != node.inputs.size() || body->outputs.size() != node.outputs.size()) {
    return Status::invalid("the body has ", body->inputs.size(), " inputs and ", body->outputs.size(),
                           " outputs; the node has ", node.inputs.size(), " and ", node.outputs.size());
  }
  for (const Node& inner : body->nodes) {
    if (inner.op->dependence != Dependence::kElementwise) {
      return Status::invalid("the body holds ", inner.describe(), ", which is not element-wise");
    }
    if (inner.is("Elementwise")) return Status::invalid("the body holds a chain; chains do not nest");
  }
  return {};
}

Inferred infer_chain(const Node& node, Operands in) {
  const std::shared_ptr<const Graph> body = node.attributes.graph("body");
  HEDDLE_TRY(check_body(body.get(), node));
  std::vector<Value> values = body->values;
  for (size_t i = 0; i < in.size(); ++i) values[body->inputs[i]] = *in[i];
  for (const Node& inner : body->nodes) {
    std::vector<const Value*> operands;
    for (ValueId id : inner.inputs) operands.push_back(id == kNoValue ? nullptr : &values[id]);
    HEDDLE_TRY_ASSIGN(std::vector<Value> made, infer(inner, operands));
    for (size_t i = 0; i < made.size(); ++i) values[inner.outputs[i]] = std::move(made[i]);
  }
  std::vector<Value> out;
  for (ValueId id : body->outputs)
    out.push_back(typed(values[id].type.dtype, values[id].type.shape, values[id].integers()));
  return out;
}

Status reference_chain(const Node& node, DataIn in, DataOut out) {
  const std::shared_ptr<const Graph> body = node.attributes.graph("body");
  std::vector<Tensor> values(body->values.size());
  for (size_t id = 0; id < values.size(); ++id) values[id] = body->values[id].constant.value_or(Tensor());
  for (size_t i = 0; i < in.size(); ++i) values[body->inputs[i]] = *in[i];
  for (const Node& inner : body->nodes) {
    std::vector<const Tensor*> operands;
    for (ValueId id : inner.inputs) operands.push_back(id == kNoValue ? nullptr : &values[id]);
    HEDDLE_TRY_ASSIGN(std::vector<Tensor> made, evaluate(inner, operands));
    for (size_t i = 0; i < made.size(); ++i) values[inner.outputs[i]] = std::move(made[i]);
  }
  for (size_t i = 0; i < out.size(); ++i) out[i] = values[body->outputs[i]];
  return {};
}

}  // namespace

std::vector<OpDef> chain_ops() {
  return {{"Elementwise",
           1,
           -1,
           1,
           -1,
           {{"body", AttributeKind::kGraph, true}},
           infer_chain,
           reference_chain,
           Dependence::kElementwise}};
}

}  // namespace heddle::ir
