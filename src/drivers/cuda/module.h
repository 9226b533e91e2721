// module.h: a model on the GPU: its weights, and programs for its shapes.
#pragma once

#include "device/program.h"
#include "drivers/cuda/weights.h"

namespace heddle::cuda {

class CudaModule final : public device::Module {
 public:
  CudaModule(plan::Prepared prepared, Ref<const Weights> weights, Ref<const OpenDevice> device,
             Ref<device::Source> source)
      : Module(std::move(prepared)),
        weights_(std::move(weights)),
        device_(std::move(device)),
        source_(std::move(source)) {}

 private:
  Result<Ref<const device::Program>> lower(const ir::Graph& specialised, uint64_t bytes_max,
                                           NoLocksHeld) const override;

  const Ref<const Weights> weights_;
  const Ref<const OpenDevice> device_;
  const Ref<device::Source> source_;
};

}  // namespace heddle::cuda
