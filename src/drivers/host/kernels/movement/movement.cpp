#include "drivers/host/kernels/movement/movement.h"

namespace heddle::host {

namespace {}  // namespace

std::span<const LoweringEntry> movement_lowerings() {
  static constexpr LoweringEntry kEntries[] = {
      {"Transpose", lower_transpose},
      {"Slice", lower_slice},
      {"Expand", lower_expand},
      {"Tile", lower_tile},
      {"Split", lower_split},
      {"Concat", lower_concat},
      {"Pad", lower_pad},
      {"Trilu", lower_trilu},
      {"OneHot", lower_one_hot},
      {"ConstantOfShape", lower_constant_of_shape},
      {"Range", lower_range},
      {"Shape", lower_extents},
      {"Size", lower_extents},
      {"Gather", lower_gather},
      {"GatherElements", lower_gather_elements},
      {"GatherND", lower_gather_nd},
      {"TopK", lower_top_k},
      {"CumSum", lower_cumulative},
      {"CumProd", lower_cumulative},
      {"ScatterElements", lower_scatter_elements},
      {"ScatterND", lower_scatter_nd},
      {"Resize", lower_resize},
      {"GridSample", lower_grid_sample},
      {"BitCast", lower_bit_cast},
  };
  return kEntries;
}

Lanes::Lanes(const ir::Extents& extents, size_t axis) : extent(extents[axis]) {
  for (size_t i = 0; i < axis; ++i) outer *= extents[i];
  for (size_t i = axis + 1; i < extents.rank(); ++i) inner *= extents[i];
}

Result<size_t> axis_of(const Lowering& lowering, int64_t otherwise) {
  return ir::normalize_axis(lowering.node.attributes.i64("axis", otherwise),
                            lowering.inputs[0].extents.rank());
}

Result<std::vector<int64_t>> numbers_of(const Lowering& lowering, size_t input, std::string_view argument) {
  const std::optional<std::vector<ir::Dim>> dims = lowering.value(input).integers();
  std::vector<int64_t> numbers;
  for (size_t i = 0; dims.has_value() && i < dims->size(); ++i) {
    if ((*dims)[i].is_static()) numbers.push_back((*dims)[i].value());
  }
  if (dims.has_value() && numbers.size() == dims->size()) return numbers;
  return Status::unsupported(argument, " is known only when the model runs; the host needs a constant");
}

int64_t read_index(const RunContext& context, const Operand& operand, int64_t at) {
  return operand.dtype == ir::DType::kI32 ? context.read<int32_t>(operand)[at]
                                          : context.read<int64_t>(operand)[at];
}

}  // namespace heddle::host
