// What a RequestQueue does beside its batches: deadlines, hung workers, refusing, draining, closing, limits.
#include <algorithm>

#include "batch/requests/request_queue.h"
#include "runtime/thread_number.h"

namespace heddle::batch {

void RequestQueue::grant(const Waiters& waiters) {
  for (const Waiter& waiter : waiters) waiter.grant();
}

void RequestQueue::ring() const {
  {
    auto bell = bell_.lock();
    ++*bell;
    seam::did("queue.ring");
  }
  bell_.notify_all();
}

uint64_t RequestQueue::rings_seen() const {
  const auto bell = bell_.lock();
  seam::did("queue.see_bell");
  return *bell;
}

Care RequestQueue::care(Deadline deadline) {
  Care care;
  if (!forked().ok()) {
    care.closed = true;
    return care;
  }
  for (;;) {
    const uint64_t seen = rings_seen();
    Waiters room;
    TimePoint next = TimePoint::max();
    {
      auto state = state_.lock();
      const TimePoint now = clock_.now();
      care.closed = state->closed;
      if (state->waiting.next_deadline() <= now) {
        Running none_free = running(*state, now);
        none_free.busy = none_free.lanes;
        const Decision decision = decide(now, state->waiting.offer(now, 0), none_free, state->limits);
        if (const auto* late = std::get_if<Expire>(&decision)) care.expired = expire(*state, *late);
      }
      for (Run& run : state->runs) {
        if (run.reported || hang_after_ == Duration::max() || run.over_at != TimePoint::max()) continue;
        if (now - run.taken >= hang_after_) {
          run.reported = true;
          care.hung.push_back(run.ticket);
        } else {
          next = std::min(next, run.taken + hang_after_);
        }
      }
      next = std::min(next, state->waiting.next_deadline());
      state->care_next = next;
      seam::did("queue.care", static_cast<int64_t>(care.expired.payloads().size()));
      room = grant_room(*state);
    }
    grant(room);
    if (care.closed || care.expired || !care.hung.empty() || deadline.expired(clock_)) return care;
    auto bell = bell_.lock();
    const auto rung = [&] { return *bell != seen; };
    const TimePoint until = std::min(next, deadline.when());
    if (until == TimePoint::max()) {
      bell.wait(rung);
    } else {
      static_cast<void>(bell.wait_until(Deadline::at(until), rung));
    }
  }
}

void RequestQueue::tell_all(State& state) {
  ++state.turn;
  state.told = state.asleep;
  state.quiet_until = TimePoint::min();
}

// ---- answers

Owed RequestQueue::owe(State& state, std::vector<void*> payloads) {
  const uint64_t thread = runtime::this_thread_number();
  state.answering.push_back(thread);
  return {*this, thread, std::move(payloads)};
}

void RequestQueue::answered(uint64_t thread) {
  if (!forked().ok()) return;
  Waiters drained;
  {
    auto state = state_.lock();
    std::vector<uint64_t>& answering = state->answering;
    answering.erase(std::find(answering.begin(), answering.end(), thread));
    seam::did("queue.answered");
    drained = now_idle(*state);
  }
  grant(drained);
}

// All that was admitted is answered. A drainer inside waits neither for its own answers nor for those of
// others inside, which wait for it.
bool RequestQueue::is_idle(const State& state, bool inside) {
  const auto drains = [&](uint64_t thread) {
    return inside && std::any_of(state.drainers.begin(), state.drainers.end(),
                                 [&](const auto& each) { return each.inside && each.thread == thread; });
  };
  return state.waiting.size() == 0 && std::all_of(state.answering.begin(), state.answering.end(), drains) &&
         std::all_of(state.runs.begin(), state.runs.end(),
                     [&](const Run& run) { return run.over_at != TimePoint::max() || drains(run.thread); });
}

RequestQueue::Waiters RequestQueue::now_idle(State& state) {
  Waiters idle;
  if (state.drainers.empty()) return idle;
  const bool for_all = is_idle(state, false), for_those_inside = for_all || is_idle(state, true);
  std::erase_if(state.drainers, [&](const auto& each) {
    if (!for_all && !(for_those_inside && each.inside)) return false;
    idle.push_back({each.parked, {}});
    return true;
  });
  return idle;
}

std::vector<void*> RequestQueue::empty(State& state, Waiters& refused) {
  std::vector<void*> payloads = state.waiting.remove_all();
  state.metrics.refused += payloads.size() + state.room_seekers.size();
  for (const State::RoomSeeker& seeker : state.room_seekers) refused.push_back(seeker.waiter);
  state.room_seekers.clear();
  return payloads;
}

// ---- workers

Hang RequestQueue::hang(uint64_t ticket) {
  Hang hang;
  if (!forked().ok()) return hang;
  Waiters refused;
  Status why;
  {
    auto state = state_.lock();
    const Run* run = find(*state, ticket);
    const bool hangs = run != nullptr && !run->answered;
    seam::did("queue.hang", hangs);
    if (!hangs) return hang;
    hang.replace = replaces_hung_ && !state->closed;
    state->reason = text("a worker has run one batch for more than hang_after=",
                         std::chrono::duration<double>(hang_after_).count(), " s");
    ++state->metrics.hung_batches;
    end_run(*state, ticket);
    state->hung.emplace(ticket, hang.replace);
    (hang.replace ? state->restarts : state->serving) += hang.replace ? 1 : -1;
    std::vector<void*> waited;
    if (state->serving == 0) {
      why = Status::unavailable(state->reason, "; new requests are taken when it comes back");
      state->refusal = why;
      waited = empty(*state, refused);
    }
    hang.owed = owe(*state, std::move(waited));
    tell_all(*state);
  }
  state_.notify_all();
  for (const Waiter& waiter : refused) waiter.refuse(why);
  return hang;
}

Owed RequestQueue::abandon(uint64_t ticket) {
  if (!forked().ok()) return {};
  Owed owed;
  {
    auto state = state_.lock();
    const Run* run = find(*state, ticket);
    if (run == nullptr || run->answered) return {};
    ++state->metrics.hung_batches;
    end_run(*state, ticket);
    owed = owe(*state, {});
    tell_all(*state);
  }
  state_.notify_all();
  return owed;
}

bool RequestQueue::came_back(State& state, uint64_t ticket) {
  const auto found = state.hung.find(ticket);
  if (found == state.hung.end()) return true;
  const bool replaced = found->second;
  state.hung.erase(found);
  seam::did("queue.hung_comes_back", replaced);
  if (replaced) return false;
  ++state.serving;
  state.refusal = Status();
  return true;
}

Owed RequestQueue::lost_worker(const std::string& why) {
  if (!forked().ok()) return {};
  Waiters refused;
  Owed owed;
  const Status status = Status::unavailable(why);
  {
    auto state = state_.lock();
    state->reason = why;
    const bool last = --state->serving <= 0 && !state->closed;
    seam::did("queue.lose_worker", last);
    if (!last) return {};
    state->refusal = status;
    std::vector<void*> waited = empty(*state, refused);
    if (!waited.empty()) owed = owe(*state, std::move(waited));
  }
  for (const Waiter& waiter : refused) waiter.refuse(status);
  return owed;
}

bool RequestQueue::worker_died(const std::string& why) {
  if (!forked().ok()) return false;
  auto state = state_.lock();
  if (state->closed) return false;
  state->reason = why;
  ++state->restarts;
  return true;
}

QueueHealth RequestQueue::health() const {
  QueueHealth health;
  health.closed = true;
  if (!forked().ok()) return health;
  const auto state = state_.lock();
  health = {state->lanes, state->serving, 0, state->restarts, state->draining, state->closed, state->reason};
  for (const auto& [ticket, replaced] : state->hung) health.hung += replaced ? 0 : 1;
  return health;
}

// ---- ends

Status RequestQueue::drain(Deadline deadline) {
  HEDDLE_TRY(forked());
  const Parked parked = std::make_shared<runtime::Parked>();
  const uint64_t thread = runtime::this_thread_number();
  Waiters refused, drained;
  {
    auto state = state_.lock();
    state->draining = true;
    for (const State::RoomSeeker& seeker : state->room_seekers) refused.push_back(seeker.waiter);
    state->room_seekers.clear();
    tell_all(*state);
    seam::did("queue.drain", is_idle(*state, false));
    const bool inside =
        std::count(state->answering.begin(), state->answering.end(), thread) != 0 ||
        std::any_of(state->runs.begin(), state->runs.end(), [&](const Run& r) { return r.thread == thread; });
    state->drainers.push_back({parked, thread, inside});
    drained = now_idle(*state);
  }
  state_.notify_all();
  for (const Waiter& seeker : refused) seeker.refuse(Status::unavailable("the queue is draining"));
  grant(drained);
  std::optional<Result<int>> answer = parked->wait(deadline);
  if (answer) return answer->status();
  auto state = state_.lock();
  const auto mine = [&](const State::Drainer& each) { return each.parked == parked; };
  if (std::erase_if(state->drainers, mine) == 0) return {};
  const size_t batches = state->runs.size(), answers = state->answering.size();
  return Status::deadline("the queue was not empty at the deadline: ", state->waiting.size(),
                          " requests wait, ", batches, " batches run and ", answers,
                          " answers are being given");
}

Owed RequestQueue::close() {
  if (!forked().ok()) return {};
  const Status why = Status::unavailable("the queue is closed");
  Waiters refused;
  Owed owed;
  {
    auto state = state_.lock();
    state->closed = true;
    std::vector<void*> waited = empty(*state, refused);
    seam::did("queue.close", static_cast<int64_t>(waited.size()));
    if (!waited.empty()) owed = owe(*state, std::move(waited));
    tell_all(*state);
  }
  state_.notify_all();
  ring();
  for (const Waiter& waiter : refused) waiter.refuse(why);
  return owed;
}

bool RequestQueue::closed() const {
  if (!forked().ok()) return true;
  return state_.lock()->closed;
}

void RequestQueue::set_limits(const Limits& limits) {
  if (!forked().ok()) return;
  {
    auto state = state_.lock();
    state->limits = limits;
    tell_all(*state);
  }
  state_.notify_all();
}

void RequestQueue::set_capacity(size_t capacity) {
  if (!forked().ok()) return;
  Waiters room;
  {
    auto state = state_.lock();
    state->capacity = std::min(capacity, WaitingList::kMost);
    room = grant_room(*state);
  }
  grant(room);
}

Limits RequestQueue::limits() const {
  if (!forked().ok()) return {};
  return state_.lock()->limits;
}

QueueMetrics RequestQueue::metrics() const {
  if (!forked().ok()) return {};
  auto state = state_.lock();
  QueueMetrics m = state->metrics;
  m.depth = state->waiting.size();
  m.depth_rows = state->waiting.rows();
  m.capacity = state->capacity;
  m.running = static_cast<int>(state->runs.size());
  if (m.batches != 0) m.occupancy /= static_cast<double>(m.batches);
  return m;
}

}  // namespace heddle::batch
