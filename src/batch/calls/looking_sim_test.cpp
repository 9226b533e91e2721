// Looking under simulated schedules: for how long, what makes a thread sleep instead, and who leads then.
#include <doctest/doctest.h>

#include "base/looking.h"
#include "base/schedules_fixture.h"
#include "base/simulation_fixture.h"
#include "batch/calls/coalescer_fixture.h"
#include "batch/calls/leaders.h"

namespace heddle::batch {

using heddle::test::holds_for_seeds;
using heddle::test::without_stalls;
using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

constexpr int kNoCrowd = 1;

// As a thread that makes one call after the other: on a thread of its own, which has looked for nothing yet.
void on_a_new_thread(const std::function<void()>& body) { Thread("looker", body).join(); }

bool pauses() { return Looker::of_this_thread().pauses(Clock::real().now()); }

struct Runs {
  int same = 0, all = 0;  // by the thread that ran the one before
  double share() const { return static_cast<double>(same) / all; }
};
// Of the batches `from` to `to`, each of which takes `takes`.
struct Counted {
  Duration takes = microseconds(20);
  int from = 0, to = 1000;
};
void count_runs(Simulation& sim, bool looks, Runs& runs, const Counted& counted = {}) {
  constexpr int kCallers = 3, kRounds = 12;
  CoalescerOptions options = with(1, kCallers);
  options.cost = [](int64_t rows) { return microseconds(20 + rows); };
  options.door = false;
  options.look_on = looks ? kCallers : 0;
  Fixture fixture(options);
  uint32_t last = 0;
  int batch = 0;
  fixture.kernel = [&](const device::Run& run) {
    sim.pause(counted.takes);
    const uint32_t now = sim.thread_number();
    ++batch;
    if (run.inputs[0].extents[0] > 1 && batch >= counted.from && batch <= counted.to) {
      ++runs.all;
      runs.same += now == last ? 1 : 0;
    }
    last = now;
    return Status();
  };
  run_together(kCallers, [&](int caller) {
    sim.play(caller);  // so that what it says is kept
    for (int round = 0; round < kRounds; ++round) {
      Rows rows(1, static_cast<float>(100 * caller + round));
      sim.expect(fixture.right(rows, fixture.call(rows)), "each caller gets its own row");
    }
  });
  sim.expect(fixture.coalescer->stats().calls == kCallers * kRounds, "no call was lost");
}

}  // namespace

TEST_CASE("simulated: who looks finds what comes within the patience, and does not pause for what lasts") {
  holds_for_seeds(200, [](Simulation& sim) {
    on_a_new_thread([&] {
      const bool soon = sim.random(2) == 0;
      Atomic<bool> there{false}, over{false};
      Thread other("other", [&] {
        const TimePoint from = Clock::real().now() + (soon ? microseconds(30) : milliseconds(1));
        while (Clock::real().now() < from) yield_point("works in small steps");
        there.store_release(true);
      });
      const bool found =
          look_for([&] { return there.load_acquire(); }, kNoCrowd, kForAnswers, Deadline::never());
      sim.expect(found || !soon || pauses(), "what comes soon is found, unless a turn was long");
      if (!found && !pauses()) sim.expect(!there.load_acquire(), "it gave up before it was there");
      other.join();
    });
  });
}

TEST_CASE("simulated: a deadline ends a look, and that is no reason to pause") {
  holds_for_seeds(100, [](Simulation& sim) {
    on_a_new_thread([&] {
      const Deadline deadline = Deadline::in(microseconds(20));
      sim.expect(!look_for([] { return false; }, kNoCrowd, kForAnswers, deadline), "there was nothing");
      sim.expect(deadline.expired(), "not before it");
      sim.expect(Clock::real().now() < deadline.when() + milliseconds(30), "and soon after it");
    });
  });
}

// The simulation's clock goes on at each look at it, by this at least.
Duration step_of_the_clock() {
  Duration step = Duration::max();
  for (int i = 0; i < 20; ++i) {
    const TimePoint before = Clock::real().now();
    step = std::min(step, Clock::real().now() - before);
  }
  return step;
}

TEST_CASE("simulated: at its deadline a thread does not look any more, and just before it does") {
  holds_for_seeds(20, [](Simulation& sim) {
    on_a_new_thread([&] {
      const Duration step = step_of_the_clock();
      for (const bool in_time : {false, true}) {
        bool looked = false;
        const auto look = [&] { return looked = true; };
        const Duration left = in_time ? milliseconds(1000) : step;
        const bool found = look_for(look, kNoCrowd, kForAnswers, Deadline::at(Clock::real().now() + left));
        sim.expect(found == in_time && looked == in_time, "it looks while there is time");
      }
    });
  });
}

TEST_CASE(
    "simulated: what comes while a leader sleeps starts no other, and what comes beside its task does") {
  holds_for_seeds(
      50,
      [](Simulation& sim) {
        Leaders leaders(3, {});
        sim.expect(leaders.owe().ok(), "promised");
        sim.pause(milliseconds(20));
        Atomic<int> done{0};
        Guarded<bool, Rank::kHelpers> open(false);
        leaders.post([&] {
          auto held = open.lock();
          held.wait([&] { return *held; });
          done.add_relaxed(1);
        });
        sim.expect(leaders.threads() == 1, "the one that sleeps is told");
        sim.pause(milliseconds(20));
        leaders.post([&] { done.add_relaxed(1); });
        sim.expect(leaders.threads() == 2, "a second one for what the first cannot do");
        *open.lock() = true;
        open.notify_all();
        leaders.settle();
        leaders.stop();
        sim.expect(done.newest() == 2, "each task ran");
      },
      without_stalls());
}

TEST_CASE("simulated: after a long turn a thread sleeps in its calls, and each time for twice as long") {
  holds_for_seeds(
      20,
      [](Simulation& sim) {
        on_a_new_thread([&] {
          // Alone, the simulation gives it later turns each time, as a core does that computes for others. A
          // look whose turns are all short is rare.
          constexpr int kLooks = 8;
          Duration last(0);
          for (int i = 0; i < 12; ++i) {
            TimePoint begin;
            for (int looks = 0; looks < kLooks && !pauses(); ++looks) {
              sim.expect(!look_for([] { return false; }, kNoCrowd, kForAnswers, Deadline::never()),
                         "there was nothing");
              begin = Clock::real().now();
            }
            sim.expect(pauses(), "it pauses");
            sim.expect(!look_for([] { return true; }, kNoCrowd, kForAnswers, Deadline::never()),
                       "and does not look");
            while (pauses()) sim.pause(microseconds(500));
            const Duration pause = Clock::real().now() - begin;
            const Duration jumps = milliseconds(30);
            sim.expect(pause + jumps >= last && pause <= Looker::kLongest + jumps, "longer, up to a bound");
            if (i > 0 && last < Looker::kLongest / 4) sim.expect(pause > last * 3 / 2, "about twice as long");
            last = pause;
          }
        });
      },
      without_stalls());
}

// How often callers of short runs have slept.
int sleeps_of(uint64_t seed, bool looks) {
  SimulationOptions options = without_stalls();
  options.listen = true;
  Runs runs;
  const SimulationReport report =
      simulate(seed, [&](Simulation& sim) { count_runs(sim, looks, runs); }, options);
  REQUIRE_MESSAGE(report.ok(), report.failure);
  return static_cast<int>(std::ranges::count_if(report.told, [](const ToldStep& step) {
    return std::string_view(step.name) == "parker.fall_asleep" && step.value == 0;
  }));
}

// One that looked until its time had come goes through the motions of falling asleep before it asks.
TEST_CASE("simulated: where runs are short callers do not sleep, nor does the one that keeps the time") {
  int sleeps = 0, without = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    sleeps += sleeps_of(seed, true);
    without += sleeps_of(seed, false);
  }
  CHECK(without > 1000);
  CHECK(sleeps < without / 10);
}

TEST_CASE("simulated: for as many tasks as leaders look for no other leader is woken") {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    RandomPriorities priorities(seed, 1, 1);
    SimulationOptions options;
    options.strategy = &priorities;
    const SimulationReport report = simulate(
        seed,
        [](Simulation& sim) {
          Leaders leaders(2, {}, 1);
          Atomic<int> done{0};
          sim.expect(leaders.owe().ok(), "promised");  // who settles the last promise wakes all
          const auto post = [&] {
            sim.expect(leaders.owe().ok(), "promised");
            leaders.post([&] {
              done.add_release(1);
              leaders.settle();
            });
          };
          for (int i = 0; i < 2; ++i) post();
          sim.pause(milliseconds(20));
          sim.expect(leaders.threads() == 2 && done.load_acquire() == 2, "two, and both sleep");
          heddle::test::at_once(sim, 1, [&](int) {
            post();
            while (done.load_acquire() < 3) give_way();
            for (int turn = 0; turn < 100; ++turn) give_way();  // the one that was woken looks
            post();
            while (done.load_acquire() < 4) give_way();
          });
          leaders.settle();
          leaders.stop();
        },
        options);
    CHECK_MESSAGE(report.ok(), report.failure);
    CHECK(priorities.threads() == 2);  // who posts, and one leader
  }
}

// A task that waits for the others of its round would wait for ever, if a leader slept beside them.
TEST_CASE("simulated: as many tasks as leaders run side by side, whether those look or sleep") {
  holds_for_seeds(300, [](Simulation& sim) {
    constexpr int kLeaders = 3, kRounds = 4;
    Guarded<int, Rank::kHelpers> arrived(0);
    Leaders leaders(kLeaders, {}, kLeaders);
    for (int round = 1; round <= kRounds; ++round) {
      if (sim.random(2) == 0) sim.pause(microseconds(sim.random(400)));
      for (int task = 0; task < kLeaders; ++task) {
        sim.expect(leaders.owe().ok(), "promised");
        leaders.post([&, round] {
          auto held = arrived.lock();
          ++*held;
          held.notify_all();
          held.wait([&] { return *held >= round * kLeaders; });
        });
      }
      auto held = arrived.lock();
      held.wait([&] { return *held == round * kLeaders; });
    }
    for (int task = 0; task < kLeaders * kRounds; ++task) leaders.settle();
    leaders.stop();
    sim.expect(leaders.threads() == 0 && *arrived.lock() == kLeaders * kRounds, "each ran once");
  });
}

// As a second thread that is to answer a batch, which the first one has answered meanwhile.
TEST_CASE(
    "simulated: leaders end also where the last task settles nothing and was claimed by one that looked") {
  holds_for_seeds(700, [](Simulation& sim) {
    Atomic<int> met{0}, ran{0};
    Leaders leaders(2, {}, 2);
    for (int task = 0; task < 2; ++task) {
      sim.expect(leaders.owe().ok(), "promised");
      leaders.post([&] {
        met.add_relaxed(1);
        while (met.load_relaxed() != 2) give_way();
        leaders.settle();
      });
    }
    sim.expect(leaders.await_settled(Deadline::never()), "two leaders have met");
    sim.pause(milliseconds(50));  // both sleep
    sim.expect(leaders.owe().ok() && leaders.owe().ok(), "promised");
    leaders.post([&] {
      ran.add_release(1);
      leaders.settle();
    });
    while (ran.load_acquire() == 0) give_way();
    for (int turn = 0; turn < 8; ++turn) give_way();  // that one looks, the other one sleeps
    leaders.post([] {});
    leaders.settle();
    leaders.stop();
    sim.expect(leaders.threads() == 0, "all have ended");
  });
}

// The first leader starts with the first promise, the second with the second task, which needs a third.
TEST_CASE("simulated: a task that waits for one that it posts is not alone, however new its leader is") {
  holds_for_seeds(200, [](Simulation& sim) {
    constexpr int kTasks = 3;
    Guarded<bool, Rank::kHelpers> ran(false);
    const auto waits = [&] {
      auto held = ran.lock();
      held.wait([&] { return *held; });
    };
    Leaders leaders(kTasks, {});
    for (int task = 0; task < kTasks; ++task) sim.expect(leaders.owe().ok(), "promised");
    leaders.post(waits);
    leaders.post([&] {
      leaders.post([&] {
        auto held = ran.lock();
        *held = true;
        held.notify_all();
      });
      waits();
    });
    waits();
    for (int task = 0; task < kTasks; ++task) leaders.settle();
    leaders.stop();
  });
}

TEST_CASE("answers in time shorten the pause after the next long turn, to the first at last") {
  Looker looker;
  const TimePoint now = Clock::real().now();
  for (int i = 0; i < 12; ++i) looker.long_turn(now);
  CHECK(looker.pauses(now + Looker::kLongest - microseconds(1)));
  CHECK(!looker.pauses(now + Looker::kLongest));
  for (int i = 0; i < 50; ++i) looker.in_time();
  looker.long_turn(now);
  CHECK(!looker.pauses(now + Looker::kLongest * 2 / 3));
  CHECK(looker.pauses(now + Looker::kLongest / 3));
  for (int i = 0; i < 1000; ++i) looker.in_time();
  looker.long_turn(now);
  CHECK(looker.pauses(now + Looker::kFirst - microseconds(1)));
  CHECK(!looker.pauses(now + Looker::kFirst));
}

TEST_CASE("simulated: among few callers that look, who led a batch leads the next one") {
  Runs again, otherwise;
  holds_for_seeds(100, [&](Simulation& sim) {
    count_runs(sim, true, again);
    count_runs(sim, false, otherwise);
  });
  CAPTURE(again.same);
  CAPTURE(otherwise.same);
  CHECK(again.share() > 1.3 * otherwise.share());
}

// Of all batches that somebody filled. A row's value says whose it is, and the last one was written last.
Runs led_by_who_filled(int look_on) {
  constexpr int kMany = 6, kRounds = 12;
  Runs runs;
  holds_for_seeds(100, [&](Simulation& sim) {
    CoalescerOptions options = with(1, kMany);
    options.cost = [](int64_t rows) { return microseconds(20 + rows); };
    options.door = false;
    options.look_on = look_on;
    Fixture fixture(options);
    std::vector<uint32_t> threads(kMany);
    fixture.kernel = [&](const device::Run& run) {
      sim.pause(microseconds(20));
      if (run.inputs[0].extents[0] < kMany) return Status();
      const auto last = static_cast<size_t>(Fixture::at(run.inputs[0], kMany - 1, 0)) / 100;
      ++runs.all;
      runs.same += threads[last] == sim.thread_number() ? 1 : 0;
      return Status();
    };
    run_together(kMany, [&](int caller) {
      sim.play(caller);
      threads[static_cast<size_t>(caller)] = sim.thread_number();
      for (int round = 0; round < kRounds; ++round) {
        Rows rows(1, static_cast<float>(100 * caller + round));
        sim.expect(fixture.right(rows, fixture.call(rows)), "each caller gets its own row");
      }
    });
    sim.expect(fixture.coalescer->stats().calls == kMany * kRounds, "no call was lost");
  });
  return runs;
}

TEST_CASE("simulated: among many callers of a core who fills a batch leads it, among few who led before") {
  const Runs many = led_by_who_filled(1), few = led_by_who_filled(6);
  if (heddle::test::number_in("HEDDLE_SIM_SEED")) return;
  CAPTURE(many.all);
  CAPTURE(few.all);
  CAPTURE(few.same);
  CHECK(many.share() > 0.9);
  CHECK(few.share() < 0.5 * many.share());
}

TEST_CASE("simulated: after seven runs that were long callers still look, and the same one leads") {
  const Counted few{2 * kLookPatience, 5, 8};
  Runs again;
  holds_for_seeds(100, [&](Simulation& sim) { count_runs(sim, true, again, few); });
  if (heddle::test::number_in("HEDDLE_SIM_SEED")) return;
  CAPTURE(again.same);
  CAPTURE(again.all);
  CHECK(again.share() > 0.9);
}

}  // namespace heddle::batch
