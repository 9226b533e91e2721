// module.h: a model on the GPU: its weights, and programs for its shapes.
#pragma once

#include <map>
#include <string>

#include "device/program.h"
#include "drivers/cuda/graphs.h"
#include "drivers/cuda/lowering/lowering.h"
#include "drivers/cuda/weights.h"

namespace heddle::cuda {

class CudaModule final : public device::Module {
 public:
  // `graphs`: null where they are switched off.
  CudaModule(plan::Prepared prepared, Ref<const Weights> weights, Ref<const OpenDevice> device,
             Libraries libraries, Ref<device::Source> source, Ref<const Graphs> graphs)
      : Module(std::move(prepared)),
        weights_(std::move(weights)),
        turned_(device),
        device_(std::move(device)),
        libraries_(std::move(libraries)),
        source_(std::move(source)),
        graphs_(std::move(graphs)) {}

 private:
  struct Emitted;
  Result<Emitted> emit(const ir::Graph& specialised, uint64_t bytes_max) const;
  Result<Ref<const device::Program>> lower(const ir::Graph& specialised, uint64_t bytes_max,
                                           NoLocksHeld) const override;
  Result<plan::ProgramPlan> describe(const ir::Graph& specialised, uint64_t bytes_max,
                                     NoLocksHeld) const override;

  const Ref<const Weights> weights_;
  const TurnedWeights turned_;
  const Ref<const OpenDevice> device_;
  const Libraries libraries_;
  // How often graphs of the program for these inputs failed: the same count for as long as it lives.
  Ref<Atomic<uint32_t>> failures_of(const ir::Graph& specialised) const;

  const Ref<device::Source> source_;
  const Ref<const Graphs> graphs_;
  mutable Guarded<std::map<std::string, std::weak_ptr<Atomic<uint32_t>>>, Rank::kCache> failures_;
};

}  // namespace heddle::cuda
