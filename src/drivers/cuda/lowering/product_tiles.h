// product_tiles.h: our kernels for products of f32, f16 and bf16, and which of them computes one.
//
//   What       TiledProduct takes any, FewRows those of f32 of 2 to 96 rows, and TensorProduct those of f32
//              of a model that is not exact. Which is the fastest is measured beside the library's algorithms
//              (libraries/chosen_once.h), where there is a library, and else a rule says.
//   Bits       A row has the same in TiledProduct and FewRows, whatever the number of rows.
//   Threads    Any.
#pragma once

#include <string>
#include <vector>

#include "drivers/cuda/kernels/product.h"
#include "drivers/cuda/lowering/lowering.h"

namespace heddle::cuda {

struct TileLaunch {
  std::string kernel;
  Grid grid;
};

struct OwnProduct {
  std::string word;  // by which a choice of it is kept
  TileLaunch launch;
  float gain = 1;  // as Measured of chosen_once.h has it
};

// Of the product of the node's first two inputs.
TileLaunch tiles_for(const Lowering& l, const ProductParams& params);
// Those that may compute it beside the tiles.
std::vector<OwnProduct> other_products(const Lowering& l, const ProductParams& params);
// The one of that word; "": the rule's.
TileLaunch own_product(const Lowering& l, const ProductParams& params, const std::string& word);

}  // namespace heddle::cuda
