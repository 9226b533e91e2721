// event.h: an event of the simulated vendor: what a ForeignEvent's handle is for the device `sim`.
//
//   What       The stranger's side makes it, signals it and asks it; devices gate a queue of their own on it
//              (EventLoop::import_event()), or reach it at a Signal.
//   States     not reached -> reached, once.
//   Threads    Any. One lock, within an event loop's; loops are woken after it.
//   Blocks     Never.
#pragma once

#include <memory>
#include <vector>

#include "base/sync.h"
#include "device/device.h"
#include "drivers/sim/hazards.h"

namespace heddle::sim {

class EventLoop;

class SimEvent : public std::enable_shared_from_this<SimEvent> {
 public:
  device::ForeignEvent foreign() { return {this, 0, shared_from_this()}; }
  bool reached() const { return state_.lock()->reached; }
  void signal() { signal(nullptr, {}); }

  // For devices. `known` is what a queue of `by` knew when it came to the Signal: it travels with the event.
  void signal(const EventLoop* by, const Knowledge& known);
  void teach(const EventLoop* whom, Knowledge& known) const;
  void wake_when_reached(const Ref<EventLoop>& loop);

 private:
  struct State {
    bool reached = false;
    const EventLoop* by = nullptr;  // compared only
    Knowledge known;
    std::vector<std::weak_ptr<EventLoop>> loops;
  };
  mutable Guarded<State, Rank::kHelpers> state_;
};

}  // namespace heddle::sim
