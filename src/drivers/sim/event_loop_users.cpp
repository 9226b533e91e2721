// event_loop_users.cpp: what the threads of the device's users do to the event loop, and what it finds them
// do.
#include <algorithm>
#include <cstring>

#include "base/no_memory.h"
#include "drivers/sim/event_loop.h"

namespace heddle::sim {

using device::Point;

namespace {

constexpr uint64_t kQuarantine = 1 << 20;  // bytes of freed memory that keep their address for a while
constexpr uint64_t kPoisoned = 64 << 10;   // of each block

void poison(const Ref<device::Buffer>& buffer) {
  if (buffer != nullptr) std::memset(buffer->host(), kPoison, std::min(buffer->bytes(), kPoisoned));
}

}  // namespace

Ref<QueueState> EventLoop::add(Ref<device::Timeline> timeline) {
  Ref<QueueState> queue;
  Status loss;
  {
    auto state = state_.lock();
    queue = std::make_shared<QueueState>(++state->queues_made, std::move(timeline), seed_);
    queue->next_at = tick(*state);
    queue->failure = loss = state->loss;
    state->queues.push_back(queue);
  }
  // Made beside the device's end: nobody else would end the waits for it. One that fails later the event loop
  // fails, which may do so now.
  if (!loss.ok()) queue->timeline->fail(loss, completion_);
  return queue;
}

void EventLoop::remove(const Ref<QueueState>& queue) {
  Submissions dropped;
  {
    auto state = state_.lock();
    state.wait([&] {
      if (queue->busy) return false;
      return queue->idle() || queue->mute || queue->hangs || state->held || state->stopped ||
             state->waits_in_vain(*queue);
    });
    std::erase(state->queues, queue);
    queue->removed = true;
    if (!queue->idle()) queue->failure = Status::unavailable("its queue was destroyed");
    dropped = take_all(*state, *queue);
    retired_.add(queue->number);
    state->host.forget(retired_);
  }
  state_.notify_all();
  if (!dropped.empty()) queue->timeline->fail(queue->failure, completion_);
  signal_dropped(dropped);
}

Result<Point> EventLoop::import_event(Ref<SimEvent> event) {
  const Ref<QueueState> queue = add(std::make_shared<device::Timeline>());
  queue->foreign = true;
  event->wake_when_reached(shared_from_this());
  Submissions one;
  one.push_back(std::make_unique<Submission>());
  one.front()->value = 1;
  one.front()->gate = std::move(event);
  HEDDLE_TRY(hand_in(*queue, one));
  return Point{queue->timeline, 1};
}

// The lock is taken so that a thread that has looked and not yet fallen asleep is woken, too.
void EventLoop::wake() {
  static_cast<void>(state_.lock());
  state_.notify_all();
}

bool EventLoop::State::waits_in_vain(const QueueState& queue) const {
  if (queue.pending.empty() || queue.pending.front()->next == queue.pending.front()->steps.size())
    return false;
  const Submission& first = *queue.pending.front();
  const auto* wait = std::get_if<device::Wait>(&first.steps[first.next].command);
  if (wait == nullptr) return false;
  const Ref<QueueState>* other = find(wait->point.timeline.get());
  return other != nullptr && (*other)->submitted < wait->point.value;
}

Status EventLoop::admit(QueueState& queue, const Point& point) {
  if (point.done()) return {};
  const auto refused = [&](const Status& cause) {
    return Status::unavailable("a submission that this one waits for has failed: ", cause.message());
  };
  Status cause;
  {
    auto state = state_.lock();
    if (const Ref<QueueState>* found = state->find(point.timeline.get())) {
      const Ref<QueueState> other = *found;
      if (point.value > other->submitted + (other.get() == &queue ? 0 : 1)) {
        state->report(Violation::kAwaitedTooEarly,
                      text("value ", point.value, " of queue ", other->number, ", whose last submission is ",
                           other->submitted, ", by queue ", queue.number),
                      options_.fails_on_violation);
        return Status::internal("the point is not about to be submitted");
      }
      const auto decided = [&] {
        return other->submitted >= point.value || !other->failure.ok() || other->removed ||
               !state->loss.ok() || state->stopped;
      };
      // An event has to be recorded before a queue can wait for it: the caller may be made to wait for that.
      if (queue.admission.one_in(2)) state.wait(decided);
      if (other->failure.ok() || point.done()) return {};
      cause = other->failure;
    }
  }
  if (!cause.ok()) {
    // Who failed the queue tells its timeline after this lock, and who is refused asks that for the cause.
    point.timeline->fail(cause, completion_);
    return refused(cause);
  }
  const Status status = point.timeline->wait(point.value, Deadline::never());
  return status.ok() ? Status() : refused(status);
}

Status EventLoop::take_spare(QueueState& queue, Submissions& one) {
  auto state = state_.lock();
  const auto decided = [&] {
    return !queue.spare.empty() || !queue.failure.ok() || !state->loss.ok() || state->stopped;
  };
  state.wait(decided);
  if (queue.spare.empty() && !queue.failure.ok()) return queue.failure;
  if (queue.spare.empty())
    return state->loss.ok() ? Status::unavailable("the device has ended") : state->loss;
  one.splice(one.end(), queue.spare, queue.spare.begin());
  return {};
}

void EventLoop::keep_spare(QueueState& queue, Submissions& over) {
  {
    const auto state = state_.lock();
    if (!queue.spare.empty()) return;
    queue.spare.splice(queue.spare.end(), over, over.begin());
  }
  state_.notify_all();
}

Status EventLoop::hand_in(QueueState& queue, Submissions& one) {
  const bool fails = options_.fails_on_violation;
  const auto& submission = one.front();
  Status status;
  {
    auto state = state_.lock();
    const uint64_t now = tick(*state);
    if (!queue.failure.ok() || !state->loss.ok()) {
      status = queue.failure.ok() ? state->loss : queue.failure;
      if (queue.refused && state->loss.ok())
        state->report(Violation::kWorkAfterFailure, text("queue ", queue.number), fails);
      queue.refused = true;
    } else if (submission->value != queue.submitted + 1) {
      state->report(
          Violation::kDoubleCommit,
          text("value ", submission->value, " of queue ", queue.number, " comes after ", queue.submitted),
          fails);
      status = Status::internal("submission ", submission->value, " has no place on its queue");
    } else {
      if (!submission->refused) submission->host_at_submit = state->host;  // may find no memory: first
      queue.submitted = submission->value;
      state->note(Happened::What::kSubmitted, queue.number, submission->value);
      for (const Submission::Named& named : submission->named) ++named.block->in_flight;
      for (const Step& step : submission->steps) {
        for (const Touch& touch : step.touches) touch.block->writers += touch.writes ? 1 : 0;
      }
      if (queue.pending.empty())
        queue.next_at = std::max(
            queue.next_at, now + queue.admission.delay(static_cast<uint64_t>(options_.longest.count())));
      queue.pending.splice(queue.pending.end(), one);
    }
  }
  state_.notify_all();
  return status;
}

void EventLoop::State::report(Violation what, std::string detail, bool fails) {
  found.push_back({what, std::move(detail)});
  note(Happened::What::kViolated, 0, 0, to_string(found.back()));
  if (fails && loss.ok())
    loss = Status::internal("the simulated device was misused: ", to_string(found.back()));
}

void EventLoop::State::note(Happened::What what, QueueNumber queue, uint64_t value, std::string detail) {
  if (!keeps_history) return;
  static_cast<void>(or_exhausted("a history", [&] {
    history.push_back({now, what, queue, value, std::move(detail)});
    return Status();
  }));
}

void EventLoop::report(Violation what, std::string detail) {
  state_.lock()->report(what, std::move(detail), options_.fails_on_violation);
  state_.notify_all();
}

// Buffers first: where they have died the list may have died with them, and is not read.
bool EventLoop::check_alive(State& state, const Submission& submission) const {
  for (const Submission::Named& named : submission.named) {
    if (!named.buffer.expired()) continue;
    state.report(Violation::kRecycledInFlight,
                 text("submission ", submission.value, " names a buffer that died"),
                 options_.fails_on_violation);
    return false;
  }
  if (submission.list == nullptr || submission.list->size() == submission.commands) return true;
  state.report(Violation::kListDropped,
               text("submission ", submission.value, " had ", submission.commands, " commands, and now ",
                    submission.list->size()),
               options_.fails_on_violation);
  return false;
}

void EventLoop::touch(State& state, QueueState& queue, const Submission& submission, const Step& step) const {
  for (const Touch& touch : step.touches) {
    const Access access{touch.range, touch.writes, {queue.number, submission.value}, touch.arena};
    const std::optional<Access> earlier = touch.block->log.record(access, false, &queue.known, retired_);
    if (!earlier) continue;
    const bool arena = earlier->exclusive || access.exclusive;
    state.report(arena ? Violation::kArenaShared : Violation::kMissingDependency,
                 text("bytes [", touch.range.begin, ", ", touch.range.end, ") are ",
                      describe(*earlier, access), ", and neither knows of the other"),
                 options_.fails_on_violation);
    return;
  }
}

Status EventLoop::enter_call() {
  if (options_.inside_call) options_.inside_call();
  if (!faults_.take(Fault::kLossInCall)) return {};
  Status loss;
  {
    auto state = state_.lock();
    if (state->loss.ok()) state->loss = asked_loss();
    loss = state->loss;
  }
  state_.notify_all();
  return loss;
}

void EventLoop::spend(Duration longer) {
  auto state = state_.lock();
  if (shares_time_) {
    static_cast<void>(state.wait_until(Deadline::in(longer), [&] { return state->stopped; }));
  } else {
    clock_.advance(longer);
    state->now += static_cast<uint64_t>(longer.count());
  }
}

void EventLoop::given(const Ref<Block>& block) { state_.lock()->stats.bytes += block->bytes->bytes(); }

void EventLoop::freed(const Ref<Block>& block) {
  std::vector<Ref<Block>> dropped;  // freed after the lock
  bool in_use = false;
  {
    auto state = state_.lock();
    state->stats.bytes -= block->bytes->bytes();
    in_use = block->in_flight > 0;
    if (in_use) {
      state->report(Violation::kUseAfterFree,
                    text(block->bytes->bytes(), " bytes are freed, and named by ", block->in_flight,
                         " submissions that are not over"),
                    options_.fails_on_violation);
    }
  }
  if (in_use) {
    state_.notify_all();
    return;
  }
  poison(block->bytes);
  poison(block->hosts);
  auto state = state_.lock();
  state->quarantine.push_back(block);
  state->quarantined += block->bytes->bytes();
  while (state->quarantined > kQuarantine) {
    state->quarantined -= state->quarantine.front()->bytes->bytes();
    dropped.push_back(std::move(state->quarantine.front()));
    state->quarantine.pop_front();
  }
}

void EventLoop::check_host_read(const Block& block) {
  {
    auto state = state_.lock();
    if (block.writers == 0) return;
    state->report(Violation::kStagingReadTooEarly,
                  text(block.bytes->bytes(), " bytes that ", block.writers, " commands not over write"),
                  options_.fails_on_violation);
  }
  state_.notify_all();
}

void EventLoop::hold() { state_.lock()->held = true; }

void EventLoop::release() {
  state_.lock()->held = false;
  state_.notify_all();
}

void EventLoop::await_idle() {
  auto state = state_.lock();
  state.wait([&] {
    const auto works = [](const Ref<QueueState>& queue) { return queue->busy; };
    if (std::any_of(state->queues.begin(), state->queues.end(), works)) return false;
    return state->stopped || (state->loss.ok() ? state->next().event == Event::kNone : state->ended);
  });
}

void EventLoop::deliver_lost() {
  {
    auto state = state_.lock();
    for (const Ref<QueueState>& queue : state->queues) queue->mute = queue->hangs = false;
  }
  state_.notify_all();
}

}  // namespace heddle::sim
