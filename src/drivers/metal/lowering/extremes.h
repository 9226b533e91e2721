// extremes.h: the greatest or least of what is scattered to one place.
//
//   What       MPSGraph scatters extremes of floats in every version; of integers, in some. Else the
//              greatest is found digit by digit in f32, which holds a digit exactly.
//   Threads    Pure, but for the graph that is built.
#pragma once

#include "drivers/metal/lowering/emit.h"

namespace heddle::metal {

// data [rows, each], updates [n, each], targets i32 [n], all within.
Tensor scatter_extreme(const Emit& e, Tensor data, Tensor updates, Tensor targets, bool greatest);

}  // namespace heddle::metal
