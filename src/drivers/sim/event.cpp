#include "drivers/sim/event.h"

#include "drivers/sim/event_loop.h"

namespace heddle::sim {

void SimEvent::signal(const EventLoop* by, const Knowledge& known) {
  std::vector<std::weak_ptr<EventLoop>> loops;
  {
    auto state = state_.lock();
    if (state->reached) return;
    state->reached = true;
    state->by = by;
    state->known = known;
    loops.swap(state->loops);
  }
  for (const std::weak_ptr<EventLoop>& each : loops) {
    if (const Ref<EventLoop> loop = each.lock()) loop->wake();
  }
}

void SimEvent::teach(const EventLoop* whom, Knowledge& known) const {
  const auto state = state_.lock();
  if (state->by == whom) known.learn(state->known);
}

void SimEvent::wake_when_reached(const Ref<EventLoop>& loop) { state_.lock()->loops.push_back(loop); }

}  // namespace heddle::sim
