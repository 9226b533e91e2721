// sorting.h: the order of the elements of each row.
//
//   What       order_of_rows() gives places: first that of the least element, or of the greatest. Of equals
//              the first comes first; NaN counts as greatest, and -0 as 0.
//   How        MPSGraph promises no order of equals, and is right for keys of i32. So rows are sorted digit
//              by digit, the last first; each key holds a digit and, behind it, the element's place so far.
//   Errors     unsupported for rows of more than 2^30 elements.
//   Threads    Pure, but for the graph that is built.
#pragma once

#include "base/status.h"
#include "drivers/metal/lowering/emit.h"

namespace heddle::metal {

Result<Tensor> order_of_rows(const Emit& e, Tensor rows, bool descending);  // [rows, n] -> i32 [rows, n]

}  // namespace heddle::metal
