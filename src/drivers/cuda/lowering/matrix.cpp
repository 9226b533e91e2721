// Products of bytes, and determinants.
#include "drivers/cuda/kernels/matrix.h"

#include <algorithm>

#include "drivers/cuda/lowering/lowering.h"

namespace heddle::cuda {
namespace {

// A factor's matrices as the output's rows and columns walk them. A vector is a row on the left, a column on
// the right; a zero point is broadcast to its factor.
struct Factor {
  std::vector<int64_t> strides;
  int64_t step;
};
Factor factor_of(const ir::Extents& factor, const ir::Extents& operand, bool left, size_t rank) {
  std::vector<int64_t> extents(operand.begin(), operand.end());
  if (!left && factor.rank() == 1) extents.push_back(1);
  Factor made{broadcast_strides(ir::Extents(extents), rank), 0};
  const size_t along = left ? rank - 1 : rank - 2;
  made.step = made.strides[along];
  made.strides[along] = 0;
  return made;
}

Status lower_byte_product(Lowering& l) {
  const ir::Extents &x = l.inputs[0].extents, &y = l.inputs[1].extents;
  const size_t rank = std::max<size_t>({x.rank(), y.rank(), 2});
  const bool row = x.rank() == 1, column = y.rank() == 1;
  std::vector<int64_t> extents(l.outputs[0].extents.begin(), l.outputs[0].extents.end());
  if (row) extents.insert(column ? extents.end() : extents.end() - 1, 1);
  if (column) extents.push_back(1);
  ByteProductParams params;
  std::vector<std::vector<int64_t>> strides;
  std::vector<Bind> binds{names(params.out, l.outputs[0])};
  for (size_t i = 0; i < 4; ++i) {
    const bool left = i % 2 == 0;
    const Operand operand = l.has(i) ? l.inputs[i] : Operand();
    const Factor factor = factor_of(left ? x : y, operand.extents, left, rank);
    params.factors[i].type = type_of(operand.dtype);
    params.factors[i].step = factor.step;
    strides.push_back(factor.strides);
    binds.push_back(names(params.factors[i].data, operand));
  }
  const Walk walk = walk_of(extents, strides);
  for (size_t i = 0; i < 4; ++i)
    std::copy(walk.strides[i].begin(), walk.strides[i].end(), params.factors[i].strides);
  params.count = walk.count;
  params.axes = walk.axes;
  params.k = x[x.rank() - 1];
  return l.emit.launch("byte_product", &params, sizeof params, binds, nullptr, l.grid(params.count));
}

Status lower_determinant(Lowering& l) {
  const Operand &in = l.inputs[0], &out = l.outputs[0];
  const bool wide = in.dtype == ir::DType::kF64;
  DeterminantParams params;
  params.type = type_of(in.dtype);
  params.count = out.elements();
  params.extent = in.extents[in.extents.rank() - 1];
  const Operand work = l.emit.scratch(wide ? ir::DType::kF64 : ir::DType::kF32, in.extents);
  Grid grid = rows_grid(params.count, params.extent * params.extent, in.dtype);
  grid.shared_bytes = 32;
  return l.launch(text("determinant", computed_in(in.dtype)), params,
                  {names(params.in, in), names(params.work, work), names(params.out, out)}, grid);
}

}  // namespace

std::span<const LoweringEntry> matrix_lowerings() {
  static constexpr LoweringEntry kEntries[] = {{"MatMulInteger", lower_byte_product},
                                               {"Det", lower_determinant}};
  return kEntries;
}

}  // namespace heddle::cuda
