// recipe.h: what MPSGraph's double computes: recipes, and the plan that runs those a result needs.
//
//   What       A Value is one result of a Recipe: a node of a graph with the function that makes its results
//              from its operands'. A Plan is made once of a few values and runs any number of times.
//   Numbers    Those of graph/numerics, written from Apple's documentation. Nothing here knows src/ir, whose
//              references the driver's results are compared with: a wrong belief about MPSGraph would be
//              shared.
//   Threads    Recipes and plans are immutable.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "tests/metal_double/graph/numerics/array.h"

namespace heddle::metal_double {

struct Recipe;
using Arrays = std::vector<Array>;
using Compute = std::function<Arrays(std::span<const Array> operands)>;

struct Value {
  std::shared_ptr<const Recipe> recipe;
  size_t index = 0;
  MPSDataType type = MPSDataTypeFloat32;
  Shape shape;
};

struct Recipe {
  std::string name;  // Apple's, for messages
  std::vector<Value> operands;
  Compute compute;  // none: a placeholder, or an argument of a block
};

class Plan {
 public:
  // Of `targets`, given `sources`. invalid when they need a placeholder that is not among the sources.
  static Result<Plan> make(std::span<const Value> sources, std::span<const Value> targets);
  Arrays run(std::span<const Array> sources) const;
  bool holds(std::string_view recipe) const;

 private:
  struct Output {
    size_t step, index;
  };
  struct Step {
    const Recipe* recipe;  // null: the sources
    std::vector<Output> operands;
  };
  friend class Planner;

  std::vector<Step> steps_;
  std::vector<Output> targets_;
  std::vector<std::shared_ptr<const Recipe>> kept_;
};

// The values outside a block that what is made inside reads: what does not depend on `arguments`.
std::vector<Value> captures(std::span<const Value> arguments, std::span<const Value> results);

}  // namespace heddle::metal_double
