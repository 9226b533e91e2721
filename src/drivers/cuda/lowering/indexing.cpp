// Operators that pick elements by places: slices, borders, triangles, and what indices name.
#include "drivers/cuda/kernels/index.h"

#include <algorithm>
#include <limits>

#include "drivers/cuda/lowering/lowering.h"
#include "ir/op.h"

namespace heddle::cuda {
namespace {

std::string within(int64_t extent) { return text("an index is outside [", -extent, ", ", extent - 1, "]"); }

std::string of(std::string_view kernel, const Operand& moved) {
  return text(kernel, by_bytes(moved.element_bytes()));
}

// Where the elements that are kept begin, as the shape rule has counted them.
int64_t first_of(int64_t start, int64_t step, int64_t extent) {
  if (start < 0) start = start < -extent ? 0 : start + extent;
  return std::clamp<int64_t>(start, 0, std::max<int64_t>(step > 0 ? extent : extent - 1, 0));
}

Status lower_slice(Lowering& l) {
  const Operand& in = l.inputs[0];
  HEDDLE_TRY_ASSIGN(const std::vector<int64_t> starts, l.integers(1, "starts"));
  std::vector<int64_t> axes, steps(starts.size(), 1), strides = row_major(in.extents.span());
  for (size_t i = 0; i < starts.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  if (l.has(3)) {
    HEDDLE_TRY_ASSIGN(axes, l.integers(3, "axes"));
  }
  if (l.has(4)) {
    HEDDLE_TRY_ASSIGN(steps, l.integers(4, "steps"));
  }
  int64_t begin = 0;
  for (size_t i = 0; i < starts.size(); ++i) {
    HEDDLE_TRY_ASSIGN(const size_t axis, ir::normalize_axis(axes[i], in.extents.rank()));
    begin += first_of(starts[i], steps[i], in.extents[axis]) * strides[axis];
    strides[axis] *= ir::step_within(steps[i], in.extents[axis]);
  }
  const Operand& out = l.outputs[0];
  return l.move(in.from(begin), strides, out, row_major(out.extents.span()), out.extents.span());
}

Status lower_pad(Lowering& l) {
  const Operand &in = l.inputs[0], &out = l.outputs[0];
  const size_t rank = in.extents.rank();
  HEDDLE_TRY_ASSIGN(const std::vector<int64_t> pads, l.integers(1, "pads"));
  std::vector<int64_t> axes;
  for (size_t i = 0; i < rank; ++i) axes.push_back(static_cast<int64_t>(i));
  if (l.has(3)) {
    HEDDLE_TRY_ASSIGN(axes, l.integers(3, "axes"));
  }
  PadParams params;
  const std::string mode = l.attributes().str("mode", "constant");
  params.border = mode == "reflect" ? Border::kReflect
                  : mode == "edge"  ? Border::kEdge
                  : mode == "wrap"  ? Border::kWrap
                                    : Border::kConstant;
  params.count = out.elements();
  params.axes.rank = static_cast<int32_t>(rank);
  params.axes.small = params.count <= INT32_MAX ? 1 : 0;
  const std::vector<int64_t> strides = row_major(in.extents.span());
  std::copy(out.extents.begin(), out.extents.end(), params.axes.extents);
  std::copy(in.extents.begin(), in.extents.end(), params.extents);
  std::copy(strides.begin(), strides.end(), params.strides);
  for (size_t i = 0; i < axes.size(); ++i) {
    HEDDLE_TRY_ASSIGN(const size_t axis, ir::normalize_axis(axes[i], rank));
    params.begin[axis] = pads[i];
  }
  return l.launch(
      of("pad", out), params,
      {names(params.x, in), names(params.value, l.has(2) ? l.inputs[2] : Operand()), names(params.out, out)},
      l.grid(params.count));
}

Status lower_trilu(Lowering& l) {
  const Operand &in = l.inputs[0], &out = l.outputs[0];
  TriluParams params;
  params.upper = l.attributes().i64("upper", 1) != 0 ? 1 : 0;
  params.count = out.elements();
  params.rows = in.extents[in.extents.rank() - 2];
  params.columns = in.extents[in.extents.rank() - 1];
  const Operand k = l.has(1) ? l.inputs[1] : Operand();
  params.k_type = type_of(k.dtype);
  return l.launch(of("trilu", out), params, {names(params.x, in), names(params.k, k), names(params.out, out)},
                  l.grid(params.count));
}

int64_t behind(const ir::Extents& extents, size_t axis) {
  int64_t inner = 1;
  for (size_t i = axis + 1; i < extents.rank(); ++i) inner *= extents[i];
  return inner;
}

Status lower_gather(Lowering& l) {
  const Operand &in = l.inputs[0], &indices = l.inputs[1], &out = l.outputs[0];
  HEDDLE_TRY_ASSIGN(const size_t axis, ir::normalize_axis(l.attributes().i64("axis"), in.extents.rank()));
  GatherParams params;
  params.index_type = type_of(indices.dtype);
  params.count = out.elements();
  params.indices_count = indices.elements();
  params.extent = in.extents[axis];
  params.inner = behind(in.extents, axis);
  params.flags = l.flags(1, within(params.extent));
  return l.launch(of("gather", out), params,
                  {names(params.x, in), names(params.indices, indices), names(params.out, out)}, params.flags,
                  l.grid(params.count));
}

Status lower_gather_elements(Lowering& l) {
  const Operand &in = l.inputs[0], &indices = l.inputs[1], &out = l.outputs[0];
  HEDDLE_TRY_ASSIGN(const size_t axis, ir::normalize_axis(l.attributes().i64("axis"), in.extents.rank()));
  std::vector<int64_t> strides = row_major(in.extents.span());
  GatherElementsParams params;
  params.index_type = type_of(indices.dtype);
  params.extent = in.extents[axis];
  params.stride = strides[axis];
  strides[axis] = 0;
  const Walk walk = walk_of(indices.extents.span(), {strides});
  params.count = walk.count;
  params.axes = walk.axes;
  std::copy(walk.strides[0].begin(), walk.strides[0].end(), params.strides);
  params.flags = l.flags(1, within(params.extent));
  return l.launch(of("gather_elements", out), params,
                  {names(params.x, in), names(params.indices, indices), names(params.out, out)}, params.flags,
                  l.grid(params.count));
}

Status lower_gather_nd(Lowering& l) {
  const Operand &in = l.inputs[0], &indices = l.inputs[1], &out = l.outputs[0];
  const auto batch = static_cast<size_t>(l.attributes().i64("batch_dims"));
  const std::vector<int64_t> strides = row_major(in.extents.span());
  GatherPointsParams params;
  params.index_type = type_of(indices.dtype);
  params.depth = static_cast<int32_t>(indices.extents[indices.extents.rank() - 1]);
  const auto depth = static_cast<size_t>(params.depth);
  std::string right;
  for (size_t i = 0; i < depth; ++i) {
    params.extents[i] = in.extents[batch + i];
    params.strides[i] = strides[batch + i];
    right += text(i == 0 ? "" : ", ", in.extents[batch + i]);
  }
  params.count = out.elements();
  params.inner = behind(in.extents, batch + depth - 1);
  int64_t batches = 1;
  for (size_t i = 0; i < batch; ++i) batches *= indices.extents[i];
  params.points = std::max<int64_t>(indices.elements() / params.depth / std::max<int64_t>(batches, 1), 1);
  params.batch_step = batch == 0 ? 0 : strides[batch - 1];
  params.flags = l.flags(1, text("a point names a place outside axes of ", right, " elements"));
  return l.launch(of("gather_points", out), params,
                  {names(params.x, in), names(params.indices, indices), names(params.out, out)}, params.flags,
                  l.grid(params.count));
}

Status lower_cumulative(Lowering& l) {
  const Operand &in = l.inputs[0], &out = l.outputs[0];
  HEDDLE_TRY_ASSIGN(const std::vector<int64_t> along, l.integers(1, "axis"));
  HEDDLE_TRY_ASSIGN(const size_t axis, ir::normalize_axis(along[0], in.extents.rank()));
  CumulativeParams params;
  params.type = type_of(in.dtype);
  params.product = l.node.is("CumProd") ? 1 : 0;
  params.exclusive = l.attributes().i64("exclusive") != 0 ? 1 : 0;
  params.reverse = l.attributes().i64("reverse") != 0 ? 1 : 0;
  params.extent = in.extents[axis];
  params.inner = behind(in.extents, axis);
  params.lanes = in.elements() / params.extent;
  const std::string_view computed = computed_in(in.dtype);
  return l.launch(text("cumulative", computed == "_i64" ? "_u64" : computed), params,
                  {names(params.in, in), names(params.out, out)}, l.grid(params.lanes));
}

}  // namespace

std::span<const LoweringEntry> index_lowerings() {
  static constexpr LoweringEntry kEntries[] = {
      {"Slice", lower_slice},
      {"Pad", lower_pad},
      {"Trilu", lower_trilu},
      {"Gather", lower_gather},
      {"GatherElements", lower_gather_elements},
      {"GatherND", lower_gather_nd},
      {"CumSum", lower_cumulative},
      {"CumProd", lower_cumulative},
  };
  return kEntries;
}

}  // namespace heddle::cuda
