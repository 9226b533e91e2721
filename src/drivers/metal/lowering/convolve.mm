#include "drivers/metal/lowering/convolve.h"

#include <algorithm>

namespace heddle::metal {
namespace {

NSUInteger u(int64_t value) { return static_cast<NSUInteger>(value); }

MPSGraphConvolution2DOpDescriptor* planar(const Geometry& g) {
  return [MPSGraphConvolution2DOpDescriptor descriptorWithStrideInX:u(g.strides[1])
                                                          strideInY:u(g.strides[0])
                                                    dilationRateInX:u(g.dilations[1])
                                                    dilationRateInY:u(g.dilations[0])
                                                             groups:u(g.groups)
                                                        paddingLeft:u(g.begin[1])
                                                       paddingRight:u(g.end[1])
                                                         paddingTop:u(g.begin[0])
                                                      paddingBottom:u(g.end[0])
                                                       paddingStyle:MPSGraphPaddingStyleExplicit
                                                         dataLayout:MPSGraphTensorNamedDataLayoutNCHW
                                                      weightsLayout:MPSGraphTensorNamedDataLayoutOIHW];
}

MPSGraphConvolution3DOpDescriptor* spatial(const Geometry& g) {
  return [MPSGraphConvolution3DOpDescriptor descriptorWithStrideInX:u(g.strides[2])
                                                          strideInY:u(g.strides[1])
                                                          strideInZ:u(g.strides[0])
                                                    dilationRateInX:u(g.dilations[2])
                                                    dilationRateInY:u(g.dilations[1])
                                                    dilationRateInZ:u(g.dilations[0])
                                                             groups:u(g.groups)
                                                        paddingLeft:u(g.begin[2])
                                                       paddingRight:u(g.end[2])
                                                         paddingTop:u(g.begin[1])
                                                      paddingBottom:u(g.end[1])
                                                       paddingFront:u(g.begin[0])
                                                        paddingBack:u(g.end[0])
                                                       paddingStyle:MPSGraphPaddingStyleExplicit
                                                         dataLayout:MPSGraphTensorNamedDataLayoutNCDHW
                                                      weightsLayout:MPSGraphTensorNamedDataLayoutOIDHW];
}

int64_t largest_of(const ir::Extents& extents) { return *std::max_element(extents.begin(), extents.end()); }

int64_t reach_of(const Geometry& g, const ir::Extents& w, size_t i) {
  return (w[2 + i] - 1) * g.dilations[i] + 1;
}

ir::Extents convolved(const ir::Extents& x, const ir::Extents& w, const Geometry& g) {
  ir::Extents out{x[0], w[0]};
  for (size_t i = 0; i < g.strides.size(); ++i)
    out.push_back((x[2 + i] + g.begin[i] + g.end[i] - reach_of(g, w, i)) / g.strides[i] + 1);
  return out;
}

Tensor whole_convolution(const Emit& e, Tensor x, Tensor w, const Geometry& g) {
  if (g.strides.size() == 3)
    return [e.graph() convolution3DWithSourceTensor:x weightsTensor:w descriptor:spatial(g) name:nil];
  return [e.graph() convolution2DWithSourceTensor:x weightsTensor:w descriptor:planar(g) name:nil];
}

// f(first, count) for each part of `extent`; the parts along `axis`.
template <class F>
Result<Tensor> joined(const Emit& e, size_t axis, int64_t extent, int64_t most, F&& f) {
  std::vector<Tensor> parts;
  for (int64_t begin = 0; begin < extent; begin += most) {
    HEDDLE_TRY_ASSIGN(Tensor part, f(begin, std::min(most, extent - begin)));
    parts.push_back(part);
  }
  return e.concat(parts, axis);
}

// Groups, as many at a time as have few enough channels; of one group the channels that are made, then those
// that are read, whose sums are added.
Result<Tensor> cut_channels(const Emit& e, Tensor x, Tensor w, const Geometry& g, int64_t most) {
  const int64_t made = extents_of(w)[0], read = extents_of(x)[1];
  Geometry part = g;
  if (g.groups > 1) {
    const int64_t each = made / g.groups, from = read / g.groups;
    return joined(e, 1, g.groups, std::max<int64_t>(most / std::max(each, from), 1),
                  [&](int64_t begin, int64_t count) {
                    part.groups = count;
                    return convolve(e, e.slice(x, 1, begin * from, count * from),
                                    e.slice(w, 0, begin * each, count * each), part);
                  });
  }
  if (made > most) {
    return joined(e, 1, made, most, [&](int64_t begin, int64_t count) {
      return convolve(e, x, e.slice(w, 0, begin, count), g);
    });
  }
  Tensor total = nil;
  for (int64_t begin = 0; begin < read; begin += most) {
    const int64_t count = std::min(most, read - begin);
    HEDDLE_TRY_ASSIGN(Tensor sum, convolve(e, e.slice(x, 1, begin, count), e.slice(w, 1, begin, count), g));
    total = total == nil ? sum : e.add(total, sum);
  }
  return total;
}

// Windows side by side, with what they reach of the input; beyond it lies what padding is left.
Result<Tensor> cut_space(const Emit& e, Tensor x, Tensor w, const Geometry& g, size_t i, int64_t most) {
  const ir::Extents in = extents_of(x), out = convolved(in, extents_of(w), g);
  const int64_t reach = reach_of(g, extents_of(w), i), stride = g.strides[i], extent = in[2 + i];
  const int64_t windows = std::min(most, (most - reach) / stride + 1);
  return joined(e, 2 + i, out[2 + i], windows, [&](int64_t first, int64_t count) -> Result<Tensor> {
    const int64_t from = first * stride - g.begin[i], to = from + (count - 1) * stride + reach;
    const int64_t begin = std::max<int64_t>(from, 0), end = std::min(to, extent);
    ir::Extents part = out;
    part[2 + i] = count;
    if (begin >= end) return e.filled(0, dtype_of(x), part);
    Geometry here = g;
    here.begin[i] = begin - from;
    here.end[i] = to - end;
    return convolve(e, e.slice(x, 2 + i, begin, end - begin), w, here);
  });
}

}  // namespace

Result<Tensor> convolve(const Emit& e, Tensor x, Tensor w, const Geometry& g) {
  const ir::Extents in = extents_of(x), weights = extents_of(w), out = convolved(in, weights, g);
  e.require_fit(dtype_of(x), out);
  const int64_t most = e.limits().convolution_extent;
  if (in[0] > most) {
    return joined(e, 0, in[0], most, [&](int64_t begin, int64_t count) {
      return convolve(e, e.slice(x, 0, begin, count), w, g);
    });
  }
  for (size_t i = 0; i < g.strides.size(); ++i) {
    if (reach_of(g, weights, i) > most) {
      return Status::unsupported("its window reaches over ", reach_of(g, weights, i),
                                 " elements; MPSGraph of this macOS is wrong above ", most);
    }
    if (std::max(in[2 + i], out[2 + i]) > most) return cut_space(e, x, w, g, i, most);
  }
  if (std::max(in[1], weights[0]) > most) return cut_channels(e, x, w, g, most);
  return whole_convolution(e, x, w, g);
}

Result<Tensor> convolve_transposed(const Emit& e, Tensor x, Tensor w, const ir::Extents& out,
                                   const Geometry& g) {
  e.require_fit(dtype_of(x), out);
  const int64_t most = e.limits().convolution_extent;
  const int64_t largest = std::max({largest_of(extents_of(x)), largest_of(extents_of(w)), largest_of(out)});
  if (largest > most) {
    return Status::unsupported("its convolution has an extent of ", largest,
                               "; MPSGraph of this macOS is wrong above ", most);
  }
  NSArray<NSNumber*>* shape = numbers(out.span());
  if (g.strides.size() == 3) {
    return [e.graph() convolution3DDataGradientWithIncomingGradientTensor:x
                                                            weightsTensor:w
                                                              outputShape:shape
                                             forwardConvolutionDescriptor:spatial(g)
                                                                     name:nil];
  }
  return [e.graph() convolution2DDataGradientWithIncomingGradientTensor:x
                                                          weightsTensor:w
                                                            outputShape:shape
                                           forwardConvolutionDescriptor:planar(g)
                                                                   name:nil];
}

}  // namespace heddle::metal
