#include "batch/calls/coalescer.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/trace.h"

namespace heddle::batch {

using device::View;

namespace {

constexpr size_t kGroupsKept = 32;
constexpr int64_t kStagingMax = int64_t{4} << 20;  // bytes that a batch may reserve for rows yet to come
constexpr Duration kReturnMin = std::chrono::microseconds(50);
constexpr int kReturnShare = 2;  // callers are waited for at most half as long as the batch would run

bool same(std::span<const ir::Extents> a, std::span<const ir::Extents> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

}  // namespace

Coalescer::Coalescer(Ref<runtime::Runtime> runtime, Ref<runtime::Model> model, RowLayout layout,
                     const CoalescerOptions& options)
    : runtime_(std::move(runtime)), model_(std::move(model)), layout_(std::move(layout)), options_(options) {
  assert(options.lanes_alone >= options.lanes);
  state_.lock()->stats.rows.resize(static_cast<size_t>(options.max_rows) + 1);
}

void Coalescer::close() {
  std::vector<Batch> refused;
  {
    auto state = state_.lock();
    state->closed = true;
    state->end_watch();
    refused.swap(state->forming);
    for (const Batch& batch : refused) {
      batch->taken = batch->done = true;
      batch->failure = model_->closed_status();
      state->stats.parked -= batch->living;
      state->inside -= static_cast<int>(batch->living);
      for (size_t seat = 0; seat < batch->seats; ++seat) {
        if (!batch->members[seat].gone) state->inside_rows -= batch->members[seat].rows;
      }
    }
  }
  for (const Batch& batch : refused) batch->tell_next();
}

Result<Coalescer::Views> Coalescer::call(std::span<const View> inputs, Deadline deadline,
                                         const std::stop_token& cancel, Ref<const void> keep) {
  HEDDLE_TRY(runtime_->usable());
  HEDDLE_TRY(model_->check(inputs));
  HEDDLE_TRY_ASSIGN(const CallShape shape, layout_.shape_of(inputs));
  const Caller caller{inputs, shape, deadline, cancel, std::move(keep)};
  HEDDLE_TRY_ASSIGN(const Here me, arrive(shape));
  if (me.batch == nullptr) return run_alone(caller, me);
  for (size_t i = 0; !me.batch->alone && i < inputs.size(); ++i) {
    layout_.write_rows(i, shape, inputs[i], me.batch->slot->input(i).staging->host(), me.member().first);
  }
  Result<Views> result = stay(me, caller);
  if (!me.batch->each_alone || result.status().code() != Code::invalid) return result;
  // Padding them to one length went beyond what the model takes, such as its table of positions.
  return runtime_->run(*model_, caller.own_call());
}

Result<Coalescer::Views> Coalescer::run_alone(const Caller& caller, const Here& me) {
  const trace::Span span("batch", "run alone", me.batch == nullptr ? 0 : me.batch->id);
  const CallShape& shape = caller.shape;
  const runtime::Call call = caller.own_call();
  const auto body = [&] { return runtime_->run(*model_, call); };
  Run run = me.measured ? timed(Clock::real().now(), body) : Run{body()};
  Next next;
  {
    auto state = state_.lock();
    ++(run.result.status().code() == Code::deadline ? state->stats.left : state->stats.calls);
    if (me.batch != nullptr) --state->stats.parked;
    after_run(*state, shape.row_extents, run, shape.rows, 1, shape.rows);
    advance(*state, nullptr, next);
  }
  wake(next);
  return std::move(run.result);
}

// On a synchronous device by processor time: with more callers than processors, a run is interrupted by those
// it has just answered.
template <class Body>
Coalescer::Run Coalescer::timed(TimePoint start, Body&& body) {
  const bool synchronous = runtime_->device().traits().synchronous;
  const Duration cpu = synchronous ? thread_cpu_time() : Duration(0);
  Result<Views> result = body();
  const Duration used = synchronous ? thread_cpu_time() - cpu : Duration(0);
  const TimePoint end = Clock::real().now();
  return {std::move(result), end, end - start, synchronous ? used : end - start};
}

// ---- taking a seat

Result<Coalescer::Here> Coalescer::arrive(const CallShape& shape) {
  for (Batch fresh;;) {
    {
      auto state = state_.lock();
      if (state->closed) return model_->closed_status();
      if (state->returning > 0) expire_returning(*state, Clock::real().now());
      const bool alone = !joins(*state, shape);
      const bool idle = state->busy < (alone ? options_.lanes_alone : options_.lanes) &&
                        state->forming.empty() && (alone || state->returning == 0);
      if (idle || shape.rows >= options_.max_rows || shape.is_empty()) {
        come_in(*state, shape);
        ++state->busy;
        return Here{nullptr, 0, state->busy >= options_.lanes};
      }
      if (state->stats.parked >= options_.max_parked) {
        ++state->stats.refused;
        return Status::exhausted("model '", model_->name(), "': ", state->stats.parked,
                                 " callers wait for a batch already, and no more may");
      }
      Batch batch = joinable(*state, shape);
      if (batch == nullptr && fresh != nullptr) batch = open(*state, std::move(fresh), shape);
      if (batch != nullptr) {
        come_in(*state, shape);
        ++state->stats.parked;
        return sit_down(batch, shape);
      }
    }
    HEDDLE_TRY_ASSIGN(fresh, make_batch(shape));
  }
}

void Coalescer::come_in(State& state, const CallShape& shape) {
  ++state.inside;
  state.inside_rows += shape.rows;
  if (state.returning == 0) return;
  --state.returning;
  state.returning_rows = state.returning == 0 ? 0 : std::max<int64_t>(0, state.returning_rows - shape.rows);
}

void Coalescer::expire_returning(State& state, TimePoint now) {
  if (state.returning == 0 || now < state.returning_until) return;
  state.returning = 0;
  state.returning_rows = 0;
}

Coalescer::Batch Coalescer::open(State& state, Batch batch, const CallShape& shape) {
  batch->id = state.next_id++;
  batch->row_extents = shape.row_extents;
  batch->longest.resize(shape.lengths.size());
  batch->arrived = Clock::real().now();
  batch->awaits = !batch->alone && state.returning > 0;
  state.forming.push_back(batch);
  return batch;
}

Coalescer::Batch Coalescer::joinable(const State& state, const CallShape& shape) const {
  Running with_me = running(state);
  with_me.active += static_cast<int>(shape.rows - std::min(shape.rows, state.returning_rows));
  for (const Batch& batch : state.forming) {
    if (batch->alone || batch->rows + shape.rows > batch->capacity ||
        !same(batch->row_extents, shape.row_extents))
      continue;
    if (batch->rows + shape.rows <= rows_per_batch(with_me, limits(state, shape.row_extents))) return batch;
  }
  return nullptr;
}

Coalescer::Here Coalescer::sit_down(const Batch& batch, const CallShape& shape) {
  const size_t seat = batch->seats++;
  ++batch->living;
  ++batch->copying;
  Member& member = batch->members[seat];
  member.first = batch->rows;
  member.rows = shape.rows;
  member.lengths = shape.lengths;
  batch->rows += shape.rows;
  for (size_t k = 0; k < shape.lengths.size(); ++k)
    batch->longest[k] = std::max(batch->longest[k], shape.lengths[k]);
  return {batch, seat, true};
}

Result<Coalescer::Batch> Coalescer::make_batch(const CallShape& shape) const {
  int64_t row_bytes = 1;
  for (size_t i = 0; i < shape.row_extents.size(); ++i) row_bytes += layout_.row_bytes(shape, i);
  int64_t rows = 0;
  {
    const auto state = state_.lock();
    if (!joins(*state, shape)) {
      return std::make_shared<FormingBatch>(shape.rows, nullptr);
    }
    const Limits limit = limits(*state, shape.row_extents);
    rows = limit.max_rows * row_bytes > kStagingMax ? rows_per_batch(running(*state), limit) : limit.max_rows;
    rows = std::max(shape.rows, rows);
  }
  const Ref<runtime::Slot> slot = runtime_->slots().take();
  const int64_t room = worth_running(runtime_->device().traits().row_sizes, rows);
  for (size_t i = 0; i < shape.row_extents.size(); ++i)
    HEDDLE_TRY(slot->reserve_input(i, static_cast<uint64_t>(room * layout_.row_bytes(shape, i))));
  return std::make_shared<FormingBatch>(rows, slot);
}

// ---- waiting

Result<Coalescer::Views> Coalescer::stay(const Here& me, const Caller& caller) {
  const Deadline deadline = caller.deadline;
  const trace::Span span("batch", "wait", me.batch->id);
  const std::stop_callback on_cancel(caller.cancel, [&] { me.member().seat.tell(Seat::Note::cancelled); });
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
        return leave(me, Status::cancelled("the call of model '", model_->name(), "' was cancelled"));
      case Seat::Note::none:
        if (deadline.expired() || !until.expired()) {  // the second: interrupted
          return leave(me, Status::deadline("model '", model_->name(), "': the call was still waiting, or ",
                                            "running in a batch, at the deadline"));
        }
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
    advance(*state, &me, next);
  }
  wake(next);
  return next;
}

Result<Coalescer::Views> Coalescer::leave(const Here& me, Status why) {
  Next next;
  const Batch& batch = me.batch;
  const bool answered = [&] {
    auto state = state_.lock();
    if (batch->done) return true;  // just in time
    me.member().gone = true;
    static_cast<void>(me.member().met.exchange_acq_rel(true));  // the next to tell the result skips it
    --batch->living;
    --state->stats.parked;
    ++state->stats.left;
    --state->inside;
    state->inside_rows -= me.member().rows;
    if (state->watcher.batch == batch && state->watcher.seat == me.seat) state->end_watch();
    const bool to_lead = batch->taken && batch->leader == me.seat;
    if (batch->living == 0 && !batch->taken) std::erase(state->forming, batch);
    if (batch->living == 0 && to_lead) --state->busy;  // no member wants it any more
    if (batch->living != 0 && to_lead) {
      batch->leader = batch->first_living();
      next.wakes.push_back({{batch, batch->leader, true}, Seat::Note::lead});
    }
    advance(*state, nullptr, next);
    return false;
  }();
  wake(next);
  return answered ? collect(me) : Result<Views>(std::move(why));
}

// ---- what happens next

void Coalescer::advance(State& state, const Here* me, Next& next) const {
  while (state.busy < options_.lanes_alone && !state.forming.empty()) {
    const TimePoint now = Clock::real().now();
    expire_returning(state, now);
    Running runs = running(state);
    if (state.busy >= options_.lanes) runs.lanes = options_.lanes_alone;  // for calls that go alone only
    const Limits limit = limits(state, {});
    std::vector<Waiting> waiting;
    waiting.reserve(state.forming.size());
    for (const Batch& batch : state.forming) {
      if (batch->copying != 0) continue;
      if (!batch->alone && state.busy >= options_.lanes) break;  // no later batch passes it
      const bool full =
          batch->alone ||
          batch->rows >= std::min(batch->capacity, rows_per_batch(runs, limits(state, batch->row_extents)));
      Waiting& entry = waiting.emplace_back();
      entry.id = entry.group = batch->id;  // it goes whole, and alone
      entry.rows = full ? limit.max_rows : batch->rows;
      entry.arrived = batch->arrived;
      if (full) break;  // due, and before all that came later
    }
    if (waiting.empty()) return;
    const Decision decision = decide(now, waiting, runs, limit);
    if (const Take* due = std::get_if<Take>(&decision)) {
      take(state, due->ids.front(), me, next);
    } else {
      if (const Wait* wait = std::get_if<Wait>(&decision)) keep_time(state, wait->until, me, next);
      return;
    }
  }
}

void Coalescer::take(State& state, RequestId id, const Here* me, Next& next) {
  const auto found =
      std::find_if(state.forming.begin(), state.forming.end(), [&](const Batch& b) { return b->id == id; });
  const Batch batch = std::move(*found);
  state.forming.erase(found);
  ++state.busy;
  batch->taken = true;
  if (batch->awaits) state.forecast.note(batch->seats > 1);
  if (state.watcher.batch == batch) state.end_watch();
  if (me != nullptr && me->batch == batch) {
    batch->leader = me->seat;
    next.lead = true;
  } else {
    batch->leader = batch->first_living();
    next.wakes.push_back({{batch, batch->leader, true}, Seat::Note::lead});
  }
}

void Coalescer::keep_time(State& state, TimePoint until, const Here* me, Next& next) {
  if (until == TimePoint::max() || state.watch_at <= until) return;
  state.watch_at = until;
  if (me != nullptr && !me->batch->taken) {
    state.watcher = *me;
    next.ask_at = until;
    return;
  }
  const auto seated = std::find_if(state.forming.begin(), state.forming.end(),
                                   [](const Batch& batch) { return batch->copying == 0; });
  state.watcher = {*seated, (*seated)->first_living(), true};
  next.wakes.push_back({state.watcher, Seat::Note::ask});
}

void Coalescer::wake(const Next& next) {
  for (const Wake& each : next.wakes) each.who.member().seat.tell(each.note);
}

// ---- running

Result<Coalescer::Views> Coalescer::lead(const Here& me, Deadline deadline) {
  FormingBatch& batch = *me.batch;
  const trace::Span span("batch", "run", batch.id);
  if (!batch.in_flight.has_value()) batch.began = Clock::real().now();
  Run run = timed(batch.began, [&] { return run_batch(batch, deadline); });
  if (run.result.status().code() == Code::deadline) return leave(me, run.result.status());
  batch.in_flight.reset();
  if (run.result.ok()) {
    batch.outputs = std::move(run.result).value();
  } else {
    batch.failure = run.result.status();
    batch.each_alone = layout_.ragged() && batch.failure.code() == Code::invalid;
  }
  Next next;
  {
    auto state = state_.lock();
    batch.done = true;
    int64_t rows = 0;
    for (size_t seat = 0; seat < batch.seats; ++seat) {
      if (!batch.members[seat].gone) rows += batch.members[seat].rows;
    }
    state->stats.parked -= batch.living;
    state->stats.calls += batch.living;
    after_run(*state, batch.row_extents, run, batch.rows, static_cast<int>(batch.living), rows);
    advance(*state, nullptr, next);
  }
  wake(next);  // the next leader first: a lane is free
  return collect(me);
}

Result<Coalescer::Views> Coalescer::run_batch(FormingBatch& batch, Deadline deadline) {
  if (!batch.in_flight.has_value()) {
    if (batch.run_rows == 0) {  // a leader before us may have given up while it waited for a lane
      batch.run_rows = worth_running(runtime_->device().traits().row_sizes, batch.rows);
      for (size_t i = 0; i < batch.row_extents.size(); ++i)
        batch.inputs.push_back(layout_.batch_input(i, batch.row_extents[i], batch.slot->input(i).staging,
                                                   batch.rows, batch.run_rows, batch.longest));
    }
    batch.faults = std::make_shared<device::RowFaults>(batch.run_rows);
    runtime::Call call;
    call.inputs = batch.inputs;
    call.row_faults = batch.faults;
    call.deadline = deadline;
    call.slot = batch.slot;
    call.results_in_slot = true;
    HEDDLE_TRY_ASSIGN(runtime::InFlight started, runtime_->start(*model_, call));
    batch.in_flight.emplace(std::move(started));
  }
  return runtime_->finish(*batch.in_flight, deadline);
}

Result<Coalescer::Views> Coalescer::collect(const Here& me) {
  FormingBatch& batch = *me.batch;
  Member& member = me.member();
  if (member.met.exchange_acq_rel(true) || batch.leader == me.seat) batch.tell_next();
  HEDDLE_TRY(batch.failure);
  for (int64_t row = 0; batch.faults->any() && row < member.rows; ++row) {
    HEDDLE_TRY(batch.faults->of(member.first + row));
  }
  Views mine;
  mine.reserve(batch.outputs.size());
  for (size_t i = 0; i < batch.outputs.size(); ++i) {
    const View& whole = batch.outputs[i];
    HEDDLE_TRY_ASSIGN(
        View part, runtime_->allocate(whole.dtype,
                                      layout_.part_of(i, member.rows, member.lengths, whole, batch.run_rows),
                                      device::MemoryKind::staging));
    layout_.read_rows(i, whole, batch.run_rows, member.first, part);
    mine.push_back(std::move(part));
  }
  return mine;
}

// ---- bookkeeping

void Coalescer::after_run(State& state, std::span<const ir::Extents> row_extents, const Run& run,
                          int64_t rows, int callers, int64_t answered) const {
  ++state.stats.batches;
  ++state.stats.rows[std::min(static_cast<size_t>(rows), state.stats.rows.size() - 1)];
  if (run.cost > Duration(0)) learn(state, row_extents, run, rows, callers, answered);
  state.inside -= callers;
  state.inside_rows -= answered;
  --state.busy;
}

void Coalescer::learn(State& state, std::span<const ir::Extents> row_extents, const Run& run, int64_t rows,
                      int callers, int64_t answered) const {
  GroupCosts& group = costs(state, row_extents);
  // Alone on the device it may have had all of it, which says nothing about a lane.
  if (run.result.ok() && rows > 0 && state.busy >= options_.lanes) {
    group.table.record(rows, options_.cost ? options_.cost(rows) : run.cost);
    group.rows_max = group.table.best_rows(options_.max_rows, options_.latency_bound);
  }
  const bool contended = state.inside + state.returning > options_.lanes;
  if (!contended || !group.table.is_joining_worthwhile() || !state.forecast.expect()) return;
  // Measured by the batch that it could become: a share of the last one, if that was small, would keep the
  // next one small.
  const auto next = group.table.estimate(rows_per_batch(running(state), limits(state, row_extents)));
  const Duration patience = std::max(next.value_or(run.took) / kReturnShare, kReturnMin);
  state.returning += callers;
  state.returning_rows += answered;
  state.returning_until = std::max(state.returning_until, run.end + patience);
}

Coalescer::GroupCosts& Coalescer::costs(State& state, std::span<const ir::Extents> row_extents) const {
  const auto found = std::find_if(state.costs.begin(), state.costs.end(), [&](const GroupCosts& each) {
    return same(each.row_extents, row_extents);
  });
  if (found != state.costs.end()) {
    std::rotate(found, found + 1, state.costs.end());
  } else {
    if (state.costs.size() == kGroupsKept) state.costs.erase(state.costs.begin());
    state.costs.push_back({{row_extents.begin(), row_extents.end()}, {}, options_.max_rows});
  }
  return state.costs.back();
}

bool Coalescer::joins(const State& state, const CallShape& shape) {
  const auto found = std::find_if(state.costs.begin(), state.costs.end(), [&](const GroupCosts& each) {
    return same(each.row_extents, shape.row_extents);
  });
  if (found == state.costs.end()) return true;
  if (shape.rows != 1 || !found->table.needs_row_alone()) return found->table.is_joining_worthwhile();
  return std::any_of(state.forming.begin(), state.forming.end(), [&](const Batch& batch) {
    return batch->alone && same(batch->row_extents, shape.row_extents);  // one at a time
  });
}

Running Coalescer::running(const State& state) const {
  Running running;
  running.lanes = options_.lanes;
  running.busy = state.busy;
  running.active = static_cast<int>(state.inside_rows + state.returning_rows);
  running.returning = state.returning;
  running.returning_until = state.returning_until;
  return running;
}

Limits Coalescer::limits(const State& state, std::span<const ir::Extents> row_extents) const {
  Limits limits;
  limits.max_rows = options_.max_rows;
  for (const GroupCosts& each : state.costs) {
    if (same(each.row_extents, row_extents)) limits.max_rows = each.rows_max;
  }
  return limits;
}

Coalescer::Stats Coalescer::stats() const {
  const auto state = state_.lock();
  Stats stats = state->stats;
  stats.rows_max = state->costs.empty() ? options_.max_rows : state->costs.back().rows_max;
  return stats;
}

}  // namespace heddle::batch
