#include "drivers/sim/event_loop.h"

#include <algorithm>

#include "base/seam.h"
#include "base/yield.h"

namespace heddle::sim {

using device::Point;

namespace {

constexpr size_t kKnownKept = 64;

uint64_t in_ns(Duration duration) { return static_cast<uint64_t>(duration.count()); }

}  // namespace

EventLoop::EventLoop(const SimOptions& options, std::unique_ptr<InnerQueue> inner,
                     device::Completion completion)
    : options_(options),
      shares_time_(seam::simulated()),
      began_(shares_time_ ? Clock::real().now() : TimePoint()),
      seed_(shares_time_ ? Schedule(seam::seed(), options.seed).next() : options.seed),
      inner_(std::move(inner)),
      completion_(completion),
      pauses_(seed_, UINT64_MAX - 1) {
  state_.lock()->keeps_history = options.keeps_history;
}

const Clock& EventLoop::clock() const { return shares_time_ ? Clock::real() : clock_; }

uint64_t EventLoop::tick(State& state) const {
  if (shares_time_) state.now = in_ns(Clock::real().now() - began_);
  return state.now;
}

// The next event, once it is due; or none, and there is something else to do.
EventLoop::Due EventLoop::await(Guarded<State, Rank::kStream>::Held& state) const {
  Due due;
  const auto ready = [&] {
    due = state->held ? Due() : state->next();
    if (state->stopped || (!state->loss.ok() && !state->ended)) return true;
    return due.event != Event::kNone && (!shares_time_ || due.at <= tick(*state));
  };
  while (!ready()) {
    if (due.event == Event::kNone) {
      state.wait([&] { return ready() || due.event != Event::kNone; });
      continue;
    }
    const uint64_t at = due.at;
    const auto sooner = [&] { return ready() || due.event == Event::kNone || due.at < at; };
    static_cast<void>(state.wait_until(Deadline::at(began_ + Duration(at)), sooner));
  }
  return due;
}

void EventLoop::run() {
  for (;;) {
    Due due;
    Status loss;
    {
      auto state = state_.lock();
      due = await(state);
      if (state->stopped) return;
      if (!state->loss.ok() && !state->ended) {
        loss = state->loss;
      } else {
        if (due.at > tick(*state)) {
          clock_.advance(Duration(due.at - state->now));
          state->now = due.at;
        }
        due.queue->busy = true;
      }
    }
    if (!loss.ok()) {
      fail_all(loss);
      continue;
    }
    act(due);
    due.queue = nullptr;
    state_.notify_all();
    pause();
  }
}

// Lets callers in between two events, so that what they submit meets work that is not over.
void EventLoop::pause() {
  if (!pauses_.one_in(4)) return;
  for (uint64_t times = pauses_.below(6); times > 0; --times) give_way();
}

void EventLoop::stop() {
  state_.lock()->stopped = true;
  state_.notify_all();
}

void EventLoop::act(const Due& due) {
  QueueState& queue = *due.queue;
  switch (due.event) {
    case Event::kBegin:
      begin(queue);
      break;
    case Event::kEnd:
      end(queue);
      break;
    case Event::kTell:
      tell(queue);
      break;
    default:
      fail(queue, due.cause);
  }
  const auto state = state_.lock();
  queue.busy = false;
}

void Submission::keep_nothing_but_waits() {
  refused = true;
  std::erase_if(steps, [](const Step& step) { return !std::holds_alternative<device::Wait>(step.command); });
  named.clear();
  list = nullptr;
  commands = 0;
}

const Ref<QueueState>* EventLoop::State::find(const device::Timeline* timeline) const {
  for (const Ref<QueueState>& queue : queues) {
    if (queue->timeline.get() == timeline) return &queue;
  }
  return nullptr;
}

EventLoop::Due EventLoop::State::next() const {
  Due first;
  for (const Ref<QueueState>& queue : queues) {
    Due due = next_of(queue);
    if (due.event != Event::kNone && (first.event == Event::kNone || due.at < first.at))
      first = std::move(due);
  }
  return first;
}

EventLoop::Due EventLoop::State::next_of(const Ref<QueueState>& queue) const {
  Due due;
  if (!queue->failure.ok()) return due;
  if (!queue->untold.empty() && !queue->mute) {
    const Submission& oldest = *queue->untold.front();
    bool told = true;
    for (const Point& point : oldest.awaited) {
      if (point.done()) continue;
      const Ref<QueueState>* other = find(point.timeline.get());
      const bool will_be = other != nullptr && (*other)->failure.ok();
      if (!will_be && oldest.refused) continue;
      told = false;
      if (will_be) continue;
      return {Event::kFail, queue, now,
              Status::device_lost("submission ", oldest.value, " waited for one that failed")};
    }
    if (told) due = {Event::kTell, queue, oldest.tell_at, {}};
  }
  if (queue->pending.empty() || queue->hangs) return due;
  const Submission& current = *queue->pending.front();
  if (due.event != Event::kNone && due.at <= queue->next_at) return due;
  if (current.work != nullptr) return {Event::kEnd, queue, queue->next_at, {}};
  if (current.gate != nullptr && !current.gate->reached()) return due;
  if (current.next < current.steps.size()) {
    if (const auto* wait = std::get_if<device::Wait>(&current.steps[current.next].command)) {
      bool is_over = false;
      Status cause = settled(wait->point, is_over);
      if (!cause.ok() && !current.refused) return {Event::kFail, queue, now, std::move(cause)};
      if (cause.ok() && !is_over) return due;
    }
  }
  return {Event::kBegin, queue, queue->next_at, {}};
}

// By the device's own knowledge, which is ahead of what the host is told. Not ok: it never will be.
Status EventLoop::State::settled(const Point& point, bool& is) const {
  const Ref<QueueState>* other = find(point.timeline.get());
  is = point.done() || (other != nullptr && (*other)->finished >= point.value);
  if (is || (other != nullptr && (*other)->failure.ok())) return {};
  const Status cause = other != nullptr ? (*other)->failure : point.timeline->failure();
  return Status::device_lost("it waits for a submission that failed: ", cause.message());
}

void EventLoop::begin(QueueState& queue) {
  Submission* submission = nullptr;
  bool signals = false;
  {
    auto state = state_.lock();
    for (const auto& [block, writer] : state->unshown) block->forget_hidden(writer);
    state->unshown.clear();
    submission = queue.pending.front().get();
    if (submission->next == 0) begin_first(*state, queue, *submission);
    if (submission->next == submission->steps.size()) {
      finish(*state, queue);
      return;
    }
    signals = std::holds_alternative<device::Signal>(submission->steps[submission->next].command);
    if (!signals && !begin_step(*state, queue, *submission)) return;
  }
  if (signals) return signal(queue, *submission);
  const Step& step = submission->steps[submission->next];
  auto work =
      std::make_unique<Work>(step, Position{queue.number, submission->value}, *inner_, queue.schedule);
  const Status status = work->begin();
  if (!status.ok()) {
    fail(queue, status);
    return;
  }
  const auto state = state_.lock();
  submission->work = std::move(work);
}

void EventLoop::begin_first(const State& state, QueueState& queue, const Submission& submission) const {
  queue.known.learn(submission.host_at_submit);
  if (submission.gate == nullptr) return;
  queue.known.learn(state.host);  // the host may have signalled it for what it has seen since
  submission.gate->teach(this, queue.known);
}

// What waits for the event knows of this submission. The event first: its waiters' loops are called.
void EventLoop::signal(QueueState& queue, Submission& submission) {
  Knowledge known = queue.known;
  known.learn_all_up_to({queue.number, submission.value});
  const auto& step = std::get<device::Signal>(submission.steps[submission.next].command);
  static_cast<SimEvent*>(step.event.handle)->signal(this, known);
  auto state = state_.lock();
  queue.next_at = state->now + queue.schedule.delay(in_ns(options_.longest)) + 1;
  if (++submission.next == submission.steps.size()) finish(*state, queue);
}

// False: there is nothing to compute.
bool EventLoop::begin_step(State& state, QueueState& queue, Submission& submission) {
  const Step& step = submission.steps[submission.next];
  queue.next_at = tick(state) + queue.schedule.delay(in_ns(options_.longest)) + 1;
  if (const auto* wait = std::get_if<device::Wait>(&step.command)) {
    if (const Ref<QueueState>* other = state.find(wait->point.timeline.get())) {
      const auto known = (*other)->known_at.lower_bound(wait->point.value);
      if (known != (*other)->known_at.end()) queue.known.learn(known->second);
    }
    if (++submission.next == submission.steps.size()) finish(state, queue);
    return false;
  }
  static_cast<void>(check_alive(state, submission));
  if (!state.loss.ok()) return false;
  ++state.stats.commands;
  state.stats.runs += std::holds_alternative<device::Run>(step.command) ? 1 : 0;
  for (const Ref<QueueState>& other : state.queues) {
    if (other.get() == &queue || other->pending.empty() || other->pending.front()->work == nullptr) continue;
    ++state.stats.overlaps;
    break;
  }
  state.note(Happened::What::kBegun, queue.number, submission.value, describe(step.command));
  touch(state, queue, submission, step);
  if (!state.loss.ok()) return false;
  if (faults_.take(Fault::kDeviceLoss)) {
    state.loss = asked_loss();
    return false;
  }
  queue.hangs = faults_.take(Fault::kHang);
  return true;
}

void EventLoop::end(QueueState& queue) {
  Submission& submission = *queue.pending.front();
  const Status status = faults_.take(Fault::kQueueFailure)
                            ? Status::device_lost("the queue failed, as was asked for")
                            : submission.work->end();
  if (!status.ok()) {
    fail(queue, status);
    return;
  }
  submission.faults.push_back(submission.work->take_faults());
  auto state = state_.lock();
  submission.work = nullptr;
  const uint64_t now = tick(*state);
  state->note(Happened::What::kEnded, queue.number, submission.value,
              describe(submission.steps[submission.next].command));
  queue.next_at = now + queue.schedule.delay(in_ns(options_.longest));
  if (++submission.next == submission.steps.size()) finish(*state, queue);
}

void EventLoop::finish(State& state, QueueState& queue) {
  Submissions one;
  one.splice(one.begin(), queue.pending, queue.pending.begin());
  const auto& submission = one.front();
  queue.finished = submission->value;
  queue.known.learn_all_up_to({queue.number, submission->value});
  queue.known.forget(retired_);
  queue.known_at[submission->value] = queue.known;
  if (queue.known_at.size() > kKnownKept) queue.known_at.erase(queue.known_at.begin());
  const bool late = faults_.take(Fault::kLateCompletion);
  submission->tell_at =
      tick(state) + queue.schedule.delay(2 * in_ns(options_.longest)) + (late ? in_ns(kSlow) : 0);
  queue.untold.splice(queue.untold.end(), one);
}

void EventLoop::tell(QueueState& queue) {
  Submissions told;
  {
    auto state = state_.lock();
    const uint64_t now = tick(*state);
    if (faults_.take(Fault::kLostCompletion)) {  // under the lock: who has seen it lost can have it delivered
      state->note(Happened::What::kLost, queue.number, queue.untold.front()->value);
      queue.mute = true;
      return;
    }
    // What else is due is told with it: a host may see values pass by.
    do {
      if (!told.empty() && !queue.untold.front()->awaited.empty()) break;
      told.splice(told.end(), queue.untold, queue.untold.begin());
    } while (!queue.untold.empty() && queue.untold.front()->tell_at <= now);
    for (const auto& each : told) {
      static_cast<void>(check_alive(*state, *each));
      state->note(Happened::What::kTold, queue.number, each->value);
      release_blocks(*each);
    }
    state->stats.submissions += told.size();
    // First: who learns of the completion may rely on it.
    const auto known = queue.known_at.find(told.back()->value);
    if (known != queue.known_at.end()) state->host.learn(known->second);
    state->host.learn_all_up_to({queue.number, told.back()->value});
    if (!state->loss.ok()) return;
  }
  for (const auto& each : told) {
    for (const Submission::Named& named : each->named) named.block->show_host({queue.number, each->value});
    for (const Work::LateFaults& faults : each->faults) faults.tell();
  }
  const int times = faults_.take(Fault::kSecondCompletion) ? 2 : 1;
  for (int time = 0; time < times; ++time) queue.timeline->advance(told.back()->value, completion_);
  **told.begin() = Submission();  // what it held goes without the lock
  keep_spare(queue, told);
  if (!queue.foreign) return;
  auto state = state_.lock();
  std::erase_if(state->queues, [&](const Ref<QueueState>& each) { return each.get() == &queue; });
  queue.removed = true;
  retired_.add(queue.number);
}

void EventLoop::fail(QueueState& queue, const Status& cause) {
  Submissions dropped;
  {
    auto state = state_.lock();
    if (!queue.failure.ok()) return;
    queue.failure = cause;
    tick(*state);
    state->note(Happened::What::kFailed, queue.number, queue.finished + 1, cause.message());
    ++state->stats.failures;
    dropped = take_all(*state, queue);
    state->host.learn_all_up_to({queue.number, queue.submitted});
  }
  queue.timeline->fail(cause, completion_);
  signal_dropped(dropped);
}

// Busy until all is over: a queue that may go sooner lets its device go, and what is dropped here can hold
// the last reference to that, whose end joins this thread.
void EventLoop::fail_all(const Status& cause) {
  std::vector<Ref<QueueState>> all;
  {
    auto state = state_.lock();
    state->ended = true;
    all = state->queues;
    for (const Ref<QueueState>& queue : all) queue->busy = true;
  }
  for (const Ref<QueueState>& queue : all) fail(*queue, cause);
  {
    const auto state = state_.lock();
    for (const Ref<QueueState>& queue : all) queue->busy = false;
  }
  state_.notify_all();
}

Submissions EventLoop::take_all(State& state, QueueState& queue) {
  Submissions all;
  for (auto* list : {&queue.untold, &queue.pending}) {
    for (auto& each : *list) {
      release_blocks(*each);
      for (const Submission::Named& named : each->named)
        state.unshown.emplace_back(named.block, Position{queue.number, each->value});
    }
    all.splice(all.end(), *list);
  }
  return all;
}

// Those who wait for an event of a queue that has failed, or died, are not left waiting.
void EventLoop::signal_dropped(const Submissions& dropped) {
  for (const auto& submission : dropped) {
    for (size_t i = submission->next; i < submission->steps.size(); ++i) {
      if (const auto* step = std::get_if<device::Signal>(&submission->steps[i].command))
        static_cast<SimEvent*>(step->event.handle)->signal();
    }
  }
}

void EventLoop::release_blocks(const Submission& submission) {
  for (const Submission::Named& named : submission.named) --named.block->in_flight;
  for (const Step& step : submission.steps) {
    for (const Touch& touch : step.touches) touch.block->writers -= touch.writes ? 1 : 0;
  }
}

}  // namespace heddle::sim
