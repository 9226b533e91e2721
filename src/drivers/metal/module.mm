#include "drivers/metal/module.h"

#include <set>

#include "drivers/metal/program.h"
#include "plan/batchable.h"
#include "plan/optimize.h"
#include "plan/specialize.h"

namespace heddle::metal {
namespace {

std::vector<device::Signature> signatures(const ir::Graph& graph, const std::vector<ir::ValueId>& ids) {
  std::vector<device::Signature> out;
  for (const ir::ValueId id : ids) out.push_back({graph.values[id].name, graph.type(id)});
  return out;
}

}  // namespace

Result<Ref<const device::Module>> MetalModule::make(ir::Graph graph, const device::LoadOptions& options,
                                                    Ref<const OpenDevice> open) {
  if (options.precision != "f32" && options.precision != "f16") {
    return Status::unsupported("the Metal driver computes in precision f32 or f16, not '", options.precision,
                               "'");
  }
  HEDDLE_TRY_ASSIGN(ir::Graph optimised, plan::optimize(std::move(graph)));
  optimised = plan::mark_rows(std::move(optimised));
  auto module = std::make_shared<MetalModule>();
  HEDDLE_TRY_ASSIGN(module->weights_, Weights::make(open->device.get(), optimised));
  module->inputs_ = signatures(optimised, optimised.inputs);
  module->outputs_ = signatures(optimised, optimised.outputs);
  std::set<const void*> counted;  // branches share weights
  ir::each_constant(optimised, [&](const ir::Tensor& weight) {
    if (counted.insert(weight.data()).second) module->weight_bytes_ += static_cast<uint64_t>(weight.bytes());
  });
  module->graph_ = std::make_shared<const ir::Graph>(std::move(optimised));
  module->open_ = std::move(open);
  module->half_ = options.precision == "f16";
  return Ref<const device::Module>(std::move(module));
}

Result<Ref<const device::Program>> MetalModule::compile(std::span<const ir::Extents> inputs,
                                                        NoLocksHeld) const {
  HEDDLE_TRY_ASSIGN(const ir::Graph specialised, plan::specialize(*graph_, inputs));
  return MetalProgram::make(specialised, weights_, open_, half_);
}

}  // namespace heddle::metal
