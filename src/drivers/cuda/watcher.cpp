#include "drivers/cuda/watcher.h"

#include "base/no_memory.h"

namespace heddle::cuda {
namespace {

constexpr Duration kSpin = std::chrono::microseconds(100);   // runs end often: look all the time
constexpr Duration kPause = std::chrono::microseconds(50);   // between looks, later on
constexpr Duration kSuspect = std::chrono::milliseconds(1);  // without progress: is the device still there?

}  // namespace

Duration Watcher::begin_looking() {
  if (looking_.add_relaxed(1) < lookers_) return kPatience;
  looking_.sub_relaxed(1);
  return Duration(0);
}

void Watcher::watch(Ref<Watched> timeline, uint64_t value) {
  std::list<Awaited> arrived;
  arrived.push_back({std::move(timeline), value});
  {
    auto state = state_.lock();
    if (state->stopped) return;  // the device is closed: nobody would take it, and it holds this
    state->arrived.splice(state->arrived.end(), arrived);
  }
  state_.notify_one();
}

void Watcher::stop() {
  state_.lock()->stopped = true;
  state_.notify_one();
}

// False: the thread is to end.
bool Watcher::take_arrivals(std::list<Awaited>& awaited, bool idle, Duration pause) {
  auto state = state_.lock();
  const auto changed = [&] { return state->stopped || !state->arrived.empty(); };
  if (idle) {
    state.wait(changed);
  } else if (pause > Duration(0)) {
    state.wait_until(Deadline::in(pause), changed);
  }
  awaited.splice(awaited.end(), state->arrived);
  return !state->stopped;
}

// Without memory to say what CUDA answered, it is asked again.
void Watcher::ask(Watched& timeline) {
  static_cast<void>(or_exhausted("a question to CUDA", [&] {
    timeline.ask();
    return Status();
  }));
}

void Watcher::run() {
  std::list<Awaited> awaited;
  TimePoint progress, asked;  // when something was last over, and when CUDA was last asked
  Duration pause(0);
  for (bool idle = true; take_arrivals(awaited, idle, pause); idle = awaited.empty()) {
    const TimePoint now = Clock::real().now();
    const size_t before = awaited.size();
    for (const Awaited& each : awaited) each.timeline->look();
    std::erase_if(awaited, [](const Awaited& each) {
      return each.timeline->done(each.value) || each.timeline->failed();
    });
    if (idle || awaited.size() != before) progress = asked = now;
    pause = now - progress > kSpin ? kPause : Duration(0);
    if (now - asked > kSuspect) {
      asked = now;
      for (const Awaited& each : awaited) ask(*each.timeline);
    }
    relax_processor(8);
  }
}

}  // namespace heddle::cuda
