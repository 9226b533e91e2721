// lone_call.cpp: the way of a call that finds a lane free and its program made.
#include <algorithm>
#include <utility>

#include "runtime/runtime.h"

namespace heddle::runtime {

using device::View;

// A lane for one call. Gives it back and then looks whether programs were dropped meanwhile.
class Runtime::LoneLane {
 public:
  LoneLane(Parts& parts, ModelId model, int lanes, Governor::Way way)
      : parts_(parts), permit_(parts.governor->try_enter_lone(model, lanes, way)) {
    if (permit_) changes_ = parts.executables->changes();
  }
  LoneLane(const LoneLane&) = delete;
  LoneLane& operator=(const LoneLane&) = delete;
  ~LoneLane() {
    if (!permit_) return;
    if (used_) {
      const Permit done = std::move(permit_);
    } else {
      permit_.decline();
    }
    if (parts_.executables->changes() != changes_) [[unlikely]]
      parts_.lanes->drop_programs();
  }
  explicit operator bool() const { return static_cast<bool>(permit_); }
  void use() { used_ = true; }  // it counts as a call
  // With programs that were there when it was taken.
  Result<Lane*> lane(bool needs_stream = true) {
    HEDDLE_TRY_ASSIGN(Lane * lane, parts_.lanes->at(permit_, needs_stream));
    if (lane->programs != changes_) {
      lane->prepared.clear();
      lane->programs = changes_;
    }
    return lane;
  }

 private:
  Parts& parts_;
  Permit permit_;
  uint64_t changes_ = 0;
  bool used_ = false;
};

std::optional<Result<Runtime::Views>> Runtime::try_run(const Model& model,
                                                       std::span<const View* const> inputs, LoneDoor& door,
                                                       Duration at_most) {
  const int lanes = door.is_open();
  if (lanes == 0 || !can_run_at_once_ || fork_generation() != generation_) return std::nullopt;
  LoneLane mine(*parts_, model.id(), lanes, Governor::Way::door);
  if (!mine) return std::nullopt;
  // With the lane, so that who closes the model, or shuts the door, has seen us or is seen by us.
  if (model.closed() || door.is_open() == 0) return std::nullopt;
  const Result<Lane*> lane = mine.lane();
  if (!lane.ok()) return std::nullopt;
  // Many threads call at once, each alone: from time to time one goes to whoever joins calls, and who then
  // finds out whether that would pay.
  const bool among_many = (*lane)->index >= std::max(2, lanes / 4);
  auto result = run_on_lane(**lane, model, inputs, at_most, among_many);
  if (!result.has_value()) return std::nullopt;
  mine.use();
  door.count((*lane)->index, inputs.empty() || inputs[0]->extents.rank() == 0 ? 1 : inputs[0]->extents[0]);
  return result;
}

std::optional<Result<Runtime::Views>> Runtime::try_run_on(const Model& model, const OnStream& given) {
  if (!can_run_at_once_ || fork_generation() != generation_) return std::nullopt;
  std::optional<TimeSlices::Call> slice;
  if (given.in_slices) slice.emplace(*parts_->time_slices, given.deadline);
  const std::optional<Turn> turn = given.stream.try_turn();
  if (!turn.has_value()) return std::nullopt;
  LoneLane mine(*parts_, model.id(), parts_->governor->limit(), Governor::Way::stream);
  if (!mine || model.closed()) return std::nullopt;  // with the lane: see try_run()
  const Result<Lane*> taken = mine.lane(false);
  if (!taken.ok()) return std::nullopt;
  Lane& lane = **taken;
  PreparedCall* call = prepared(lane, model, given.inputs);
  if (call == nullptr) return std::nullopt;
  std::optional<Views> outputs = given.outputs.empty() ? fresh_outputs(*call) : given_outputs(*call, given);
  if (!outputs.has_value()) return std::nullopt;
  const uint64_t arena = call->run().program->arena_bytes();
  if (!reserve_arena(lane, arena)) return std::nullopt;
  mine.use();
  if (slice.has_value() && parts_->time_slices->width() < device_->traits().threads &&
      call->leaves_its_slice()) {
    slice.reset();
    parts_->time_slices->rest();
  }
  const Status status = call->run_on(
      given.stream, call->bound_to(given.inputs, *outputs, arena == 0 ? nullptr : lane.slot->arena()));
  if (!status.ok()) return Result<Views>(status);
  return Result<Views>(*std::move(outputs));
}

bool Runtime::reserve_arena(Lane& lane, uint64_t bytes) {
  if (bytes == 0) return true;
  if (lane.slot == nullptr) lane.slot = parts_->slots->make();
  return lane.slot->reserve_arena(bytes, Allocator::Callbacks::no).ok();
}

std::optional<Result<Runtime::Views>> Runtime::run_on_lane(Lane& lane, const Model& model,
                                                           std::span<const View* const> inputs,
                                                           Duration at_most, bool among_many) {
  PreparedCall* call = prepared(lane, model, inputs);
  if (call == nullptr || (at_most != Duration::max() && !call->is_brief(at_most))) return std::nullopt;
  constexpr uint32_t kLook = 64;
  if (among_many && call->is_long() && ++lane.long_runs % kLook == 0) return std::nullopt;
  std::optional<Views> outputs = fresh_outputs(*call);
  if (!outputs.has_value()) return std::nullopt;
  const uint64_t arena = call->run().program->arena_bytes();
  if (!reserve_arena(lane, arena)) return std::nullopt;
  const Status status =
      call->run_on(*lane.stream, call->bound_to(inputs, *outputs, arena == 0 ? nullptr : lane.slot->arena()));
  if (!status.ok()) return Result<Views>(status);
  return Result<Views>(*std::move(outputs));
}

// Null where it is not compiled, or an input has to be staged.
PreparedCall* Runtime::prepared(Lane& lane, const Model& model, std::span<const View* const> inputs) {
  for (const View* view : inputs) {
    if (!can_run_on(*device_, *view)) return nullptr;
    if (view->buffer != nullptr && !view->buffer->pending().empty()) return nullptr;  // has to be waited for
  }
  if (PreparedCall* known = lane.prepared.find(model.id(), inputs)) [[likely]]
    return known;
  std::vector<View> views;
  for (const View* view : inputs) views.push_back(*view);
  Ref<const device::Program> program = parts_->executables->peek(model.id(), views);
  if (program == nullptr) return nullptr;
  return &lane.prepared.prepare(model.id(), std::move(program), inputs);
}

// Nothing where memory can only be had with pressure callbacks, which may call models.
std::optional<Runtime::Views> Runtime::fresh_outputs(PreparedCall& call) {
  Views outputs;
  outputs.reserve(call.output_bytes.size());
  const std::vector<View>& like = call.run().outputs;
  for (size_t i = 0; i < like.size(); ++i) {
    auto buffer = parts_->allocator->allocate(call.output_bytes[i], device::MemoryKind::device,
                                              Allocator::Callbacks::no);
    if (!buffer.ok()) return std::nullopt;
    View& output = outputs.emplace_back();
    output.dtype = like[i].dtype;
    output.extents = like[i].extents;
    output.strides = like[i].strides;
    output.buffer = std::move(buffer).value();
  }
  return outputs;
}

// Nothing where one is of another type, has to be waited for or staged, or is in the way of what is read.
std::optional<Runtime::Views> Runtime::given_outputs(PreparedCall& call, const OnStream& given) const {
  const device::Run& run = call.run();
  if (given.outputs.size() != run.outputs.size()) return std::nullopt;
  Views outputs;
  outputs.reserve(given.outputs.size());
  for (size_t i = 0; i < given.outputs.size(); ++i) {
    const View& to = *given.outputs[i];
    if (to.dtype != run.outputs[i].dtype || to.extents != run.outputs[i].extents || !can_run_on(*device_, to))
      return std::nullopt;
    if (to.buffer != nullptr && !to.buffer->pending().empty()) return std::nullopt;
    for (size_t input = 0; input < given.inputs.size(); ++input) {
      if (!may_write_beside(*run.program, i, to, input, *given.inputs[input])) return std::nullopt;
    }
    outputs.push_back(to);
  }
  return outputs;
}

}  // namespace heddle::runtime
