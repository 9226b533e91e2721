#include "drivers/host/layout/row_locator.h"

#include <utility>

namespace heddle::host {

RowLocator::RowLocator(const Lowering& lowering, size_t input) {
  const Operand& operand = lowering.inputs[input];
  if (!operand.present()) return;
  const std::optional<size_t> axis = lowering.value(input).row_axis;
  if (!axis || *axis >= operand.extents.rank()) return;
  extent_ = operand.extents[*axis];
  for (size_t i = *axis + 1; i < operand.extents.rank(); ++i) inner_ *= operand.extents[i];
}

Result<int64_t> RowLocator::report(const RunContext& context, int64_t element, Status mistake) const {
  device::RowFaults* const faults = context.row_faults;
  if (faults == nullptr || extent_ == 0 || extent_ % faults->rows() != 0) return mistake;
  const int64_t together = extent_ / faults->rows() * inner_;
  const int64_t block = element / together;
  faults->record(block % faults->rows(), std::move(mistake));
  return (block + 1) * together;
}

}  // namespace heddle::host
