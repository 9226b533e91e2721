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
#include "drivers/host/onednn/primitive.h"
#include "drivers/host/onednn/weight_store.h"
#include "drivers/host/step.h"

namespace heddle::host {

struct PackedWeight final : Packed {
  uint64_t bytes() const override { return size + 256; }
  Ref<std::byte> data;
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
  // `scratch` grows by what a run needs.
  static Result<WeightOperand> make(WeightStore& weights, std::string_view kind, const Operand& operand,
                                    const dnnl::memory::desc& plain, const dnnl::memory::desc& wanted,
                                    uint64_t& scratch);

  // Before the step's own work. `base` is where the step's scratch begins in the arena.
  Status run(const RunContext& context, uint64_t base) const;
  uint64_t resident_bytes() const { return reorder_ == nullptr ? 0 : Primitive::kResidentBytes; }
  const std::byte* place(const RunContext& context, uint64_t base) const {
    if (packed_ != nullptr) return packed_->data.get();
    return reorder_ == nullptr ? context.read(operand_) : context.arena + base + offset_;
  }

 private:
  Operand operand_;
  Ref<const PackedWeight> packed_;  // null: a value of the run
  Ref<const Primitive> reorder_;    // null: packed, or it lies as wanted
  uint64_t offset_ = 0;
  uint64_t reorder_scratch_ = 0;
};

}  // namespace heddle::host
