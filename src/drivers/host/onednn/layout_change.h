// layout_change.h: an operand of a step in another layout, inside the step's scratch.
//
//   What       The reorder between the operand where it lies (outside) and its copy in the scratch, one way
//              or the other.
//   Threads    Prepared once, run by any number of threads.
#pragma once

#include "drivers/host/onednn/descriptors.h"
#include "drivers/host/onednn/primitive.h"
#include "drivers/host/step.h"

namespace heddle::host {

class LayoutChange {
 public:
  enum class Way : uint8_t { kInput, kOutput };
  LayoutChange() = default;  // none
  // `scratch` grows by what a run needs.
  static Result<LayoutChange> make(const Engine& engine, const dnnl::memory::desc& outside,
                                   const dnnl::memory::desc& inside, Way way, uint64_t& scratch);

  explicit operator bool() const { return reorder_ != nullptr; }
  // `base` is where the step's scratch begins in the arena.
  std::byte* address(const RunContext& context, uint64_t base) const {
    return context.arena + base + offset_;
  }
  Status run(const RunContext& context, uint64_t base, const std::byte* outside) const;
  uint64_t resident_bytes() const { return reorder_ == nullptr ? 0 : Primitive::kResidentBytes; }

 private:
  Way way_ = Way::kInput;
  uint64_t offset_ = 0;
  uint64_t reorder_scratch_ = 0;
  Ref<const Primitive> reorder_;
};

}  // namespace heddle::host
