// Coalesced calls under simulated schedules: each caller gets its own rows, or leaves; none is forgotten.
#include <doctest/doctest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/replay_fixture.h"
#include "base/simulation_fixture.h"
#include "base/yield.h"
#include "batch/calls/coalescer_fixture.h"

namespace heddle::batch {

namespace {

using heddle::test::holds_for_seeds;
using heddle::test::log_for_model;
using std::chrono::microseconds;

constexpr int kFew = 4;

// A run takes a while, in virtual time.
void take_time(Simulation& sim, Fixture& fixture) {
  fixture.kernel = [&sim](const device::Run& run) {
    sim.pause(microseconds(10 + 5 * run.inputs[0].extents[0]));
    return Status();
  };
}

struct Counts {
  Atomic<int> right{0}, late{0}, closed{0};
  int all() const { return right.load_relaxed() + late.load_relaxed() + closed.load_relaxed(); }
};

void call(Simulation& sim, Fixture& fixture, Counts& counts, int caller, int round) {
  Rows rows(1 + static_cast<int64_t>(sim.random(2)), static_cast<float>(100 * caller + 10 * round));
  const Deadline deadline =
      sim.random(4) == 0 ? Deadline::in(microseconds(sim.random(60))) : Deadline::never();
  const auto result = fixture.call(rows, deadline);
  if (result.ok()) {
    sim.expect(fixture.right(rows, result), "each caller gets its own rows");
    counts.right.add_relaxed(1);
  } else if (result.status().code() == Code::deadline) {
    sim.expect(deadline.expired(), "late only after the deadline");
    counts.late.add_relaxed(1);
  } else {
    sim.expect(result.status().code() == Code::unavailable, "refused because it is closed");
    counts.closed.add_relaxed(1);
  }
}

void check_empty(Simulation& sim, const Fixture& fixture, const Counts& counts) {
  const Coalescer::Stats stats = fixture.coalescer->stats();
  sim.expect(stats.parked == 0 && !fixture.coalescer->anyone_waits(), "nobody waits");
  sim.expect(stats.calls + stats.left + static_cast<uint64_t>(counts.closed.load_relaxed()) ==
                 static_cast<uint64_t>(counts.all()),
             "each call is counted once");
}

// One batch is on show, as in the model. Calls that are closed or late are no error.
void replay_calls(const char* run, int callers, bool late, bool closes, int look_on = 0) {
  log_for_model("coalescer", run, 60, [&](Simulation& sim) {
    CoalescerOptions options = with(1, 2);
    options.cost = [](int64_t rows) { return microseconds(20 + rows); };
    options.door = options.spare = false;
    options.look_on = look_on;
    Fixture fixture(options, false, false, {.asynchronous = look_on == 1});
    sim.expect(fixture.compile(2).ok(), "the programs are made");
    run_together(callers + (closes ? 1 : 0), [&](int caller) {
      sim.play(caller);
      for (uint64_t pause = sim.random(caller < callers ? 30 : 200); pause > 0; --pause) yield_point("call");
      if (caller == callers) return fixture.coalescer->close();
      Rows rows(1, static_cast<float>(100 * caller));
      const bool waits = !late || sim.random(3) == 0;
      const auto result =
          fixture.call(rows, waits ? Deadline::never() : Deadline::in(microseconds(sim.random(12))));
      sim.expect(fixture.right(rows, result) || (!result.ok() && (late || closes)), "its own row");
    });
    sim.expect(fixture.coalescer->stats().parked == 0, "nobody waits");
  });
}

}  // namespace

TEST_CASE("simulated: callers that join and leave batches each get one answer, which is theirs") {
  holds_for_seeds(500, [](Simulation& sim) {
    CoalescerOptions options = with(1 + static_cast<int>(sim.random(2)), 4);
    if (sim.random(2) == 0) options.cost = [](int64_t rows) { return microseconds(20 + rows); };
    options.look_on = static_cast<int>(sim.random(3));
    Fixture fixture(options, false, false, {.asynchronous = sim.random(2) == 0});
    take_time(sim, fixture);
    Counts counts;
    run_together(kFew, [&](int caller) {
      for (int round = 0; round < 3; ++round) call(sim, fixture, counts, caller, round);
    });
    sim.expect(counts.all() == 3 * kFew && counts.closed.load_relaxed() == 0, "each had one answer");
    check_empty(sim, fixture, counts);
  });
}

TEST_CASE(
    "simulated: no more callers wait than may, those in seats that were taken without the lock included") {
  constexpr size_t kMost = 2;
  holds_for_seeds(500, [](Simulation& sim) {
    Fixture fixture(with(1 + static_cast<int>(sim.random(2)), 4, kMost));
    const auto check = [&] {
      sim.expect(fixture.coalescer->stats().parked <= kMost, "no more wait than may");
    };
    fixture.kernel = [&](const device::Run&) {
      sim.pause(microseconds(20));
      check();
      return Status();
    };
    Atomic<int> right{0}, refused{0};
    run_together(8, [&](int caller) {
      for (int round = 0; round < 4; ++round) {
        Rows rows(1, static_cast<float>(100 * caller + 10 * round));
        const auto result = fixture.call(rows);
        const bool full = result.status().code() == Code::exhausted;
        sim.expect(full || fixture.right(rows, result), "its own rows, or refused");
        (full ? refused : right).add_relaxed(1);
        check();
      }
    });
    sim.expect(right.load_relaxed() + refused.load_relaxed() == 32, "each call had one answer");
    sim.expect(fixture.coalescer->stats().parked == 0, "nobody waits");
  });
}

TEST_CASE(
    "simulated: batches are spread over fewer lanes where lanes are in each other's way, and only there") {
  SimulationOptions long_ones;
  long_ones.steps_max = 5'000'000;
  constexpr int kLanes = 4;
  struct Load {
    bool in_the_way;
    int callers, rounds;
  };
  // As many callers as lanes come through the door first, and some of them look behind it.
  for (const auto& [in_the_way, callers, rounds] :
       {Load{true, 8, 800}, {false, 8, 800}, {true, kLanes, 3000}, {false, kLanes, 3000}}) {
    struct {
      int spread = 0, looks = 0;
    } of_seeds;
    holds_for_seeds(
        3,
        [&](Simulation& sim) {
          CoalescerOptions options = with(kLanes, 16);
          options.chooses_lanes = true;
          // Pauses take none of a processor.
          options.cost = [](int64_t rows) { return microseconds(100 + 5 * rows); };
          Fixture fixture(options);
          Atomic<int> running{0};
          fixture.kernel = [&](const device::Run& run) {
            const int lanes = running.add_relaxed(1) + 1;
            const auto rows = static_cast<int>(run.inputs[0].extents[0]);
            sim.pause(microseconds(in_the_way ? 100 * lanes + 5 * rows : 100 * rows));
            running.sub_relaxed(1);
            return Status();
          };
          Counts counts;
          int looks = 0, spread = 0;     // of the second half
          for (int i = 0; i < 2; ++i) {  // the program is made, and the door open
            Rows rows(1, 0);
            sim.expect(fixture.right(rows, fixture.call(rows)), "a lone call");
            counts.right.add_relaxed(1);
          }
          run_together(callers, [&](int caller) {
            for (int round = 0; round < rounds; ++round) {
              Rows rows(1, static_cast<float>(100 * caller + round % 7));
              const auto result = fixture.call(rows);
              sim.expect(fixture.right(rows, result), "each caller gets its own row");
              counts.right.add_relaxed(1);
              if (caller != 0 || round < rounds / 2 || round % 8 != 0) continue;
              spread += fixture.coalescer->stats().lanes == (in_the_way ? 1 : kLanes) ? 1 : 0;
              ++looks;
            }
          });
          sim.expect(counts.all() == 2 + callers * rounds, "each had one answer");
          sim.expect(2 * spread > looks, text("only ", spread, " of ", looks, " looks find it so"));
          of_seeds.spread += spread;
          of_seeds.looks += looks;
          check_empty(sim, fixture, counts);
        },
        long_ones);
    // A stall in a trial may make other lanes look better for a while.
    CHECK(10 * of_seeds.spread >= 9 * of_seeds.looks);
  }
}

// The door opens when those who were expected back have not come. Nobody may have a seat that was on show for
// them: who waits in it would not be told when the calls through the door end.
TEST_CASE("simulated: callers who come through the door and beside it each get their own rows") {
  holds_for_seeds(300, [](Simulation& sim) {
    constexpr int kCallers = 6, kRounds = 8;
    CoalescerOptions options = with(2, 4);
    options.cost = [](int64_t rows) { return microseconds(20 + rows); };
    Fixture fixture(options);
    sim.expect(fixture.compile(4).ok(), "the programs are made");
    fixture.kernel = [&](const device::Run&) {
      sim.pause(microseconds(sim.random(2) == 0 ? 10 : sim.random(300)));
      return Status();
    };
    Counts counts;
    run_together(kCallers, [&](int caller) {
      for (int round = 0; round < kRounds; ++round) {
        if (sim.random(2) == 0) sim.pause(microseconds(sim.random(300)));
        Rows rows(1 + static_cast<int64_t>(sim.random(2)), static_cast<float>(100 * caller + 10 * round));
        sim.expect(fixture.right(rows, fixture.call(rows)), "each caller gets its own rows");
        counts.right.add_relaxed(1);
      }
    });
    sim.expect(counts.all() == kCallers * kRounds, "each had one answer");
    check_empty(sim, fixture, counts);
  });
}

// What is served behind the door decides over the lanes: callers that come back soon have to find it shut.
TEST_CASE("simulated: while lanes are chosen, the door is shut until callers have not competed for 5 ms") {
  holds_for_seeds(50, [](Simulation& sim) {
    constexpr int kLanes = 2, kFew = 8;
    CoalescerOptions options = with(kLanes, 4);
    options.chooses_lanes = true;
    Fixture fixture(options);
    fixture.kernel = [&](const device::Run&) {
      sim.pause(microseconds(300));
      return Status();
    };
    sim.expect(fixture.compile(1).ok(), "the program is made");
    const auto passes_the_door = [&] {
      Rows rows(1, 5);
      sim.expect(fixture.right(rows, fixture.call(rows)), "whoever leaves may open the door");
      const View view = rows.view();
      const View* const input = &view;
      return fixture.coalescer->try_call({&input, 1}).has_value();
    };
    sim.expect(passes_the_door(), "at first it is open");
    run_together(kFew, [&](int caller) {
      for (int round = 0; round < 3; ++round) {
        Rows rows(1, static_cast<float>(10 * caller + round));
        sim.expect(fixture.right(rows, fixture.call(rows)), "each caller gets its own row");
      }
    });
    sim.pause(microseconds(2000));
    sim.expect(!passes_the_door(), "two milliseconds later it is shut");
    sim.pause(microseconds(6000));
    sim.expect(passes_the_door(), "six milliseconds after that it is open");
  });
}

// Who opens a batch, completes it or has run it takes the lock; the others take a seat, wait, and take their
// part. In simulations batches are small: three or four rows. One more lock a call would be over the bound.
TEST_CASE("simulated: calls that join take the lock for their batch, not for themselves") {
  constexpr int kJoined = 32, kRounds = 20;
  SimulationOptions long_ones;
  long_ones.steps_max = 5'000'000;
  holds_for_seeds(
      5,
      [](Simulation& sim) {
        Fixture fixture(with(1, 64));
        fixture.kernel = [&](const device::Run&) {
          sim.pause(microseconds(500));
          return Status();
        };
        Counts counts;
        clear_lock_counts();
        set_lock_counting(true);
        run_together(kJoined, [&](int caller) {
          for (int round = 0; round < kRounds; ++round) {
            Rows rows(1, static_cast<float>(100 * caller + round));
            sim.expect(fixture.right(rows, fixture.call(rows)), "each caller gets its own row");
            counts.right.add_relaxed(1);
          }
        });
        set_lock_counting(false);
        const uint64_t locks = read_lock_counts()[static_cast<size_t>(Rank::kBatch)].acquisitions;
        sim.expect(counts.all() == kJoined * kRounds, "each had one answer");
        const uint64_t batches = fixture.coalescer->stats().batches;
        sim.expect(locks > 0 && locks < 5 * batches, text(locks, " for ", batches, " batches"));
        check_empty(sim, fixture, counts);
      },
      long_ones);
}

TEST_CASE("simulated: calls that come and go leave no batch behind that an emptied cache would not get") {
  holds_for_seeds(300, [](Simulation& sim) {
    CoalescerOptions options = with(1, 4);
    options.door = sim.random(2) == 0;
    Fixture fixture(options);
    take_time(sim, fixture);
    run_together(3, [&](int caller) {
      for (int round = 0; round < 4; ++round) {
        sim.pause(microseconds(sim.random(60)));
        Rows rows(1, static_cast<float>(100 * caller + round));
        sim.expect(fixture.right(rows, fixture.call(rows)), "its own row");
      }
    });
    fixture.coalescer->give_up_idle();
    fixture.runtime->allocator().empty_cache();
    sim.expect(fixture.runtime->stats().slot_bytes == 0, "no batch is kept");
  });
}

// One caller is answered and never comes back; the other, who waits behind its run, expects it. That one's
// batch was open before, so that nobody joins it says nothing. In some rounds they do not meet.
TEST_CASE("simulated: a batch that was opened while nobody was expected says nothing of who comes back") {
  constexpr microseconds kRun{400}, kPatience{200}, kLater{100};
  constexpr int kRounds = 8;
  uint64_t seeds = 0, often = 0;
  holds_for_seeds(40, [&](Simulation& sim) {
    CoalescerOptions options = with(1, 8);
    options.cost = [&](int64_t rows) { return kRun + microseconds(rows); };
    options.door = false;
    Fixture fixture(options);
    fixture.kernel = [&](const device::Run&) { return sim.pause(kRun), Status(); };
    int waited = 0;
    for (int round = 0; round < kRounds; ++round) {
      Duration took[2] = {};
      run_together(2, [&](int caller) {
        if (caller == 1) sim.pause(kLater);
        const TimePoint begin = Clock::real().now();
        Rows rows(1, static_cast<float>(100 * caller + round));
        sim.expect(fixture.right(rows, fixture.call(rows)), "its own row");
        took[caller] = Clock::real().now() - begin;
      });
      waited += std::max(took[0], took[1]) > kRun - kLater + kPatience / 2 + kRun ? 1 : 0;
      sim.pause(microseconds(5000));
    }
    sim.expect(fixture.coalescer->stats().batches == 2 * kRounds, "nobody joined another");
    often += waited > kRounds / 2 ? 1 : 0;
    ++seeds;
  });
  CHECK(often >= seeds * 95 / 100);  // it waits for the one just answered
}

// Unless the last of them is kept from the lock until they are expected no more.
TEST_CASE(
    "simulated: the next batch stays made while callers are expected back, and is given up when asked") {
  constexpr uint64_t kSeeds = 20;
  uint64_t kept = 0;
  holds_for_seeds(kSeeds, [&](Simulation& sim) {
    CoalescerOptions options = with(1, 4);
    options.cost = [](int64_t rows) { return microseconds(400 + rows); };
    options.door = false;
    Fixture fixture(options);
    fixture.kernel = [&](const device::Run&) { return sim.pause(microseconds(400)), Status(); };
    run_together(3, [&](int caller) {
      sim.pause(microseconds(100 * caller));
      Rows rows(1, static_cast<float>(100 * caller));
      sim.expect(fixture.right(rows, fixture.call(rows)), "its own row");
    });
    fixture.runtime->allocator().empty_cache();
    kept += fixture.runtime->stats().slot_bytes > 0 ? 1 : 0;
    fixture.coalescer->give_up_idle();
    fixture.runtime->allocator().empty_cache();
    sim.expect(fixture.runtime->stats().slot_bytes == 0, "no batch is kept");
  });
  CHECK(kept > kSeeds / 2);
}

TEST_CASE("simulated: on an asynchronous device callers' rows are theirs, too") {
  holds_for_seeds(300, [](Simulation& sim) {
    Fixture fixture(with(2, 4), false, false, {.asynchronous = true});
    take_time(sim, fixture);
    Counts counts;
    run_together(kFew, [&](int caller) {
      for (int round = 0; round < 2; ++round) call(sim, fixture, counts, caller, round);
    });
    sim.expect(counts.all() == 2 * kFew && counts.closed.load_relaxed() == 0, "each had one answer");
    check_empty(sim, fixture, counts);
  });
}

TEST_CASE("simulated: a coalescer that is closed answers all callers that wait") {
  holds_for_seeds(500, [](Simulation& sim) {
    Fixture fixture(with(1, 4));
    take_time(sim, fixture);
    Counts counts;
    run_together(kFew + 1, [&](int caller) {
      if (caller == kFew) {
        sim.pause(microseconds(sim.random(60)));
        fixture.coalescer->close();
        return;
      }
      for (int round = 0; round < 2; ++round) call(sim, fixture, counts, caller, round);
    });
    sim.expect(counts.all() == 2 * kFew, "each had one answer");
    check_empty(sim, fixture, counts);
  });
}

TEST_CASE("simulated: a batch that fails fails for its callers, and later calls run") {
  holds_for_seeds(500, [](Simulation& sim) {
    Fixture fixture(with(1, 4));
    Atomic<int> failures{0};
    fixture.kernel = [&](const device::Run& run) {
      sim.pause(microseconds(10 + 5 * run.inputs[0].extents[0]));
      if (sim.random(4) != 0) return Status();
      failures.add_relaxed(1);
      return Status::internal("a run failed");
    };
    Atomic<int> right{0}, failed{0};
    run_together(kFew, [&](int caller) {
      for (int round = 0; round < 2; ++round) {
        Rows rows(1, static_cast<float>(100 * caller + 10 * round));
        const auto result = fixture.call(rows);
        if (result.ok()) sim.expect(fixture.right(rows, result), "its own rows");
        (result.ok() ? right : failed).add_relaxed(1);
      }
    });
    sim.expect(right.load_relaxed() + failed.load_relaxed() == 2 * kFew, "each had one answer");
    sim.expect((failed.load_relaxed() == 0) == (failures.load_relaxed() == 0), "failures reach callers");
    sim.expect(fixture.coalescer->stats().parked == 0, "nobody waits");
  });
}

TEST_CASE("replayed: coalescer: calls that take seats, are expected back, leave late, or are refused") {
  replay_calls("returns", 3, false, false);
  replay_calls("late", 3, true, false);
  replay_calls("closes", 3, false, true);
  replay_calls("looks", 3, true, false, 2);
  replay_calls("helps", 5, true, false, 1);
}

// Where joining does not pay, a batch is one call, as in the model.
TEST_CASE("replayed: lone_door: calls through the door beside calls that wait for the same lane") {
  log_for_model("lone_door", "lone", 60, [](Simulation& sim) {
    Fixture fixture(with_equal_costs(with(1)));
    fixture.learn_that_joining_does_not_pay();
    sim.expect(fixture.compile(1).ok(), "the program is made");
    Atomic<int> right{0};
    run_together(3, [&](int caller) {
      sim.play(caller);
      for (int round = 0; round < 2; ++round) {
        for (uint64_t pause = sim.random(20); pause > 0; --pause) yield_point("call");
        Rows rows(1, static_cast<float>(100 * caller + 10 * round));
        const View view = rows.view();
        const auto result = caller < 2 ? fixture.call(rows)
                                       : fixture.coalescer->join({&view, 1}, Deadline::never(), {}, nullptr);
        sim.expect(fixture.right(rows, result), "its own row");
        right.add_relaxed(1);
      }
    });
    sim.expect(right.load_relaxed() == 6, "each call had one answer");
  });
}

}  // namespace heddle::batch
