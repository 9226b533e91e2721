// leading.cpp: which batch runs next, and running it.
#include <algorithm>
#include <utility>

#include "base/fork.h"
#include "base/looking.h"
#include "base/no_memory.h"
#include "base/trace.h"
#include "batch/calls/coalescer.h"

namespace heddle::batch {

using device::View;

// ---- what happens next

void Coalescer::advance(State& state, const Here* me, Next& next) {
  do {
    take_due(state, me, next);
    if (!state.forming.empty()) restock(state, *state.forming.back());
  } while (show_seats(state) || !clear_up(state, next));
  hint(replacing_, false);
  open_door(state);
}

// Once nobody is inside or expected, nothing is on show, and nothing in stock: also where there is no spare
// batch, as after requests that came together, or a batch that was made and not needed. False: somebody has
// taken a seat meanwhile.
bool Coalescer::clear_up(State& state, Next& next) {
  if (state.inside != 0) return true;
  if (state.returning > 0) expire_returning(state, Clock::real().now());
  if (state.returning != 0 || (state.spare == nullptr && !stock_->keeps())) return true;
  next.dropped = take_spare(state);
  if (state.inside != 0) return false;
  next.empties_stock = true;
  hint(lacks_spare_, true);
  return true;
}

void Coalescer::give_up_idle() {
  if (fork_generation() != born_) return;
  Next next;
  {
    auto state = state_.lock();
    count_in(*state);
    if (state->inside == 0) {
      state->returning = 0;
      state->returning_rows = 0;
      advance(*state, nullptr, next);
    }
  }
  wake(next);
  stock_->drop();
}

void Coalescer::take_due(State& state, const Here* me, Next& next) {
  while (!state.forming.empty() && lanes_busy(state) < options_.lanes_alone) {
    const TimePoint now = Clock::real().now();
    expire_returning(state, now);
    Running runs = running(state);
    const int joined = runs.lanes;
    if (runs.busy >= joined) runs.lanes = options_.lanes_alone;  // for calls that go alone only
    const Limits limit = limits(state, {});
    std::vector<Waiting> waiting;
    for (const Batch& batch : state.forming) {
      if (!batch->alone && runs.busy >= joined) break;  // no later batch passes it
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
  const Batch batch = state.forming.take(id);
  hint(replacing_, true);
  take_down(state, batch.get());
  restock(state, *batch);
  ++state.busy;
  batch->taken = true;
  seam::did("calls.take", static_cast<int64_t>(batch->seats));
  if (batch->awaits) state.forecast.note(batch->seats > 1);
  if (state.watcher.batch == batch) state.end_watch();
  if (batch->is_written_when_taken()) hand_over(state, batch, me, next);
}

// All rows of a batch that is taken are there.
void Coalescer::hand_over(State& state, const Batch& batch, const Here* me, Next& next) {
  clear_desk(state, *batch);
  if (batch->living == 0) {  // its members have left while the last rows were written
    --state.busy;
    return;
  }
  const size_t again = leads_again(*batch);
  const bool is_mine = me != nullptr && me->batch == batch && me->member().absent == nullptr;
  if (is_mine && (again == FormingBatch::kNoSeat || again == me->seat)) {
    batch->leader = me->seat;
    next.lead = true;
    seam::did("calls.lead", static_cast<int64_t>(me->seat));
  } else {
    appoint(batch, again == FormingBatch::kNoSeat ? batch->best_leader() : again, next);
  }
}

// Where it would soon see that it was told: among many callers of a core its turn is far.
size_t Coalescer::leads_again(const FormingBatch& batch) const {
  const int crowd = crowd_.load_relaxed();
  return crowd == 0 || crowd > kSmallCrowd ? FormingBatch::kNoSeat : batch.leader_of_before();
}

void Coalescer::appoint(const Batch& batch, size_t seat, Next& next) {
  seam::did("calls.appoint", static_cast<int64_t>(seat));
  batch->leader = batch->members[seat].absent == nullptr ? seat : FormingBatch::kNoSeat;
  next.wakes.push_back({{batch, seat, true}, Seat::Note::lead});
}

void Coalescer::keep_time(State& state, TimePoint until, const Here* me, Next& next) {
  if (until == TimePoint::max() || state.watch_at <= until) return;
  state.watch_at = until;
  if (me != nullptr && !me->batch->taken) {
    state.watcher = *me;
    next.ask_at = until;
    return;
  }
  state.watcher = {state.forming.front(), state.forming.front()->first_living(), true};
  next.wakes.push_back({state.watcher, Seat::Note::ask});
}

void Coalescer::wake(const Next& next) {
  for (const Wake& each : next.wakes) {
    if (!each.who.member().tell(each.note)) serve_later(each.who, each.note);
  }
  if (next.empties_stock) stock_->drop();
}

// ---- running

Result<Coalescer::Views> Coalescer::run_alone(const Caller& caller, const Here& me) {
  const trace::Span span("batch", "run alone", me.batch == nullptr ? 0 : me.batch->id);
  const CallShape& shape = caller.shape;
  const runtime::Call call = caller.own_call();
  const auto body = [&] { return or_exhausted("a call", [&] { return runtime_->run(*model_, call); }); };
  const TimePoint begin = Clock::real().now();
  Run run = me.measured ? timed(begin, body) : Run{body()};
  if (!me.measured && options_.chooses_lanes) {
    run.end = Clock::real().now();
    run.took = run.end - begin;
  }
  Next next;
  {
    auto state = state_.lock();
    count_in(*state);
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

std::optional<Result<Coalescer::Views>> Coalescer::lead(const Here& me, Deadline deadline, bool has_end) {
  const trace::Span span("batch", has_end ? "publish" : "run", me.batch->id);
  Looker::of_this_thread().led = this;
  Result<bool> published = run_and_publish(*me.batch, deadline, me.seat, has_end);
  if (!published.ok()) return leave(me, std::move(published).status());
  if (!*published) return std::nullopt;
  if (me.batch->awaits_answers(0, me.batch->seats)) serve_later(me, Seat::Note::done);
  if (me.batch->told_at != nullptr) me.batch->told_at->add(me.batch);
  return collect(me);
}

Result<bool> Coalescer::run_and_publish(FormingBatch& batch, Deadline deadline, size_t seat, bool has_end) {
  const bool starts = !batch.end.is_shown() && !batch.in_flight.has_value();
  if (starts) batch.began = Clock::real().now();
  Run run = timed(batch.began, [&] {
    return or_exhausted("a batch of calls", [&]() -> Result<Views> {
      if (starts) HEDDLE_TRY(start(batch, deadline, seat));
      if (!batch.end.is_shown()) return runtime_->finish(*batch.in_flight, deadline);
      if (!has_end) {
        HEDDLE_TRY_ASSIGN(has_end, claims_end(batch, deadline));
        if (!has_end) return Views();
      }
      return runtime_->finish(*batch.in_flight, Deadline::never());
    });
  });
  const Status over = run.result.status();
  const bool is_shown = batch.end.is_shown();
  if (over.code() == Code::deadline && (is_shown ? !has_end : !deadline.is_never())) return over;
  // Without memory it could not wait for the end, and answers for it, unless another does.
  if (is_shown && !has_end && (over.ok() || !batch.end.claim())) return false;
  publish(batch, std::move(run), seat);
  return true;
}

void Coalescer::publish(FormingBatch& batch, Run run, size_t seat) {
  batch.in_flight.reset();
  batch.told_at = batch.pace.load_relaxed();
  if (run.result.ok()) {
    batch.outputs = std::move(run.result).value();
  } else {
    batch.failure = run.result.status();
    batch.each_alone = batch.layout.ragged() && batch.failure.code() == Code::invalid;
  }
  Next next;
  {
    auto state = state_.lock();
    count_in(*state);
    batch.done = true;
    if (seat != FormingBatch::kNoSeat) batch.leader = seat;
    state->stats.parked -= batch.living;
    state->stats.calls += batch.living;
    after_run(*state, batch.row_extents, run, batch.rows, static_cast<int>(batch.living), batch.living_rows);
    hint(crowd_, crowd(*state, run.took));
    batch.show_answer();
    advance(*state, nullptr, next);
  }
  wake(next);  // the next leader first: a lane is free
}

// Its first `rows` rows, zeros behind those that are written. Moves ragged rows together.
Coalescer::Views Coalescer::staged(const FormingBatch& batch, int64_t rows) {
  std::vector<int64_t> longest;  // per ragged symbol
  for (size_t seat = 0; batch.layout.ragged() && seat < batch.seats; ++seat) {
    const std::vector<int64_t>& lengths = batch.members[seat].lengths;
    longest.resize(std::max(longest.size(), lengths.size()));
    for (size_t k = 0; k < lengths.size(); ++k) longest[k] = std::max(longest[k], lengths[k]);
  }
  Views inputs;
  for (size_t i = 0; i < batch.row_extents.size(); ++i) {
    inputs.push_back(batch.layout.batch_input(i, batch.row_extents[i], batch.slot->input(i).staging,
                                              std::min(rows, batch.rows), rows, longest));
  }
  return inputs;
}

// Its end is shown where callers look for it, and do not soon have a turn after a leader that keeps its core.
// Members without a thread cannot look, and who leads for them answers them.
Status Coalescer::start(FormingBatch& batch, Deadline deadline, size_t seat) {
  const device::Traits& traits = runtime_->device().traits();
  if (batch.run_rows == 0) {  // a leader before us may have given up while it waited for a lane
    batch.run_rows = batch.layout.rows_to_run(traits.row_sizes, batch.rows);
    if (!batch.stage_again()) batch.inputs = staged(batch, batch.run_rows);
  }
  batch.faults = std::make_shared<device::RowFaults>(batch.run_rows);
  runtime::Call call;
  call.inputs = batch.inputs;
  call.row_faults = batch.faults;
  call.deadline = deadline;
  call.slot = batch.slot;
  call.results_in_slot = true;
  HEDDLE_TRY_ASSIGN(runtime::InFlight started, runtime_->start(*model_, call));
  const runtime::InFlight& run = batch.in_flight.emplace(std::move(started));
  const bool is_looked_for = seat != FormingBatch::kNoSeat && crowd_.load_relaxed() > kSmallCrowd;
  if (is_looked_for && !traits.synchronous && run.stream != nullptr && !batch.has_absents())
    batch.end.show(run.stream->timeline(), run.value);
  return {};
}

// True: the run is over, and this thread publishes the result. deadline: it is not over by then.
Result<bool> Coalescer::claims_end(FormingBatch& batch, Deadline deadline) const {
  constexpr Patience kForRuns{std::chrono::milliseconds(1), 16};
  bool claimed = false;
  const auto is_over = [&] { return batch.is_answered() || (claimed = batch.end.claim_if_over()); };
  static_cast<void>(look_for(is_over, crowd_.load_relaxed(), kForRuns, deadline));
  if (claimed || batch.is_answered()) return claimed;
  HEDDLE_TRY(batch.end.await(deadline));
  return batch.end.claim();
}

Result<Coalescer::Views> Coalescer::collect(const Here& me) {
  meet(me);
  return rows_of(*me.batch, me.member());
}

// Marks the member as told, and tells the next ones.
void Coalescer::meet(const Here& me) {
  FormingBatch& batch = *me.batch;
  Member& member = me.member();
  const bool told = member.met.exchange_acq_rel(true);
  seam::did("batch.collect", told);
  if (batch.told_at == nullptr) {
    if (told || batch.leader == me.seat) batch.tell_next();
  } else if (told && member.pace != nullptr) {
    Pace::count_as_told();
  }
}

Result<Coalescer::Views> Coalescer::rows_of(const FormingBatch& batch, const Member& member) {
  HEDDLE_TRY(batch.failure);
  for (int64_t row = 0; batch.faults->any() && row < member.rows; ++row) {
    HEDDLE_TRY(batch.faults->of(member.first + row));
  }
  Views mine;
  mine.reserve(batch.outputs.size());
  for (size_t i = 0; i < batch.outputs.size(); ++i) {
    const View& whole = batch.outputs[i];
    HEDDLE_TRY_ASSIGN(View part, runtime_->allocate(whole.dtype,
                                                    batch.layout.part_of(i, member.rows, member.lengths,
                                                                         whole, batch.run_rows),
                                                    device::MemoryKind::staging));
    batch.layout.read_rows(i, whole, batch.run_rows, member.first, part);
    mine.push_back(std::move(part));
  }
  return mine;
}

}  // namespace heddle::batch
