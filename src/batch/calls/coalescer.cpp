#include "batch/calls/coalescer.h"

#include <cassert>
#include <utility>

#include "base/fork.h"

namespace heddle::batch {

using device::View;

Coalescer::Coalescer(Ref<runtime::Runtime> runtime, Ref<runtime::Model> model, RowLayout equal,
                     const CoalescerOptions& options, std::unique_ptr<PaddingCheck> padding)
    : runtime_(std::move(runtime)),
      model_(std::move(model)),
      equal_(std::move(equal)),
      padding_(std::move(padding)),
      options_(options),
      born_(fork_generation()),
      // Those that run, as many whose members take their rows, and as many that came back meanwhile: with
      // fewer, memory is made anew where others are dropped.
      stock_(std::make_shared<BatchStock>(3 * static_cast<size_t>(options.lanes) + kShown,
                                          options.look_on != 0)),
      door_(runtime_->governor().limit(), options.max_rows),
      // As many as may run at once, and one that keeps the time and answers meanwhile.
      leaders_(options.lanes_alone + 1 + options.more_leaders, options.outlives, options.look_on) {
  assert(options.lanes_alone >= options.lanes);
  auto state = state_.lock();
  if (options.chooses_lanes) state->choice.emplace(options.lanes);
  state->stats.rows.resize(static_cast<size_t>(options.max_rows) + 1);
  hint(crowd_, options.look_on == 0 ? 0 : 1);
  open_door(*state);
}

Coalescer::~Coalescer() = default;

void Coalescer::close() {
  if (fork_generation() != born_) return;
  refuse();
  leaders_.stop();
}

bool Coalescer::close_until(Deadline deadline) {
  if (fork_generation() != born_) return false;
  refuse();
  return leaders_.await_settled(deadline);
}

void Coalescer::refuse() {
  std::deque<Batch> refused;
  std::vector<Batch> written;
  Batch spare;  // destroyed without the lock
  {
    auto state = state_.lock();
    for (const Batch& each : state->on_show) take_down(*state, each.get());
    shut_door(*state);
    state->closed = true;
    seam::did("calls.close");
    state->end_watch();
    refused = state->forming.take_all();
    spare = take_spare(*state);
    for (const Batch& batch : refused) {
      batch->taken = batch->done = batch->refused = true;
      batch->failure = model_->closed_status();
      batch->show_answer();
      state->stats.parked -= batch->living;
      state->inside -= static_cast<int>(batch->living);
      state->inside_rows -= batch->living_rows;
      if (!batch->is_written_when_taken()) continue;
      clear_desk(*state, *batch);
      written.push_back(batch);
    }
  }
  stock_->drop();
  for (const Batch& batch : refused) batch->tell_next();
  for (const Batch& batch : written) answer_refused(batch);
}

Status Coalescer::check(std::span<const View> inputs) const {
  HEDDLE_TRY(runtime_->usable());
  return model_->check(inputs);
}

const RowLayout& Coalescer::layout() const {
  return padding_ != nullptr && padding_->is_harmless() ? padding_->layout() : equal_;
}

Result<CallShape> Coalescer::shape_of(std::span<const View> inputs) const {
  HEDDLE_TRY(check(inputs));
  return layout().shape_of(inputs);
}

Result<Coalescer::Views> Coalescer::call(std::span<const View> inputs, Deadline deadline,
                                         const std::stop_token& cancel, const Keep& keep) {
  std::vector<const View*> views;
  for (const View& view : inputs) views.push_back(&view);
  if (std::optional<Result<Views>> ran = try_call(views)) return *std::move(ran);
  return join(inputs, deadline, cancel, keep);
}

Result<Coalescer::Views> Coalescer::join(std::span<const View> inputs, Deadline deadline,
                                         const std::stop_token& cancel, const Keep& keep) {
  Pace::begin_call();
  HEDDLE_TRY(check(inputs));
  HEDDLE_TRY(runtime_->governor().refuse_holder());
  if (padding_ != nullptr && padding_->is_unknown() && anyone_waits() && padding_->claim()) {
    padding_->check(inputs);
  }
  const RowLayout& lies = layout();
  HEDDLE_TRY_ASSIGN(const CallShape shape, lies.shape_of(inputs));
  const Caller caller{inputs, lies, shape, deadline, &keep};
  Here me;
  Next next;
  if (std::optional<Claimed> claimed = claim(caller, Stays::yes)) {
    next = write_claimed(*claimed, caller);
    me = std::move(claimed->me);
  } else {
    HEDDLE_TRY_ASSIGN(Arrival at, arrive(caller, false, nullptr));
    if (at.me.batch == nullptr) return run_alone(caller, at.me);
    me = std::move(at.me);
    const Next after = written(me, at.asks);
    next.lead = after.lead;
    next.ask_at = std::min(at.next.ask_at, after.ask_at);
  }
  Result<Views> result = stay(me, caller, cancel, std::move(next));
  // In this order: who left the batch, late or cancelled, must not look at what its leader may write now.
  if (result.status().code() != Code::invalid || !me.batch->each_alone) return result;
  // Padding them to one length went beyond what the model takes, such as its table of positions.
  return runtime_->run(*model_, caller.own_call());
}

Status Coalescer::submit(Submission call) {
  const std::span<const View> inputs = call.absent->inputs();
  HEDDLE_TRY(check(inputs));
  const RowLayout& lies = layout();
  CallShape shape;
  shape.rows = 1;
  const bool alone = call.alone || options_.alone;
  if (!alone) {
    HEDDLE_TRY_ASSIGN(shape, lies.shape_of(inputs));
  }
  if (const Status promised = leaders_.owe(); !promised.ok()) {
    return promised.code() == Code::unavailable ? model_->closed_status() : promised;
  }
  // There until it is answered, which is not before the rows of all seats of its batch are written.
  const Caller caller{inputs, lies, shape, call.deadline};
  if (std::optional<Claimed> claimed = alone ? std::nullopt : claim(caller, Stays::no)) {
    const bool asks = leave_empty(claimed->me, std::move(call.absent));
    claimed->asks = claimed->asks || asks;
    if (claimed->asks || call.cancel.stop_possible() || !call.deadline.is_never())
      claimed->me.batch = desks_[claimed->desk];
    watch(claimed->me, call.cancel);
    follow(claimed->me, write_claimed(*claimed, caller));
    return {};
  }
  const Result<Arrival> seated = arrive(caller, alone, std::move(call.absent));
  if (!seated.ok()) {
    leaders_.settle();
    return seated.status();
  }
  watch(seated->me, call.cancel);
  follow(seated->me, seated->next);
  follow(seated->me, written(seated->me, seated->asks));
  return {};
}

Result<Coalescer::Batch> Coalescer::run_together(std::span<const Views> calls,
                                                 const std::function<void()>& formed) {
  if (padding_ != nullptr && calls.size() > 1 && padding_->is_unknown() && padding_->claim()) {
    padding_->check(calls[0]);
  }
  const RowLayout& lies = layout();
  std::vector<CallShape> shapes;
  int64_t rows = 0;
  for (const Views& inputs : calls) {
    HEDDLE_TRY(check(inputs));
    HEDDLE_TRY_ASSIGN(CallShape shape, lies.shape_of(inputs));
    if (!shapes.empty() && !same_rows(shape.row_extents, shapes.front().row_extents)) {
      return Status::internal("model '", model_->name(), "': requests of unequal rows were joined");
    }
    rows += shape.rows;
    shapes.push_back(std::move(shape));
  }
  const auto caller = [&](size_t i) { return Caller{calls[i], lies, shapes[i], Deadline::never()}; };
  HEDDLE_TRY_ASSIGN(const Batch batch, allocate_batch(caller(0), rows));
  std::vector<Here> seats;
  {
    auto state = state_.lock();
    if (state->closed) return model_->closed_status();
    count_in(*state);
    shut_door(*state);
    open(*state, batch, shapes[0].row_extents);
    for (size_t i = 0; i < calls.size(); ++i) seats.push_back(sit_down(*state, batch, caller(i), nullptr));
    ++state->busy;
    batch->taken = true;
  }
  for (size_t i = 0; i < calls.size(); ++i) write_rows(seats[i], caller(i));
  formed();
  static_cast<void>(run_and_publish(*batch, Deadline::never(), FormingBatch::kNoSeat, false));
  if (!batch->failure.ok() && !batch->each_alone) return batch->failure;
  return batch;
}

Result<Coalescer::Views> Coalescer::answer(const Batch& batch, std::span<const View> inputs, size_t seat) {
  const Member& member = batch->members[seat];
  Result<Views> result = rows_of(*batch, member);
  if (!batch->each_alone || result.status().code() != Code::invalid) return result;
  runtime::Call call;
  call.inputs = inputs;
  call.deadline = member.deadline;
  if (member.absent != nullptr) call.keep = member.absent->keep();
  return runtime_->run(*model_, call);
}

std::string Coalescer::describe() const {
  return padding_ == nullptr ? "rows of equal shapes only" : padding_->describe();
}

}  // namespace heddle::batch
