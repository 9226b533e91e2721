// recipe.h: what MPSGraph's double computes: recipes, and the plan that runs those a result needs.
//
//   What       A Value is one result of a Recipe: a node of a graph with the function that makes its results
//              from its operands'. A Plan is made once of a few values and runs any number of times.
//   Numbers    Those of ir's reference operators, or of elements moved by their index.
//   Threads    Recipes and plans are immutable.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "ir/tensor.h"

namespace heddle::metal_double {

struct Recipe;
using Tensors = std::vector<ir::Tensor>;
using Compute = std::function<Result<Tensors>(std::span<const ir::Tensor> operands)>;

struct Value {
  std::shared_ptr<const Recipe> recipe;
  size_t index = 0;
  ir::DType dtype = ir::DType::kF32;
  ir::Extents extents;
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
  Result<Tensors> run(std::span<const ir::Tensor> sources) const;
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
