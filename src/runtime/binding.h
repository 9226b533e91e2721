// binding.h: a call's views made fit for a device: given outputs checked, missing ones allocated, caller
// memory staged where it cannot be bound.
//
//   Lifetime   A local of one call. Blocks as the allocator does; made before the call holds a turn or a
//              permit, so that pressure callbacks meet neither.
#pragma once

#include <span>
#include <vector>

#include "runtime/memory/allocator.h"
#include "runtime/model.h"

namespace heddle::runtime {

class Binding {
 public:
  static Result<Binding> make(Allocator& allocator, const device::Device& device, const Model& model,
                              const device::Program& program, std::span<const device::View> inputs,
                              std::span<const device::View> outputs);

  // Copies in, the run, copies out. Leaves the outputs.
  device::CommandList commands(Ref<const device::Program> program, device::Slot& slot,
                               Ref<device::RowFaults> row_faults) &&;
  std::vector<device::View> take_outputs() { return std::move(outputs_); }
  bool uses_caller_memory() const { return uses_caller_memory_; }

 private:
  struct Staged {
    device::View from, to;
  };
  static Result<device::View> fresh(Allocator& allocator, ir::DType dtype, const ir::Extents& extents);
  Status bind_inputs(Allocator& allocator, bool in_place, std::span<const device::View> inputs);
  Status bind_outputs(Allocator& allocator, bool in_place, const Model& model, const device::Program& program,
                      std::span<const device::View> given);

  std::vector<device::View> run_inputs_, run_outputs_;  // what the program sees
  std::vector<device::View> outputs_;                   // what the caller gets, where that is something else
  std::vector<Staged> before_, after_;
  bool uses_caller_memory_ = false;
};

}  // namespace heddle::runtime
