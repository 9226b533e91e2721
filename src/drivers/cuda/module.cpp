#include "drivers/cuda/module.h"

#include "drivers/cuda/lowering/lowering.h"
#include "plan/memory_plan.h"

namespace heddle::cuda {
namespace {

std::vector<Operand> operands_of(const ir::Graph& graph, const std::vector<ir::ValueId>& ids,
                                 plan::Place::Kind kind) {
  std::vector<Operand> operands;
  for (size_t i = 0; i < ids.size(); ++i) {
    Operand operand;
    operand.place = {kind, i};
    operand.dtype = graph.type(ids[i]).dtype;
    operand.extents = *graph.type(ids[i]).extents();
    operands.push_back(operand);
  }
  return operands;
}

}  // namespace

Result<Ref<const device::Program>> CudaModule::lower(const ir::Graph& specialised, uint64_t bytes_max,
                                                     NoLocksHeld) const {
  HEDDLE_TRY(plan::check_memory(specialised, 0, weight_bytes(), bytes_max));
  HEDDLE_TRY_ASSIGN(const Ref<const Weights> own,
                    Weights::make(device_, specialised, weights_.get(), *source_));
  Emitter emitter(*device_, {weights_.get(), own.get()});
  HEDDLE_TRY(emitter.graph(specialised,
                           operands_of(specialised, specialised.inputs, plan::Place::Kind::kInput),
                           operands_of(specialised, specialised.outputs, plan::Place::Kind::kOutput)));
  HEDDLE_TRY_ASSIGN(Lowered lowered, emitter.take());
  HEDDLE_TRY(plan::check_memory(specialised, lowered.arena_bytes, weight_bytes(), bytes_max));
  return Ref<const device::Program>(std::make_shared<CudaProgram>(
      specialised, std::move(lowered), device_, std::vector<Ref<const void>>{weights_, own}, own->bytes()));
}

}  // namespace heddle::cuda
