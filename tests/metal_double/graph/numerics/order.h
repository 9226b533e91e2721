// order.h: the order of elements along an axis.
//
//   Assumed    Apple documents neither. NaN is above all numbers. Equals keep the order of their places, as
//              PyTorch's stable sort on MPS has it.
//   Threads    Pure; any thread.
#pragma once

#include "tests/metal_double/graph/numerics/array.h"

namespace heddle::metal_double::numerics {

Array arg_sort(const Array& x, size_t axis, bool descending);  // i32

}  // namespace heddle::metal_double::numerics
