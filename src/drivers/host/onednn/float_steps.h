// float_steps.h: operators written for f32 serve the other element types too.
//
//   What       lower_floats() hands f32 nodes to their lowering; f16 and bf16 nodes run the same lowering on
//              operands converted to f32 and round its results once; all others (f64, integers) run ir's
//              reference, which is slow and right.
//   Invariant  A node without output elements becomes a step that does nothing; one that sums over nothing
//              runs the reference.
//   Threads    As lowering.h and step.h say. The reference and its tensors allocate while they run.
#pragma once

#include "drivers/host/kernels/reference/reference_step.h"
#include "drivers/host/lowering.h"

namespace heddle::host {

Result<std::unique_ptr<Step>> lower_floats(Lowering& lowering, Lower f32);

}  // namespace heddle::host
