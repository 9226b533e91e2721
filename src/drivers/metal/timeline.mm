#include "drivers/metal/timeline.h"

#include <algorithm>

#include "drivers/metal/flight.h"

namespace heddle::metal {

Status MetalTimeline::begin(uint64_t value, Duration stuck_after) {
  auto state = state_.lock();
  const auto free = [&] { return state->open < kMostInFlight || !state->cause.ok(); };
  const bool waited = !defences_.below_metals_limit || state.wait_until(Deadline::in(stuck_after), free);
  if (!state->cause.ok()) return state->cause;
  state->in_flight.push_back({value, !waited});
  if (!waited) {
    return Status::exhausted(
        "the queue holds ", state->open, " command buffers that are not over, and none has ended for ",
        std::chrono::duration_cast<std::chrono::milliseconds>(stuck_after).count(), " ms");
  }
  ++state->open;
  return {};
}

void MetalTimeline::split(uint64_t value) {
  auto state = state_.lock();
  const auto found = in_flight_of(*state, value);
  ++found->buffers;
  ++state->open;
}

void MetalTimeline::end(uint64_t value, Status status, std::vector<Ref<Flight>>& ready) {
  bool failed = false;
  Status cause;
  {
    auto state = state_.lock();
    if (!status.ok() && value < state->broken_from) {
      state->broken_from = value;
      state->cause = std::move(status);
    }
    reach(*state, value);
    cause = state->cause;
    failed = !cause.ok() && state->open == 0;
    // Metal may not signal for a command buffer that failed. Once the queue is broken every end does it, as a
    // signal that Metal executes late may have lowered the value again.
    if (!cause.ok() && [event_.get() signaledValue] < value) [event_.get() setSignaledValue:value];
    std::erase_if(state->waiting, [&](auto& each) {
      if (!decided(*state, each.first)) return false;
      ready.push_back(std::move(each.second));
      return true;
    });
  }
  state_.notify_all();
  if (failed) fail(std::move(cause), completion_);
}

std::deque<MetalTimeline::InFlight>::iterator MetalTimeline::in_flight_of(State& state, uint64_t value) {
  return std::find_if(state.in_flight.begin(), state.in_flight.end(),
                      [&](const InFlight& each) { return each.value == value; });
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
    state.in_flight.pop_front();
  }
  if (last != 0) advance(last, completion_);
}

bool MetalTimeline::decided(const State& state, uint64_t value) const {
  return done(value) || state.broken_from <= value;
}

bool MetalTimeline::decides_later(uint64_t value, const Ref<Flight>& flight) {
  if (done(value)) return false;
  auto state = state_.lock();
  if (decided(*state, value)) return false;
  state->waiting.emplace_back(value, flight);
  return true;
}

Status MetalTimeline::outcome(uint64_t value) const {
  if (done(value)) return {};
  return state_.lock()->cause;
}

}  // namespace heddle::metal
