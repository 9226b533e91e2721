// indexing.h: putting rows where targets say, in an order.
//
//   What       put_last(): of updates of one row, the last stands.
//   Threads    Pure, but for the graph that is built.
#pragma once

#include "drivers/metal/lowering/lowering.h"

namespace heddle::metal {

// rows [count, each], updates [n, each], targets i32 [n], all within.
Tensor put_last(const Emit& e, Tensor rows, Tensor updates, Tensor targets);

}  // namespace heddle::metal
