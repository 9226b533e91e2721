// module.h: a model on Metal: the optimised graph and its weights in device memory, once for all shapes.
//
//   Threads    Immutable.
//   Blocks     compile(): MPSGraph compiles for milliseconds to seconds.
#pragma once

#include "device/program.h"
#include "drivers/metal/open_device.h"
#include "drivers/metal/weights.h"

namespace heddle::metal {

class MetalModule final : public device::Module {
 public:
  MetalModule(plan::Prepared prepared, Ref<const Weights> weights, Ref<const OpenDevice> open, bool half)
      : Module(std::move(prepared)), open_(std::move(open)), weights_(std::move(weights)), half_(half) {}

 private:
  Result<Ref<const device::Program>> lower(const ir::Graph& specialised, uint64_t bytes_max,
                                           NoLocksHeld) const override;
  Result<plan::ProgramPlan> describe(const ir::Graph& specialised, uint64_t bytes_max,
                                     NoLocksHeld) const override;

  const Ref<const OpenDevice> open_;
  const Ref<const Weights> weights_;
  const bool half_;
};

}  // namespace heddle::metal
