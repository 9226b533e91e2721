#include "drivers/host/kernels/movement/indices.h"

#include "drivers/host/kernels/movement/strided.h"

namespace heddle::host {
namespace {

template <class Index>
int64_t first_outside(const Index* indices, int64_t count, int64_t extent, int64_t step) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t index = indices[i * step];
    if (index < -extent || index >= extent) return i * step;
  }
  return -1;
}

}  // namespace

// The place of the first one, -1 when there is none.
int64_t Indices::find_outside(const RunContext& context, int64_t from, int64_t step, int64_t extent) const {
  const int64_t count = (operand_.elements() - from + step - 1) / step;
  const int64_t outside = operand_.dtype == ir::DType::kI32
                              ? first_outside(context.read<int32_t>(operand_) + from, count, extent, step)
                              : first_outside(context.read<int64_t>(operand_) + from, count, extent, step);
  return outside < 0 ? -1 : from + outside;
}

Result<bool> Indices::check(const RunContext& context, int64_t first, int64_t step, int64_t extent) const {
  int64_t outside = find_outside(context, first, step, extent);
  if (outside < 0) [[likely]]
    return false;
  while (outside >= 0) {
    const int64_t index = positions(context).index(outside);
    HEDDLE_TRY_ASSIGN(const int64_t next,
                      rows_.report(context, outside,
                                   Status::invalid(node_, ": index ", index, " is outside [", -extent, ", ",
                                                   extent - 1, "]")));
    outside = find_outside(context, first + (next - first + step - 1) / step * step, step, extent);
  }
  return true;
}

Points::Points(const Lowering& lowering, size_t input, size_t first_axis) : indices_(lowering, input) {
  const ir::Extents& extents = lowering.inputs[0].extents;
  const auto strides = row_major(extents);
  const int64_t depth = indices_.extents()[indices_.extents().rank() - 1];
  for (size_t axis = first_axis; axis < first_axis + static_cast<size_t>(depth); ++axis)
    axes_.push_back({extents[axis], strides[axis]});
}

Result<bool> Points::check(const RunContext& context) const {
  bool any = false;
  for (size_t i = 0; i < axes_.size(); ++i) {
    HEDDLE_TRY_ASSIGN(const bool outside,
                      indices_.check(context, static_cast<int64_t>(i), static_cast<int64_t>(axes_.size()),
                                     axes_[i].extent));
    any = any || outside;
  }
  return any;
}

}  // namespace heddle::host
