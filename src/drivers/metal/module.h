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
  static Result<Ref<const device::Module>> make(ir::Graph graph, const device::LoadOptions& options,
                                                Ref<const OpenDevice> open);
  using device::Module::compile;
  Result<Ref<const device::Program>> compile(std::span<const ir::Extents> inputs, uint64_t bytes_max,
                                             NoLocksHeld) const override;
  Result<device::ProgramPlan> plan(std::span<const ir::Extents> inputs, uint64_t bytes_max,
                                   NoLocksHeld) const override;

 private:
  Result<ir::Graph> specialise(std::span<const ir::Extents> inputs, uint64_t bytes_max) const;

  Ref<const OpenDevice> open_;
  Ref<const Weights> weights_;
  bool half_ = false;
};

}  // namespace heddle::metal
