// normalization.h: means, variances, and what is made of them; softmax.
//
//   Threads    Pure; any thread.
#pragma once

#include "tests/metal_double/graph/numerics/reductions.h"

namespace heddle::metal_double::numerics {

// f32 and f16; the reduced axes stay, with extent 1.
Array mean(const Array& x, const Axes& axes);
Array variance(const Array& x, const Array& mean, const Axes& axes);  // divided by the number of elements
// gamma * (x - mean) / sqrt(variance + epsilon) + beta; without elements, gamma is 1 and beta 0.
Array normalization(const Array& x, const Array& mean, const Array& variance, const Array& gamma,
                    const Array& beta, float epsilon);
// NaN where all are -infinity.
Array softmax(const Array& x, size_t axis);

}  // namespace heddle::metal_double::numerics
