// indexing.h: elements picked and put by indices, which are i32 or i64.
//
//   Outside    gather_along gives 0, and what is put along an axis is dropped.
//   Assumed    Apple documents none of these. An index outside makes the whole result of gather and gather_nd
//              zeros, and scatter_nd drops it. The modes Min and Max lose NaN, as Metal's min and max do. Of
//              updates of one place the first comes last, so that code that relies on the last one fails.
//   Threads    Pure; any thread.
#pragma once

#import <MetalPerformanceShadersGraph/MetalPerformanceShadersGraph.h>

#include "tests/metal_double/graph/numerics/array.h"

namespace heddle::metal_double::numerics {

// In Apple's words the first `batch` axes are those that x and the indices share.
Shape gathered_shape(const Shape& x, const Shape& indices, size_t axis, size_t batch);
Array gather(const Array& x, const Array& indices, size_t axis, size_t batch);
// The last axis of the indices names a place along each of several axes of x, after the batch.
Shape gathered_nd_shape(const Shape& x, const Shape& indices, size_t batch);
Array gather_nd(const Array& x, const Array& indices, size_t batch);
// As large as the indices.
Array gather_along(const Array& x, const Array& indices, size_t axis);

Array scatter_nd(const Array& data, const Array& updates, const Array& indices, size_t batch,
                 MPSGraphScatterMode mode);
Array scatter_along(const Array& data, const Array& updates, const Array& indices, size_t axis,
                    MPSGraphScatterMode mode);

}  // namespace heddle::metal_double::numerics
