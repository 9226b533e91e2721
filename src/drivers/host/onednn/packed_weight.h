// packed_weight.h: a weight, or a part of one, in the layout a kernel asks for.
//
//   What       pack_weight() reorders a constant once per layout; the WeightStore keeps it. A WeightOperand
//              is such a constant, or a value of the run (not with channels last) that is reordered into
//              the step's scratch each time.
//   Threads    Any; packing runs with no lock held.
#pragma once

#include <string_view>

#include "drivers/host/onednn/descriptors.h"
#include "drivers/host/onednn/engine.h"
#include "drivers/host/onednn/layout_change.h"
#include "drivers/host/onednn/weight_store.h"
#include "drivers/host/step.h"

namespace heddle::host {

struct PackedWeight final : Packed {
  uint64_t bytes() const override { return size + 256; }
  WeightRoom data;
  uint64_t size = 0;
};

// The weight lies `offset` bytes into the constant as `plain` says. `kind` sets apart readings of one
// constant that come to the same layout.
Result<Ref<const PackedWeight>> pack_weight(WeightStore& weights, std::string_view kind,
                                            const std::byte* constant, int64_t offset,
                                            const dnnl::memory::desc& plain,
                                            const dnnl::memory::desc& wanted);

class WeightOperand {
 public:
  // `scratch` grows by what a run needs. `width`: as of a Lowering.
  static Result<WeightOperand> make(WeightStore& weights, std::string_view kind, const Operand& operand,
                                    const dnnl::memory::desc& plain, const dnnl::memory::desc& wanted,
                                    uint64_t& scratch, int width);

  // Before the step's own work. `base` is where the step's scratch begins in the arena.
  Status run(const RunContext& context, uint64_t base) const {
    return change_.run(context, base, context.read(operand_));
  }
  uint64_t resident_bytes() const { return change_.resident_bytes(); }
  const std::byte* address(const RunContext& context, uint64_t base) const {
    if (packed_ != nullptr) return packed_->data.here();
    return change_ ? change_.address(context, base) : context.read(operand_);
  }

 private:
  Operand operand_;
  Ref<const PackedWeight> packed_;  // null: a value of the run
  LayoutChange change_;             // none: packed, or it lies as wanted
};

}  // namespace heddle::host
