#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "plan/passes/passes.h"
#include "plan/passes/rewrite.h"

namespace heddle::plan {

using ir::Graph;
using ir::kNoValue;
using ir::Node;
using ir::ValueId;

namespace {

// Kernels keep one register or small block per body value; beyond this they would spill, and the memory
// traffic saved is small.
constexpr size_t kMaxBodyNodes = 24;
constexpr size_t kMaxInputs = 8;

// Whether elements of a value depend on the data of the inputs. What depends on shapes only is folded away by
// specialize(), and must not be drawn into a chain that is computed in every run.
std::vector<char> depends_on_data(const Graph& graph) {
  std::vector<char> depends(graph.values.size(), 0);
  for (ValueId id : graph.inputs) depends[id] = 1;
  for (const Node& node : graph.nodes) {
    if (node.is("Shape") || node.is("Size")) continue;
    const bool any = std::any_of(node.inputs.begin(), node.inputs.end(),
                                 [&](ValueId id) { return id != kNoValue && depends[id] != 0; });
    for (ValueId id : node.outputs) depends[id] = any ? 1 : 0;
  }
  return depends;
}

// Drivers have few kernels for u64: such nodes stay by themselves.
bool has_u64(const Rewriter& rw, const Node& node) {
  const auto is_u64 = [&](ValueId id) { return id != kNoValue && rw.dtype(id) == ir::DType::kU64; };
  return std::any_of(node.inputs.begin(), node.inputs.end(), is_u64) || is_u64(node.outputs[0]);
}

class Group {
 public:
  Group(const Rewriter& rw, const std::vector<char>& depends, const Node& root) : rw_(rw), depends_(depends) {
    members_.push_back(&root);
    while (grow()) {
    }
  }

  size_t size() const { return members_.size(); }
  const std::vector<ValueId>& inputs() const { return inputs_; }

  std::shared_ptr<const Graph> body() {
    auto body = std::make_shared<Graph>();
    body->name = members_[0]->name;
    inputs_.clear();
    const ValueId output = build(*body, members_[0]->outputs[0]);
    body->outputs = {output};
    return body;
  }

  static bool fusible(const Rewriter& rw, const std::vector<char>& depends, const Node& node) {
    return node.op->dependence == ir::Dependence::kElementwise && node.outputs.size() == 1 &&
           !node.is("Identity") && depends[node.outputs[0]] != 0 && !rw.value(node.outputs[0]).contents &&
           !has_u64(rw, node);
  }

 private:
  bool member(const Node* node) const {
    return std::find(members_.begin(), members_.end(), node) != members_.end();
  }

  bool inlined(ValueId id) const {
    return id != kNoValue && rw_.value(id).is_constant() && rw_.value(id).constant->elements() == 1;
  }

  static size_t body_nodes(const Node& node) {
    const auto body = node.attributes.graph("body");
    return body == nullptr ? 1 : body->nodes.size();
  }

  bool within_bounds() const {
    size_t nodes = 0;
    std::vector<ValueId> read;
    for (const Node* node : members_) {
      nodes += body_nodes(*node);
      for (ValueId id : node->inputs) {
        if (id == kNoValue || inlined(id) || member(rw_.maker(id))) continue;
        if (std::find(read.begin(), read.end(), id) == read.end()) read.push_back(id);
      }
    }
    return nodes <= kMaxBodyNodes && read.size() <= kMaxInputs;
  }

  // Takes in one producer whose result no other node reads and which has the full shape, so that nothing is
  // computed twice.
  bool grow() {
    for (size_t m = 0; m < members_.size(); ++m) {
      for (ValueId id : members_[m]->inputs) {
        const Node* maker = rw_.maker(id);
        if (maker == nullptr || member(maker) || !fusible(rw_, depends_, *maker)) continue;
        if (rw_.shape(id) != rw_.shape(members_[0]->outputs[0])) continue;
        std::ptrdiff_t readers = 0;
        for (const Node* node : members_) readers += std::count(node->inputs.begin(), node->inputs.end(), id);
        if (readers != rw_.uses(id)) continue;
        members_.push_back(maker);
        if (within_bounds()) return true;
        members_.pop_back();
      }
    }
    return false;
  }

  ValueId build(Graph& body, ValueId id) {
    if (id == kNoValue) return kNoValue;
    if (const auto known = built_.find(id); known != built_.end()) return known->second;
    const Node* maker = id == members_[0]->outputs[0] ? members_[0] : rw_.maker(id);
    if (maker != nullptr && member(maker)) return built_[id] = build_node(body, *maker);
    const ir::Value& value = rw_.value(id);
    if (inlined(id)) return built_[id] = body.add_constant(value.name, *value.constant);
    const ValueId input = body.add_value({value.name, value.type, std::nullopt, std::nullopt});
    body.inputs.push_back(input);
    inputs_.push_back(id);
    return built_[id] = input;
  }

  ValueId build_node(Graph& body, const Node& node) {
    std::vector<ValueId> inputs;
    for (ValueId id : node.inputs) inputs.push_back(build(body, id));
    const ir::Value& made = rw_.value(node.outputs[0]);
    const auto inner = node.attributes.graph("body");
    if (inner == nullptr) {
      const ValueId output = body.add_value({made.name, made.type, std::nullopt, std::nullopt});
      body.nodes.push_back({node.op, node.name, std::move(inputs), {output}, node.attributes});
      return output;
    }
    std::vector<ValueId> moved(inner->values.size(), kNoValue);
    for (size_t i = 0; i < inputs.size(); ++i) moved[inner->inputs[i]] = inputs[i];
    for (size_t i = 0; i < moved.size(); ++i) {
      if (moved[i] == kNoValue) moved[i] = body.add_value(inner->values[i]);
    }
    for (const Node& from : inner->nodes) {
      Node copy = from;
      for (auto* ids : {&copy.inputs, &copy.outputs}) {
        for (ValueId& id : *ids) id = id == kNoValue ? id : moved[id];
      }
      body.nodes.push_back(std::move(copy));
    }
    return moved[inner->outputs[0]];
  }

  const Rewriter& rw_;
  const std::vector<char>& depends_;
  std::vector<const Node*> members_;  // the first is the last in order
  std::map<ValueId, ValueId> built_;
  std::vector<ValueId> inputs_;
};

}  // namespace

Result<Graph> fuse_elementwise(Graph graph) {
  const std::vector<char> depends = depends_on_data(graph);
  Rewriter rewriter(std::move(graph));
  return rewriter.run([&](Rewriter& rw, const Node& node) -> Status {
    if (!Group::fusible(rw, depends, node)) return {};
    Group group(rw, depends, node);
    if (group.size() == 1) return {};
    auto body = group.body();
    return rw.replace(node, "Elementwise", group.inputs(),
                      {{"body", std::shared_ptr<const Graph>(std::move(body))}});
  });
}

}  // namespace heddle::plan
