// linear.h: y = activation(x @ w + bias) + residual over a packed weight, in pieces that the team may share.
//
//   What       The weight is packed once for all row counts. The work is cut into pieces, one per thread of
//              the budget: rows, or panels of the weight's columns when there is but one row. A caller that
//              is alone shares the pieces with helpers, else it runs them one after the other.
//   Invariant  A row's bits depend neither on the other rows nor on how the work is cut: oneDNN, made for a
//              team of one, sums along K in one order for all row counts and panels (driver_conformance
//              compares the bits). Models with a weight among
//              their inputs are not batched, and take few_rows.h.
//   Threads    As step.h says.
#pragma once

#include "drivers/host/lowering.h"

namespace heddle::host {

Result<std::unique_ptr<Step>> lower_linear(Lowering& lowering);  // f32

}  // namespace heddle::host
