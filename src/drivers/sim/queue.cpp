#include "drivers/sim/queue.h"

#include <algorithm>

#include "base/no_memory.h"
#include "drivers/sim/program.h"

namespace heddle::sim {

using device::View;

namespace {

// From the first byte that the view's elements have to the one behind the last. Empty: it has none.
Bytes range_of(const View& view) {
  if (view.extents.elements() == 0) return {};
  int64_t first = 0, last = 0;
  for (size_t axis = 0; axis < view.extents.rank(); ++axis) {
    const int64_t reach = view.strides[axis] * (view.extents[axis] - 1);
    (reach < 0 ? first : last) += reach;
  }
  const int64_t size = ir::size_of(view.dtype);
  return {view.offset + static_cast<uint64_t>(first * size),
          view.offset + static_cast<uint64_t>((last + 1) * size)};
}

// Until all that the list waits for on other timelines is over, well or not. A wait ends early where its
// thread is asked to end it, or finds no memory.
void await_on_host(const device::CommandList& list, const device::Timeline* own) {
  for (const device::Command& command : list) {
    const auto* const wait = std::get_if<device::Wait>(&command);
    if (wait == nullptr || wait->point.timeline == nullptr || wait->point.timeline.get() == own) continue;
    device::Timeline& other = *wait->point.timeline;
    while (!wait->point.done() && !other.failed() && other.is_ours())
      static_cast<void>(
          or_exhausted("a wait", [&] { return other.wait(wait->point.value, Deadline::never()); }));
  }
}

}  // namespace

SimQueue::SimQueue(const void* maker, Ref<EventLoop> loop, const SimOptions& options)
    : Queue(std::make_shared<device::Timeline>()),
      maker_(maker),
      loop_(std::move(loop)),
      options_(options),
      state_(loop_->add(timeline())) {}

SimQueue::~SimQueue() { loop_->remove(state_); }

Status SimQueue::submit(const device::CommandList& list, uint64_t value, NoLocksHeld) {
  if (inside_.add_acq_rel(1) != 0)
    loop_->report(Violation::kTwoThreads, text("queue ", state_->number, ", value ", value));
  if (options_.inside_submit) options_.inside_submit();
  Submissions one;
  Status lacks = or_exhausted("a submission", [&] {
    one.push_back(std::make_unique<Submission>());
    return Status();
  });
  if (!lacks.ok()) one.clear();
  Status status = lacks.ok() ? Status() : loop_->take_spare(*state_, one);
  const bool has_place = status.ok();
  if (has_place) status = submit_as(list, value, std::move(lacks), one);
  // Not taken: the queue has failed. Its value counts as over by now, or is about to, and the caller, who is
  // in here, keeps what the list names.
  if (!has_place || !one.empty()) await_on_host(list, timeline().get());
  inside_.sub_acq_rel(1);
  return status;
}

Status SimQueue::submit_as(const device::CommandList& list, uint64_t value, Status lacks, Submissions& one) {
  Submission& submission = *one.front();
  submission.value = value;
  submission.list = &list;
  submission.commands = list.size();
  const bool is_planned = loop_->faults().take(Fault::kSubmit);
  Status refused = translate(list, std::move(lacks), submission);
  if (is_planned) {
    refused = or_exhausted("a refusal",
                           [] { return Status::unavailable("a submission was refused, as was asked for"); });
  }
  if (!refused.ok()) {
    refuse(list, refused);
    submission.keep_nothing_but_waits();
  }
  static_cast<void>(loop_->enter_call());  // hand_in() says so, for the queue
  const auto hand_in = [&] { return loop_->hand_in(*state_, one); };
  Status status = or_exhausted("a submission", hand_in);
  if (!one.empty() && status.code() == Code::exhausted && refused.ok()) {
    refused = std::move(status);
    refuse(list, refused);
    submission.keep_nothing_but_waits();
    status = hand_in();
  }
  return status.ok() ? refused : status;
}

Status SimQueue::translate(const device::CommandList& list, Status lacks, Submission& submission) {
  Status first = std::move(lacks);
  for (const device::Command& command : list) {
    const auto* const wait = std::get_if<device::Wait>(&command);
    if (!first.ok() && wait == nullptr) continue;
    Status status = or_exhausted("a submission", [&] {
      return std::visit([&](const auto& each) { return add(each, submission); }, command);
    });
    // Not translated, so that nobody else would wait for it.
    if (wait != nullptr && status.code() == Code::exhausted)
      static_cast<void>(wait->point.timeline->wait(wait->point.value, Deadline::never()));
    if (first.ok()) first = std::move(status);
  }
  return first;
}

Status SimQueue::add(const device::Wait& wait, Submission& submission) {
  if (wait.point.timeline == nullptr) return {};
  HEDDLE_TRY(loop_->admit(*state_, wait.point));
  if (wait.point.done()) return {};
  submission.awaited.push_back(wait.point);
  submission.steps.push_back({wait});
  return {};
}

Status SimQueue::add(const device::Run& run, Submission& submission) {
  const auto* program = dynamic_cast<const SimProgram*>(run.program.get());
  if (program == nullptr) return Status::invalid("the program is another device's");
  HEDDLE_TRY(program->check_operands(run));
  device::Run inner = run;
  inner.program = program->inner();
  Step step{device::Run{}};
  for (View& view : inner.inputs) {
    HEDDLE_TRY_ASSIGN(view, translate(view, false, step, submission));
  }
  for (View& view : inner.outputs) {
    HEDDLE_TRY_ASSIGN(view, translate(view, true, step, submission));
  }
  if (run.arena != nullptr && program->arena_bytes() > 0) {
    HEDDLE_TRY_ASSIGN(Ref<Block> block, name_block(run.arena, submission));
    inner.arena = block->bytes;
    step.touches.push_back({std::move(block), {0, program->arena_bytes()}, true, true});
  } else {
    inner.arena = nullptr;
  }
  for (const std::vector<View>* views : {&run.inputs, &run.outputs}) {
    for (const View& view : *views) {
      if (view.offset != 0 && !options_.offsets)
        return against_binding(text("a run's operand begins at byte ", view.offset, " of its buffer"));
    }
  }
  step.command = std::move(inner);
  submission.steps.push_back(std::move(step));
  return {};
}

Status SimQueue::add(const device::Copy& copy, Submission& submission) {
  if (copy.from.dtype != copy.to.dtype || copy.from.extents != copy.to.extents) {
    return Status::invalid("a copy from ", copy.from.dtype, copy.from.extents, " to ", copy.to.dtype,
                           copy.to.extents, "; both have to be of one dtype and shape");
  }
  Step step{device::Wait{}};
  HEDDLE_TRY_ASSIGN(View from, translate(copy.from, false, step, submission));
  HEDDLE_TRY_ASSIGN(View to, translate(copy.to, true, step, submission));
  step.command = device::Copy{std::move(from), std::move(to)};
  submission.steps.push_back(std::move(step));
  return {};
}

Status SimQueue::add(const device::Fill& fill, Submission& submission) {
  Step step{device::Wait{}};
  HEDDLE_TRY_ASSIGN(View to, translate(fill.to, true, step, submission));
  step.command = device::Fill{std::move(to), fill.value};
  submission.steps.push_back(std::move(step));
  return {};
}

Status SimQueue::add(const device::Signal& signal, Submission& submission) {
  if (signal.event.handle == nullptr) return Status::invalid("a command signals no event");
  submission.steps.push_back({signal});
  return {};
}

Result<View> SimQueue::translate(const View& view, bool writes, Step& step, Submission& submission) {
  if (view.buffer == nullptr) return against_binding("a command names memory of the caller");
  HEDDLE_TRY_ASSIGN(Ref<Block> block, name_block(view.buffer, submission));
  const Bytes range = range_of(view);
  if (range.end < range.begin || range.end > block->bytes->bytes())
    return against_binding(text("bytes [", range.begin, ", ", range.end, ") of ", block->bytes->bytes()));
  View inner = view;
  inner.buffer = block->bytes;
  if (range.begin < range.end) step.touches.push_back({std::move(block), range, writes});
  return inner;
}

Result<Ref<Block>> SimQueue::name_block(const Ref<device::Buffer>& buffer, Submission& submission) const {
  const auto* memory = dynamic_cast<const SimMemory*>(&buffer->memory());
  if (memory == nullptr || memory->maker() != maker_)
    return Status::invalid("a command names memory of another device");
  submission.named.push_back({buffer, memory->block()});
  return memory->block();
}

Status SimQueue::against_binding(std::string detail) {
  Status refused = Status::invalid(detail);
  loop_->report(Violation::kBinding, std::move(detail));
  return refused;
}

}  // namespace heddle::sim
