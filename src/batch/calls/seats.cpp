// seats.cpp: taking a seat in a batch, waiting in it, leaving it.
#include <algorithm>
#include <utility>

#include "base/looking.h"
#include "base/stop_callback.h"
#include "base/trace.h"
#include "batch/calls/coalescer.h"

namespace heddle::batch {

namespace {

constexpr int64_t kStagingMax = int64_t{4} << 20;  // bytes that a batch may reserve for rows yet to come

}  // namespace

// ---- taking a seat

Result<Coalescer::Arrival> Coalescer::arrive(const Caller& caller, bool alone,
                                             std::unique_ptr<Absent> absent) {
  const CallShape& shape = caller.shape;
  for (Batch fresh;;) {
    bool apart = alone, opened = false;
    Arrival at;
    {
      auto state = state_.lock();
      count_in(*state);
      if (state->closed) return model_->closed_status();
      shut_door(*state);
      if (state->returning > 0) expire_returning(*state, Clock::real().now());
      if (state->choice && Pace::of_this_thread() != nullptr) state->choice->suggest_one();
      const bool joined = !alone && joins(*state, shape.rows, shape.row_extents);
      const bool at_once = idle(*state, joined);
      apart = apart || at_once || shape.rows >= options_.max_rows || shape.is_empty();
      if (apart && absent == nullptr) {
        come_in(*state, 1, shape.rows);
        ++state->busy;
        seam::did("calls.run_at_once");
        at.me.measured = lanes_busy(*state) >= options_.lanes;
        return at;
      }
      guard_bound(*state);
      if (!at_once && state->stats.parked >= options_.max_parked) {
        ++state->stats.refused;
        return Status::exhausted("model '", model_->name(), "': ", state->stats.parked,
                                 " callers wait for a batch already, and no more may");
      }
      apart = apart || !joined;  // and waits for a lane in a batch of its own
      if (!apart && absent == nullptr) at.me = claim_shown(*state, caller);
      if (at.me.batch != nullptr) {
        opened = at.me.seat == 0;
      } else {
        Batch batch = apart ? nullptr : joinable(*state, caller);
        if (batch == nullptr && fresh == nullptr && !apart) fresh = in_stock(*state, caller);
        if (batch == nullptr && fresh != nullptr) {
          batch = open(*state, std::move(fresh), shape.row_extents);
          state->forming.push(batch);
          opened = !batch->alone;
        }
        if (batch != nullptr) at.me = sit_down(*state, batch, caller, std::move(absent));
      }
      if (at.me.batch != nullptr) advance(*state, &at.me, at.next);
      at.asks = opened && !has_spare(*state, *at.me.batch);
    }
    if (at.asks) stock_like(caller, *at.me.batch);
    if (at.me.batch != nullptr) return seated(std::move(at), caller);
    HEDDLE_TRY_ASSIGN(fresh, make_batch(caller, apart));
  }
}

// Nobody is in the way of a call that comes now: it runs at once, alone.
bool Coalescer::idle(State& state, bool joined) const {
  return lanes_busy(state) < (joined ? lanes(state) : options_.lanes_alone) && state.forming.empty() &&
         (!joined || state.returning == 0);
}

Coalescer::Batch Coalescer::open(State& state, Batch batch, std::span<const ir::Extents> row_extents) {
  batch->id = state.next_id++;
  batch->row_extents.assign(row_extents.begin(), row_extents.end());
  return batch;
}

// The batch on show is taken down first: its rows must not grow meanwhile.
Coalescer::Batch Coalescer::joinable(State& state, const Caller& caller) {
  for (size_t i = 0; i < state.forming.joinable().size(); ++i) {
    if (!may_join(state, *state.forming.joinable()[i], caller)) continue;
    const Batch batch = state.forming.joinable()[i];
    take_down(state, batch.get());
    if (may_join(state, *batch, caller)) return batch;
  }
  if (state.spare == nullptr || !may_join(state, *state.spare, caller)) return nullptr;
  take_down(state, state.spare.get());
  if (state.spare == nullptr) return joinable(state, caller);  // others have opened it meanwhile
  state.forming.push(std::exchange(state.spare, nullptr));
  return state.forming.back();
}

bool Coalescer::lies_alike(const FormingBatch& batch, const Caller& caller) {
  return &batch.layout == &caller.layout && same_rows(batch.row_extents, caller.shape.row_extents);
}

bool Coalescer::may_join(State& state, const FormingBatch& batch, const Caller& caller) const {
  const CallShape& shape = caller.shape;
  const int64_t rows = batch.rows + shape.rows;
  if (batch.alone || rows > batch.capacity || !lies_alike(batch, caller)) return false;
  Running with_me = running(state);
  with_me.active += static_cast<int>(shape.rows - std::min(shape.rows, state.returning_rows));
  return batch.rows == 0 || rows <= rows_per_batch(with_me, limits(state, shape.row_extents));
}

Coalescer::Here Coalescer::sit_down(State& state, const Batch& batch, const Caller& caller,
                                    std::unique_ptr<Absent> absent) const {
  const Here me{batch, batch->seats, true};
  const int64_t first = batch->rows;
  bring_in(state, *batch, {batch->seats + 1, first + caller.shape.rows});
  seam::did("calls.sit_down", static_cast<int64_t>(me.seat));
  fill(me, first, caller);
  if (absent != nullptr) leave_empty(me, std::move(absent));
  return me;
}

// A seat without a thread. True: it was told to ask, as one with a thread.
bool Coalescer::leave_empty(const Here& me, std::unique_ptr<Absent> absent) {
  Member& member = me.member();
  member.absent = std::move(absent);
  member.leave_empty();
  if (member.seat.take(Seat::Note::done)) me.batch->tell_next();  // refused; others wait to be told
  return member.seat.take(Seat::Note::ask);
}

void Coalescer::fill(const Here& me, int64_t first, const Caller& caller) const {
  Member& member = me.member();
  member.first = first;
  member.rows = caller.shape.rows;
  member.lengths = caller.shape.lengths;
  member.deadline = caller.deadline;
  member.pace = Pace::of_this_thread();
  if (member.pace != nullptr) me.batch->pace.store_relaxed(member.pace);
  if (Looker::of_this_thread().led == this) me.batch->led_before.store_relaxed(me.seat + 1);
}

Result<Coalescer::Batch> Coalescer::make_batch(const Caller& caller, bool alone) const {
  const CallShape& shape = caller.shape;
  if (alone) return std::make_shared<FormingBatch>(caller.layout, shape.rows, nullptr);
  int64_t row_bytes = 1;
  for (size_t i = 0; i < shape.row_extents.size(); ++i) row_bytes += caller.layout.row_bytes(shape, i);
  int64_t rows = 0;
  {
    auto state = state_.lock();
    count_in(*state);
    const Limits limit = limits(*state, shape.row_extents);
    rows = limit.max_rows * row_bytes > kStagingMax ? rows_per_batch(running(*state), limit) : limit.max_rows;
    rows = std::max(shape.rows, rows);
  }
  return allocate_batch(caller, rows);
}

Result<Coalescer::Batch> Coalescer::allocate_batch(const Caller& caller, int64_t rows) const {
  const Ref<runtime::Slot> slot = runtime_->slots().take();
  const int64_t room = caller.layout.rows_to_run(runtime_->device().traits().row_sizes, rows);
  for (size_t i = 0; i < caller.shape.row_extents.size(); ++i) {
    const int64_t bytes = room * caller.layout.row_bytes(caller.shape, i);
    HEDDLE_TRY(slot->reserve_input(i, static_cast<uint64_t>(bytes)));
  }
  return stock_->lend(std::make_unique<FormingBatch>(caller.layout, rows, slot));
}

Coalescer::Arrival Coalescer::seated(Arrival at, const Caller& caller) {
  wake(at.next);
  write_rows(at.me, caller);
  return at;
}

void Coalescer::write_rows(const Here& me, const Caller& caller) {
  for (size_t i = 0; !me.batch->alone && i < caller.inputs.size(); ++i) {
    caller.layout.write_rows(i, caller.shape, caller.inputs[i], me.batch->slot->input(i).staging->host(),
                             me.member().first);
  }
}

// ---- waiting

Status Coalescer::cancelled() const {
  return Status::cancelled("the call of model '", model_->name(), "' was cancelled");
}

Status Coalescer::late() const {
  return Status::deadline("model '", model_->name(), "': the call was still waiting, or ",
                          "running in a batch, at the deadline");
}

Result<Coalescer::Views> Coalescer::stay(const Here& me, const Caller& caller, const std::stop_token& cancel,
                                         Next next) {
  const Deadline deadline = caller.deadline;
  const trace::Span span("batch", "wait", me.batch->id);
  const StopCallback on_cancel(cancel, [&] { me.member().seat.tell(Seat::Note::cancelled); });
  for (bool has_end = false;;) {
    if (next.lead || has_end) {
      if (me.batch->alone) return run_alone(caller, me);
      if (auto led = lead(me, deadline, has_end)) return *std::move(led);
      next = {};
    }
    const Deadline until = Deadline::at(std::min(deadline.when(), next.ask_at));
    const Seen seen = crowd_.load_relaxed() == 0 ? Seen::nothing : look(me, until);
    if (seen == Seen::answer) return collect(me);
    has_end = seen == Seen::end;
    if (has_end) continue;
    switch (me.member().seat.wait(until)) {
      case Seat::Note::lead:
        next.lead = true;
        break;
      case Seat::Note::done:
        return collect(me);
      case Seat::Note::cancelled:
        return leave(me, cancelled());
      case Seat::Note::none:
        if (deadline.expired() || !until.expired()) return leave(me, late());  // the second: interrupted
        [[fallthrough]];
      case Seat::Note::ask:
        next = ask(me);
    }
  }
}

// The answer is there whether somebody has told this member of it or not. A paced member waits to be told,
// unless it is the one that publishes.
Coalescer::Seen Coalescer::look(const Here& me, Deadline deadline) const {
  stock_->tidy();
  const Member& member = me.member();
  Seen seen = Seen::nothing;
  const auto is_over = [&] {
    if (member.pace == nullptr && me.batch->is_answered()) {
      seen = Seen::answer;
    } else if (member.seat.is_told()) {
      seen = Seen::note;
    } else if (me.batch->end.claim_if_over()) {
      seen = Seen::end;
    }
    return seen != Seen::nothing;
  };
  static_cast<void>(look_for(is_over, crowd_.load_relaxed(), kForAnswers, deadline));
  return seen;
}

Coalescer::Next Coalescer::ask(const Here& me) {
  Next next;
  {
    auto state = state_.lock();
    count_in(*state);
    seam::did("calls.ask");
    state->end_watch_of(me);
    advance(*state, me.member().gone ? nullptr : &me, next);
  }
  wake(next);
  return next;
}

Result<Coalescer::Views> Coalescer::leave(const Here& me, Status why) {
  return try_leave(me) ? Result<Views>(std::move(why)) : collect(me);
}

bool Coalescer::try_leave(const Here& me) {
  const Batch& batch = me.batch;
  Next next;
  bool is_abandoned = false;
  {
    Member& member = me.member();
    auto state = state_.lock();
    count_in(*state);
    seam::did("calls.leave", !batch->done);
    if (batch->done) return false;  // just in time
    if (member.is_absent.load_relaxed() && (member.gone || (batch->alone && batch->taken))) return false;
    count_out(*state, *batch, member);
    static_cast<void>(member.met.exchange_acq_rel(true));  // the next to tell the result skips it
    state->end_watch_of(me);
    const bool to_lead = batch->taken && batch->leader == me.seat;
    if (batch->living == 0 && !batch->taken) drop_empty(*state, batch);
    is_abandoned = batch->living == 0 && to_lead;
    if (is_abandoned) --state->busy;
    if (batch->living != 0 && to_lead) appoint(batch, batch->best_leader(), next);
    advance(*state, nullptr, next);
  }
  wake(next);
  if (is_abandoned) abandon(*batch);
  return true;
}

// No member wants its run any more, and none has claimed the end. Whoever waited where that is shown waited
// for the timeline alone: the reaper has to learn of a run that is not over, or its lane stays taken.
void Coalescer::abandon(FormingBatch& batch) {
  if (!batch.in_flight.has_value() || batch.in_flight->stream == nullptr) return;
  const runtime::InFlight& run = *batch.in_flight;
  static_cast<void>(run.stream->await(run.value, Deadline::at(TimePoint::min())));
}

void Coalescer::count_out(State& state, FormingBatch& batch, Member& member) {
  member.gone = true;
  --batch.living;
  --state.stats.parked;
  ++state.stats.left;
  --state.inside;
  state.inside_rows -= member.rows;
  batch.living_rows -= member.rows;
}

// Unless callers have joined it meanwhile.
void Coalescer::drop_empty(State& state, const Batch& batch) {
  take_down(state, batch.get());
  if (batch->living != 0) return;
  clear_desk(state, *batch);
  state.forming.remove(batch);
}

}  // namespace heddle::batch
