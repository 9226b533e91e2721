#include "plan/rows/batchable.h"

#include <algorithm>
#include <utility>

#include "ir/ops/control.h"
#include "plan/rows/row_rules.h"

namespace heddle::plan {

using ir::kNoValue;
using ir::Node;
using ir::ValueId;
using Kind = Rows::Kind;

namespace {

class Proof {
 public:
  Proof(const ir::Graph& graph, ir::Dim batch)
      : graph_(graph), batch_(std::move(batch)), symbol_(to_string(batch_)), states_(graph.values.size()) {}

  // Where the rows of the outputs lie, for inputs whose rows lie so.
  std::vector<Rows> follow(const std::vector<Rows>& inputs) {
    for (size_t i = 0; i < inputs.size(); ++i) states_[graph_.inputs[i]] = inputs[i];
    for (const Node& node : graph_.nodes) step(node);
    std::vector<Rows> out;
    for (ValueId id : graph_.outputs) out.push_back(states_[id]);
    return out;
  }

  // The graph, with what follow() found.
  ir::Graph marked() const {
    ir::Graph out = graph_;
    for (ValueId id = 0; id < states_.size(); ++id) {
      if (states_[id].rows()) out.values[id].row_axis = states_[id].axis;
    }
    for (Node& node : out.nodes) mark_nested(node);
    return out;
  }

  Batchable run() {
    follow(std::vector<Rows>(graph_.inputs.size(), Rows::along(0, 1)));
    for (ValueId id : graph_.outputs) {
      const Rows& rows = states_[id];
      const std::string name = text("output '", graph_.values[id].name, "'");
      switch (rows.kind) {
        case Kind::kMixed:
          return {false, rows.reason};
        case Kind::kAbsent:
        case Kind::kFixed:
          return {false, text(name, " has no rows: it is the same for every input")};
        case Kind::kShaped:
          return {false, text(name, " has no rows: it depends on the shapes of the inputs only")};
        case Kind::kRows:
          break;
      }
      if (rows.axis != 0) {
        return {false, text(name, " has its rows along axis ", rows.axis, "; they have to be along axis 0")};
      }
    }
    return {true, {}};
  }

 private:
  // Whether an extent may change with the number of rows.
  bool involves_batch(const ir::Dim& d) const {
    return !d.is_static() && (d.mentions(symbol_) || to_string(d).find('?') != std::string::npos);
  }
  bool involves_batch(const std::vector<ir::Dim>& dims) const {
    return std::any_of(dims.begin(), dims.end(), [&](const ir::Dim& d) { return involves_batch(d); });
  }

  std::vector<Rows> operands(const Node& node) const {
    std::vector<Rows> in;
    for (ValueId id : node.inputs) in.push_back(id == kNoValue ? Rows{Kind::kAbsent, 0, 1, {}} : states_[id]);
    return in;
  }

  std::shared_ptr<const ir::Graph> marked(const ir::Graph& nested, const std::vector<Rows>& inputs) const {
    Proof proof(nested, batch_);
    proof.follow(inputs);
    return std::make_shared<const ir::Graph>(proof.marked());
  }

  void mark_nested(Node& node) const {
    std::vector<Rows> in = operands(node);
    if (node.is("Loop")) {
      const std::vector<Rows> made = through_loop(node, in);
      const auto mixed = [](const Rows& r) { return r.kind == Kind::kMixed; };
      if (std::all_of(made.begin(), made.end(), mixed)) return;  // no state of the body holds in every turn
      node.attributes.set("body", marked(*ir::loop_form(node).body, in));
    }
    if (!node.is("If")) return;
    for (const bool taken : {true, false}) {
      const ir::Branch branch = ir::branch_of(node, taken);
      if (branch.graph == nullptr) continue;
      node.attributes.set(taken ? "then_branch" : "else_branch",
                          marked(*branch.graph, {in.begin() + 1, in.end()}));
    }
  }

  void step(const Node& node) {
    std::vector<Rows> in = operands(node);
    const bool nested = node.is("If") || node.is("Loop");
    if (nested) {
      const std::vector<Rows> made = node.is("If") ? through_if(node, in) : through_loop(node, in);
      for (size_t i = 0; i < made.size(); ++i)
        states_[node.outputs[i]] = confirmed(node, node.outputs[i], made[i]);
      return;
    }
    Rows made = joined(node, in);
    for (ValueId id : node.outputs) states_[id] = confirmed(node, id, made);
  }

  // Fixed for a call and for the batch that it joins: what decides must not change when calls are joined.
  bool decides_alike(const Node& node, size_t input, const Rows& rows) const {
    if (rows.fixed()) return true;
    const ir::Value& value = graph_.values[node.inputs[input]];
    return rows.kind == Kind::kShaped && value.contents && !involves_batch(*value.contents);
  }

  std::vector<Rows> through_if(const Node& node, const std::vector<Rows>& in) const {
    if (!decides_alike(node, 0, in[0])) {
      const char* why = in[0].kind == Kind::kShaped
                            ? " chooses by shapes, in which the number of rows may have a part"
                            : " chooses one branch for all rows";
      return std::vector<Rows>(node.outputs.size(), Rows::mixed(text(node.describe(), why)));
    }
    std::vector<Rows> out;
    for (const bool taken : {true, false}) {
      const ir::Branch branch = ir::branch_of(node, taken);
      if (branch.graph == nullptr) continue;  // refused when it is taken
      const std::vector<Rows> made = Proof(*branch.graph, batch_).follow({in.begin() + 1, in.end()});
      if (out.empty()) out = made;
      for (size_t i = 0; i < made.size(); ++i) {
        if (made[i].kind == Kind::kMixed) out[i] = made[i];
        if (out[i].kind == Kind::kMixed || same(out[i], made[i])) continue;
        out[i] = Rows::mixed(text(node.describe(), " has its rows elsewhere in each branch"));
      }
    }
    return out;
  }

  static bool same(const Rows& a, const Rows& b) {
    return a.kind == b.kind && (!a.rows() || (a.axis == b.axis && a.block == b.block));
  }

  // Leaves `in` as the body meets it in every iteration.
  std::vector<Rows> through_loop(const Node& node, std::vector<Rows>& in) const {
    const ir::LoopForm form = ir::loop_form(node);
    for (size_t i = 0; i < 2; ++i) {
      if (decides_alike(node, i, in[i])) continue;
      const Rows mixed = Rows::mixed(text(node.describe(), " runs as often for all rows"));
      return std::vector<Rows>(node.outputs.size(), mixed);
    }
    in[0] = in[1] = Rows{};
    std::vector<Rows> made;
    // A carried value that starts without rows may get them: each does so once.
    for (size_t turn = 0; turn <= form.carried + 1; ++turn) {
      made = Proof(*form.body, batch_).follow(in);
      bool steady = true;
      for (size_t k = 0; k < form.carried; ++k) {
        Rows& before = in[2 + k];
        Rows& after = made[1 + k];
        if (same(before, after)) continue;
        if (after.kind == Kind::kMixed || !before.fixed()) {
          const std::string reason = text(node.describe(), " moves the rows of carried value ", k);
          const Rows mixed = after.kind == Kind::kMixed ? after : Rows::mixed(reason);
          return std::vector<Rows>(node.outputs.size(), mixed);
        }
        before = after;
        steady = false;
      }
      if (steady) break;
    }
    made.erase(made.begin());
    for (size_t k = form.carried; k < made.size(); ++k) {
      if (made[k].rows()) ++made[k].axis;
    }
    return made;
  }

  Rows joined(const Node& node, const std::vector<Rows>& in) const {
    for (const Rows& r : in) {
      if (r.kind == Kind::kMixed) return r;
    }
    const bool reads_shape = node.is("Shape") || node.is("Size");
    const bool any_rows = std::any_of(in.begin(), in.end(), [](const Rows& r) { return r.rows(); });
    if (!any_rows || reads_shape) return without_rows(node, in);
    const RowRule* rule = find_row_rule(*node.op);
    if (rule == nullptr)
      return Rows::mixed(text(node.describe(), " has no rule for rows of several callers"));
    for (size_t i = 0; i < in.size(); ++i) {
      const bool as_shape =
          rule->first_shape_operand >= 0 && static_cast<int>(i) >= rule->first_shape_operand;
      if (in[i].kind == Kind::kShaped && !as_shape) {
        return Rows::mixed(text(node.describe(), ": operand ", i, " depends on the number of rows"));
      }
    }
    const RowContext context{graph_, node, in, batch_};
    Rows made = rule->rule(context);
    if (made.kind == Kind::kMixed) made.reason = text(node.describe(), ' ', made.reason);
    return made;
  }

  // Nothing but constants and shapes goes in.
  Rows without_rows(const Node& node, const std::vector<Rows>& in) const {
    const ir::Value& value = graph_.values[node.outputs[0]];
    const bool fixed_operands = std::all_of(in.begin(), in.end(), [](const Rows& r) { return r.fixed(); });
    const bool shape = involves_batch(value.type.shape);
    if (fixed_operands && !shape) return {};
    if (!shape && value.contents && !involves_batch(*value.contents)) return {};
    // A fixed tensor repeated for every row.
    const bool repeats = (node.is("Expand") && in[0].fixed()) || node.is("ConstantOfShape");
    if (!repeats) return {Kind::kShaped, 0, 1, {}};
    for (size_t axis = 0; axis < value.type.rank(); ++axis) {
      const auto block = ir::Dim::divide_exact(value.type.shape[axis], batch_);
      if (!involves_batch(value.type.shape[axis]) || !block) continue;
      if (node.is("Expand")) {
        const ir::Shape& from = graph_.type(node.inputs[0]).shape;
        const size_t lead = value.type.rank() - from.size();
        if (axis >= lead && !from[axis - lead].is(1)) continue;
      }
      return Rows::along(axis, *block);
    }
    return {Kind::kShaped, 0, 1, {}};
  }

  // The last word: the shape must show the rows on their axis and nowhere else.
  Rows confirmed(const Node& node, ValueId id, const Rows& made) const {
    if (!made.rows()) return made;
    const ir::Shape& shape = graph_.type(id).shape;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      const bool here = axis == made.axis;
      if (here ? shape[axis] == batch_ * made.block && !involves_batch(made.block)
               : !involves_batch(shape[axis]))
        continue;
      return Rows::mixed(text(node.describe(), " makes ", graph_.type(id),
                              ", which does not keep the rows of '", symbol_, "' on one axis"));
    }
    if (made.axis < shape.size()) return made;
    return Rows::mixed(text(node.describe(), " makes ", graph_.type(id), ", which has no axis for the rows"));
  }

  const ir::Graph& graph_;
  const ir::Dim batch_;
  const std::string symbol_;
  std::vector<Rows> states_;
};

// The symbol on axis 0 of every input, or why there is none.
std::optional<ir::Dim> common_batch(const ir::Graph& graph, std::string& reason) {
  const auto refused = [&](std::string why) {
    reason = std::move(why);
    return std::nullopt;
  };
  if (graph.inputs.empty()) return refused("the graph has no inputs, so there are no rows");
  std::optional<ir::Dim> batch;
  std::string first;
  for (ValueId id : graph.inputs) {
    const ir::Value& value = graph.values[id];
    const std::string what = text("input '", value.name, "' is ", value.type);
    if (value.type.rank() == 0) return refused(text(what, ": it has no axis 0 to join calls along"));
    const ir::Dim& rows = value.type.shape[0];
    if (rows.is_static()) return refused(text(what, ": axis 0 is fixed, so calls cannot be joined along it"));
    const std::string symbol = to_string(rows);
    if (!(rows == ir::Dim::symbol(symbol)) || rows.derived()) {
      return refused(text(what, ": axis 0 has to be a symbol of its own, such as 'batch'"));
    }
    if (batch && !(*batch == rows)) {
      return refused(text(what, ", but input '", first, "' has '", *batch,
                          "' on axis 0: one call's inputs need one number of rows"));
    }
    if (!batch) first = value.name;
    batch = rows;
    for (size_t axis = 1; axis < value.type.rank(); ++axis) {
      if (value.type.shape[axis].mentions(symbol)) {
        return refused(text(what, ": axis ", axis, " grows with the number of rows too"));
      }
    }
  }
  return batch;
}

}  // namespace

Batchable batchable(const ir::Graph& graph) {
  std::string reason;
  const std::optional<ir::Dim> batch = common_batch(graph, reason);
  return batch ? Proof(graph, *batch).run() : Batchable{false, std::move(reason)};
}

ir::Graph mark_rows(ir::Graph graph) {
  std::string reason;
  const std::optional<ir::Dim> batch = common_batch(graph, reason);
  if (!batch) return graph;
  Proof proof(graph, *batch);
  return proof.run().yes ? proof.marked() : std::move(graph);
}

}  // namespace heddle::plan
