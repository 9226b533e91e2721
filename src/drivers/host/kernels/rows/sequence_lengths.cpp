#include "drivers/host/kernels/rows/sequence_lengths.h"

namespace heddle::host {

SequenceLengths::SequenceLengths(const Lowering& lowering)
    : node_(lowering.node.describe()), steps_(lowering.inputs[0].extents[0]) {
  if (lowering.inputs.size() <= kInput) return;
  operand_ = lowering.inputs[kInput];
  rows_ = RowLocator(lowering, kInput);
}

Result<bool> SequenceLengths::check(const RunContext& context) const {
  bool wrong = false;
  for (int64_t b = 0; operand_.present() && b < operand_.elements(); ++b) {
    const int64_t length = read_index(context, operand_, b);
    if (right(length)) continue;
    HEDDLE_TRY(rows_.report(
        context, b,
        Status::invalid(node_, ": sequence_lens holds ", length, "; it has to be 0 to ", steps_)));
    wrong = true;
  }
  return wrong;
}

ir::Tensor SequenceLengths::tensor(const RunContext& context) const {
  ir::Tensor lengths = ir::Tensor::zeros(operand_.dtype, operand_.extents);
  for (int64_t b = 0; b < lengths.elements(); ++b) lengths.set_i64(b, of(context, b));
  return lengths;
}

}  // namespace heddle::host
