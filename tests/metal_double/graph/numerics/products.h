// products.h: products of matrices: the last two axes; those in front broadcast.
//
//   Assumed    Apple does not document the precision. Products are added in f32, in the order of the inner
//              axis.
//   Threads    Pure; any thread.
#pragma once

#include <optional>

#include "tests/metal_double/graph/numerics/array.h"

namespace heddle::metal_double::numerics {

std::optional<Shape> product_shape(const Shape& x, const Shape& y);
Array matrix_product(const Array& x, const Array& y);

}  // namespace heddle::metal_double::numerics
