#include "runtime/lane.h"

#include <algorithm>
#include <utility>

namespace heddle::runtime {

using device::View;

bool PreparedCall::is_for(ModelId asked, std::span<const View* const> given) {
  if (model != asked) return false;
  const std::vector<View>& inputs = run().inputs;
  return std::equal(given.begin(), given.end(), inputs.begin(), inputs.end(),
                    [](const View* view, const View& prepared) {
                      return view->dtype == prepared.dtype && view->extents == prepared.extents;
                    });
}

PreparedCall* PreparedCalls::find(ModelId model, std::span<const View* const> inputs) {
  if (sets_.empty()) return nullptr;
  for (PreparedCall& each : sets_[place_of(model)].calls) {
    if (each.is_for(model, inputs)) return &each;
  }
  return nullptr;
}

namespace {
Ref<device::Buffer> without_owner(const Ref<device::Buffer>& buffer) { return {Ref<void>(), buffer.get()}; }
}  // namespace

const device::CommandList& PreparedCall::bound_to(std::span<const View* const> inputs,
                                                  std::span<const View> outputs,
                                                  const Ref<device::Buffer>& arena) {
  device::Run& bound = run();
  for (size_t i = 0; i < inputs.size(); ++i) {
    bound.inputs[i].buffer = without_owner(inputs[i]->buffer);
    bound.inputs[i].offset = inputs[i]->offset;
    bound.inputs[i].callers = inputs[i]->callers;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    bound.outputs[i].buffer = without_owner(outputs[i].buffer);
    bound.outputs[i].offset = outputs[i].offset;
    bound.outputs[i].callers = outputs[i].callers;
  }
  bound.arena = without_owner(arena);
  return list;
}

Status PreparedCall::run_on(Stream& stream, const device::CommandList& bound) {
  if (timed == kTimed) [[likely]]
    return stream.run_now(bound);
  const TimePoint begin = Clock::real().now();
  const Status status = stream.run_now(bound);
  shortest = std::min(shortest, Clock::real().now() - begin);
  ++timed;
  return status;
}

PreparedCall& PreparedCalls::prepare(ModelId model, Ref<const device::Program> program,
                                     std::span<const View* const> given) {
  if (sets_.empty()) sets_.resize(kSets);
  Set& set = sets_[place_of(model)];
  PreparedCall& fresh = set.calls[set.oldest];
  set.oldest = (set.oldest + 1) % kWays;
  fresh.model = ModelId::kForeign;
  std::vector<View> inputs, outputs;
  fresh.output_bytes.clear();
  fresh.timed = 0;
  fresh.shortest = Duration::max();
  for (const View* view : given) {
    inputs.push_back(View::contiguous(static_cast<std::byte*>(nullptr), view->dtype, view->extents));
  }
  for (const ir::ConcreteType& type : program->outputs()) {
    outputs.push_back(View::contiguous(static_cast<std::byte*>(nullptr), type.dtype, type.extents));
    fresh.output_bytes.push_back(outputs.back().bytes());
  }
  fresh.list.clear();
  fresh.list.run(std::move(program), nullptr, std::move(inputs), std::move(outputs));
  fresh.model = model;
  return fresh;
}

Lanes::Lanes(Ref<Roster> roster, Ref<Governor> governor)
    : roster_(std::move(roster)),
      governor_(std::move(governor)),
      lanes_(static_cast<size_t>(governor_->limit())) {}

Result<Lane*> Lanes::at(const Permit& permit, bool needs_stream) {
  Lane& lane = lanes_[static_cast<size_t>(permit.lane())];
  lane.index = permit.lane();
  if (needs_stream && (lane.stream == nullptr || lane.stream->failed())) [[unlikely]] {
    if (lane.stream != nullptr) roster_->forget(lane.stream);
    HEDDLE_TRY_ASSIGN(lane.stream, roster_->make(-1 - permit.lane()));
  }
  return &lane;
}

void Lanes::drop_programs() {
  std::vector<PreparedCalls> dropped;  // destroyed with no lane taken
  const auto visitor = visitor_.lock();
  governor_->with_free_lanes([&](int index) {
    Lane& lane = lanes_[static_cast<size_t>(index)];
    dropped.push_back(std::exchange(lane.prepared, {}));
  });
}

void Lanes::drop_idle_slots() {
  std::vector<std::unique_ptr<Slot>> dropped;  // freed with no lane taken
  const auto visitor = visitor_.lock();
  governor_->with_free_lanes(
      [&](int index) { dropped.push_back(std::move(lanes_[static_cast<size_t>(index)].slot)); });
}

}  // namespace heddle::runtime
