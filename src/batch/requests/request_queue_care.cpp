// What a RequestQueue does beside its batches: deadlines, hung workers, refusing, draining, closing, limits.
#include <algorithm>

#include "batch/requests/request_queue.h"

namespace heddle::batch {

void RequestQueue::grant(const Waiters& waiters) {
  for (const Waiter& waiter : waiters) waiter->grant(0);
}

void RequestQueue::ring() const {
  ++*bell_.lock();
  bell_.notify_all();
}

Care RequestQueue::care(Deadline deadline) {
  Care care;
  if (!forked().ok()) {
    care.closed = true;
    return care;
  }
  for (;;) {
    const uint64_t seen = *bell_.lock();
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
  if (state.waiting.size() != 0 || any_unfinished(state)) return {};
  return std::exchange(state.drainers, {});
}

std::vector<void*> RequestQueue::empty(State& state, Waiters& refused) {
  std::vector<void*> payloads = state.waiting.remove_all();
  state.metrics.refused += payloads.size() + state.room_seekers.size();
  for (const State::RoomSeeker& seeker : state.room_seekers) refused.push_back(seeker.waiter);
  state.room_seekers.clear();
  return payloads;
}

std::vector<void*> RequestQueue::refuse(Status why) {
  if (!forked().ok()) return {};
  Waiters refused, drained;
  std::vector<void*> payloads;
  {
    auto state = state_.lock();
    state->refusal = why;
    payloads = empty(*state, refused);
    drained = now_idle(*state);
  }
  for (const Waiter& waiter : refused) waiter->refuse(why);
  grant(drained);
  return payloads;
}

void RequestQueue::accept() {
  if (forked().ok()) state_.lock()->refusal = Status();
}

Status RequestQueue::drain(Deadline deadline) {
  HEDDLE_TRY(forked());
  const auto waiter = std::make_shared<runtime::Parked>();
  Waiters refused;
  {
    auto state = state_.lock();
    state->draining = true;
    for (const State::RoomSeeker& seeker : state->room_seekers) refused.push_back(seeker.waiter);
    state->room_seekers.clear();
    tell_all(*state);
    if (state->waiting.size() == 0 && !any_unfinished(*state)) {
      waiter->grant(0);
    } else {
      state->drainers.push_back(waiter);
    }
  }
  state_.notify_all();
  for (const Waiter& seeker : refused) seeker->refuse(Status::unavailable("the queue is draining"));
  std::optional<Result<int>> answer = waiter->wait(deadline);
  if (answer) return answer->status();
  auto state = state_.lock();
  if (std::erase(state->drainers, waiter) == 0) return {};
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
    tell_all(*state);
    drainers = now_idle(*state);
  }
  state_.notify_all();
  ring();
  for (const Waiter& waiter : refused) waiter->refuse(why);
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
