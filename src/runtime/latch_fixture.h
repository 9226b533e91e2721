// latch_fixture.h: where tests hold threads up, and where threads have to meet.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/sync.h"

namespace heddle::runtime::test {

// A door that tests open: kernels wait at it.
class Latch {
 public:
  void open() {
    open_.store_release(1);
    open_.notify_all();
  }
  void wait() {
    arrived_.add_acq_rel(1);
    open_.wait(0);
  }
  int arrived() const { return arrived_.load_acquire(); }

 private:
  Atomic<int> open_{0}, arrived_{0};  // what came before open() is visible after wait()
};

// Where threads meet: arrive() returns when two are there at once. After `times` such meetings it returns
// without waiting. A thread that stays alone was kept apart from the others: missed() counts it when
// kPatience is over, which turns a hang into a failure and measures nothing; from then on arrive() does not
// wait either.
class Meeting {
 public:
  explicit Meeting(uint64_t times) : times_(times) {}
  void arrive() {
    auto state = state_.lock();
    if (state->missed > 0 || state->met == times_) return;
    if (state->waits) {
      state->waits = false;
      ++state->met;
      state_.notify_all();
      return;
    }
    state->waits = true;
    const uint64_t met = state->met;
    if (state.wait_until(Deadline::in(kPatience), [&] { return state->met > met; })) return;
    state->waits = false;
    ++state->missed;
  }
  uint64_t met() const { return state_.lock()->met; }
  uint64_t missed() const { return state_.lock()->missed; }

 private:
  static constexpr auto kPatience = std::chrono::seconds(20);
  struct State {
    bool waits = false;  // the first of the two
    uint64_t met = 0, missed = 0;
  };
  const uint64_t times_;
  mutable Guarded<State, Rank::kLog> state_;
};

}  // namespace heddle::runtime::test
