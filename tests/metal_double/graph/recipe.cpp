#include "tests/metal_double/graph/recipe.h"

#include <algorithm>
#include <map>
#include <utility>

namespace heddle::metal_double {

// Depth first without recursion: graphs of unrolled loops are deep.
class Planner {
 public:
  explicit Planner(std::span<const Value> sources) {
    plan_.steps_.push_back({nullptr, {}});
    for (size_t i = 0; i < sources.size(); ++i) {
      sources_[{sources[i].recipe.get(), sources[i].index}] = i;
    }
  }

  Status add(const Value& target) {
    std::vector<std::shared_ptr<const Recipe>> open;
    if (!is_ready(target)) open.push_back(target.recipe);
    while (!open.empty()) {
      const std::shared_ptr<const Recipe> recipe = open.back();
      if (steps_.contains(recipe.get())) {
        open.pop_back();
        continue;
      }
      if (!recipe->compute) return Status::invalid("the placeholder '", recipe->name, "' is not fed");
      bool ready = true;
      for (const Value& operand : recipe->operands) {
        if (is_ready(operand)) continue;
        open.push_back(operand.recipe);
        ready = false;
      }
      if (!ready) continue;
      Plan::Step step{recipe.get(), {}};
      for (const Value& operand : recipe->operands) step.operands.push_back(output_of(operand));
      steps_[recipe.get()] = plan_.steps_.size();
      plan_.steps_.push_back(std::move(step));
      plan_.kept_.push_back(recipe);
      open.pop_back();
    }
    plan_.targets_.push_back(output_of(target));
    return {};
  }

  Plan take() { return std::move(plan_); }

 private:
  bool is_source(const Value& value) const { return sources_.contains({value.recipe.get(), value.index}); }
  bool is_ready(const Value& value) const { return is_source(value) || steps_.contains(value.recipe.get()); }
  Plan::Output output_of(const Value& value) const {
    if (is_source(value)) return {0, sources_.at({value.recipe.get(), value.index})};
    return {steps_.at(value.recipe.get()), value.index};
  }

  Plan plan_;
  std::map<std::pair<const Recipe*, size_t>, size_t> sources_;
  std::map<const Recipe*, size_t> steps_;
};

Result<Plan> Plan::make(std::span<const Value> sources, std::span<const Value> targets) {
  Planner planner(sources);
  for (const Value& target : targets) HEDDLE_TRY(planner.add(target));
  return planner.take();
}

Arrays Plan::run(std::span<const Array> sources) const {
  std::vector<Arrays> results(steps_.size());
  results[0].assign(sources.begin(), sources.end());
  const auto taken = [&](const std::vector<Output>& outputs) {
    Arrays out;
    for (const Output& output : outputs) out.push_back(results[output.step][output.index]);
    return out;
  };
  for (size_t i = 1; i < steps_.size(); ++i)
    results[i] = steps_[i].recipe->compute(taken(steps_[i].operands));
  return taken(targets_);
}

bool Plan::holds(std::string_view recipe) const {
  return std::any_of(kept_.begin(), kept_.end(), [&](const auto& kept) { return kept->name == recipe; });
}

std::vector<Value> captures(std::span<const Value> arguments, std::span<const Value> results) {
  std::map<const Recipe*, bool> depends;  // on the arguments
  for (const Value& argument : arguments) depends[argument.recipe.get()] = true;
  std::vector<const Recipe*> order, open;
  const auto visit = [&](const Value& value) {
    if (!depends.contains(value.recipe.get())) open.push_back(value.recipe.get());
  };
  for (const Value& result : results) visit(result);
  while (!open.empty()) {
    const Recipe* recipe = open.back();
    if (depends.contains(recipe)) {
      open.pop_back();
      continue;
    }
    const size_t before = open.size();
    for (const Value& operand : recipe->operands) visit(operand);
    if (open.size() != before) continue;
    open.pop_back();
    const auto inside = [&](const Value& operand) { return depends.at(operand.recipe.get()); };
    depends[recipe] = std::any_of(recipe->operands.begin(), recipe->operands.end(), inside);
    order.push_back(recipe);
  }
  std::vector<Value> outside;
  const auto take = [&](const Value& value) {
    const auto same = [&](const Value& v) { return v.recipe == value.recipe && v.index == value.index; };
    if (!depends.at(value.recipe.get()) && std::none_of(outside.begin(), outside.end(), same))
      outside.push_back(value);
  };
  for (const Value& result : results) take(result);
  for (const Recipe* recipe : order) {
    if (!depends.at(recipe)) continue;
    for (const Value& operand : recipe->operands) take(operand);
  }
  return outside;
}

}  // namespace heddle::metal_double
