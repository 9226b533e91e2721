// Seats that callers take without the coalescer's lock, under simulated schedules.
#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <optional>
#include <vector>

#include "base/simulation_fixture.h"
#include "batch/calls/coalescer_fixture.h"
#include "batch/calls/pace.h"

namespace heddle::batch {

using heddle::test::holds_for_seeds;
using std::chrono::microseconds;

namespace {

constexpr int kAlike = 4, kCallsOfEach = 4;

// Callers of two lengths under one number: who takes a seat among the other's gives it up. In some seeds its
// batch has run and is published before that.
struct CallersAlike {
  explicit CallersAlike(Simulation& simulation) : sim(simulation), fixture(options(), true, true) {}
  static CoalescerOptions options() {
    CoalescerOptions options = with(2);
    options.door = false;
    return options;
  }
  void call_all(Pace* pace, const std::function<void()>& meanwhile = nullptr) {
    const std::array<int64_t, 2> lengths = lengths_alike(fixture);
    std::vector<Thread> threads;
    for (int caller = 0; caller < kAlike; ++caller) {
      threads.emplace_back("caller", [&, caller] {
        for (int i = 0; i < kCallsOfEach; ++i) {
          std::optional<Pace::Scope> scope;
          if (pace != nullptr) scope.emplace(*pace);
          const auto at = static_cast<size_t>(caller + i) % 2;
          Ragged row(lengths[at], static_cast<float>(caller * kCallsOfEach + i));
          const auto result = fixture.call(row);
          if (scope.has_value()) scope->passed();
          if (result.status().code() == Code::unavailable) {
            refused.add_relaxed(1);
            continue;
          }
          sim.expect(fixture.right(row, result), "its own rows");
          right.add_relaxed(1);
        }
      });
    }
    if (meanwhile) meanwhile();
    for (Thread& thread : threads) thread.join();
    const Coalescer::Stats stats = fixture.coalescer->stats();
    sim.expect(right.load_relaxed() + refused.load_relaxed() == kAlike * kCallsOfEach, "each is answered");
    sim.expect(stats.calls == static_cast<uint64_t>(right.load_relaxed()),
               text("calls that ran are counted: ", stats.calls));
    sim.expect(stats.left == 0 && stats.parked == 0, "nobody left, nobody waits");
  }

  Simulation& sim;
  Fixture fixture;
  Atomic<int> right{0}, refused{0};
};

}  // namespace

TEST_CASE("simulated: a seat among rows of another length is given up at any time, with no rows of its own") {
  holds_for_seeds(200, [](Simulation& sim) {
    CallersAlike callers(sim);
    callers.call_all(nullptr);
    sim.expect(callers.refused.load_relaxed() == 0, "all ran");
  });
}

TEST_CASE("simulated: who gives a seat up is not on the way while it waits in the next one") {
  holds_for_seeds(1500, [](Simulation& sim) {
    Pace pace(1, Duration(0));
    CallersAlike callers(sim);
    callers.call_all(&pace);
    sim.expect(callers.refused.load_relaxed() == 0, "all ran");
    sim.expect(pace.waiting() == 0 && pace.on_the_way() == 0, "nobody waits to be told, or is on the way");
  });
}

TEST_CASE("simulated: a seat that is given up in a batch which is refused takes no call from the count") {
  holds_for_seeds(400, [](Simulation& sim) {
    CallersAlike callers(sim);
    callers.call_all(nullptr, [&] {
      sim.pause(microseconds(sim.random(20)));
      callers.fixture.coalescer->close();
    });
  });
}

// The policy counts one caller more than there are: seven on two lanes have shares of four rows. The caller
// in the last seat of a share writes its rows and then asks; others come meanwhile.
TEST_CASE("simulated: where larger runs take longer nobody joins a batch that has its share") {
  holds_for_seeds(300, [](Simulation& sim) {
    constexpr int kCallers = 6, kCalls = 4;
    CoalescerOptions options = with(2);
    options.door = false;
    Fixture fixture(options, false, false, {.row_sizes = {1, 2, 3, 4, 5, 6, 7, 8}});
    run_together(kCallers, [&](int caller) {
      for (int i = 0; i < kCalls; ++i)
        sim.expect(fixture.answers(1, static_cast<float>(caller * kCalls + i)), "its own rows");
    });
    int64_t rows = 0;
    for (const ir::Extents& run : fixture.runs()) {
      sim.expect(run[0] <= 4, text("a run of ", run[0], " rows"));
      rows += run[0];
    }
    sim.expect(rows == kCallers * kCalls, "each row ran once");
  });
}

}  // namespace heddle::batch
