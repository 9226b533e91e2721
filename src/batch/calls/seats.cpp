// seats.cpp: taking a seat in a batch, waiting in it, leaving it.
#include <algorithm>
#include <utility>

#include "base/stop_callback.h"
#include "base/trace.h"
#include "batch/calls/coalescer.h"

namespace heddle::batch {

namespace {

constexpr int64_t kStagingMax = int64_t{4} << 20;  // bytes that a batch may reserve for rows yet to come

}  // namespace

// ---- taking a seat

Result<Coalescer::Here> Coalescer::arrive(const Caller& caller, bool alone, std::unique_ptr<Absent> absent) {
  const CallShape& shape = caller.shape;
  for (Batch fresh;;) {
    bool apart = alone;
    {
      auto state = state_.lock();
      if (state->closed) return model_->closed_status();
      shut_door(*state);
      if (state->returning > 0) expire_returning(*state, Clock::real().now());
      const bool joined = !alone && joins(*state, shape);
      const bool idle = lanes_busy(*state) < (joined ? lanes(*state) : options_.lanes_alone) &&
                        state->forming.empty() && (!joined || state->returning == 0);
      apart = apart || idle || shape.rows >= options_.max_rows || shape.is_empty();
      if (apart && absent == nullptr) {
        come_in(*state, shape);
        ++state->busy;
        return Here{nullptr, 0, lanes_busy(*state) >= options_.lanes};
      }
      if (!idle && state->stats.parked >= options_.max_parked) {
        ++state->stats.refused;
        return Status::exhausted("model '", model_->name(), "': ", state->stats.parked,
                                 " callers wait for a batch already, and no more may");
      }
      Batch batch = apart ? nullptr : joinable(*state, caller);
      if (batch == nullptr && fresh != nullptr) {
        batch = open(*state, std::move(fresh), shape);
        state->forming.push_back(batch);
      }
      if (batch != nullptr) {
        come_in(*state, shape);
        ++state->stats.parked;
        return sit_down(batch, caller, std::move(absent));
      }
    }
    HEDDLE_TRY_ASSIGN(fresh, make_batch(caller, apart));
  }
}

Coalescer::Batch Coalescer::open(State& state, Batch batch, const CallShape& shape) {
  batch->id = state.next_id++;
  batch->row_extents = shape.row_extents;
  batch->longest.resize(shape.lengths.size());
  batch->arrived = Clock::real().now();
  batch->awaits = !batch->alone && state.returning > 0;
  return batch;
}

Coalescer::Batch Coalescer::joinable(State& state, const Caller& caller) const {
  const CallShape& shape = caller.shape;
  Running with_me = running(state);
  with_me.active += static_cast<int>(shape.rows - std::min(shape.rows, state.returning_rows));
  for (const Batch& batch : state.forming) {
    const bool fits = !batch->alone && batch->rows + shape.rows <= batch->capacity;
    if (!fits || &batch->layout != &caller.layout || !same_rows(batch->row_extents, shape.row_extents))
      continue;
    if (batch->rows + shape.rows <= rows_per_batch(with_me, limits(state, shape.row_extents))) return batch;
  }
  return nullptr;
}

Coalescer::Here Coalescer::sit_down(const Batch& batch, const Caller& caller,
                                    std::unique_ptr<Absent> absent) {
  const CallShape& shape = caller.shape;
  const size_t seat = batch->seats++;
  if (absent != nullptr) ++batch->absents;
  ++batch->living;
  ++batch->copying;
  Member& member = batch->members[seat];
  member.first = batch->rows;
  member.rows = shape.rows;
  member.lengths = shape.lengths;
  member.deadline = caller.deadline;
  member.absent = std::move(absent);
  batch->rows += shape.rows;
  for (size_t k = 0; k < shape.lengths.size(); ++k)
    batch->longest[k] = std::max(batch->longest[k], shape.lengths[k]);
  return {batch, seat, true};
}

Result<Coalescer::Batch> Coalescer::make_batch(const Caller& caller, bool alone) const {
  const CallShape& shape = caller.shape;
  int64_t row_bytes = 1;
  for (size_t i = 0; i < shape.row_extents.size(); ++i) row_bytes += caller.layout.row_bytes(shape, i);
  int64_t rows = 0;
  {
    auto state = state_.lock();
    if (alone || !joins(*state, shape)) {
      return std::make_shared<FormingBatch>(caller.layout, shape.rows, nullptr);
    }
    const Limits limit = limits(*state, shape.row_extents);
    rows = limit.max_rows * row_bytes > kStagingMax ? rows_per_batch(running(*state), limit) : limit.max_rows;
    rows = std::max(shape.rows, rows);
  }
  return allocate_batch(caller, rows);
}

Result<Coalescer::Batch> Coalescer::allocate_batch(const Caller& caller, int64_t rows) const {
  const Ref<runtime::Slot> slot = runtime_->slots().take();
  const int64_t room = worth_running(runtime_->device().traits().row_sizes, rows);
  for (size_t i = 0; i < caller.shape.row_extents.size(); ++i) {
    const int64_t bytes = room * caller.layout.row_bytes(caller.shape, i);
    HEDDLE_TRY(slot->reserve_input(i, static_cast<uint64_t>(bytes)));
  }
  return std::make_shared<FormingBatch>(caller.layout, rows, slot);
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

Result<Coalescer::Views> Coalescer::stay(const Here& me, const Caller& caller,
                                         const std::stop_token& cancel) {
  const Deadline deadline = caller.deadline;
  const trace::Span span("batch", "wait", me.batch->id);
  const StopCallback on_cancel(cancel, [&] { me.member().seat.tell(Seat::Note::cancelled); });
  Next next = ask(me, true);
  while (!next.lead) {
    const Deadline until = Deadline::at(std::min(deadline.when(), next.ask_at));
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
        next = ask(me, false);
    }
  }
  return me.batch->alone ? run_alone(caller, me) : lead(me, deadline);
}

Coalescer::Next Coalescer::ask(const Here& me, bool seated) {
  Next next;
  {
    auto state = state_.lock();
    if (seated) --me.batch->copying;
    if (state->watcher.batch == me.batch && state->watcher.seat == me.seat) state->end_watch();
    advance(*state, me.member().gone ? nullptr : &me, next);
  }
  wake(next);
  return next;
}

Result<Coalescer::Views> Coalescer::leave(const Here& me, Status why) {
  return try_leave(me) ? Result<Views>(std::move(why)) : collect(me);
}

bool Coalescer::try_leave(const Here& me) {
  Next next;
  {
    const Batch& batch = me.batch;
    Member& member = me.member();
    auto state = state_.lock();
    if (batch->done) return false;  // just in time
    if (member.absent != nullptr && (member.gone || (batch->alone && batch->taken))) return false;
    count_out(*state, *batch, member);
    static_cast<void>(member.met.exchange_acq_rel(true));  // the next to tell the result skips it
    if (state->watcher.batch == batch && state->watcher.seat == me.seat) state->end_watch();
    const bool to_lead = batch->taken && batch->leader == me.seat;
    if (batch->living == 0 && !batch->taken) std::erase(state->forming, batch);
    if (batch->living == 0 && to_lead) --state->busy;  // no member wants it any more
    if (batch->living != 0 && to_lead) appoint(batch, next);
    advance(*state, nullptr, next);
  }
  wake(next);
  return true;
}

void Coalescer::count_out(State& state, FormingBatch& batch, Member& member) {
  member.gone = true;
  --batch.living;
  --state.stats.parked;
  ++state.stats.left;
  --state.inside;
  state.inside_rows -= member.rows;
}

}  // namespace heddle::batch
