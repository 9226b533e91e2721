// Extremes along an axis and the greatest or least elements in order.
#include "drivers/cuda/kernels/order.h"

#include <algorithm>
#include <bit>

#include "drivers/cuda/lowering/lowering.h"
#include "ir/op.h"

namespace heddle::cuda {
namespace {

int64_t right_of(const ir::Extents& extents, size_t axis) {
  return ir::Extents(extents.span().subspan(axis + 1)).elements();
}

Status lower_arg(Lowering& l) {
  const Operand& in = l.inputs[0];
  HEDDLE_TRY_ASSIGN(const size_t axis, ir::normalize_axis(l.attributes().i64("axis"), in.extents.rank()));
  ArgExtremeParams params;
  params.type = type_of(in.dtype);
  params.least = l.node.is("ArgMin") ? 1 : 0;
  params.last = l.attributes().i64("select_last_index") != 0 ? 1 : 0;
  params.rows = l.outputs[0].elements();
  params.extent = in.extents[axis];
  params.inner = right_of(in.extents, axis);
  Grid grid = rows_grid(params.rows, params.extent, in.dtype);
  grid.shared_bytes = grid.threads * static_cast<int64_t>(sizeof(ArgExtreme<double>::Found));
  return l.launch(text("arg_extreme", computed_in(in.dtype)), params,
                  {names(params.in, in), names(params.out, l.outputs[0])}, grid);
}

Status lower_top_k(Lowering& l) {
  constexpr int64_t kMostOwn = 32 * 1024;  // bytes of what a block chooses, in its own memory
  const Operand& in = l.inputs[0];
  HEDDLE_TRY_ASSIGN(const size_t axis, ir::normalize_axis(l.attributes().i64("axis", -1), in.extents.rank()));
  const Operand& made = l.outputs[l.outputs[0].present() ? 0 : 1];
  const int64_t count = made.extents[axis];
  if (made.elements() == 0) return {};
  TopKParams params;
  params.type = type_of(in.dtype);
  params.least = l.attributes().i64("largest", 1) != 0 ? 0 : 1;
  params.extent = in.extents[axis];
  params.inner = right_of(in.extents, axis);
  params.rows = made.elements() / count;
  if (params.extent >= int64_t{1} << 30)
    return Status::unsupported("an axis of ", params.extent, " elements; TopK takes fewer than 2^30");
  params.count = static_cast<int32_t>(count);
  params.padded = static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(count)));
  const ir::DType key = computed_in(in.dtype) == "_f32" ? ir::DType::kU32 : ir::DType::kU64;
  Grid grid = rows_grid(params.rows, params.extent, in.dtype);
  const int64_t key_bytes = ir::size_of(key) * params.padded, index_bytes = 4 * int64_t{params.padded};
  Operand keys, indices;
  grid.shared_bytes = 2 * 256 * 4 + 64;
  if (key_bytes + index_bytes <= kMostOwn) {
    grid.shared_bytes += key_bytes + index_bytes + 32;
  } else {
    grid.blocks = std::min<int64_t>(grid.blocks, 2 * l.emit.multiprocessors());
    keys = l.emit.scratch(key, {grid.blocks, params.padded});
    indices = l.emit.scratch(ir::DType::kU32, {grid.blocks, params.padded});
  }
  return l.launch(
      text("top_k", computed_in(in.dtype)), params,
      {names(params.in, in), names(params.values, l.outputs[0]), names(params.places, l.outputs[1]),
       names(params.keys, keys), names(params.indices, indices)},
      grid);
}

}  // namespace

std::span<const LoweringEntry> order_lowerings() {
  static constexpr LoweringEntry kEntries[] = {
      {"ArgMax", lower_arg}, {"ArgMin", lower_arg}, {"TopK", lower_top_k}};
  return kEntries;
}

}  // namespace heddle::cuda
