// What a RequestQueue does beside its batches: deadlines, hung workers, refusing, draining, closing, limits.
#include <algorithm>

#include "batch/requests/request_queue.h"

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
  come_back();
  for (;;) {
    const uint64_t seen = rings_seen();
    Waiters room, drained;
    TimePoint next = TimePoint::max();
    {
      auto state = state_.lock();
      const TimePoint now = clock_.now();
      care.closed = state->closed;
      if (state->waiting.next_deadline() <= now) {
        Running none_free = running(*state, now);
        none_free.busy = none_free.lanes;
        const Decision decision = decide(now, state->waiting.offer(now, 0), none_free, state->limits);
        if (const auto* late = std::get_if<Expire>(&decision)) care.expired = expire(*state, *late).expired;
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
      seam::did("queue.care", static_cast<int64_t>(care.expired.size()));
      room = grant_room(*state);
      drained = now_idle(*state);
    }
    grant(room);
    grant(drained);
    if (care.closed || !care.expired.empty() || !care.hung.empty() || deadline.expired(clock_)) return care;
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

RequestQueue::Waiters RequestQueue::now_idle(State& state) {
  if (!is_idle(state)) return {};
  return std::exchange(state.drainers, {});
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
  Waiters refused, drained;
  Status why;
  {
    auto state = state_.lock();
    const Run* run = find(*state, ticket);
    hang.hangs = run != nullptr && !run->answered;
    seam::did("queue.hang", hang.hangs);
    if (!hang.hangs) return hang;
    hang.replace = replaces_hung_ && !state->closed;
    state->reason = text("a worker has run one batch for more than hang_after=",
                         std::chrono::duration<double>(hang_after_).count(), " s");
    ++state->metrics.hung_batches;
    end_run(*state, ticket);
    state->hung.emplace(ticket, hang.replace);
    (hang.replace ? state->restarts : state->serving) += hang.replace ? 1 : -1;
    if (state->serving == 0) {
      why = Status::unavailable(state->reason, "; new requests are taken when it comes back");
      state->refusal = why;
      hang.refused = empty(*state, refused);
    }
    tell_all(*state);
    drained = now_idle(*state);
  }
  state_.notify_all();
  for (const Waiter& waiter : refused) waiter.refuse(why);
  grant(drained);
  return hang;
}

bool RequestQueue::abandon(uint64_t ticket) {
  if (!forked().ok()) return false;
  Waiters drained;
  {
    auto state = state_.lock();
    const Run* run = find(*state, ticket);
    if (run == nullptr || run->answered) return false;
    ++state->metrics.hung_batches;
    end_run(*state, ticket);
    tell_all(*state);
    drained = now_idle(*state);
  }
  state_.notify_all();
  grant(drained);
  return true;
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

std::vector<void*> RequestQueue::lost_worker(const std::string& why) {
  if (!forked().ok()) return {};
  Waiters refused, drained;
  std::vector<void*> payloads;
  const Status status = Status::unavailable(why);
  {
    auto state = state_.lock();
    state->reason = why;
    const bool last = --state->serving <= 0 && !state->closed;
    seam::did("queue.lose_worker", last);
    if (!last) return {};
    state->refusal = status;
    payloads = empty(*state, refused);
    drained = now_idle(*state);
  }
  for (const Waiter& waiter : refused) waiter.refuse(status);
  grant(drained);
  return payloads;
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
  come_back();
  const Waiter waiter{std::make_shared<runtime::Parked>(), {}};
  Waiters refused;
  {
    auto state = state_.lock();
    state->draining = true;
    for (const State::RoomSeeker& seeker : state->room_seekers) refused.push_back(seeker.waiter);
    state->room_seekers.clear();
    tell_all(*state);
    const bool idle = is_idle(*state);
    seam::did("queue.drain", idle);
    if (idle) {
      waiter.grant();
    } else {
      state->drainers.push_back(waiter);
    }
  }
  state_.notify_all();
  for (const Waiter& seeker : refused) seeker.refuse(Status::unavailable("the queue is draining"));
  std::optional<Result<int>> answer = waiter.parked->wait(deadline);
  if (answer) return answer->status();
  auto state = state_.lock();
  const auto mine = [&](const Waiter& each) { return each.parked == waiter.parked; };
  if (std::erase_if(state->drainers, mine) == 0) return {};
  return Status::deadline("the queue was not empty at the deadline: ", state->waiting.size(),
                          " requests wait and ", state->runs.size(), " batches run");
}

std::vector<void*> RequestQueue::close() {
  if (!forked().ok()) return {};
  const Status why = Status::unavailable("the queue is closed");
  Waiters refused, drainers;
  std::vector<void*> payloads;
  {
    auto state = state_.lock();
    state->closed = true;
    payloads = empty(*state, refused);
    seam::did("queue.close", static_cast<int64_t>(payloads.size()));
    tell_all(*state);
    drainers = now_idle(*state);
  }
  state_.notify_all();
  ring();
  for (const Waiter& waiter : refused) waiter.refuse(why);
  grant(drainers);
  return payloads;
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
