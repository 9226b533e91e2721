// channels.h: operands with their channels last, as oneDNN's window kernels want them.
//
//   What       A Turned is one operand of a step in [N, spatial.., C] order: the operand itself when it lies
//              so already, else memory in the step's scratch and the reorder that fills it (an input) or
//              empties it (an output).
//   Threads    As for steps: prepared once, run by any number of threads.
#pragma once

#include "drivers/host/onednn/descriptors.h"
#include "drivers/host/onednn/layout_change.h"
#include "drivers/host/step.h"

namespace heddle::host {

// dims in the order N, C, spatial..
dnnl::memory::desc channels_last_desc(const Dims& dims,
                                      dnnl::memory::data_type type = dnnl::memory::data_type::f32);

class Turned {
 public:
  using Way = LayoutChange::Way;
  // `bf16`: what the step multiplies. An input that has to be turned is rounded to it on the way; one that a
  // caller brings in sixteen bits is widened where it is not what is multiplied. `width`: as of a Lowering.
  static Result<Turned> make(const Engine& engine, const Operand& operand, Way way, uint64_t& scratch,
                             int width, bool bf16 = false);

  // `base` is where the step's scratch begins in the arena.
  std::byte* address(const RunContext& context, uint64_t base) const {
    return change_ ? change_.address(context, base) : context.write(operand_);
  }
  bool narrow() const { return narrow_; }  // what lies at address() is bf16
  int64_t element_bytes() const { return narrow_ ? 2 : 4; }
  // Before the step for an input, after it for an output.
  Status run(const RunContext& context, uint64_t base) const {
    return change_.run(context, base, context.write(operand_));
  }
  uint64_t resident_bytes() const { return change_.resident_bytes(); }

 private:
  Operand operand_;
  bool narrow_ = false;
  LayoutChange change_;  // none: nothing to turn
};

}  // namespace heddle::host
