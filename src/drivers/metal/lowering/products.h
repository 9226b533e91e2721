// products.h: matrix products, for every path that needs one.
//
//   What       product() is the only place that multiplies matrices of floats: which of MPSGraph's kernels is
//              reached, and what is cut because MPSGraph would be wrong, is decided there.
//   Threads    Pure, but for the graph that is built.
#pragma once

#include "drivers/metal/lowering/lowering.h"

namespace heddle::metal {

// x [.., m, k] * y [.., k, n]; the leading axes broadcast.
Tensor product(const Lowering& l, Tensor x, Tensor y);

}  // namespace heddle::metal
