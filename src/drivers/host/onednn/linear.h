// linear.h: y = activation(x @ w + bias) + residual over a packed weight, whole or in pieces.
//
//   What       The weight is packed once for all row counts. A caller that is alone shares the work with
//              helpers, pieces of some rows and some of the weight's columns; any other caller runs it alone.
//              Either way it goes by blocks of rows. Which, product_choice.h decides when a shape is
//              compiled: as was measured on this processor, else by rule.
//   Invariant  Where the engine is exact, a row's bits depend neither on the other rows nor on how the work
//              is cut (driver_conformance, product_test and row_bits_test compare them). oneDNN's brgemm,
//              made for a team of one, sums along K in one order for all row counts and panels, in bf16 for
//              all row counts. What other processors need, row_bits.h finds. Models with a weight among
//              their inputs are not batched, and take few_rows.h.
//   Threads    As step.h says.
#pragma once

#include "drivers/host/lowering.h"

namespace heddle::host {

Result<std::unique_ptr<Step>> lower_linear(Lowering& lowering);  // f32

}  // namespace heddle::host
