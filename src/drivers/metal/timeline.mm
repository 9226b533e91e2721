#include "drivers/metal/timeline.h"

#include <algorithm>
#include <new>

#include "base/no_memory.h"
#include "drivers/metal/flight.h"

namespace heddle::metal {

// Without memory it waits for one of those in flight.
MetalTimeline::Places MetalTimeline::take_place() {
  Places place;
  {
    auto state = state_.lock();
    if (!state->idle.empty()) place.splice(place.begin(), state->idle, state->idle.begin());
  }
  if (!place.empty()) return place;
  try {
    place.emplace_back();
  } catch (const std::bad_alloc&) {
    auto state = state_.lock();
    state.wait([&] { return !state->idle.empty(); });
    place.splice(place.begin(), state->idle, state->idle.begin());
  }
  return place;
}

Status MetalTimeline::begin(uint64_t value, Duration stuck_after) {
  Places place = take_place();
  auto state = state_.lock();
  const auto free = [&] { return state->open < kMostInFlight || !state->cause.ok(); };
  const bool waited = !defences_.below_metals_limit || state.wait_until(Deadline::in(stuck_after), free);
  if (failed()) {
    state->idle.splice(state->idle.end(), place);
    return state->cause;
  }
  const bool has_room = waited && state->cause.ok();
  place.front() = {value, has_room ? size_t{1} : size_t{0}};
  state->in_flight.splice(state->in_flight.end(), place);
  state->begun = value;
  if (has_room) ++state->open;
  if (!state->cause.ok()) return state->cause;
  if (waited) return {};
  return exhausted_by("the queue holds ", state->open,
                      " command buffers that are not over, and none has ended for ",
                      std::chrono::duration_cast<std::chrono::milliseconds>(stuck_after).count(), " ms");
}

void MetalTimeline::split(uint64_t value) {
  auto state = state_.lock();
  const auto found = in_flight_of(*state, value);
  ++found->buffers;
  ++state->open;
}

void MetalTimeline::has_no_commands(uint64_t value) {
  {
    auto state = state_.lock();
    const auto found = in_flight_of(*state, value);
    state->open -= std::exchange(found->buffers, 0);
    state->host_signals = true;
  }
  state_.notify_all();
}

void MetalTimeline::ran(uint64_t value, WaitingList& ready) {
  auto state = state_.lock();
  const auto found = in_flight_of(*state, value);
  if (found != state->in_flight.end()) found->ran = true;
  wake(*state, ready);
}

void MetalTimeline::end(uint64_t value, Status status, WaitingList& ready) {
  {
    auto state = state_.lock();
    if (!status.ok() && value < state->broken_from) {
      state->broken_from = value;
      state->cause = std::move(status);
    }
    reach(*state, value);
    // Metal may not signal for a command buffer that failed. Once the queue is broken every end does it, as a
    // signal that Metal executes late may have lowered the value again.
    if (!state->cause.ok()) signal(std::min(ran_up_to(*state), state->begun));
    const auto is_over = [](const InFlight& each) { return each.over; };
    if (!state->cause.ok() && std::ranges::all_of(state->in_flight, is_over)) {
      state->idle.splice(state->idle.end(), state->in_flight);
      fail(state->cause, completion_);  // with the lock: nothing may begin in between
    }
    wake(*state, ready);
  }
  state_.notify_all();
}

MetalTimeline::Places::iterator MetalTimeline::in_flight_of(State& state, uint64_t value) {
  return std::ranges::find(state.in_flight, value, &InFlight::value);
}

void MetalTimeline::reach(State& state, uint64_t value) {
  const auto found = in_flight_of(state, value);
  if (found != state.in_flight.end() && !found->over) {
    found->over = true;
    state.open -= found->buffers;
  }
  uint64_t last = 0;
  while (!state.in_flight.empty() && state.in_flight.front().over &&
         state.in_flight.front().value < state.broken_from) {
    last = state.in_flight.front().value;
    state.idle.splice(state.idle.end(), state.in_flight, state.in_flight.begin());
  }
  if (last == 0) return;
  // From the first such value on: this may lower what a command buffer signals meanwhile, whose end mends it.
  if (state.host_signals) signal(last);
  advance(last, completion_);
}

void MetalTimeline::signal(uint64_t value) {
  if ([event_.get() signaledValue] < value) [event_.get() setSignaledValue:value];
}

uint64_t MetalTimeline::ran_up_to(const State& state) {
  for (const InFlight& each : state.in_flight) {
    if (!each.ran && !each.over) return each.value - 1;
  }
  return UINT64_MAX;
}

bool MetalTimeline::decided(const State& state, uint64_t value) const {
  if (done(value) || failed()) return true;
  return state.broken_from <= value && value <= state.begun && value <= ran_up_to(state);
}

bool MetalTimeline::decides_later(uint64_t value, const Ref<Flight>& flight, WaitingList& place) {
  if (done(value)) return false;
  auto state = state_.lock();
  if (decided(*state, value)) return false;
  place.front() = {value, flight};
  state->waiting.splice(state->waiting.end(), place, place.begin());
  return true;
}

void MetalTimeline::wake(State& state, WaitingList& ready) const {
  for (auto each = state.waiting.begin(); each != state.waiting.end();) {
    const auto here = each++;
    if (decided(state, here->value)) ready.splice(ready.end(), state.waiting, here);
  }
}

Status MetalTimeline::outcome(uint64_t value) const {
  if (done(value)) return {};
  return state_.lock()->cause;
}

}  // namespace heddle::metal
