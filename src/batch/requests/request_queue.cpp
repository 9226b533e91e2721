#include "batch/requests/request_queue.h"

#include <algorithm>
#include <bit>

#include "runtime/thread_number.h"

namespace heddle::batch {
namespace {

constexpr int64_t kReturnFraction = 4;  // callers are waited for during a quarter of a batch's run time

}  // namespace

RequestQueue::RequestQueue(const QueueOptions& options, const Clock& clock)
    : hang_after_(options.hang_after),
      replaces_hung_(options.replace_hung || options.lanes > 1),
      clock_(clock) {
  auto state = state_.lock();
  state->limits = options.limits;
  state->lanes = state->serving = options.lanes;
  state->capacity = std::min(options.capacity, WaitingList::kMost);
}

Status RequestQueue::forked() const {
  if (born_ == fork_generation()) return {};
  return Status::unavailable("the queue belongs to the process that made it, and this is a forked child: ",
                             "start children with spawn, or make the queue in the child");
}

Status RequestQueue::takes(std::span<const Request> requests) const {
  HEDDLE_TRY(forked());
  for (const Request& r : requests) HEDDLE_TRY(WaitingList::takes(r.rows));
  return {};
}

Status RequestQueue::admits(const State& state, size_t wanted) const {
  if (state.closed) return Status::unavailable("the queue is closed");
  if (state.draining) return Status::unavailable("the queue is draining: it takes no more requests");
  if (!state.refusal.ok()) return state.refusal;
  if (wanted > state.capacity) {
    return Status::invalid("the request has ", wanted, " parts, and the queue's capacity is ", state.capacity,
                           ": send fewer rows, or raise capacity or max_batch");
  }
  return {};
}

// ---- in

bool RequestQueue::tell_taker(State& state, bool at_once) {
  const bool lane_free = static_cast<int>(state.runs.size()) < state.lanes;
  if (!at_once || !lane_free || state.asleep <= state.told) return false;
  ++state.told;
  ++state.turn;
  return true;
}

RequestQueue::Admission RequestQueue::admit(State& state, std::span<const Request> requests,
                                            std::span<RequestId> ids, bool may_wait, bool reserved) {
  const size_t wanted = requests.size();
  Admission admission;
  admission.status = admits(state, wanted);
  if (!admission.status.ok()) {
    ++state.metrics.refused;
    seam::did("queue.refuse");
    return admission;
  }
  const bool first_in_line = reserved || state.room_seekers.empty();
  admission.full = !first_in_line || state.waiting.size() + state.reserved + wanted > state.capacity;
  if (admission.full) {
    if (may_wait) {
      admission.parked = std::make_shared<runtime::Parked>();
      state.room_seekers.push_back({{admission.parked, {}}, wanted});
      seam::did("queue.seek_room");
    }
    return admission;
  }
  const TimePoint now = clock_.now();
  bool urgent = false;
  for (size_t i = 0; i < wanted; ++i) {
    const Request& r = requests[i];
    ids[i] = state.waiting.add({0, r.group, r.rows, r.cost, r.priority, now, r.deadline}, r.payload);
    urgent = urgent || r.deadline != TimePoint::max();
    admission.ring = admission.ring || r.deadline < state.care_next;
  }
  state.metrics.submitted += wanted;
  state.newest = ids[wanted - 1];
  if (state.returning > 0) --state.returning;
  const Limits& limits = state.limits;
  const bool simple = limits.max_cost == 0 && limits.preferred_rows.empty();
  const bool quiet = now < state.quiet_until && !urgent && simple && state.returning > 0 &&
                     state.waiting.rows() < rows_per_batch(running(state, now), limits);
  admission.tell = tell_taker(state, !quiet);
  seam::did("queue.admit", admission.tell);
  return admission;
}

Status RequestQueue::submit(std::span<const Request> requests, std::span<RequestId> ids, Deadline room) {
  HEDDLE_TRY(takes(requests));
  const bool may_wait = !room.expired(clock_);
  for (bool reserved = false;; reserved = true) {
    const Admission admission = [&] {
      auto state = state_.lock();
      if (reserved) state->reserved -= requests.size();
      Admission a = admit(*state, requests, ids, may_wait, reserved);
      if (a.full && !may_wait) {
        ++state->metrics.rejected;
        seam::did("queue.reject");
        a.status = Status::exhausted("the queue is full: ", state->waiting.size(), " of ", state->capacity,
                                     " requests wait; try later, or raise capacity");
      }
      return a;
    }();
    if (admission.parked == nullptr) {
      after(admission);
      return admission.status;
    }
    HEDDLE_TRY(await_room(admission.parked, room));
  }
}

Result<bool> RequestQueue::try_submit(std::span<const Request> requests, std::span<RequestId> ids,
                                      uint64_t seeker) {
  HEDDLE_TRY(takes(requests));
  const Admission admission = [&] {
    auto state = state_.lock();
    const bool reserved = let_go(*state, seeker);
    return admit(*state, requests, ids, false, reserved);
  }();
  HEDDLE_TRY(admission.status);
  after(admission);
  return !admission.full;
}

void RequestQueue::after(const Admission& admission) const {
  if (admission.tell) state_.notify_one();
  if (admission.ring) ring();
}

Status RequestQueue::await_room(const Parked& waiter, Deadline room) {
  std::optional<Result<int>> answer = waiter->wait(room);
  if (!answer) {
    Waiters next;
    Status full;
    {
      auto state = state_.lock();
      const auto mine = [&](const State::RoomSeeker& s) { return s.waiter.parked == waiter; };
      const bool withdrawn = std::erase_if(state->room_seekers, mine) != 0;
      seam::did("queue.withdraw", withdrawn);
      if (withdrawn) {
        ++state->metrics.rejected;
        full = Status::exhausted("the queue stayed full: ", state->waiting.size(), " of ", state->capacity,
                                 " requests wait; try later, or raise capacity");
        next = grant_room(*state);  // what is behind may need less
      }
    }
    grant(next);
    HEDDLE_TRY(full);
  }
  if (!answer) answer = waiter->wait(Deadline::never());
  return answer->status();
}

RequestQueue::Waiters RequestQueue::grant_room(State& state) {
  Waiters granted;
  while (!state.room_seekers.empty()) {
    const State::RoomSeeker& first = state.room_seekers.front();
    if (state.waiting.size() + state.reserved + first.wanted > state.capacity) break;
    state.reserved += first.wanted;
    if (first.number != 0) state.kept.emplace(first.number, first.wanted);
    granted.push_back(first.waiter);
    state.room_seekers.pop_front();
  }
  return granted;
}

bool RequestQueue::let_go(State& state, uint64_t seeker) {
  const auto kept = state.kept.find(seeker);
  if (kept == state.kept.end()) return false;
  state.reserved -= kept->second;
  state.kept.erase(kept);
  return true;
}

uint64_t RequestQueue::seek_room(size_t wanted, std::function<void()> then) {
  if (!forked().ok()) {
    then();
    return 0;
  }
  Waiters room;
  uint64_t seeker = 0;
  {
    auto state = state_.lock();
    seeker = ++state->seekers;
    if (admits(*state, wanted).ok()) {
      state->room_seekers.push_back({{nullptr, std::move(then)}, wanted, seeker});
      room = grant_room(*state);
    } else {
      room.push_back({nullptr, std::move(then)});
    }
  }
  grant(room);
  return seeker;
}

void RequestQueue::leave_room(uint64_t seeker) {
  if (!forked().ok()) return;
  Waiters room;
  {
    auto state = state_.lock();
    std::erase_if(state->room_seekers,
                  [&](const State::RoomSeeker& s) { return seeker != 0 && s.number == seeker; });
    static_cast<void>(let_go(*state, seeker));
    room = grant_room(*state);
  }
  grant(room);
}

Owed RequestQueue::cancel(RequestId id) {
  if (!forked().ok()) return {};
  Owed owed;
  Waiters room;
  {
    auto state = state_.lock();
    const bool waits = state->waiting.find(id) != nullptr;
    seam::did("queue.cancel", waits);
    if (!waits) return {};
    owed = owe(*state, {state->waiting.remove(id).payload});
    ++state->metrics.cancelled;
    room = grant_room(*state);
  }
  grant(room);
  return owed;
}

// ---- out

Running RequestQueue::running(State& state, TimePoint now) {
  end_lingering(state, now);
  if (now >= state.returning_until || state.draining) state.returning = 0;
  Running r;
  r.lanes = state.lanes;
  r.busy = static_cast<int>(state.runs.size());
  r.returning = static_cast<int>(state.returning);
  r.returning_until = state.returning_until;
  if (r.lanes > 1) {
    r.active = static_cast<int>(state.waiting.rows() + state.in_flight + state.returning);
  }
  return r;
}

Decision RequestQueue::ask(State& state, TimePoint now) {
  if (state.waiting.size() == 0) return Wait{TimePoint::max()};
  const std::span<const Waiting> offered = state.waiting.offer(now, state.limits.max_rows);
  const Running running_now = running(state, now);
  if (!state.draining) {
    const Decision decision = decide(now, offered, running_now, state.limits);
    const bool waits = std::holds_alternative<Wait>(decision) && running_now.busy < running_now.lanes;
    if (waits && running_now.returning > 0 && state.held_at == 0) state.held_at = state.newest;
    return decision;
  }
  Limits hurried = state.limits;
  hurried.max_wait = Duration::zero();
  return decide(now, offered, running_now, hurried);
}

Owed RequestQueue::expire(State& state, const Expire& decision) {
  std::vector<void*> payloads;
  for (const RequestId id : decision.ids) payloads.push_back(state.waiting.remove(id).payload);
  state.metrics.expired += decision.ids.size();
  return owe(state, std::move(payloads));
}

Work RequestQueue::start(State& state, const Take& decision, TimePoint now) const {
  Work work;
  Run run;
  run.ticket = work.ticket = ++state.tickets;
  run.thread = runtime::this_thread_number();
  run.requests = decision.ids.size();
  run.taken = run.formed = run.ran = now;
  work.batch.reserve(run.requests);
  run.arrived.reserve(run.requests);
  if (const RequestId held_at = std::exchange(state.held_at, 0); held_at != 0) {
    state.forecast.note(
        std::any_of(decision.ids.begin(), decision.ids.end(), [&](RequestId id) { return id > held_at; }));
  }
  for (const RequestId id : decision.ids) {
    const WaitingList::Item item = state.waiting.remove(id);
    work.batch.push_back(item.payload);
    run.rows += item.request.rows;
    run.arrived.push_back(item.request.arrived);
    state.metrics.wait.add((now - item.request.arrived).count());
  }
  state.metrics.taken += run.requests;
  state.in_flight += run.rows;
  if (trace::on()) run.phase = std::make_unique<trace::Span>("batch", "form", run.ticket);
  state.runs.push_back(std::move(run));
  return work;
}

std::optional<Work> RequestQueue::try_take() {
  if (!forked().ok()) return std::nullopt;
  std::optional<Work> work;
  Waiters room;
  bool tell = false, hang_clock = false;
  {
    auto state = state_.lock();
    if (state->closed) return std::nullopt;
    const TimePoint now = clock_.now();
    const Decision decision = ask(*state, now);
    if (const auto* late = std::get_if<Expire>(&decision)) {
      work.emplace().expired = expire(*state, *late);
      seam::did("queue.expire", static_cast<int64_t>(late->ids.size()));
    }
    if (const auto* taken = std::get_if<Take>(&decision)) {
      work = start(*state, *taken, now);
      seam::did("queue.take", static_cast<int64_t>(taken->ids.size()));
      hang_clock = hang_after_ != Duration::max() && now + hang_after_ < state->care_next;
    }
    if (!work) return std::nullopt;
    tell = tell_taker(*state, state->waiting.size() != 0);
    room = grant_room(*state);
  }
  if (tell) state_.notify_one();
  if (hang_clock) ring();
  grant(room);
  return work;
}

Status RequestQueue::await_due(Deadline deadline) {
  HEDDLE_TRY(forked());
  auto state = state_.lock();
  for (;;) {
    if (state->closed) return Status::unavailable("the queue is closed");
    const TimePoint now = clock_.now();
    const Decision decision = ask(*state, now);
    const auto* wait = std::get_if<Wait>(&decision);
    if (wait == nullptr) return {};
    if (deadline.expired(clock_)) return Status::deadline("no batch was due before the deadline");
    TimePoint until = std::min({wait->until, state->waiting.next_deadline(), deadline.when()});
    // Also where nothing waits: a request that comes meanwhile finds no lane free, and tells nobody.
    end_lingering(*state, now);
    for (const Run& run : state->runs) until = std::min(until, run.over_at);
    state->quiet_until = state->waiting.size() == 0 ? TimePoint::min() : until;
    ++state->asleep;
    const uint64_t seen = state->turn;
    seam::did("queue.sleep");
    const auto told = [&] { return state->turn != seen; };
    if (until == TimePoint::max()) {
      state.wait(told);
    } else {
      static_cast<void>(state.wait_until(Deadline::at(until), told));
    }
    --state->asleep;
    state->told = std::max(0, state->told - 1);
    seam::did("queue.wake");
  }
}

Result<Work> RequestQueue::take(Deadline deadline) {
  for (;;) {
    HEDDLE_TRY(await_due(deadline));
    if (std::optional<Work> work = try_take()) return std::move(*work);
  }
}

// ---- running

RequestQueue::Run* RequestQueue::find(State& state, uint64_t ticket) {
  for (Run& run : state.runs) {
    if (run.ticket == ticket) return &run;
  }
  return nullptr;
}

void RequestQueue::formed(uint64_t ticket) {
  if (!forked().ok()) return;
  auto state = state_.lock();
  Run* run = find(*state, ticket);
  if (run == nullptr) return;
  run->formed = run->ran = clock_.now();
  run->phase.reset();
  if (trace::on()) run->phase = std::make_unique<trace::Span>("batch", "run", ticket);
}

Owed RequestQueue::ran(uint64_t ticket) {
  if (!forked().ok()) return {};
  auto state = state_.lock();
  Run* run = find(*state, ticket);
  seam::did("queue.ran", run != nullptr);
  if (run == nullptr) return {};
  const TimePoint now = clock_.now();
  run->ran = now;
  run->answered = true;
  run->phase.reset();
  if (trace::on()) run->phase = std::make_unique<trace::Span>("batch", "scatter", ticket);
  run->expects = run->requests >= 2 && state->forecast.expect();
  if (run->expects) {  // before the answers: a quick caller is back before finish()
    if (now >= state->returning_until) state->returning = 0;
    state->returning += static_cast<int64_t>(run->requests);
    state->returning_until = now + std::min((now - run->taken) / kReturnFraction, state->limits.max_wait);
  }
  return owe(*state, {});
}

void RequestQueue::end_run(State& state, uint64_t ticket) {
  state.in_flight -= find(state, ticket)->rows;
  std::erase_if(state.runs, [&](const Run& run) { return run.ticket == ticket; });
}

void RequestQueue::end_lingering(State& state, TimePoint now) {
  for (size_t i = state.runs.size(); i-- > 0;) {
    const Run& run = state.runs[i];
    const bool lingers = run.over_at != TimePoint::max();
    if (lingers && (run.over_at <= now || state.draining)) end_run(state, run.ticket);
  }
}

void RequestQueue::told(uint64_t ticket) {
  if (!forked().ok()) return;
  bool tell = false;
  {
    auto state = state_.lock();
    const Run* run = find(*state, ticket);
    if (run == nullptr || run->over_at == TimePoint::max()) return;
    end_run(*state, ticket);
    tell = tell_taker(*state, state->waiting.size() != 0);
  }
  if (tell) state_.notify_one();
}

bool RequestQueue::finish(uint64_t ticket, bool failed, Duration linger) {
  if (!forked().ok()) return true;
  Waiters drained;
  bool tell = false;
  {
    auto state = state_.lock();
    Run* run = find(*state, ticket);
    if (run == nullptr) return came_back(*state, ticket);
    const TimePoint now = clock_.now();
    if (run->expects) {
      state->returning_until =
          now + std::min((run->ran - run->taken) / kReturnFraction, state->limits.max_wait);
    }
    QueueMetrics& m = state->metrics;
    ++m.batches;
    m.failed_batches += failed ? 1 : 0;
    m.form.add((run->formed - run->taken).count());
    m.run.add((run->ran - run->formed).count());
    m.scatter.add((now - run->ran).count());
    const auto size = static_cast<size_t>(std::bit_width(static_cast<uint64_t>(run->rows - 1)));
    ++m.batches_by_rows[std::min(size, m.batches_by_rows.size() - 1)];
    m.rows += static_cast<uint64_t>(run->rows);
    m.occupancy += static_cast<double>(run->rows) / static_cast<double>(state->limits.max_rows);
    for (const TimePoint arrived : run->arrived) m.total.add((now - arrived).count());
    const Duration kept = std::min(linger, state->limits.max_wait);
    if (kept > Duration::zero()) {
      run->over_at = now + kept;
      run->phase.reset();
    } else {
      end_run(*state, ticket);
    }
    tell = tell_taker(*state, state->waiting.size() != 0);
    seam::did("queue.finish", tell);
    drained = now_idle(*state);
  }
  if (tell) state_.notify_one();
  grant(drained);
  return true;
}

}  // namespace heddle::batch
