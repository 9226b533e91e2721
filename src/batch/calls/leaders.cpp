#include "batch/calls/leaders.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "base/fork.h"
#include "base/looking.h"
#include "base/sync.h"

namespace heddle::batch {

struct Leaders::Shared {
  struct State {
    std::deque<Task> tasks;
    std::map<Timer, Task> timers;
    std::vector<Ref<Leader>> leaders;
    size_t starting = 0;   // of those, without a thread that can be joined
    size_t coming = 0;     // of those, not yet here: one that has come may have a task already
    size_t idle = 0;       // of those, asleep, or told and not yet up, or looking
    size_t looking = 0;    // of those idle
    size_t strangers = 0;  // other threads that sleep here
    bool stopped = false;

    TimePoint next() const { return timers.empty() ? TimePoint::max() : std::get<0>(timers.begin()->first); }
    Ref<Leader> add() {
      ++starting;
      ++coming;
      leaders.push_back(std::make_shared<Leader>());
      return leaders.back();
    }
    Task take_timer() {
      Task task = std::move(timers.begin()->second);
      timers.erase(timers.begin());
      return task;
    }
    Task take_task() {
      Task task = std::move(tasks.front());
      tasks.pop_front();
      return task;
    }
  };
  // What a leader has to do. Without a task: to end, or else to look for one.
  struct Turn {
    Task task;
    Ref<Leader> more;  // to be started
    bool is_over = false;
    uint32_t changes = 0;
    Deadline until = Deadline::never();
  };
  Shared(int limit, int processors)
      : most(static_cast<size_t>(limit)), crowd(processors == 0 ? 0 : 1 + limit / processors) {}

  // `looked`: it was counted as looking. `claimed`: one of the tasks is its own. Without `sleeps` it looks
  // where there is nothing yet.
  Turn take_turn(bool looked, bool claimed, bool sleeps);
  // True: one of the tasks is the caller's to take, under the lock.
  bool claim() {
    for (uint64_t seen = offered.load_relaxed(); seen != 0;) {
      if (offered.cas_weak_acq_rel(seen, seen - 1)) return true;
    }
    return false;
  }
  // What is due first, a timer before what nobody has claimed; an empty one when nothing is.
  Task take(State& at) {
    if (at.next() <= Clock::real().now()) return at.take_timer();
    return claim() ? at.take_task() : Task();
  }
  size_t wanted(const State& at) const { return offered.load_relaxed() + (at.timers.empty() ? 0 : 1); }
  // A stranger that is told instead would leave the leaders asleep.
  template <class Held>
  void tell_one(Held& held) const {
    if (held->strangers != 0) {
      held.notify_all();
    } else if (wanted(*held) > held->looking) {
      held.notify_one();
    }
  }
  template <class Held>
  void tell_all(Held& held) {
    changes.add_relaxed(1);
    held.notify_all();
  }
  bool is_settled() const { return (owed.load_acquire() & ~kStopped) == 0; }
  bool is_over(const State& at) const { return at.stopped && is_settled() && at.tasks.empty(); }
  // One more, to be started once the lock is let go, where the idle ones cannot take all tasks and keep the
  // time besides.
  Ref<Leader> add_if_needed(State& at) const {
    const bool needed = wanted(at) > at.idle + at.coming && at.leaders.size() < most && !is_over(at);
    return needed ? at.add() : nullptr;
  }

  static constexpr uint64_t kStopped = uint64_t{1} << 63;
  const size_t most;
  const int crowd;  // threads of a core that may look; 0: none does
  Guarded<State, Rank::kBatch> state;
  // Tasks that nobody has claimed. Added to under the lock, when they are there; whoever takes one away pops
  // one. A leader that looks claims before it takes the lock: the others go on looking.
  Atomic<uint64_t> offered{0};
  // Changed under the lock with what else a leader has to know that looks; relaxed: it takes the lock next.
  Atomic<uint32_t> changes{0};
  // Promises, and kStopped, set once. owe() adds, settle() takes away, with release; the last promise only
  // under the lock, so that who sleeps until nothing is owed is told. That one acquires what came before.
  Atomic<uint64_t> owed{0};
  Atomic<bool> has_leader{false};  // set by the first one's start: a hint for owe(), relaxed
};

Leaders::Leaders(int most, Outlives outlives, int look_on)
    : born_(fork_generation()),
      outlives_(std::move(outlives)),
      shared_(std::make_shared<Shared>(most, look_on)) {}

Leaders::~Leaders() {
  if (fork_generation() != born_) return;
  stop();
  std::vector<Ref<Leader>> left;  // stop() has joined all, unless this is one of them
  Ref<Leader> own;
  {
    auto state = shared_->state.lock();
    ++state->strangers;
    state.wait([&] { return state->starting == 0; });  // a leader has its thread only then
    --state->strangers;
    left.swap(state->leaders);
    const auto mine = std::find_if(left.begin(), left.end(), [](const Ref<Leader>& leader) {
      return leader->id == std::this_thread::get_id();
    });
    if (mine != left.end()) {
      own = std::move(*mine);
      left.erase(mine);
    }
  }
  for (const Ref<Leader>& leader : left) leader->thread.join();
  if (own != nullptr) outlives_(std::move(own));
}

bool Leaders::is_own_thread() const {
  const auto state = shared_->state.lock();
  return std::any_of(state->leaders.begin(), state->leaders.end(),
                     [](const Ref<Leader>& leader) { return leader->id == std::this_thread::get_id(); });
}

Status Leaders::owe() {
  if ((shared_->owed.add_relaxed(1) & Shared::kStopped) != 0) {
    settle();
    return Status::unavailable("closed");
  }
  if (shared_->has_leader.load_relaxed()) return {};
  Ref<Leader> first;
  {
    auto state = shared_->state.lock();
    if (state->leaders.empty()) first = state->add();
  }
  if (first == nullptr || start(shared_, first)) return {};
  settle();
  return Status::exhausted("no thread can be started to lead calls that have none");
}

void Leaders::settle(uint64_t promises) {
  Atomic<uint64_t>& owed = shared_->owed;
  for (uint64_t seen = owed.load_relaxed(); (seen & ~Shared::kStopped) > promises;) {
    if (owed.cas_weak_acq_rel(seen, seen - promises)) return;
  }
  auto state = shared_->state.lock();
  owed.sub_relaxed(promises);  // the lock releases what came before
  if (shared_->is_settled()) shared_->tell_all(state);
}

bool Leaders::start(const Ref<Shared>& shared, const Ref<Leader>& leader) {
  Result<Thread> started = Thread::start("heddle-leader", [shared, leader] { work(shared, *leader); });
  if (started.ok()) leader->thread = std::move(started).value();
  auto state = shared->state.lock();
  --state->starting;
  if (!started.ok()) {
    --state->coming;
    std::erase(state->leaders, leader);
  }
  if (started.ok()) shared->has_leader.store_relaxed(true);
  if (state->strangers != 0) state.notify_all();  // stop() waits for threads that start
  return started.ok();
}

// Without one more, those that there are do it, later.
void Leaders::start_if(const Ref<Shared>& shared, const Ref<Leader>& more) {
  if (more != nullptr) static_cast<void>(start(shared, more));
}

void Leaders::post(Task task) {
  Ref<Leader> more;
  {
    auto state = shared_->state.lock();
    state->tasks.push_back(std::move(task));
    shared_->offered.add_relaxed(1);
    more = shared_->add_if_needed(*state);
    shared_->tell_one(state);
  }
  start_if(shared_, more);
}

void Leaders::at(const Timer& timer, Task task) {
  Ref<Leader> more;
  {
    auto state = shared_->state.lock();
    const bool first = std::get<0>(timer) < state->next();
    state->timers.try_emplace(timer, std::move(task));
    more = shared_->add_if_needed(*state);
    if (first) {
      shared_->changes.add_relaxed(1);
      shared_->tell_one(state);
    }
  }
  start_if(shared_, more);
}

void Leaders::forget(const Timer& timer) {
  Task dropped;  // destroyed without the lock
  auto state = shared_->state.lock();
  const auto found = state->timers.find(timer);
  if (found == state->timers.end()) return;
  dropped = std::move(found->second);
  state->timers.erase(found);
}

Leaders::Shared::Turn Leaders::Shared::take_turn(bool looked, bool claimed, bool sleeps) {
  Turn turn;
  auto at = state.lock();
  if (looked) {
    --at->idle;
    --at->looking;
  }
  if (claimed) turn.task = at->take_task();
  while (!turn.task && !is_over(*at) && !(turn.task = take(*at))) {
    const TimePoint until = at->next();
    ++at->idle;
    if (!sleeps) {
      ++at->looking;
      turn.changes = changes.load_relaxed();
      turn.until = Deadline::at(until);
      return turn;
    }
    // `offered` only falls without the lock: then there is less to wake for.
    const auto changed = [&] { return is_over(*at) || offered.load_relaxed() != 0 || at->next() < until; };
    if (until == TimePoint::max()) {
      at.wait(changed);
    } else {
      static_cast<void>(at.wait_until(Deadline::at(until), changed));
    }
    --at->idle;
  }
  turn.is_over = !turn.task;
  if (turn.is_over) return turn;
  // Who asked whether it is over while this task was claimed, and not yet taken, has gone back to sleep.
  if (is_over(*at)) tell_all(at);
  // This thread may have been told of what is left, or have kept the time for all.
  if (at->idle != 0 && wanted(*at) != 0) tell_one(at);
  turn.more = add_if_needed(*at);
  return turn;
}

void Leaders::work(const Ref<Shared>& ref, Leader& self) {
  Shared& shared = *ref;
  {
    auto state = shared.state.lock();
    --state->coming;
    self.id = std::this_thread::get_id();
  }
  const bool may_look = shared.crowd != 0;
  for (bool looked = false, claimed = false, sleeps = !may_look;;) {
    const Shared::Turn turn = shared.take_turn(looked, claimed, sleeps);
    if (turn.is_over) break;
    start_if(ref, turn.more);
    looked = !turn.task;
    claimed = false;
    if (looked) {
      const auto is_there = [&] {
        return (claimed = shared.claim()) || shared.changes.load_relaxed() != turn.changes;
      };
      sleeps = !look_for(is_there, shared.crowd, kForAnswers, turn.until);
    } else {
      turn.task();
      sleeps = !may_look;
    }
  }
  self.ended.store_relaxed(true);
}

void Leaders::stop() {
  if (fork_generation() != born_) return;
  const bool own = is_own_thread();
  std::vector<Ref<Leader>> leaders;
  {
    auto state = shared_->state.lock();
    shared_->owed.or_acq_rel(Shared::kStopped);
    state->stopped = true;
    shared_->tell_all(state);
    if (own) return;  // it ends when its task has returned; the destructor sees to it
    ++state->strangers;
    state.wait([&] { return state->starting == 0 && shared_->is_settled(); });
    --state->strangers;
    leaders.swap(state->leaders);  // of two that stop it, one joins each
  }
  for (const Ref<Leader>& leader : leaders) leader->thread.join();
}

bool Leaders::await_settled(Deadline deadline) const {
  if (fork_generation() != born_ || is_own_thread()) return false;
  auto state = shared_->state.lock();
  ++state->strangers;
  const bool settled = state.wait_until(deadline, [&] { return shared_->is_settled(); });
  --state->strangers;
  return settled;
}

int Leaders::threads() const { return static_cast<int>(shared_->state.lock()->leaders.size()); }

}  // namespace heddle::batch
