// Operators that write where indices say.
#include "drivers/cuda/kernels/scatter.h"

#include <algorithm>

#include "drivers/cuda/lowering/lowering.h"
#include "ir/op.h"

namespace heddle::cuda {
namespace {

using Strides = std::vector<int64_t>;

Join join_of(const ir::Node& node) {
  const std::string given = node.attributes.str("reduction", "none");
  return given == "add"   ? Join::kAdd
         : given == "mul" ? Join::kMultiply
         : given == "max" ? Join::kGreatest
         : given == "min" ? Join::kLeast
                          : Join::kReplace;
}

// What each point of the indices names, as one number; the mistakes are marked.
Status find_targets(Lowering& l, const Operand& targets, std::span<const int64_t> extents,
                    std::string mistake) {
  ScatterTargetsParams params;
  params.index_type = type_of(l.inputs[1].dtype);
  params.depth = static_cast<int32_t>(extents.size());
  params.points = targets.elements();
  std::copy(extents.begin(), extents.end(), params.extents);
  params.flags = l.flags(1, std::move(mistake));
  return l.launch("scatter_targets", params,
                  {names(params.indices, l.inputs[1]), names(params.targets, targets)}, params.flags,
                  l.grid(params.points));
}

// Of the lanes: their extents, and the strides of targets, updates and output.
Status scatter(Lowering& l, ScatterParams params, const Operand& targets, std::span<const int64_t> lanes,
               const std::vector<Strides>& strides) {
  constexpr int64_t kOwners = 1 << 16;  // enough to fill a GPU
  const Operand& out = l.outputs[0];
  const Walk walk = walk_of(lanes, strides);
  params.type = type_of(out.dtype);
  params.join = join_of(l.node);
  params.lanes = walk.count;
  params.axes = walk.axes;
  std::copy(walk.strides[0].begin(), walk.strides[0].end(), params.target_strides);
  std::copy(walk.strides[1].begin(), walk.strides[1].end(), params.update_strides);
  std::copy(walk.strides[2].begin(), walk.strides[2].end(), params.out_strides);
  const int64_t most = std::min(params.extent, params.count);
  const int64_t ranges = std::clamp<int64_t>(kOwners / params.lanes, 1, std::max<int64_t>(most, 1));
  params.range = (params.extent + ranges - 1) / ranges;
  params.ranges = (params.extent + params.range - 1) / params.range;
  return l.launch(
      text("scatter", computed_in(out.dtype)), params,
      {names(params.updates, l.inputs[2]), names(params.targets, targets), names(params.out, out)},
      l.grid(params.lanes * params.ranges));
}

Status copy_data(Lowering& l) {
  const Strides all(1, l.outputs[0].elements()), one(1, 1);
  return l.move(l.inputs[0], one, l.outputs[0], one, all);
}

Status lower_scatter_elements(Lowering& l) {
  const Operand &indices = l.inputs[1], &out = l.outputs[0];
  HEDDLE_TRY_ASSIGN(const size_t axis, ir::normalize_axis(l.attributes().i64("axis"), out.extents.rank()));
  HEDDLE_TRY(copy_data(l));
  if (indices.elements() == 0) return {};
  const int64_t extents[] = {out.extents[axis]};
  const Operand targets = l.emit.scratch(ir::DType::kI64, {indices.elements()});
  HEDDLE_TRY(find_targets(l, targets, extents,
                          text("an index is outside [", -extents[0], ", ", extents[0] - 1, "]")));
  Strides lanes(indices.extents.begin(), indices.extents.end());
  Strides from = row_major(lanes), to = row_major(out.extents.span());
  ScatterParams params;
  params.extent = extents[0];
  params.count = lanes[axis];
  params.target_step = params.update_step = from[axis];
  params.out_step = to[axis];
  for (Strides* each : {&lanes, &from, &to}) each->erase(each->begin() + static_cast<std::ptrdiff_t>(axis));
  return scatter(l, params, targets, lanes, {from, from, to});
}

// A lane is what the points write of one element of their slices.
Status lower_scatter_points(Lowering& l) {
  const Operand &indices = l.inputs[1], &out = l.outputs[0];
  HEDDLE_TRY(copy_data(l));
  if (l.inputs[2].elements() == 0) return {};
  const auto depth = static_cast<size_t>(indices.extents[indices.extents.rank() - 1]);
  const ir::Extents places(out.extents.span().first(depth)), slice(out.extents.span().subspan(depth));
  std::string right;
  for (const int64_t extent : places) right += text(right.empty() ? "" : ", ", extent);
  ScatterParams params;
  params.extent = places.elements();
  params.update_step = params.out_step = slice.elements();
  params.count = l.inputs[2].elements() / slice.elements();
  const Operand targets = l.emit.scratch(ir::DType::kI64, {params.count});
  HEDDLE_TRY(find_targets(l, targets, places.span(),
                          text("a point names a place outside axes of ", right, " elements")));
  const int64_t lanes[] = {slice.elements()};
  return scatter(l, params, targets, lanes, {{0}, {1}, {1}});
}

Status lower_one_hot(Lowering& l) {
  const Operand& out = l.outputs[0];
  HEDDLE_TRY_ASSIGN(const size_t axis,
                    ir::normalize_axis(l.attributes().i64("axis", -1), out.extents.rank()));
  OneHotParams params;
  params.index_type = type_of(l.inputs[0].dtype);
  params.count = out.elements();
  params.extent = out.extents[axis];
  params.inner = ir::Extents(out.extents.span().subspan(axis + 1)).elements();
  return l.launch(
      text("one_hot", by_bytes(out.element_bytes())), params,
      {names(params.indices, l.inputs[0]), names(params.values, l.inputs[2]), names(params.out, out)},
      l.grid(params.count));
}

}  // namespace

std::span<const LoweringEntry> scatter_lowerings() {
  static constexpr LoweringEntry kEntries[] = {
      {"ScatterElements", lower_scatter_elements},
      {"ScatterND", lower_scatter_points},
      {"OneHot", lower_one_hot},
  };
  return kEntries;
}

}  // namespace heddle::cuda
