#include "drivers/host/onednn/float_steps.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "drivers/host/kernels/elementwise/narrow.h"
#include "drivers/host/machine/aligned_bytes.h"
#include "drivers/host/onednn/weight_store.h"

namespace heddle::host {
namespace {

constexpr size_t kMostOperands = 8;

class NothingStep final : public Step {
 public:
  Status run(const RunContext&) const override { return {}; }
};

bool is_half(ir::DType dtype) { return dtype == ir::DType::kF16 || dtype == ir::DType::kBF16; }

void widen(ir::DType from, const std::byte* source, float* target, int64_t count) {
  const auto convert = from == ir::DType::kF16 ? f16_to_f32 : bf16_to_f32;
  convert(reinterpret_cast<const uint16_t*>(source), target, count);
}

void narrow(ir::DType to, const float* source, std::byte* target, int64_t count) {
  const auto convert = to == ir::DType::kF16 ? f32_to_f16 : f32_to_bf16;
  convert(source, reinterpret_cast<uint16_t*>(target), count);
}

struct WideConstant final : Packed {
  explicit WideConstant(ir::Tensor t) : tensor(std::move(t)) {}
  uint64_t bytes() const override { return static_cast<uint64_t>(tensor.bytes()); }
  ir::Tensor tensor;
};

// The f32 step sees its operands as inputs and outputs of a run of its own.
class WideStep final : public Step {
 public:
  static Result<std::unique_ptr<Step>> make(const Lowering& lowering, Lower f32) {
    auto step = std::make_unique<WideStep>();
    Lowering wide{lowering.graph, lowering.node, {}, {}, lowering.weights, lowering.width};
    wide.outermost = lowering.outermost;
    wide.bytes_left = lowering.bytes_left;
    for (size_t i = 0; i < lowering.inputs.size(); ++i) {
      HEDDLE_TRY_ASSIGN(Operand operand, step->add_input(lowering, lowering.inputs[i]));
      wide.inputs.push_back(operand);
    }
    for (const Operand& output : lowering.outputs) wide.outputs.push_back(step->add_output(output));
    HEDDLE_TRY_ASSIGN(step->inner_, f32(wide));
    step->inner_offset_ = step->scratch_;
    step->scratch_ += step->inner_->scratch_bytes();
    return std::unique_ptr<Step>(std::move(step));
  }

  Status run(const RunContext& context) const override {
    std::array<const std::byte*, kMostOperands> inputs{};
    std::array<std::byte*, kMostOperands> outputs{};
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const Converted& in = inputs_[i];
      inputs[i] = context.read(in.narrow);
      if (!in.converts) continue;
      auto* wide = reinterpret_cast<float*>(context.arena + base_ + in.offset);
      widen(in.narrow.dtype, inputs[i], wide, in.narrow.elements());
      inputs[i] = reinterpret_cast<const std::byte*>(wide);
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const Converted& out = outputs_[i];
      outputs[i] = out.converts ? context.arena + base_ + out.offset : context.write(out.narrow);
    }
    HEDDLE_TRY(inner_->run(context.inside(context.arena, inputs.data(), outputs.data())));
    for (const Converted& out : outputs_) {
      if (!out.converts) continue;
      narrow(out.narrow.dtype, reinterpret_cast<const float*>(context.arena + base_ + out.offset),
             context.write(out.narrow), out.narrow.elements());
    }
    return {};
  }

  uint64_t scratch_bytes() const override { return scratch_; }
  void set_scratch(uint64_t offset) override {
    base_ = offset;
    inner_->set_scratch(offset + inner_offset_);
  }
  uint64_t resident_bytes() const override { return 256 + inner_->resident_bytes(); }
  std::string path() const override { return inner_->path(); }

 private:
  struct Converted {
    Operand narrow;
    bool converts;
    uint64_t offset;  // of the f32 form, in our scratch
  };

  uint64_t reserve(const Operand& operand) {
    const uint64_t at = scratch_;
    scratch_ += aligned(static_cast<uint64_t>(operand.elements()) * sizeof(float));
    return at;
  }

  Result<Operand> add_input(const Lowering& lowering, const Operand& operand) {
    Operand wide = operand;
    if (!operand.present()) {
      inputs_.push_back({operand, false, 0});
      return wide;
    }
    if (!is_half(operand.dtype)) {  // a mask of bools, say
      inputs_.push_back({operand, false, 0});
    } else if (operand.location == Operand::Location::kConstant) {
      inputs_.push_back({Operand(), false, 0});
      HEDDLE_TRY_ASSIGN(auto constant, lowering.weights.get<WideConstant>(operand.constant, "f32", [&] {
        ir::Tensor tensor = ir::Tensor::zeros(ir::DType::kF32, operand.extents);
        widen(operand.dtype, operand.constant, static_cast<float*>(tensor.mutable_data()),
              operand.elements());
        return Result<Ref<const WideConstant>>(std::make_shared<const WideConstant>(std::move(tensor)));
      }));
      wide.dtype = ir::DType::kF32;
      wide.constant = static_cast<const std::byte*>(constant->tensor.data());
      constants_.push_back(std::move(constant));
      return wide;
    } else {
      inputs_.push_back({operand, true, reserve(operand)});
      wide.dtype = ir::DType::kF32;
    }
    if (operand.location == Operand::Location::kConstant) return wide;
    wide.location = Operand::Location::kInput;
    wide.offset = inputs_.size() - 1;
    return wide;
  }

  Operand add_output(const Operand& operand) {
    Operand wide = operand;
    const bool converts = operand.present() && is_half(operand.dtype);  // indices stay as they are
    outputs_.push_back({operand, converts, converts ? reserve(operand) : 0});
    if (!operand.present()) return wide;
    if (converts) wide.dtype = ir::DType::kF32;
    wide.location = Operand::Location::kOutput;
    wide.offset = outputs_.size() - 1;
    return wide;
  }

  std::vector<Converted> inputs_, outputs_;
  std::vector<Ref<const WideConstant>> constants_;
  std::unique_ptr<Step> inner_;
  uint64_t scratch_ = 0;
  uint64_t inner_offset_ = 0;
  uint64_t base_ = 0;
};

}  // namespace

Result<std::unique_ptr<Step>> lower_floats(Lowering& lowering, Lower f32) {
  const auto empty = [](const Operand& o) { return !o.present() || o.elements() == 0; };
  if (std::all_of(lowering.outputs.begin(), lowering.outputs.end(), empty)) {
    return std::unique_ptr<Step>(std::make_unique<NothingStep>());
  }
  const ir::DType dtype = lowering.outputs[0].dtype;
  const bool sums_nothing = lowering.inputs[0].present() && lowering.inputs[0].elements() == 0;
  if (sums_nothing || lowering.inputs.size() > kMostOperands || lowering.outputs.size() > kMostOperands) {
    return reference_step(lowering);
  }
  if (dtype == ir::DType::kF32) return f32(lowering);
  if (is_half(dtype)) return WideStep::make(lowering, f32);
  return reference_step(lowering);
}

}  // namespace heddle::host
