#include "batch/calls/leaders.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "base/fork.h"
#include "base/sync.h"

namespace heddle::batch {

struct Leaders::Shared {
  struct State {
    std::deque<Task> tasks;
    std::map<Timer, Task> timers;
    std::vector<Ref<Leader>> leaders;
    size_t starting = 0;   // of those, not yet known to run
    size_t idle = 0;       // of those, asleep, or told and not yet up
    size_t strangers = 0;  // other threads that sleep here
    uint64_t owed = 0;
    bool stopped = false;

    bool over() const { return stopped && owed == 0 && tasks.empty(); }
    TimePoint next() const { return timers.empty() ? TimePoint::max() : std::get<0>(timers.begin()->first); }
    Ref<Leader> add() {
      ++starting;
      leaders.push_back(std::make_shared<Leader>());
      return leaders.back();
    }
    // One more, to be started once the lock is let go, where the idle ones cannot take all tasks and keep the
    // time besides.
    Ref<Leader> add_if_needed(size_t limit) {
      const size_t wanted = tasks.size() + (timers.empty() ? 0 : 1);
      const bool needed = wanted > idle + starting && leaders.size() < limit && !over();
      return needed ? add() : nullptr;
    }
    // What is due first, a timer before what was posted; an empty one when nothing is.
    Task take() {
      Task task;
      if (next() <= Clock::real().now()) {
        task = std::move(timers.begin()->second);
        timers.erase(timers.begin());
      } else if (!tasks.empty()) {
        task = std::move(tasks.front());
        tasks.pop_front();
      }
      return task;
    }
  };
  explicit Shared(int limit) : most(static_cast<size_t>(limit)) {}

  // A stranger that is told instead would leave the leaders asleep.
  template <class Held>
  static void tell_one(Held& state) {
    if (state->strangers == 0) {
      state.notify_one();
    } else {
      state.notify_all();
    }
  }

  const size_t most;
  Guarded<State, Rank::kBatch> state;
};

Leaders::Leaders(int most, Outlives outlives)
    : born_(fork_generation()), outlives_(std::move(outlives)), shared_(std::make_shared<Shared>(most)) {}

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
  Ref<Leader> first;
  {
    auto state = shared_->state.lock();
    if (state->stopped) return Status::unavailable("closed");
    ++state->owed;
    if (state->leaders.empty()) first = state->add();
  }
  if (first == nullptr || start(shared_, first)) return {};
  settle();
  return Status::exhausted("no thread can be started to lead calls that have none");
}

void Leaders::settle() {
  auto state = shared_->state.lock();
  if (--state->owed == 0) state.notify_all();
}

bool Leaders::start(const Ref<Shared>& shared, const Ref<Leader>& leader) {
  Result<Thread> started = Thread::start("heddle-leader", [shared, leader] { work(shared, *leader); });
  if (started.ok()) leader->thread = std::move(started).value();
  auto state = shared->state.lock();
  --state->starting;
  if (!started.ok()) std::erase(state->leaders, leader);
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
    more = state->add_if_needed(shared_->most);
    Shared::tell_one(state);
  }
  start_if(shared_, more);
}

void Leaders::at(const Timer& timer, Task task) {
  Ref<Leader> more;
  {
    auto state = shared_->state.lock();
    const bool first = std::get<0>(timer) < state->next();
    state->timers.try_emplace(timer, std::move(task));
    more = state->add_if_needed(shared_->most);
    if (first) Shared::tell_one(state);
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

void Leaders::work(const Ref<Shared>& ref, Leader& self) {
  Shared& shared = *ref;
  {
    const auto state = shared.state.lock();
    self.id = std::this_thread::get_id();
  }
  for (;;) {
    Task task;
    Ref<Leader> more;
    {
      auto state = shared.state.lock();
      while (!state->over() && !(task = state->take())) {
        ++state->idle;
        const TimePoint until = state->next();
        const auto changed = [&] { return state->over() || !state->tasks.empty() || state->next() < until; };
        if (until == TimePoint::max()) {
          state.wait(changed);
        } else {
          static_cast<void>(state.wait_until(Deadline::at(until), changed));
        }
        --state->idle;
      }
      if (!task) break;
      // This thread may have been told of what is left, or have kept the time for all.
      if (state->idle != 0 && (!state->tasks.empty() || !state->timers.empty())) Shared::tell_one(state);
      more = state->add_if_needed(shared.most);
    }
    start_if(ref, more);
    task();
  }
  self.ended.store_release(true);
}

void Leaders::stop() {
  if (fork_generation() != born_) return;
  const bool own = is_own_thread();
  std::vector<Ref<Leader>> leaders;
  {
    auto state = shared_->state.lock();
    state->stopped = true;
    state.notify_all();
    if (own) return;  // it ends when its task has returned; the destructor sees to it
    ++state->strangers;
    state.wait([&] { return state->starting == 0 && state->owed == 0; });
    --state->strangers;
    leaders.swap(state->leaders);  // of two that stop it, one joins each
  }
  for (const Ref<Leader>& leader : leaders) leader->thread.join();
}

bool Leaders::await_settled(Deadline deadline) const {
  if (fork_generation() != born_ || is_own_thread()) return false;
  auto state = shared_->state.lock();
  ++state->strangers;
  const bool settled = state.wait_until(deadline, [&] { return state->owed == 0; });
  --state->strangers;
  return settled;
}

int Leaders::threads() const { return static_cast<int>(shared_->state.lock()->leaders.size()); }

}  // namespace heddle::batch
