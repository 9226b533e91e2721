// looking.h: a thread looks for what it waits for a while before it sleeps.
//
//   What       Who looks takes turns with the other threads of its core until the answer is there. Nobody has
//              to wake it, and its answer does not wait for a wake-up: on 16 cores 128 callers get 1.7 times
//              as many answers a second so, and 256 get 2.6 (bench/batch/joined_calls_bench.cpp).
//   Pays       While answers come soon, and while nobody else wants the cores. A thread that computes keeps
//              its turn until its slice is over, which takes milliseconds.
//   Patience   200 us, or 16 turns where the threads of the core are so many that those take longer: a sleep
//              costs as much as ten turns.
//   Long turn  One that took longer than the other callers of the core can have. The thread sleeps in its
//              calls of the next 2 ms, and twice as long after each long turn that follows, a second at most;
//              fifty answers in time halve that.
//   Threads    Each has pauses of its own: one whose core is busy elsewhere does not speak for the others.
//   Blocks     For the patience, and while another thread of the core keeps its turn.
//   Source     Adaptive mutexes, which spin while that has paid before; here with sched_yield().
#pragma once

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/yield.h"

namespace heddle {

class Looker {
 public:
  static constexpr Duration kFirst = std::chrono::milliseconds(2), kLongest = std::chrono::seconds(1);
  static Looker& of_this_thread();

  bool pauses(TimePoint now) const { return now < until_; }
  void in_time() { next_ = std::max(kFirst, next_ - next_ / 64); }
  void long_turn(TimePoint now) {
    until_ = now + next_;
    next_ = std::min(2 * next_, kLongest);
  }
  // Gives the others of its core, `looking` with it, a turn, and moves `now` behind it. False: it was long.
  bool gives_turn(TimePoint& now, int looking) {
    give_way();
    const TimePoint last = std::exchange(now, Clock::real().now());
    if (now - last < std::chrono::milliseconds(2) + looking * std::chrono::microseconds(50)) return true;
    long_turn(now);
    return false;
  }
  // Whose batch it led last: compared, never followed.
  const void* led = nullptr;

 private:
  TimePoint until_ = TimePoint::min();
  Duration next_ = kFirst;
};

constexpr Duration kLookPatience = std::chrono::microseconds(200);

// Over when both are.
struct Patience {
  Duration time;
  int turns;
};
constexpr Patience kForAnswers{kLookPatience, 16};

// True: is_there() said so in time. False: the thread has to sleep, though it may be there by now. `crowd`:
// threads of a core that may look.
template <class IsThere>
bool look_for(IsThere&& is_there, int crowd, const Patience& patience, Deadline deadline) {
  constexpr int kLooks = 4;
  Looker& me = Looker::of_this_thread();
  TimePoint now = Clock::real().now();
  if (me.pauses(now)) return false;
  const TimePoint end = now + patience.time;
  for (int turn = 0; (now < end || turn < patience.turns) && now < deadline.when(); ++turn) {
    for (int looks = 0; looks < kLooks; ++looks) {
      if (is_there()) {
        me.in_time();
        return true;
      }
      relax_processor(1);
    }
    if (!me.gives_turn(now, crowd)) break;
  }
  return false;
}

}  // namespace heddle
