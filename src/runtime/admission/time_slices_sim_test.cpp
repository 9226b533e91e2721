// TimeSlices under simulated schedules, in virtual time: nobody waits without end, and slices are few.
#include "runtime/admission/time_slices.h"

#include <doctest/doctest.h>

#include "base/simulation_fixture.h"
#include "base/thread.h"
#include "base/yield.h"

namespace heddle::runtime {
namespace {

using heddle::test::holds_for_seeds;
using std::chrono::microseconds;
using std::chrono::milliseconds;

TEST_CASE(
    "simulated: each call of more threads than slices goes on, and no more at once than there are slices") {
  uint64_t seeds = 0, passed = 0;
  holds_for_seeds(300, [&](Simulation& sim) {
    const int width = 1 + static_cast<int>(sim.random(2)),
              threads = width + 1 + static_cast<int>(sim.random(2));
    constexpr int kCalls = 12;
    TimeSlices slices(width, Clock::real());
    Atomic<int> inside{0}, most{0}, calls{0};
    run_together(threads, [&](int) {
      for (int i = 0; i < kCalls; ++i) {
        const TimeSlices::Call call(slices, Deadline::never());
        const int now = inside.add_acq_rel(1) + 1;
        if (now > most.load_relaxed()) most.store_relaxed(now);
        sim.pause(milliseconds(3));
        inside.sub_acq_rel(1);
        calls.add_relaxed(1);
      }
    });
    sim.expect(calls.load_relaxed() == threads * kCalls, "each call ended");
    const TimeSlices::Stats stats = slices.stats();
    sim.expect(most.load_relaxed() <= width + static_cast<int>(stats.longs), "slices bound what goes on");
    sim.expect(stats.waits >= 1, "one more than the slices waits");
    sim.expect(stats.passed + stats.idle + stats.longs >= 1, "no slice is kept for good");
    passed += stats.passed >= 1 ? 1 : 0;
    ++seeds;
  });
  CHECK(passed >= seeds * 99 / 100);  // a slice ends while others wait
}

TEST_CASE("simulated: threads that stay away, that take long and that have deadlines leave nobody waiting") {
  holds_for_seeds(300, [](Simulation& sim) {
    const int width = 1 + static_cast<int>(sim.random(2));
    constexpr int kThreads = 4, kCalls = 6;
    TimeSlices slices(width, Clock::real());
    Atomic<int> calls{0};
    run_together(kThreads, [&](int) {
      for (int i = 0; i < kCalls; ++i) {
        const Deadline deadline =
            sim.random(3) == 0 ? Deadline::in(microseconds(sim.random(3000))) : Deadline::never();
        {
          const TimeSlices::Call call(slices, deadline);
          if (sim.random(4) == 0) const TimeSlices::Call inner(slices, Deadline::never());
          yield_point("a call");
          if (sim.random(4) == 0) sim.pause(milliseconds(1 + sim.random(40)));
          if (sim.random(8) == 0) slices.rest();  // no rest, within a call
          calls.add_relaxed(1);
        }
        if (sim.random(3) == 0) slices.rest();
        if (sim.random(4) == 0) sim.pause(milliseconds(sim.random(8)));
      }
    });
    sim.expect(calls.load_relaxed() == kThreads * kCalls, "each call ended");
  });
}

TEST_CASE(
    "simulated: threads that rest leave no more at once than there are slices, and keep nobody waiting") {
  holds_for_seeds(200, [](Simulation& sim) {
    const int width = 1 + static_cast<int>(sim.random(2));
    constexpr int kThreads = 4, kCalls = 8;
    TimeSlices slices(width, Clock::real());
    Atomic<int> inside{0}, most{0}, calls{0};
    run_together(kThreads, [&](int) {
      for (int i = 0; i < kCalls; ++i) {
        {
          const TimeSlices::Call call(slices, Deadline::never());
          const int now = inside.add_acq_rel(1) + 1;
          if (now > most.load_relaxed()) most.store_relaxed(now);
          yield_point("a call");
          inside.sub_acq_rel(1);
          calls.add_relaxed(1);
        }
        slices.rest();
        sim.pause(microseconds(500));  // for the device
      }
    });
    sim.expect(calls.load_relaxed() == kThreads * kCalls, "each call ended");
    sim.expect(most.load_relaxed() <= width, "slices bound what goes on");
    sim.expect(slices.stats().longs == 0, "no slice was taken from a call");
  });
}

// One thread rests after each call, as one with long operators does, and the others never.
TEST_CASE("simulated: a thread that rests has its share beside threads that do not") {
  holds_for_seeds(20, [](Simulation& sim) {
    constexpr int kOthers = 4;
    constexpr Duration kCall = microseconds(50), kRest = microseconds(250), kTime = milliseconds(200);
    TimeSlices slices(1, Clock::real());
    const TimePoint end = Clock::real().now() + kTime;
    int rested = 0;
    run_together(1 + kOthers, [&](int me) {
      while (Clock::real().now() < end) {
        {
          const TimeSlices::Call call(slices, Deadline::never());
          sim.pause(kCall);
        }
        if (me != 0) continue;
        slices.rest();
        sim.pause(kRest);
        ++rested;
      }
    });
    // In its fifth of the time it has one after each guest; behind the others after each call it has 5.
    sim.expect(rested >= 40, text("it is not behind the others after each call: ", rested));
  });
}

TEST_CASE("simulated: the slice of a thread that stays away, or whose call takes long, goes to who waits") {
  holds_for_seeds(100,
                  [](Simulation& sim) {
                    const bool is_long = sim.random(2) == 0;
                    TimeSlices slices(1, Clock::real());
                    TimePoint came;
                    const TimePoint began = Clock::real().now();
                    Atomic<bool> has_begun{false};
                    run_together(2, [&](int me) {
                      if (me == 0) {
                        {
                          const TimeSlices::Call call(slices, Deadline::never());
                          has_begun.store_release(true);
                          if (is_long) sim.pause(milliseconds(100));
                        }
                        if (!is_long) sim.pause(milliseconds(100));
                        const TimeSlices::Call again(slices, Deadline::never());
                      } else {
                        while (!has_begun.load_acquire()) give_way();
                        const TimeSlices::Call call(slices, Deadline::never());
                        came = Clock::real().now();
                      }
                    });
                    const Duration waited = came - began;
                    sim.expect(waited < (is_long ? 2 * TimeSlices::kLong : 4 * TimeSlices::kIdle),
                               "it does not wait for the owner");
                    if (is_long)
                      sim.expect(waited >= TimeSlices::kLong, "it waits as long as calls usually take");
                  },
                  {.stall_max = Duration(0)});  // how long it waits is its own doing then
}

TEST_CASE("simulated: an owner whose slice was taken during a long call comes back as others do") {
  holds_for_seeds(50, [](Simulation& sim) {
    TimeSlices slices(1, Clock::real());
    Atomic<bool> has_begun{false}, is_back{false};
    run_together(2, [&](int me) {
      if (me == 0) {
        {
          const TimeSlices::Call call(slices, Deadline::never());
          has_begun.store_release(true);
          sim.pause(milliseconds(50));
        }
        const TimePoint began = Clock::real().now();
        const TimeSlices::Call again(slices, Deadline::never());
        sim.expect(Clock::real().now() - began >= TimeSlices::kLong,
                   "it waits for the one that has the slice");
        is_back.store_release(true);
      } else {
        while (!has_begun.load_acquire()) give_way();
        const TimeSlices::Call call(slices, Deadline::never());
        while (!is_back.load_acquire()) sim.pause(milliseconds(1));
      }
    });
    sim.expect(slices.stats().longs == 2, "each slice was taken during a long call");
  });
}

TEST_CASE("simulated: a call waits until its deadline, and then goes on without a slice") {
  holds_for_seeds(50, [](Simulation& sim) {
    TimeSlices slices(1, Clock::real());
    Atomic<bool> has_begun{false}, has_come{false};
    run_together(2, [&](int me) {
      if (me == 0) {
        const TimeSlices::Call call(slices, Deadline::never());
        has_begun.store_release(true);
        while (!has_come.load_acquire()) sim.pause(microseconds(100));
      } else {
        while (!has_begun.load_acquire()) give_way();
        const TimePoint began = Clock::real().now();
        const TimeSlices::Call call(slices, Deadline::in(milliseconds(2)));
        sim.expect(Clock::real().now() - began >= milliseconds(2), "not before its deadline");
        has_come.store_release(true);
      }
    });
    const TimeSlices::Stats stats = slices.stats();
    sim.expect(stats.passed + stats.idle + stats.longs == 0, "the owner kept its slice");
  });
}

}  // namespace
}  // namespace heddle::runtime
