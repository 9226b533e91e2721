// product.h: a product of values and numbers, however it is associated.
//
//   What       Patterns with several factors are spelled in any order, with divisions and squares between;
//              they look for factors, not for spellings.
//   Threads    Pure.
#pragma once

#include <vector>

#include "plan/passes/rewrite.h"

namespace heddle::plan {

struct Product {
  double number = 1;
  std::vector<ir::ValueId> factors;
  std::vector<const ir::Node*> interior;
};

// Adds the node's factors; goes into makers that are read once, for what several nodes read is a factor.
// Leaves no factor when the node is no product.
void multiply_node(const Rewriter& rw, const ir::Node& node, Product& product);
Product product_of(const Rewriter& rw, ir::ValueId id);

// Equal, to what the dtype of `x` can tell.
bool near(const Rewriter& rw, ir::ValueId x, double value, double wanted);

}  // namespace heddle::plan
