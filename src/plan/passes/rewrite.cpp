#include "plan/passes/rewrite.h"

#include <algorithm>
#include <utility>

namespace heddle::plan {

using ir::kNoValue;
using ir::Node;
using ir::Tensor;
using ir::Value;
using ir::ValueId;

Rewriter::Rewriter(ir::Graph graph)
    : graph_(std::move(graph)),
      makers_(graph_.values.size(), -1),
      uses_(graph_.values.size(), 0),
      outputs_(graph_.values.size(), 0),
      aliases_(graph_.values.size()) {
  for (size_t i = 0; i < aliases_.size(); ++i) aliases_[i] = static_cast<ValueId>(i);
  for (const Node& node : graph_.nodes) {
    for (ValueId id : node.inputs) {
      if (id != kNoValue) ++uses_[id];
    }
  }
  for (ValueId id : graph_.outputs) ++uses_[id], ++outputs_[id];
}

Result<ir::Graph> Rewriter::run(const Rule& rule) {
  std::vector<Node> nodes = std::move(graph_.nodes);
  for (Node& node : nodes) {
    for (ValueId& id : node.inputs) {
      if (id != kNoValue) id = aliases_[id];
    }
    const auto unused = [&](ValueId id) { return id == kNoValue || uses_[id] == 0; };
    if (std::all_of(node.outputs.begin(), node.outputs.end(), unused)) {
      drop_inputs(node);
      continue;
    }
    replaced_ = false;
    HEDDLE_TRY(rule(*this, node));
    if (!replaced_) keep(std::move(node));
  }
  graph_.nodes.clear();
  for (Node& node : kept_) {
    if (node.op != nullptr) graph_.nodes.push_back(std::move(node));
  }
  for (ValueId& id : graph_.outputs) id = aliases_[id];
  return std::move(graph_);
}

const Node* Rewriter::maker(ValueId id, std::string_view op) const {
  if (id == kNoValue || makers_[id] < 0) return nullptr;
  const Node& node = kept_[static_cast<size_t>(makers_[id])];
  return op.empty() || node.is(op) ? &node : nullptr;
}

bool Rewriter::closed(const std::vector<const Node*>& interior, const Node& root) const {
  for (const Node* made : interior) {
    for (ValueId output : made->outputs) {
      if (output == kNoValue) continue;
      std::ptrdiff_t inside = std::count(root.inputs.begin(), root.inputs.end(), output);
      for (size_t i = 0; i < interior.size(); ++i) {
        // The same node may have been met on two ways through the pattern.
        if (std::find(interior.begin(), interior.begin() + static_cast<std::ptrdiff_t>(i), interior[i]) !=
            interior.begin() + static_cast<std::ptrdiff_t>(i)) {
          continue;
        }
        inside += std::count(interior[i]->inputs.begin(), interior[i]->inputs.end(), output);
      }
      if (inside != uses_[output]) return false;
    }
  }
  return true;
}

std::optional<double> Rewriter::scalar(ValueId id) const {
  if (id == kNoValue || !value(id).is_constant() || value(id).constant->elements() != 1) return std::nullopt;
  return value(id).constant->get(0);
}

std::optional<std::vector<int64_t>> Rewriter::ints(ValueId id) const {
  if (id == kNoValue) return std::nullopt;
  const auto dims = value(id).integers();
  return dims ? static_dims(*dims) : std::nullopt;
}

ValueId Rewriter::constant(Tensor tensor, std::string_view name) {
  const ValueId id = graph_.add_constant(std::string(name), std::move(tensor));
  makers_.push_back(-1);
  uses_.push_back(0);
  outputs_.push_back(0);
  aliases_.push_back(id);
  return id;
}

Result<std::vector<Value>> Rewriter::inferred(const Node& node) const {
  std::vector<const Value*> in;
  in.reserve(node.inputs.size());
  for (ValueId id : node.inputs) in.push_back(id == kNoValue ? nullptr : &graph_.values[id]);
  return ir::infer(node, in);
}

Result<ValueId> Rewriter::emit(std::string_view op, std::vector<ValueId> inputs, ir::Attributes attributes,
                               std::string_view name) {
  const auto id = static_cast<ValueId>(graph_.values.size());
  Node node{ir::find_op(op), std::string(name), std::move(inputs), {id}, std::move(attributes)};
  if (node.op == nullptr) return Status::internal("no operator is called ", op);
  HEDDLE_TRY_ASSIGN(auto made, inferred(node));
  made[0].name = node.name;
  graph_.add_value(std::move(made[0]));
  makers_.push_back(-1);
  uses_.push_back(0);
  outputs_.push_back(0);
  aliases_.push_back(id);
  for (ValueId input : node.inputs) {
    if (input != kNoValue) ++uses_[input];
  }
  keep(std::move(node));
  return id;
}

Status Rewriter::replace(const Node& node, std::string_view op, std::vector<ValueId> inputs,
                         ir::Attributes attributes) {
  Node fresh{ir::find_op(op), node.name, std::move(inputs), node.outputs, std::move(attributes)};
  if (fresh.op == nullptr) return Status::internal("no operator is called ", op);
  HEDDLE_TRY_ASSIGN(auto made, inferred(fresh));
  for (size_t i = 0; i < made.size() && i < fresh.outputs.size(); ++i) {
    const ValueId id = fresh.outputs[i];
    if (id == kNoValue) continue;
    const ir::TensorType& before = value(id).type;
    if (made[i].type.dtype != before.dtype || made[i].type.rank() != before.rank()) {
      return Status::internal(fresh.describe(), ": the rewritten node makes ", made[i].type, " instead of ",
                              before);
    }
    refine(id, std::move(made[i]), false);
  }
  for (ValueId input : fresh.inputs) {
    if (input != kNoValue) ++uses_[input];
  }
  drop_inputs(node);
  keep(std::move(fresh));
  replaced_ = true;
  return {};
}

Status Rewriter::forward(const Node& node, ValueId to) {
  const ValueId from = node.outputs[0];
  if (is_graph_output(from)) {
    // The interface's name moves to the value that stays; an input, a constant or another output has its own
    // already.
    if (maker(to) == nullptr || is_graph_output(to)) return replace(node, "Identity", {to});
    graph_.values[to].name = value(from).name;
    outputs_[to] += std::exchange(outputs_[from], 0);
  }
  aliases_[from] = to;
  uses_[to] += std::exchange(uses_[from], 0);
  drop_inputs(node);
  replaced_ = true;
  return {};
}

void Rewriter::become_constants(const Node& node, std::vector<Tensor> tensors) {
  for (size_t i = 0; i < node.outputs.size() && i < tensors.size(); ++i) {
    if (node.outputs[i] == kNoValue) continue;
    Value& v = graph_.values[node.outputs[i]];
    v.type = tensors[i].type();
    v.contents.reset();
    v.constant = std::move(tensors[i]);
  }
  drop_inputs(node);
  replaced_ = true;
}

Status Rewriter::infer_again(const Node& node) {
  HEDDLE_TRY_ASSIGN(auto made, inferred(node));
  for (size_t i = 0; i < made.size() && i < node.outputs.size(); ++i) {
    if (node.outputs[i] != kNoValue) refine(node.outputs[i], std::move(made[i]), true);
  }
  return {};
}

void Rewriter::keep(Node node) {
  for (ValueId id : node.outputs) {
    if (id != kNoValue) makers_[id] = static_cast<int>(kept_.size());
  }
  kept_.push_back(std::move(node));
}

void Rewriter::drop_inputs(const Node& node) {
  for (ValueId id : node.inputs) {
    if (id == kNoValue || --uses_[id] > 0 || makers_[id] < 0) continue;
    Node& made = kept_[static_cast<size_t>(makers_[id])];
    const auto unused = [&](ValueId out) { return out == kNoValue || uses_[out] == 0; };
    if (!std::all_of(made.outputs.begin(), made.outputs.end(), unused)) continue;
    for (ValueId out : made.outputs) {
      if (out != kNoValue) makers_[out] = -1;
    }
    made.op = nullptr;
    drop_inputs(made);
  }
}

// Both types describe the same value, so each static extent of either is right.
void Rewriter::refine(ValueId id, Value made, bool prefer_new) {
  Value& v = graph_.values[id];
  if (made.type.rank() == v.type.rank()) {
    for (size_t i = 0; i < v.type.rank(); ++i) {
      if (v.type.shape[i].is_static()) continue;
      if (made.type.shape[i].is_static() || prefer_new) v.type.shape[i] = made.type.shape[i];
    }
  } else {
    v.type = std::move(made.type);
  }
  if (made.contents && (prefer_new || !v.contents)) v.contents = std::move(made.contents);
}

bool all_static(const ir::Shape& shape) {
  return std::all_of(shape.begin(), shape.end(), [](const ir::Dim& d) { return d.is_static(); });
}

std::optional<std::vector<int64_t>> static_dims(const ir::Shape& shape) {
  std::vector<int64_t> out;
  out.reserve(shape.size());
  for (const ir::Dim& d : shape) {
    if (!d.is_static()) return std::nullopt;
    out.push_back(d.value());
  }
  return out;
}

Tensor integer_tensor(ir::DType dtype, const ir::Extents& extents, const std::vector<int64_t>& values) {
  return Tensor::of<int64_t>(dtype, extents, values);
}

std::vector<int64_t> permutation(const Node& transpose, size_t rank) {
  std::vector<int64_t> perm = transpose.attributes.ints("perm");
  if (perm.empty()) {
    for (size_t i = rank; i > 0; --i) perm.push_back(static_cast<int64_t>(i - 1));
  }
  for (int64_t& axis : perm) axis += axis < 0 ? static_cast<int64_t>(rank) : 0;
  return perm;
}

}  // namespace heddle::plan
