#include "drivers/host/kernels/reference/reference_step.h"

#include <cstring>

#include "drivers/host/kernels/rows/sequence_lengths.h"
#include "ir/op.h"

namespace heddle::host {

namespace {

class ReferenceStep final : public Step {
 public:
  explicit ReferenceStep(const Lowering& lowering)
      : node_(lowering.node), inputs_(lowering.inputs), outputs_(lowering.outputs) {
    const bool recurrent = node_.is("RNN") || node_.is("GRU") || node_.is("LSTM");
    if (recurrent) lengths_ = SequenceLengths(lowering);
  }

  Status run(const RunContext& context) const override {
    HEDDLE_TRY_ASSIGN(const bool wrong_lengths, lengths_.check(context));
    const auto no_owner = std::shared_ptr<const void>();
    std::vector<ir::Tensor> tensors, results;
    tensors.reserve(inputs_.size());
    std::vector<const ir::Tensor*> in;
    for (const Operand& operand : inputs_) {
      tensors.push_back(ir::Tensor::borrow(operand.dtype, operand.extents, context.read(operand), no_owner));
      in.push_back(operand.present() ? &tensors.back() : nullptr);
    }
    if (wrong_lengths) tensors[SequenceLengths::kInput] = lengths_.tensor(context);
    for (const Operand& operand : outputs_)
      results.push_back(ir::Tensor::zeros(operand.dtype, operand.extents));
    HEDDLE_TRY(node_.op->reference(node_, in, results).with_context(node_.describe()));
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (!outputs_[i].present() || results[i].bytes() == 0) continue;
      std::memcpy(context.write(outputs_[i]), results[i].data(), static_cast<size_t>(results[i].bytes()));
    }
    return {};
  }
  std::string path() const override { return "the operator's slow reference, on one core"; }

 private:
  ir::Node node_;
  std::vector<Operand> inputs_, outputs_;
  SequenceLengths lengths_;
};

Result<std::unique_ptr<Step>> lower_reference(Lowering& lowering) { return reference_step(lowering); }

}  // namespace

Result<std::unique_ptr<Step>> reference_step(const Lowering& lowering) {
  return std::unique_ptr<Step>(std::make_unique<ReferenceStep>(lowering));
}

std::span<const LoweringEntry> reference_lowerings() {
  static constexpr LoweringEntry kEntries[] = {
      {"Col2Im", lower_reference},    {"Det", lower_reference},      {"LpPool", lower_reference},
      {"MaxUnpool", lower_reference}, {"RoiAlign", lower_reference}, {"LinearAttention", lower_reference},
  };
  return kEntries;
}

}  // namespace heddle::host
