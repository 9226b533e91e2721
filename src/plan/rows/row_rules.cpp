#include "plan/rows/row_rules.h"

#include <algorithm>
#include <functional>
#include <map>

#include "base/made_once.h"
#include "plan/rows/batchable.h"

namespace heddle::plan {

Rows broadcast_rows(const RowContext& c, const std::vector<size_t>& operands, size_t keep) {
  const size_t rank = c.result().size() - keep;
  std::optional<Rows> found;
  for (size_t i : operands) {
    if (!c.rows(i)) continue;
    const size_t own = c.shape(i).size() - keep;
    Rows here = Rows::along(rank - own + c.in[i].axis, c.in[i].block);
    if (found && (found->axis != here.axis || !(found->block == here.block))) {
      return Rows::mixed(text("combines rows along axis ", found->axis, " with rows along axis ", here.axis));
    }
    found = std::move(here);
  }
  for (size_t i : operands) {
    if (i >= c.in.size() || c.in[i].kind == Rows::Kind::kAbsent || c.rows(i)) continue;
    const size_t own = c.shape(i).size() - keep;
    const size_t lead = rank - own;
    if (found->axis < lead || c.shape(i)[found->axis - lead].is(1)) continue;
    return Rows::mixed(text("combines the rows with operand ", i, ", whose elements along them differ"));
  }
  return *found;
}

namespace {

// A slope may not be larger than x, so one that has rows needs an x that has them; a bound of Clip may only
// have one element. Of several callers' rows they would be larger, where they are not for one.
bool outgrows(const ir::Node& node, const std::function<bool(size_t)>& has_rows) {
  const auto some = [&](size_t input) { return node.has_input(input) && has_rows(input); };
  if (node.is("PRelu")) return some(1) && !some(0);
  return node.is("Clip") && (some(1) || some(2));
}

bool some_outgrow(const RowContext& c) {
  if (outgrows(c.node, [&](size_t input) { return c.rows(input); })) return true;
  const auto body = c.node.attributes.graph("body");
  if (body == nullptr) return false;
  std::vector<bool> has_rows(body->values.size(), false);
  for (size_t i = 0; i < body->inputs.size(); ++i) has_rows[body->inputs[i]] = c.rows(i);
  for (const ir::Node& inner : body->nodes) {
    const auto has = [&](ir::ValueId id) { return id != ir::kNoValue && has_rows[id]; };
    const bool some = std::any_of(inner.inputs.begin(), inner.inputs.end(), has);
    if (outgrows(inner, [&](size_t input) { return has(inner.inputs[input]); })) return true;
    for (const ir::ValueId id : inner.outputs) has_rows[id] = some;
  }
  return false;
}

}  // namespace

Rows elementwise_rows(const RowContext& c) {
  if (some_outgrow(c)) return Rows::mixed("takes a slope or a bound for each row and one x for all");
  // A chain's constants have one element, so its operands broadcast as those of one operator do.
  if (const auto body = c.node.attributes.graph("body")) {
    for (const ir::Value& value : body->values) {
      if (value.is_constant() && value.constant->elements() != 1)
        return Rows::mixed("holds a constant tensor in its body");
    }
  }
  std::vector<size_t> all;
  for (size_t i = 0; i < c.in.size(); ++i) all.push_back(i);
  return broadcast_rows(c, all, 0);
}

const RowRule* find_row_rule(const ir::OpDef& op) {
  static constinit MadeOnce<const std::map<std::string_view, RowRule>> made;
  const auto& rules = made.get([] {
    std::map<std::string_view, RowRule> out;
    for (const auto& family : {movement_row_rules(), arithmetic_row_rules(), placement_row_rules()}) {
      for (const RowRule& rule : family) out.emplace(rule.op, rule);
    }
    return out;
  });
  static constexpr RowRule elementwise{"", elementwise_rows};
  if (op.dependence == ir::Dependence::kElementwise) return &elementwise;
  const auto found = rules.find(op.name);
  return found == rules.end() ? nullptr : &found->second;
}

}  // namespace heddle::plan
