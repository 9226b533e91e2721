// reductions.h: one result of all elements along some axes, which stay with extent 1; and totals that run.
//
//   Assumed    Apple documents none of these. Floats are added row by row. argMaximum finds the last of
//              equals, and never NaN, as its users report.
//   Threads    Pure; any thread.
#pragma once

#include "tests/metal_double/graph/numerics/array.h"

namespace heddle::metal_double::numerics {

using Axes = std::vector<size_t>;

Shape reduced_shape(const Shape& shape, const Axes& axes);

Array sum(const Array& x, const Axes& axes);
Array product(const Array& x, const Axes& axes);
Array greatest(const Array& x, const Axes& axes);  // of NaN and numbers: the greatest number
Array least(const Array& x, const Axes& axes);
Array greatest_with_nan(const Array& x, const Axes& axes);  // NaN
Array least_with_nan(const Array& x, const Axes& axes);
Array arg_maximum(const Array& x, size_t axis);  // i32

// Exclusive: element i is the total of those before it. Reverse: from the end.
Array cumulative_sum(const Array& x, size_t axis, bool exclusive, bool reverse);
Array cumulative_product(const Array& x, size_t axis, bool exclusive, bool reverse);

}  // namespace heddle::metal_double::numerics
