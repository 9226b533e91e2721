// What goes along axes: reductions, softmax, running totals. MPSGraph's are right for the last few axes only,
// and reductions in the wider types only.
#include <algorithm>

#include "drivers/metal/lowering/emit.h"

namespace heddle::metal {
namespace {

// Axes of one kind that lie side by side are one: reduced ones, or kept ones.
struct Merged {
  ir::Extents extents;
  Axes reduced;
};
Merged merge_axes(const ir::Extents& extents, const std::vector<bool>& reduced) {
  Merged out;
  for (size_t axis = 0; axis < extents.rank(); ++axis) {
    const bool first = axis == 0 || reduced[axis] != reduced[axis - 1];
    if (first && reduced[axis]) out.reduced.push_back(static_cast<int64_t>(out.extents.rank()));
    if (first) {
      out.extents.push_back(extents[axis]);
    } else {
      out.extents[out.extents.rank() - 1] *= extents[axis];
    }
  }
  return out;
}

bool within_last(const ir::Extents& extents, const Axes& axes, int64_t last) {
  const auto rank = static_cast<int64_t>(extents.rank());
  return std::all_of(axes.begin(), axes.end(), [&](int64_t axis) { return rank - axis <= last; });
}

// f(x, axes) reduces over axes that it can; the result keeps them, with extent 1.
template <class F>
Tensor over_last(const Emit& e, Tensor x, const Axes& axes, F&& f) {
  const ir::Extents extents = extents_of(x);
  const int64_t last = e.limits().reduced_axes;
  if (within_last(extents, axes, last)) return f(x, axes);
  std::vector<bool> reduced(extents.rank(), false);
  ir::Extents kept = extents;
  for (const int64_t axis : axes)
    reduced[static_cast<size_t>(axis)] = true, kept[static_cast<size_t>(axis)] = 1;
  Merged m = merge_axes(extents, reduced);
  if (!within_last(m.extents, m.reduced, last)) {
    Axes order;
    ir::Extents pair{1, 1};
    for (const bool which : {false, true}) {
      for (size_t axis = 0; axis < extents.rank(); ++axis) {
        if (reduced[axis] != which) continue;
        order.push_back(static_cast<int64_t>(axis));
        pair[which ? 1 : 0] *= extents[axis];
      }
    }
    x = e.transpose(x, order);
    m = {pair, {1}};
  }
  return e.reshape(f(e.reshape(x, m.extents), m.reduced), kept);
}

// In i32 where the type is narrower, and back: what is cut off then is what would have wrapped.
template <class F>
Tensor in_i32(const Emit& e, Tensor x, const Axes& axes, F&& f) {
  if (axes.empty()) return x;
  const ir::DType dtype = dtype_of(x);
  const bool widened = ir::is_integer(dtype) && ir::size_of(dtype) < 4 && !e.limits().narrow_reductions;
  Tensor out = over_last(e, widened ? e.cast(x, ir::DType::kI32) : x, axes, f);
  return widened ? e.cast(out, dtype) : out;
}

// f(x, axis) with that axis among the last ones; `keeps`: with its extent.
template <class F>
Tensor along_last(const Emit& e, Tensor x, size_t axis, int64_t last, bool keeps, F&& f) {
  const ir::Extents extents = extents_of(x);
  if (within_last(extents, {static_cast<int64_t>(axis)}, last)) return f(x, static_cast<NSInteger>(axis));
  ir::Extents three{1, extents[axis], 1}, out = extents;
  for (size_t i = 0; i < extents.rank(); ++i) {
    if (i != axis) three[i < axis ? 0 : 2] *= extents[i];
  }
  if (!keeps) out[axis] = 1;
  return e.reshape(f(e.reshape(x, three), NSInteger{1}), out);
}

}  // namespace

Tensor Emit::sum(Tensor x, const Axes& axes) const {
  return in_i32(*this, x, axes, [&](Tensor t, const Axes& over) {
    return [graph_ reductionSumWithTensor:t axes:numbers(over) name:nil];
  });
}

Tensor Emit::product(Tensor x, const Axes& axes) const {
  return in_i32(*this, x, axes, [&](Tensor t, const Axes& over) {
    return [graph_ reductionProductWithTensor:t axes:numbers(over) name:nil];
  });
}

Tensor Emit::greatest(Tensor x, const Axes& axes) const {
  return in_i32(*this, x, axes, [&](Tensor t, const Axes& over) {
    if (!ir::is_float(dtype_of(t))) return [graph_ reductionMaximumWithTensor:t axes:numbers(over) name:nil];
    return [graph_ reductionMaximumPropagateNaNWithTensor:t axes:numbers(over) name:nil];
  });
}

Tensor Emit::least(Tensor x, const Axes& axes) const {
  return in_i32(*this, x, axes, [&](Tensor t, const Axes& over) {
    if (!ir::is_float(dtype_of(t))) return [graph_ reductionMinimumWithTensor:t axes:numbers(over) name:nil];
    return [graph_ reductionMinimumPropagateNaNWithTensor:t axes:numbers(over) name:nil];
  });
}

Tensor Emit::mean(Tensor x, const Axes& axes) const {
  return in_i32(*this, x, axes, [&](Tensor t, const Axes& over) {
    return [graph_ meanOfTensor:t axes:numbers(over) name:nil];
  });
}

Tensor Emit::arg_max(Tensor x, size_t axis) const {
  return along_last(*this, x, axis, limits_.reduced_axes, false, [&](Tensor t, NSInteger at) {
    return [graph_ reductionArgMaximumWithTensor:t axis:at name:nil];
  });
}

Tensor Emit::arg_sort(Tensor x, size_t axis, bool descending) const {
  return [graph_ argSortWithTensor:x axis:static_cast<NSInteger>(axis) descending:descending name:nil];
}

// A product before and behind a softmax in f32 may be taken for attention: the identity keeps them apart.
Tensor Emit::softmax(Tensor x, size_t axis) const {
  if (!limits_.sound_attention) x = identity(x);
  return along_last(*this, x, axis, limits_.reduced_axes, true,
                    [&](Tensor t, NSInteger at) { return [graph_ softMaxWithTensor:t axis:at name:nil]; });
}

Tensor Emit::running_sum(Tensor x, size_t axis, bool exclusive, bool reverse) const {
  return along_last(*this, x, axis, limits_.ordered_axes, true, [&](Tensor t, NSInteger at) {
    return [graph_ cumulativeSumWithTensor:t axis:at exclusive:exclusive reverse:reverse name:nil];
  });
}

Tensor Emit::running_product(Tensor x, size_t axis, bool exclusive, bool reverse) const {
  return along_last(*this, x, axis, limits_.ordered_axes, true, [&](Tensor t, NSInteger at) {
    return [graph_ cumulativeProductWithTensor:t axis:at exclusive:exclusive reverse:reverse name:nil];
  });
}

}  // namespace heddle::metal
