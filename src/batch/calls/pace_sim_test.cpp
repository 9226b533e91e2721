// Threads that are told at a pace: each is told, few are on their way at once.
#include <doctest/doctest.h>

#include <optional>

#include "base/simulation_fixture.h"
#include "batch/calls/coalescer_fixture.h"

namespace heddle::batch {

using heddle::test::holds_for_seeds;
using std::chrono::microseconds;

TEST_CASE("simulated: paced callers and others all get their rows, and none stays in line") {
  constexpr int kPaced = 10, kUnpaced = 2, kRounds = 4, kMost = 3, kLanes = 2;
  SimulationOptions long_ones;
  long_ones.steps_max = 5'000'000;
  holds_for_seeds(
      300,
      [](Simulation& sim) {
        Pace pace(kMost, microseconds(20));
        Fixture fixture(with(kLanes, 6));
        fixture.kernel = [&](const device::Run&) {
          sim.pause(microseconds(50));
          return Status();
        };
        Atomic<bool> lock{false};  // what they need in turn
        Atomic<int> right{0};
        run_together(kPaced + kUnpaced, [&](int caller) {
          for (int round = 0; round < kRounds; ++round) {
            Rows rows(1, static_cast<float>(100 * caller + round));
            if (caller >= kPaced) {
              right.add_relaxed(fixture.right(rows, fixture.call(rows)) ? 1 : 0);
              continue;
            }
            const Deadline deadline = sim.random(8) == 0 ? Deadline::in(microseconds(60)) : Deadline::never();
            Pace::Scope scope(pace);
            const auto result = fixture.call(rows, deadline);
            scope.await_turn();
            while (lock.exchange_acq_rel(true)) give_way();
            scope.passed();
            const bool late = !result.ok() && result.status().code() == Code::deadline && deadline.expired();
            right.add_relaxed(late || fixture.right(rows, result) ? 1 : 0);
            lock.store_release(false);
          }
        });
        sim.expect(right.load_relaxed() == (kPaced + kUnpaced) * kRounds,
                   "each caller has its own row, or is late");
        sim.expect(pace.waiting() == 0, "no batch waits to be told");
        sim.expect(fixture.coalescer->stats().parked == 0, "nobody waits");
      },
      long_ones);
}

// A member that is told and goes no further until the others are through, as a thread that Python does not
// let in. They come again until then: who comes passes on what is due, and who leaves does so only if nobody
// else is on the way.
TEST_CASE("simulated: while one that was told does not get through, others still do") {
  constexpr int kPaced = 8, kMost = 2;
  holds_for_seeds(100, [](Simulation& sim) {
    Pace pace(kMost, microseconds(20));
    Fixture fixture(with(1, kPaced));
    fixture.kernel = [&](const device::Run&) {
      sim.pause(microseconds(50));
      return Status();
    };
    Atomic<int> through{0}, right{0}, calls{0};
    const auto others_wait = [&] { return through.load_relaxed() < kPaced - 1; };
    run_together(kPaced, [&](int caller) {
      for (int round = 0; round < 3 || (caller != 0 && others_wait()); ++round) {
        Rows rows(1, static_cast<float>(10 * caller + round));
        Pace::Scope scope(pace);
        calls.add_relaxed(1);
        right.add_relaxed(fixture.right(rows, fixture.call(rows)) ? 1 : 0);
        if (caller == 0 && round == 0) {
          while (others_wait()) give_way();
        }
        if (round == 0) through.add_relaxed(1);
        scope.passed();
      }
    });
    sim.expect(right.load_relaxed() == calls.load_relaxed(), "each caller has its own rows");
  });
}

// Three of them would be counted as on their way for ever, while they wait in their seats to be told.
TEST_CASE("simulated: callers that make call after call in one scope, and say nothing, all get their rows") {
  constexpr int kPaced = 6, kMost = 2;
  holds_for_seeds(100, [](Simulation& sim) {
    Pace pace(kMost, Duration(0));
    Fixture fixture(with(1, kPaced));
    fixture.kernel = [&](const device::Run&) {
      sim.pause(microseconds(50));
      return Status();
    };
    Atomic<int> right{0};
    run_together(kPaced, [&](int caller) {
      const Pace::Scope scope(pace);
      for (int round = 0; round < 4; ++round) {
        Rows rows(1, static_cast<float>(10 * caller + round));
        right.add_relaxed(fixture.right(rows, fixture.call(rows)) ? 1 : 0);
      }
    });
    sim.expect(right.load_relaxed() == 4 * kPaced, "each caller has its own rows");
  });
}

// A refused batch is told at once: nobody adds it to a pace, and those told are not on a pace's way.
TEST_CASE("simulated: all paced callers that wait when a model is closed are answered, and none is counted") {
  constexpr int kPaced = 9, kMost = 2;
  holds_for_seeds(200, [](Simulation& sim) {
    Pace pace(kMost, Duration(0));
    CoalescerOptions options = with(1, kPaced);
    options.look_on = static_cast<int>(sim.random(2)) * kPaced;
    Fixture fixture(options), other(with(1, kPaced));
    const auto takes_time = [&](const device::Run&) {
      sim.pause(microseconds(100));
      return Status();
    };
    fixture.kernel = other.kernel = takes_time;
    Atomic<int> right{0}, refused{0};
    run_together(kPaced + 1, [&](int caller) {
      if (caller == kPaced) {
        sim.pause(microseconds(sim.random(200)));
        return fixture.coalescer->close();
      }
      Rows rows(1, static_cast<float>(10 * caller));
      const Pace::Scope scope(pace);
      const auto result = fixture.call(rows);
      const bool is_refused = result.status().code() == Code::unavailable;
      sim.expect(is_refused || fixture.right(rows, result), "its own rows, or refused");
      (is_refused ? refused : right).add_relaxed(1);
    });
    sim.expect(right.load_relaxed() + refused.load_relaxed() == kPaced, "each had one answer");
    sim.expect(pace.waiting() == 0 && pace.on_the_way() == 0, "nobody waits to be told or is on the way");
  });
}

TEST_CASE("simulated: a turn is awaited until its owner's next scope, and no longer than the spin") {
  holds_for_seeds(200, [](Simulation& sim) {
    constexpr auto kSpin = microseconds(40);
    const bool comes_back = sim.random(2) == 0;
    Pace pace(2, kSpin);
    Atomic<bool> taken{false}, given_up{false};
    run_together(2, [&](int me) {
      if (me == 0) {
        {
          Pace::Scope scope(pace);
          scope.await_turn();  // free
          taken.store_release(true);
        }
        sim.pause(microseconds(10));
        if (!comes_back) return;
        given_up.store_release(true);
        const Pace::Scope next(pace);
        return;
      }
      while (!taken.load_acquire()) give_way();
      Pace::Scope scope(pace);
      const TimePoint begin = Clock::real().now();
      scope.await_turn();
      const bool in_vain = Clock::real().now() - begin >= kSpin;
      sim.expect(in_vain || given_up.load_acquire(), "the owner has come back, or the spin is over");
      sim.expect(comes_back || in_vain, "an owner that stays away is waited for");
    });
  });
}

}  // namespace heddle::batch
