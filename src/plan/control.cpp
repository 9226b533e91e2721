#include "plan/control.h"

#include <algorithm>
#include <set>
#include <utility>

#include "ir/op.h"
#include "plan/passes/optimize.h"
#include "plan/passes/passes.h"

namespace heddle::plan {

using ir::Graph;
using ir::kNoValue;
using ir::Node;
using ir::Tensor;
using ir::ValueId;

ValueId Inliner::fresh(const ir::Value& like) {
  values_.push_back(like);
  return static_cast<ValueId>(values_.size() - 1);
}

Node Inliner::identity(ValueId from, ValueId to, std::string_view name) {
  return {ir::find_op("Identity"), text(name, "/result"), {from}, {to}, {}};
}

std::vector<Node> Inliner::graph(const Graph& body, const Ids& arguments, const Ids& results,
                                 std::string_view prefix) {
  Ids ids(body.values.size(), kNoValue);
  for (size_t i = 0; i < body.inputs.size(); ++i) ids[body.inputs[i]] = arguments[i];
  std::set<ValueId> made;
  for (const Node& node : body.nodes) made.insert(node.outputs.begin(), node.outputs.end());
  std::vector<Node> out;
  Ids copied(results.size(), kNoValue);
  for (size_t i = 0; i < results.size(); ++i) {
    const ValueId output = body.outputs[i];
    // An input, a constant, or what is an output already: the result is a copy.
    const bool own = made.count(output) != 0 && ids[output] == kNoValue;
    (own ? ids[output] : copied[i]) = own ? results[i] : output;
  }
  for (ValueId id = 0; id < ids.size(); ++id) {
    if (ids[id] == kNoValue && (made.count(id) != 0 || body.values[id].is_constant()))
      ids[id] = fresh(body.values[id]);
  }
  const auto mapped = [&](Ids list) {
    for (ValueId& id : list) id = id == kNoValue ? kNoValue : ids[id];
    return list;
  };
  for (const Node& node : body.nodes) {
    out.push_back(
        {node.op, text(prefix, node.name), mapped(node.inputs), mapped(node.outputs), node.attributes});
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (copied[i] != kNoValue) out.push_back(identity(ids[copied[i]], results[i], prefix));
  }
  return out;
}

Inliner::Iteration Inliner::iteration(const Node& loop, int64_t number, Ids& carried, const Ids& rest) {
  const ir::LoopForm form = ir::loop_form(loop);
  const Tensor count = Tensor::of<int64_t>(ir::DType::kI64, {}, std::span<const int64_t>(&number, 1));
  const Tensor yes = Tensor::scalar(ir::DType::kBool, 1);
  Ids arguments = {fresh({{}, count.type(), count, {}}), fresh({{}, yes.type(), yes, {}})};
  arguments.insert(arguments.end(), carried.begin(), carried.end());
  arguments.insert(arguments.end(), rest.begin(), rest.end());
  Ids results;
  for (ValueId output : form.body->outputs) {
    ir::Value value = form.body->values[output];
    value.constant.reset();
    results.push_back(fresh(value));
  }
  Iteration iteration{
      graph(*form.body, arguments, results, text(loop.name, '/', number, '/')), results[0], {}};
  const auto scans = results.begin() + 1 + static_cast<std::ptrdiff_t>(form.carried);
  carried.assign(results.begin() + 1, scans);
  iteration.stacked.assign(scans, results.end());
  return iteration;
}

std::vector<Node> Inliner::results(const Node& loop, const Ids& carried, const std::vector<Ids>& stacked) {
  const ir::LoopForm form = ir::loop_form(loop);
  std::vector<Node> out;
  for (size_t k = 0; k < form.carried; ++k) out.push_back(identity(carried[k], loop.outputs[k], loop.name));
  const Tensor zero = Tensor::of_i64({0});
  for (size_t k = 0; k < form.scans; ++k) {
    const ValueId axes = fresh({{}, zero.type(), zero, {}});
    Ids parts;
    for (const Ids& iteration : stacked) {
      ir::Value part = values_[iteration[k]];
      part.type.shape.insert(part.type.shape.begin(), 1);
      part.contents.reset();
      if (part.row_axis) ++*part.row_axis;
      parts.push_back(fresh(part));
      const std::string name = text(loop.name, "/part", parts.size() - 1);
      out.push_back({ir::find_op("Unsqueeze"), name, {iteration[k], axes}, {parts.back()}, {}});
    }
    out.push_back({ir::find_op("Concat"),
                   text(loop.name, "/stacked"),
                   std::move(parts),
                   {loop.outputs[form.carried + k]},
                   {{"axis", int64_t{0}}}});
  }
  return out;
}

Graph with_constants(const Graph& graph, const std::vector<const Tensor*>& known) {
  Graph bound = graph;
  bound.inputs.clear();
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const ValueId id = graph.inputs[i];
    if (known[i] == nullptr) {
      bound.inputs.push_back(id);
      continue;
    }
    bound.values[id].type = known[i]->type();
    bound.values[id].constant = *known[i];
    bound.values[id].contents.reset();
  }
  return bound;
}

namespace {

class InlinePass {
 public:
  explicit InlinePass(Graph graph) : graph_(std::move(graph)), inliner_(graph_.values) {}

  Result<Graph> run(bool& changed) {
    const std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (const Node& node : nodes) HEDDLE_TRY(step(node, changed));
    return std::move(graph_);
  }

 private:
  Status step(const Node& node, bool& changed) {
    if (node.is("If")) {
      const auto condition = ir::known_number(graph_.values[node.inputs[0]]);
      if (condition) {
        changed = true;
        return choose(node, *condition != 0);
      }
    }
    if (node.is("Loop")) {
      const auto trips = ir::known_number(graph_.values[node.inputs[0]]);
      const auto condition = ir::known_number(graph_.values[node.inputs[1]]);
      // With no iteration there is nothing to stack, and its shape may still be a symbol.
      if (condition == 1 && trips && *trips > 0 && *trips <= ir::kMaxUnrolled) {
        HEDDLE_TRY_ASSIGN(const bool done, unroll(node, *trips));
        if (done) {
          changed = true;
          return {};
        }
      }
    }
    graph_.nodes.push_back(node);
    return {};
  }

  Status choose(const Node& node, bool taken) {
    const ir::Branch branch = ir::branch_of(node, taken);
    if (branch.graph == nullptr) return ir::refused(branch, taken).with_context(node.describe());
    const Ids arguments(node.inputs.begin() + 1, node.inputs.end());
    append(inliner_.graph(*branch.graph, arguments, node.outputs, ""));
    return {};
  }

  // False when the body's own condition may end the loop, for then shapes have to be numbers first; or when
  // too many nodes would come of it.
  Result<bool> unroll(const Node& node, int64_t trips) {
    if (graph_.nodes.size() + static_cast<size_t>(trips) * ir::loop_form(node).body->nodes.size() > kMaxNodes)
      return false;
    std::vector<const ir::Value*> in;
    for (ValueId id : node.inputs) in.push_back(&graph_.values[id]);
    Result<ir::Iteration> any = ir::any_iteration(node, in);
    if (!any.ok()) return any.status().with_context(node.describe());
    if (!any->goes_on) return false;
    const auto first = node.inputs.begin() + 2;
    const auto rest = first + static_cast<std::ptrdiff_t>(ir::loop_form(node).carried);
    Ids carried(first, rest);
    std::vector<Ids> stacked;
    for (int64_t i = 0; i < trips; ++i) {
      Inliner::Iteration iteration = inliner_.iteration(node, i, carried, Ids(rest, node.inputs.end()));
      append(std::move(iteration.nodes));
      stacked.push_back(std::move(iteration.stacked));
    }
    append(inliner_.results(node, carried, stacked));
    return true;
  }

  void append(std::vector<Node> nodes) {
    for (Node& node : nodes) graph_.nodes.push_back(std::move(node));
  }

  Graph graph_;
  Inliner inliner_;
};

// The node's inputs from `kept` on are what its bodies read of the graph around them; what is constant among
// those moves inside.
Status optimize_bodies(Graph& graph, Node& node, size_t kept, const Fusions& fusions, int64_t& work_left) {
  const size_t skipped = node.is("If") ? 1 : 0;  // inputs of the node that no body sees
  Ids inputs(node.inputs.begin(), node.inputs.begin() + static_cast<std::ptrdiff_t>(kept));
  std::vector<const Tensor*> known(kept - skipped, nullptr);
  for (size_t i = kept; i < node.inputs.size(); ++i) {
    const auto& constant = graph.values[node.inputs[i]].constant;
    known.push_back(constant ? &*constant : nullptr);
    if (!constant) inputs.push_back(node.inputs[i]);
  }
  Status failed;
  int left = 0;
  for (const std::string name : {"then_branch", "else_branch", "body"}) {
    const auto body = node.attributes.graph(name);
    if (body == nullptr) continue;
    auto optimised = optimize_within(with_constants(*body, known), fusions, work_left);
    if (optimised.ok()) {
      node.attributes.set(name, std::make_shared<const Graph>(std::move(*optimised)));
      ++left;
      continue;
    }
    // A branch that is wrong for all shapes is refused when it is chosen, as it is by the shape rule.
    failed = optimised.status().with_context(text(node.describe(), ": ", name));
    node.attributes.erase(name);
    node.attributes.set(name.substr(0, 4) + "_refusal", optimised.status().message());
  }
  if (left == 0) return failed;
  node.inputs = std::move(inputs);
  return {};
}

}  // namespace

Result<Graph> inline_control(Graph graph, bool& changed) {
  changed = false;
  const auto runs_graphs = [](const Node& node) { return node.is("If") || node.is("Loop"); };
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), runs_graphs)) return graph;
  return InlinePass(std::move(graph)).run(changed);
}

Result<Graph> optimize_nested(Graph graph, const Fusions& fusions, int64_t& work_left) {
  for (Node& node : graph.nodes) {
    if (node.is("If")) HEDDLE_TRY(optimize_bodies(graph, node, 1, fusions, work_left));
    if (node.is("Loop"))
      HEDDLE_TRY(optimize_bodies(graph, node, 2 + ir::loop_form(node).carried, fusions, work_left));
  }
  return graph;
}

}  // namespace heddle::plan
