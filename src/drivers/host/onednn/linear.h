// linear.h: y = activation(x @ w + bias) + residual over a packed weight, whole or in pieces.
//
//   What       The weight is packed once for all row counts. A caller that is alone shares the work with
//              helpers, a piece for each thread of the budget: panels of the weight's columns, so that no
//              core reads all of it, or of many rows some. Any other caller runs it whole.
//   Invariant  A row's bits depend neither on the other rows nor on how the work is cut: oneDNN, made for a
//              team of one, sums along K in one order for all row counts and panels (driver_conformance
//              compares the bits). In bf16 that holds where the engine is exact, which then cuts rows only.
//              Models with a weight among their inputs are not batched, and take few_rows.h.
//   Threads    As step.h says.
#pragma once

#include "drivers/host/lowering.h"

namespace heddle::host {

Result<std::unique_ptr<Step>> lower_linear(Lowering& lowering);  // f32

}  // namespace heddle::host
