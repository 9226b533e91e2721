// convolve.h: MPSGraph's convolutions over two and three spatial axes.
//
//   What       convolve() cuts what has extents beyond those that MPSGraph convolves rightly: the batch, the
//              channels, the space. convolve_transposed() cuts nothing and refuses such extents.
//   Threads    Pure, but for the graph that is built.
#pragma once

#include "base/status.h"
#include "drivers/metal/lowering/emit.h"

namespace heddle::metal {

// Of a forward convolution, per spatial axis.
struct Geometry {
  Axes strides, dilations, begin, end;
  int64_t groups = 1;
  void add(int64_t stride, int64_t dilation, int64_t before, int64_t after) {
    strides.push_back(stride);
    dilations.push_back(dilation);
    begin.push_back(before);
    end.push_back(after);
  }
};

// x [n, c, ..], w [out, c / groups, ..]
Result<Tensor> convolve(const Emit& e, Tensor x, Tensor w, const Geometry& g);
// What gives the gradient of the forward convolution's data.
Result<Tensor> convolve_transposed(const Emit& e, Tensor x, Tensor w, const ir::Extents& out,
                                   const Geometry& g);

}  // namespace heddle::metal
