// paced_return.cpp: threads that need one thing in turn when they come back, paced (batch/calls/pace.h).
#include <new>

#include "api/internals.h"
#include "base/made_once.h"
#include "batch/calls/pace.h"
#include "drivers/host/machine/cpu_budget.h"

namespace heddle {
namespace {

// So many threads are awake for the one that holds what they need: it takes longer to wake one than to be
// through. With two processors a spinning thread is in the way of those that compute.
constexpr int kOnTheWay = 3;
constexpr int kCoresToSpin = 4;
constexpr Duration kSpin = std::chrono::microseconds(60);

batch::Pace& pace() {
  static constinit MadeOnce<batch::Pace> of_the_process;
  return of_the_process.get(
      [] { return batch::Pace(kOnTheWay, host::read_budget().cores >= kCoresToSpin ? kSpin : Duration(0)); });
}

batch::Pace::Scope& scope(std::byte* place) {
  return *std::launder(reinterpret_cast<batch::Pace::Scope*>(place));
}

}  // namespace

PacedReturn::PacedReturn() {
  static_assert(sizeof(batch::Pace::Scope) <= sizeof(scope_));
  new (scope_) batch::Pace::Scope(pace());
}

PacedReturn::~PacedReturn() { scope(scope_).~Scope(); }

void PacedReturn::await_turn() { scope(scope_).await_turn(); }
void PacedReturn::passed() { scope(scope_).passed(); }

}  // namespace heddle
