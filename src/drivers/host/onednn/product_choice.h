// product_choice.h: which way a product is cut, and the product in that way.
//
//   What       The engine's tuning decides; where it has no decision, the default of product_way.h holds.
//   Invariant  Where oneDNN's fast kernels take the whole product, they take all of its blocks.
//   Errors     oneDNN's.
//   Threads    Any.
#pragma once

#include <string>

#include "drivers/host/onednn/product.h"

namespace heddle::host {

struct ChosenProduct {
  Ref<const Product> product;  // null: one thread does it best
  bool measured = false;       // the way was, here or in an earlier process
};
std::string to_string(const ChosenProduct& chosen);  // "4 x 4 pieces by 16 rows, measured"

Result<ChosenProduct> product_alone(const Engine& engine, const ProductProblem& problem,
                                    const Ref<const LinearWeight>& weight);
Result<ChosenProduct> product_shared(const Engine& engine, const ProductProblem& problem,
                                     const Ref<const LinearWeight>& weight, int width);

}  // namespace heddle::host
