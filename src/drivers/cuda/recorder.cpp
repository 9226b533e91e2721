#include "drivers/cuda/recorder.h"

#include <variant>

#include "drivers/cuda/moves.h"
#include "drivers/cuda/waits.h"

namespace heddle::cuda {
namespace {

using Commands = std::span<const device::Command>;

// How many small copies `commands` begins with.
size_t small_copies(Commands commands) {
  size_t count = 0;
  for (; count < commands.size(); ++count) {
    const auto* const copy = std::get_if<device::Copy>(&commands[count]);
    if (copy == nullptr || !is_small_copy(*copy)) break;
  }
  return count;
}

}  // namespace

Recorder::Recorder(Ref<const OpenDevice> device, Graphs* graphs, StreamHandle stream,
                   Ref<CudaTimeline> timeline, uint64_t value)
    : device_(std::move(device)), graphs_(graphs), stream_(stream), timeline_(std::move(timeline)) {
  flight_.value = value;
}

// ---- what can be refused

Status Recorder::check(const device::CommandList& list) {
  for (const device::Command& command : list) {
    HEDDLE_TRY(std::visit([&](const auto& each) { return check_one(each); }, command));
  }
  if (flag_words_ > 0) {
    HEDDLE_TRY_ASSIGN(flight_.flags, timeline_->take_flags(flag_words_ * sizeof(uint32_t)));
  }
  return {};
}

Status Recorder::check_one(const device::Wait& wait) const {
  return wait.point.timeline == timeline_ ? Status() : until_enqueued(wait.point);
}

Status Recorder::check_one(const device::Run& run) {
  HEDDLE_TRY(run.program->check_operands(run));
  for (const device::View& view : run.inputs) HEDDLE_TRY(check_view(view));
  for (const device::View& view : run.outputs) HEDDLE_TRY(check_view(view));
  if (run.arena != nullptr && run.arena->memory().maker() != device_.get())
    return Status::invalid("the arena of a run is memory of another device");
  flag_words_ += static_cast<const CudaProgram&>(*run.program).lowered().flag_words;
  return {};
}

Status Recorder::check_one(const device::Copy& copy) const {
  if (copy.from.dtype != copy.to.dtype || !(copy.from.extents == copy.to.extents)) {
    return Status::invalid("a copy from ", copy.from.dtype, copy.from.extents, " to ", copy.to.dtype,
                           copy.to.extents, "; both have to be of one dtype and shape");
  }
  HEDDLE_TRY(check_view(copy.from));
  return check_view(copy.to);
}

Status Recorder::check_one(const device::Signal& signal) const {
  if (signal.event.handle != nullptr) return {};
  return Status::invalid("a command signals no event");
}

Status Recorder::check_view(const device::View& view) const {
  if (view.buffer == nullptr)
    return Status::invalid(
        "a view is in the caller's memory, which the GPU cannot name; it has to be staged");
  if (view.buffer->memory().maker() != device_.get())
    return Status::invalid("a view is in memory of another device");
  return {};
}

// ---- what CUDA does

// A run goes with the small copies on both sides of it.
Status Recorder::enqueue(const device::CommandList& list) {
  Commands rest(list.begin(), list.end());
  const auto take = [&](size_t count) {
    const Commands taken = rest.first(count);
    rest = rest.subspan(count);
    return taken;
  };
  while (!rest.empty()) {
    const Commands copies = take(small_copies(rest));
    const Commands next = take(rest.empty() ? 0 : 1);
    if (!next.empty() && std::holds_alternative<device::Run>(next[0])) {
      const Commands after = take(small_copies(rest));
      HEDDLE_TRY(enqueue_run(std::get<device::Run>(next[0]), copies, after, rest.empty()));
      continue;
    }
    for (const Commands& some : {copies, next}) {
      for (const device::Command& command : some)
        HEDDLE_TRY(std::visit([&](const auto& each) { return enqueue_one(each); }, command));
    }
  }
  return {};
}

Status Recorder::enqueue_waits(const device::CommandList& list) {
  Status first;
  for (const device::Command& command : list) {
    const auto* const wait = std::get_if<device::Wait>(&command);
    if (wait == nullptr) continue;
    static_cast<void>(check_one(*wait));  // a queue that broke may still work on what it was given
    if (Status held = enqueue_one(*wait); first.ok()) first = std::move(held);
  }
  return first;
}

Status Recorder::enqueue_one(const device::Wait& wait) {
  return wait.point.timeline == timeline_ ? Status() : hold(*device_, stream_, wait.point);
}

Status Recorder::enqueue_run(const device::Run& run, Commands before, Commands after, bool last) {
  const CudaProgram& program = static_cast<const CudaProgram&>(*run.program);
  const bool checks = program.lowered().flag_words > 0;
  const Address flags = checks ? flight_.flags.front()->address() + flags_used_ * sizeof(uint32_t) : 0;
  const bool may_tell = last && !after.empty() && can_tell(std::get<device::Copy>(after.back()));
  const Ticket end = may_tell ? Ticket{timeline_->word(), flight_.value} : Ticket();
  const GraphPlace place{run, flags, before, after, end};
  if (graphs_ == nullptr) {
    IntoStream into(*device_, stream_);
    HEDDLE_TRY(place.give(*device_, into));
  } else {
    HEDDLE_TRY_ASSIGN(Graphs::Launched launched, graphs_->launch(place, stream_));
    if (launched.keep != nullptr) flight_.keep(std::move(launched.keep));
    flight_.is_told = launched.tells;
  }
  const auto* const words =
      checks ? static_cast<const uint32_t*>(flight_.flags.front()->host()) + flags_used_ : nullptr;
  flags_used_ += program.lowered().flag_words;
  if (run.row_faults != nullptr) flight_.runs.push_back({&run, &program, words});
  return {};
}

Status Recorder::enqueue_one(const device::Copy& copy) {
  if (copy.from.is_contiguous() && copy.to.is_contiguous() && !is_small_copy(copy)) {
    return device_->check(device_->api.copy(copy.to.address(), copy.from.address(), copy.to.bytes(), stream_),
                          "cuMemcpyAsync");
  }
  IntoStream into(*device_, stream_);
  return give_copy(*device_, copy, into);
}

Status Recorder::enqueue_one(const device::Fill& fill) {
  IntoStream into(*device_, stream_);
  return give_fill(*device_, fill, into);
}

Status Recorder::enqueue_one(const device::Signal& signal) {
  return device_->check(device_->api.event_record(signal.event.handle, stream_), "cuEventRecord");
}

}  // namespace heddle::cuda
