// Leaders under simulated schedules: when they ring, end, and are woken.
#include <doctest/doctest.h>

#include <array>

#include "base/looking.h"
#include "base/schedules_fixture.h"
#include "base/simulation_fixture.h"
#include "batch/calls/leaders.h"

namespace heddle::batch {
namespace {

using heddle::test::at_once;
using heddle::test::explore;

// Time stands but for the jump to the timer: what is due then is due, not a moment later.
TEST_CASE("schedules: what is to be done at a time is done at that time, whenever it was asked for") {
  explore({"leaders_timer", 2, 2}, [](Simulation& sim, int threads) {
    Leaders leaders(1, {});
    sim.expect(leaders.owe().ok() && leaders.owe().ok(), "two promises");
    const TimePoint due = Clock::real().now() + std::chrono::milliseconds(5);
    TimePoint ran{};
    at_once(sim, threads, [&](int i) {
      if (i == 0) return leaders.settle();
      leaders.at({due, 0, 0}, [&] {
        ran = Clock::real().now();
        leaders.settle();
      });
      sim.expect(leaders.await_settled(Deadline::never()), "settled");
    });
    sim.expect(ran == due, "at its time");
    leaders.stop();
  });
}

TEST_CASE("schedules: stopping waits for a leader that starts, whose task another one has run") {
  explore({"leaders_start_stop", 2, 1, 2}, [](Simulation& sim, int threads) {
    Leaders leaders(2, {});
    sim.expect(leaders.owe().ok() && leaders.owe().ok(), "two promises");
    sim.pause(std::chrono::milliseconds(1));  // until the first leader sleeps
    Atomic<int> ran{0};
    at_once(sim, threads, [&](int i) {
      if (i == 1) return leaders.stop();
      for (int task = 0; task < 2; ++task) {
        leaders.post([&] {
          ran.add_relaxed(1);
          leaders.settle();
        });
      }
    });
    sim.expect(ran.load_relaxed() == 2 && leaders.threads() == 0, "both ran, and the threads have ended");
  });
}

TEST_CASE("simulated: a timer behind another one rings on a leader that slept when it was set") {
  heddle::test::holds_for_seeds(300, [](Simulation& sim) {
    Atomic<int> met{0}, rung{0};
    Leaders leaders(2, {});
    for (int task = 0; task < 2; ++task) {
      sim.expect(leaders.owe().ok(), "a promise");
      leaders.post([&] {
        met.add_relaxed(1);
        while (met.load_relaxed() != 2) give_way();
      });
    }
    sim.pause(std::chrono::milliseconds(50));  // until both sleep
    sim.expect(leaders.threads() == 2, "both are there");
    const TimePoint first = Clock::real().now() + std::chrono::milliseconds(1);
    leaders.at({first, 0, 0}, [&] {  // over when the second one has rung
      rung.wait(0);
      leaders.settle();
    });
    leaders.at({first + std::chrono::milliseconds(1), 0, 0}, [&] {
      rung.store_release(1);
      rung.notify_all();
      leaders.settle();
    });
    sim.expect(leaders.await_settled(Deadline::never()), "both rang");  // tells no leader anything
    leaders.stop();
  });
}

// Of the words that threads share, how often `call` writes one: whom it wakes costs at least one more. Until
// they are let go the strategy has each thread go on as long as it can, so that no other one runs meanwhile.
template <class Call>
uint64_t writes_of(Call&& call) {
  const uint64_t before = seam::beat->read_modify_writes;
  call();
  return seam::beat->read_modify_writes - before;
}
void run_once(const heddle::test::ScheduledBody& body) {
  SystematicChoices first({});
  const SimulationReport report = heddle::test::run_schedule({"leaders_cost", 1}, first, body);
  CHECK_MESSAGE(report.ok(), report.failure);
}

TEST_CASE("a timer that is earlier than all wakes a leader, and one at the time of the first wakes nobody") {
  uint64_t earlier = 0, equal = 0, later = 0;
  run_once([&](Simulation& sim, int) {
    Leaders leaders(1, {});
    sim.expect(leaders.owe().ok(), "a promise");
    const TimePoint due = Clock::real().now() + std::chrono::seconds(1);
    const auto cost = [&](Duration beside, uint64_t name) {
      sim.pause(std::chrono::milliseconds(1));  // until the leader sleeps
      return writes_of([&] { leaders.at({due + beside, name, 0}, [] {}); });
    };
    cost(Duration(0), 1);
    equal = cost(Duration(0), 2);
    later = cost(Duration(1), 3);
    earlier = cost(Duration(-1), 4);
    leaders.settle();
    leaders.stop();
  });
  CHECK(equal == later);
  CHECK(earlier > later);
}

TEST_CASE("a task that is posted while a leader looks wakes nobody; who has no processor to look on sleeps") {
  const auto cost = [](int look_on, int pauses) {
    uint64_t out = 0;
    run_once([&](Simulation& sim, int) {
      Leaders leaders(1, {}, look_on);
      sim.expect(leaders.owe().ok(), "a promise");
      for (int i = 0; i < pauses; ++i) sim.pause(kLookPatience / 4);
      out = writes_of([&] { leaders.post([&] { leaders.settle(); }); });
      sim.expect(leaders.await_settled(Deadline::never()), "it ran");
      leaders.stop();
    });
    return out;
  };
  const uint64_t asleep = cost(1, 100);  // for longer than it has patience
  CHECK(cost(1, 1) < asleep);
  CHECK(cost(0, 1) == asleep);
}

TEST_CASE(
    "a leader that looks goes on looking where another one was faster, and takes the next task unwoken") {
  std::array<uint64_t, 2> looking{};
  uint64_t asleep = 0;
  run_once([&](Simulation& sim, int) {
    Leaders leaders(2, {}, 2);
    Atomic<int> ran{0};
    const auto post = [&](int together) {  // returns once so many have run
      sim.expect(leaders.owe().ok(), "a promise");
      return writes_of([&] {
        leaders.post([&, together] {
          ran.add_release(1);
          while (ran.load_acquire() < together) give_way();
          leaders.settle();
        });
      });
    };
    const auto let_them_look = [&](int until) {
      while (ran.load_acquire() < until) give_way();
      for (int turn = 0; turn < 12; ++turn) give_way();
    };
    sim.expect(leaders.owe().ok(), "a promise");  // who settles the last one wakes all
    post(2);
    post(2);
    let_them_look(2);
    post(3);
    let_them_look(3);
    looking = {post(5), post(5)};
    let_them_look(5);
    sim.pause(100 * kLookPatience);
    asleep = post(6);
    leaders.settle();
    leaders.stop();
  });
  CHECK(looking[0] < asleep);
  CHECK(looking[1] < asleep);
}

}  // namespace
}  // namespace heddle::batch
