// elementwise.h: one result element from one element of each operand, which broadcast.
//
//   Assumed    Apple documents none of these. Integers are divided as in C; a divisor of 0 gives -1. Shifts
//              are taken modulo the width, as the hardware does. The sign of NaN is 0, as that of Metal's
//              function. What does not fit a cast's type becomes the type's smallest number; of u8, 255.
//   Threads    Pure; any thread.
#pragma once

#include "tests/metal_double/graph/numerics/array.h"

namespace heddle::metal_double::numerics {

// f32 and f16.
Array exponent(const Array& x);
Array logarithm(const Array& x);
Array square_root(const Array& x);
Array reciprocal(const Array& x);
Array ceil(const Array& x);
Array floor(const Array& x);
Array rint(const Array& x);
Array sin(const Array& x);
Array cos(const Array& x);
Array tan(const Array& x);
Array sinh(const Array& x);
Array cosh(const Array& x);
Array asin(const Array& x);
Array acos(const Array& x);
Array atan(const Array& x);
Array asinh(const Array& x);
Array acosh(const Array& x);
Array atanh(const Array& x);
Array tanh(const Array& x);
Array erf(const Array& x);
Array sigmoid(const Array& x);
Array is_infinite(const Array& x);
Array is_nan(const Array& x);
Array modulo(const Array& x, const Array& y);
Array power(const Array& x, const Array& y);
Array minimum_with_nan(const Array& x, const Array& y);  // of NaN and a number: NaN
Array maximum_with_nan(const Array& x, const Array& y);

// Integers as well.
Array square(const Array& x);
Array absolute(const Array& x);
Array negative(const Array& x);
Array sign(const Array& x);
Array add(const Array& x, const Array& y);
Array subtract(const Array& x, const Array& y);
Array multiply(const Array& x, const Array& y);
Array divide(const Array& x, const Array& y);
Array minimum(const Array& x, const Array& y);  // of NaN and a number: the number
Array maximum(const Array& x, const Array& y);
Array equal(const Array& x, const Array& y);
Array not_equal(const Array& x, const Array& y);
Array less(const Array& x, const Array& y);
Array less_or_equal(const Array& x, const Array& y);
Array greater(const Array& x, const Array& y);
Array greater_or_equal(const Array& x, const Array& y);

// Integers, or bool.
Array bitwise_not(const Array& x);
Array bitwise_and(const Array& x, const Array& y);
Array bitwise_or(const Array& x, const Array& y);
Array bitwise_xor(const Array& x, const Array& y);
Array shift_left(const Array& x, const Array& y);
Array shift_right(const Array& x, const Array& y);
Array logical_not(const Array& x);

// Of any type.
Array identity(const Array& x);
Array select(const Array& predicate, const Array& yes, const Array& no);
Array cast(const Array& x, MPSDataType type);
Array scalar(MPSDataType type, double value);  // [1]

}  // namespace heddle::metal_double::numerics
