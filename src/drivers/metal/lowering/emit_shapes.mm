// The same elements in another shape, order or type.
#include <algorithm>
#include <numeric>

#include "drivers/metal/lowering/emit.h"

namespace heddle::metal {

// What MPSGraph's cast to bool gives is not documented; ours is "not zero". Comparisons take no bf16.
Tensor Emit::cast(Tensor x, ir::DType dtype) const {
  const ir::DType from = dtype_of(x);
  if (from == dtype) return x;
  if (dtype == ir::DType::kBool && from == ir::DType::kBF16) x = cast(x, ir::DType::kF32);
  if (dtype == ir::DType::kBool) return not_equal(x, like(0, x));
  require_fit(dtype, extents_of(x));
  return [graph_ castTensor:x toType:type_of(dtype) name:nil];
}

Tensor Emit::reinterpret(Tensor x, ir::DType dtype) const {
  if (dtype_of(x) == dtype) return x;
  return [graph_ reinterpretCastTensor:x toType:type_of(dtype) name:nil];
}

Tensor Emit::reshape(Tensor x, const ir::Extents& extents) const {
  const ir::Extents wanted = at_least_one_axis(extents);
  if (extents_of(x) == wanted) return x;
  require_fit(dtype_of(x), wanted);
  return [graph_ reshapeTensor:x withShape:numbers(wanted.span()) name:nil];
}

Tensor Emit::with_rank(Tensor x, size_t rank) const {
  const ir::Extents from = extents_of(x);
  ir::Extents to;
  for (size_t i = from.rank(); i < rank; ++i) to.push_back(1);
  for (const int64_t extent : from) to.push_back(extent);
  return reshape(x, to);
}

Tensor Emit::transpose(Tensor x, const Axes& permutation) const {
  if (std::is_sorted(permutation.begin(), permutation.end())) return x;
  return [graph_ transposeTensor:x permutation:numbers(permutation) name:nil];
}

Tensor Emit::swap_last(Tensor x) const {
  Axes order(extents_of(x).rank());
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return transpose(x, order);
}

Tensor Emit::broadcast(Tensor x, const ir::Extents& extents) const {
  const ir::Extents wanted = at_least_one_axis(extents);
  if (extents_of(x) == wanted) return x;
  require_fit(dtype_of(x), wanted);
  return [graph_ broadcastTensor:x toShape:numbers(wanted.span()) name:nil];
}

Tensor Emit::concat(const std::vector<Tensor>& parts, size_t axis) const {
  if (parts.size() == 1) return parts.front();
  const bool by_bytes = dtype_of(parts.front()) == ir::DType::kBool && !limits_.bool_concats;
  ir::Extents extents = extents_of(parts.front());
  extents[axis] = 0;
  NSMutableArray<MPSGraphTensor*>* array = [NSMutableArray array];
  for (Tensor part : parts) {
    extents[axis] += extents_of(part)[axis];
    [array addObject:by_bytes ? cast(part, ir::DType::kI8) : part];
  }
  require_fit(dtype_of(parts.front()), extents);
  Tensor whole = [graph_ concatTensors:array dimension:static_cast<NSInteger>(axis) name:nil];
  return by_bytes ? cast(whole, ir::DType::kBool) : whole;
}

Tensor Emit::tile(Tensor x, const Axes& times) const {
  if (std::all_of(times.begin(), times.end(), [](int64_t n) { return n == 1; })) return x;
  ir::Extents extents = extents_of(x);
  for (size_t axis = 0; axis < extents.rank(); ++axis) extents[axis] *= times[axis];
  require_fit(dtype_of(x), extents);
  return [graph_ tileTensor:x withMultiplier:numbers(times) name:nil];
}

Tensor Emit::pad(Tensor x, const Axes& before, const Axes& after, double value) const {
  const auto none = [](const Axes& pads) {
    return std::all_of(pads.begin(), pads.end(), [](int64_t n) { return n == 0; });
  };
  if (none(before) && none(after)) return x;
  ir::Extents extents = extents_of(x);
  for (size_t axis = 0; axis < extents.rank(); ++axis) extents[axis] += before[axis] + after[axis];
  require_fit(dtype_of(x), extents);
  return [graph_ padTensor:x
           withPaddingMode:MPSGraphPaddingModeConstant
               leftPadding:numbers(before)
              rightPadding:numbers(after)
             constantValue:value
                      name:nil];
}

Tensor Emit::reverse(Tensor x, size_t axis) const {
  return [graph_ reverseTensor:x axes:numbers(Axes{static_cast<int64_t>(axis)}) name:nil];
}

// Steps are positive: what goes backwards is taken by places.
Tensor Emit::slice(Tensor x, size_t axis, int64_t start, int64_t length, int64_t step) const {
  const ir::Extents extents = extents_of(x);
  if (start == 0 && length == extents[axis] && step == 1) return x;
  Axes starts(extents.rank(), 0), ends(extents.begin(), extents.end()), steps(extents.rank(), 1);
  starts[axis] = start;
  ends[axis] = start + (length - 1) * step + 1;
  steps[axis] = step;
  return [graph_ sliceTensor:x starts:numbers(starts) ends:numbers(ends) strides:numbers(steps) name:nil];
}

Tensor Emit::take(Tensor x, size_t axis, const Axes& places) const {
  const int64_t count = static_cast<int64_t>(places.size());
  const int64_t step = count > 1 ? places[1] - places[0] : 1;
  bool even = step > 0;
  for (size_t i = 1; even && i < places.size(); ++i) even = places[i] - places[i - 1] == step;
  if (even) return slice(x, axis, places[0], count, step);
  return gather(x, positions(places), axis);
}

Tensor Emit::gather(Tensor x, Tensor indices, size_t axis) const {
  const ir::Extents from = extents_of(x), places = extents_of(indices);
  ir::Extents made(from.span().first(axis));
  for (const int64_t extent : places) made.push_back(extent);
  for (size_t i = axis + 1; i < from.rank(); ++i) made.push_back(from[i]);
  require_fit(dtype_of(x), made);
  return [graph_ gatherWithUpdatesTensor:x indicesTensor:indices axis:axis batchDimensions:0 name:nil];
}

Tensor Emit::gather_elements(Tensor x, Tensor indices, size_t axis) const {
  const ir::Extents from = extents_of(x), made = extents_of(indices);
  require_fit(dtype_of(x), made);
  const auto above_one = std::count_if(from.begin(), from.end(), [](int64_t extent) { return extent > 1; });
  if (!limits_.lone_gathers && above_one <= 1) {
    // All indices are 0, or all other extents are 1.
    if (from[axis] == 1) return broadcast(x, made);
    const ir::Extents lane{from.elements()}, places{made.elements()};
    return reshape(gather(reshape(x, lane), reshape(indices, places), 0), made);
  }
  return [graph_ gatherAlongAxis:static_cast<NSInteger>(axis)
               withUpdatesTensor:x
                   indicesTensor:indices
                            name:nil];
}

Tensor Emit::gather_nd(Tensor x, Tensor indices, size_t batch_axes) const {
  const ir::Extents from = extents_of(x), points = extents_of(indices);
  ir::Extents made(points.span().first(points.rank() - 1));
  const size_t named = batch_axes + static_cast<size_t>(points[points.rank() - 1]);
  for (size_t i = named; i < from.rank(); ++i) made.push_back(from[i]);
  require_fit(dtype_of(x), made);
  return [graph_ gatherNDWithUpdatesTensor:x indicesTensor:indices batchDimensions:batch_axes name:nil];
}

Tensor Emit::scatter_elements(Tensor x, Tensor updates, Tensor indices, size_t axis,
                              MPSGraphScatterMode mode) const {
  return [graph_ scatterAlongAxis:static_cast<NSInteger>(axis)
                   withDataTensor:x
                    updatesTensor:updates
                    indicesTensor:indices
                             mode:mode
                             name:nil];
}

Tensor Emit::scatter_nd(Tensor x, Tensor updates, Tensor indices, MPSGraphScatterMode mode) const {
  return [graph_ scatterNDWithDataTensor:x
                           updatesTensor:updates
                           indicesTensor:indices
                         batchDimensions:0
                                    mode:mode
                                    name:nil];
}

}  // namespace heddle::metal
