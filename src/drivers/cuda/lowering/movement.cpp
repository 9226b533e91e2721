// Operators that move elements without computing: copies between places with strides.
#include <numeric>

#include "drivers/cuda/lowering/lowering.h"

namespace heddle::cuda {
namespace {

using Strides = std::vector<int64_t>;

Status lower_transpose(Lowering& l) {
  const size_t rank = l.inputs[0].extents.rank();
  Strides backwards(rank);
  std::iota(backwards.rbegin(), backwards.rend(), 0);
  const Strides perm = l.attributes().ints("perm", backwards), from = l.inputs[0].strides();
  Strides turned(rank);
  for (size_t axis = 0; axis < rank; ++axis) turned[axis] = from[static_cast<size_t>(perm[axis])];
  return l.move(l.inputs[0], turned, l.outputs[0], l.outputs[0].strides(), l.outputs[0].extents.span());
}

Status lower_expand(Lowering& l) {
  const Operand& out = l.outputs[0];
  return l.move(l.inputs[0], broadcast_strides(l.inputs[0].extents, out.extents.rank()), out, out.strides(),
                out.extents.span());
}

Status lower_concat(Lowering& l) {
  const Operand& out = l.outputs[0];
  HEDDLE_TRY_ASSIGN(const size_t axis, ir::normalize_axis(l.attributes().i64("axis"), out.extents.rank()));
  const Strides to = out.strides();
  int64_t begin = 0;
  for (const Operand& part : l.inputs) {
    HEDDLE_TRY(l.move(part, part.strides(), out.from(begin * to[axis]), to, part.extents.span()));
    begin += part.extents[axis];
  }
  return {};
}

Status lower_split(Lowering& l) {
  const Operand& in = l.inputs[0];
  HEDDLE_TRY_ASSIGN(const size_t axis, ir::normalize_axis(l.attributes().i64("axis"), in.extents.rank()));
  const Strides from = in.strides();
  int64_t begin = 0;
  for (const Operand& part : l.outputs) {
    if (!part.present()) return Status::unsupported("a part that nothing reads is left out");
    HEDDLE_TRY(l.move(in.from(begin * from[axis]), from, part, part.strides(), part.extents.span()));
    begin += part.extents[axis];
  }
  return {};
}

// Each axis is split in two: how often, and the input's own.
Status lower_tile(Lowering& l) {
  const Operand &in = l.inputs[0], &out = l.outputs[0];
  const Strides from = in.strides(), to = out.strides();
  Strides extents, from_split, to_split;
  for (size_t axis = 0; axis < in.extents.rank(); ++axis) {
    const int64_t own = in.extents[axis];
    if (own == 0) return {};
    const int64_t times = out.extents[axis] / own;
    if (times > 1) {
      extents.push_back(times);
      from_split.push_back(0);
      to_split.push_back(own * to[axis]);
    }
    extents.push_back(own);
    from_split.push_back(from[axis]);
    to_split.push_back(to[axis]);
  }
  return l.move(in, from_split, out, to_split, extents);
}

}  // namespace

std::span<const LoweringEntry> movement_lowerings() {
  static constexpr LoweringEntry kEntries[] = {
      {"Transpose", lower_transpose}, {"Expand", lower_expand}, {"Concat", lower_concat},
      {"Split", lower_split},         {"Tile", lower_tile},
  };
  return kEntries;
}

}  // namespace heddle::cuda
