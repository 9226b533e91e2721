// lone.cpp: calls that run alone while nobody else is there: through a door, past our lock.
#include <cassert>

#include "batch/calls/coalescer.h"

namespace heddle::batch {

namespace {

// The door stays shut as long after callers with long runs competed, while it is not known that all lanes
// serve most: what is served behind it decides.
constexpr Duration kCalm = std::chrono::milliseconds(5);

}  // namespace

// Whoever was counted as a lane busy when the door was shut owes a look at who waits for it, also where it
// ran nothing.
class Coalescer::Leaving {
 public:
  explicit Leaving(Coalescer& coalescer) : coalescer_(coalescer) {}
  Leaving(const Leaving&) = delete;
  Leaving& operator=(const Leaving&) = delete;
  ~Leaving() {
    if (coalescer_.door_.is_open() == 0) [[unlikely]]
      coalescer_.after_lone();
  }

 private:
  Coalescer& coalescer_;
};

std::optional<Result<Coalescer::Views>> Coalescer::try_call(std::span<const device::View* const> inputs,
                                                            Duration at_most) {
  if (door_.is_open() == 0) return std::nullopt;
  const Leaving look(*this);
  return runtime_->try_run(*model_, inputs, door_, at_most);
}

void Coalescer::after_lone() {
  Next next;
  {
    auto state = state_.lock();
    count_in(*state);
    advance(*state, nullptr, next);
  }
  wake(next);
}

// ---- under the lock

// The door is shut, so lone calls only become fewer.
int Coalescer::lanes_busy(State& state) const {
  if (state.lone != 0) state.lone = runtime_->governor().lone(model_->id());
  return state.busy + state.lone;
}

void Coalescer::shut_door(State& state) const {
  if (door_.is_open() == 0) return;
  door_.shut();
  state.lone = runtime_->governor().lone(model_->id());
  seam::did("calls.count_lone", state.lone);
}

// When the last one is gone. Who took a seat without our lock while the door is open would not shut it, and
// lone calls would not tell us that they end: nothing may be on show.
void Coalescer::open_door(State& state) const {
  if (!options_.door || state.closed || state.busy != 0 || state.inside != 0 || state.returning != 0) return;
  assert(state.on_show == decltype(state.on_show){});
  if (state.choice) {
    const bool choosing = !state.choice->settled_on_all() && state.competed != TimePoint::min();
    if (choosing && Clock::real().now() - state.competed < kCalm) return;
    state.choice->forget_trial();
    return door_.open(state.choice->for_lone_calls());
  }
  door_.open(options_.lanes);
}

}  // namespace heddle::batch
