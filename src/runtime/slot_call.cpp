// slot_call.cpp: the way of a batch, whose operands all lie in a slot of its own.
#include <utility>

#include "runtime/runtime.h"

namespace heddle::runtime {

using device::View;

namespace {

bool lies_in_its_slot(const Call& call) {
  if (call.slot == nullptr || !call.results_in_slot || !call.outputs.empty() || call.stream != nullptr)
    return false;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (!call.inputs[i].is_contiguous() || !call.slot->stages(i, call.inputs[i].buffer)) return false;
  }
  return true;
}

}  // namespace

bool Runtime::runs_in_slot(const Call& call) const {
  return !device_->traits().synchronous && call.wait && call.row_faults != nullptr && lies_in_its_slot(call);
}

// Nobody else names memory of the slot until the run is over: there is nothing to wait for, and no buffer is
// marked. The slot itself knows until when it is in use.
Status Runtime::submit_in_slot(InFlight& started, const Model& model, const Call& call,
                               Ref<const device::Program> program) {
  Slot& slot = *call.slot;
  if (!slot.run().is_for(program, call.inputs)) [[unlikely]] {
    device::CommandList list;
    HEDDLE_TRY(started.binding.bind(*parts_->allocator, *device_, model, *program, call));
    HEDDLE_TRY(started.binding.reserve(slot));
    started.binding.stage(program, &slot, nullptr, list);
    slot.run().make(program, call.inputs, std::move(list), started.binding.take_outputs());
  }
  HEDDLE_TRY_ASSIGN(Permit permit, parts_->governor->enter(model.id(), call.deadline));
  HEDDLE_TRY_ASSIGN(Lane * lane, parts_->lanes->at(permit, true));
  // Of its own: with a stream that fails, the Permit may go to another call, which gives the lane a new one.
  started.stream = lane->stream;
  HEDDLE_TRY_ASSIGN(Turn turn, started.stream->turn());
  Submission extras;
  extras.permit = std::move(permit);
  extras.slot = started.slot;
  extras.awaited = true;
  // Before it is: whatever becomes of the submission, who finds the slot quiet may write there.
  const uint64_t next = started.stream->last_submitted() + 1;
  slot.in_use_until({started.stream->timeline(), next});
  const device::CommandList& list = slot.run().begin(std::move(program), call.row_faults);
  const Result<uint64_t> submitted = turn.submit_prepared(list, std::move(extras));
  if (started.stream->last_submitted() < next) slot.in_use_until({});  // it took no value
  HEDDLE_TRY_ASSIGN(started.value, submitted);
  started.is_in_slot = true;
  return {};
}

}  // namespace heddle::runtime
