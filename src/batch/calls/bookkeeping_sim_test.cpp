// Costs, and callers who are expected back, under simulated schedules.
#include <doctest/doctest.h>

#include <vector>

#include "base/simulation_fixture.h"
#include "batch/calls/coalescer_fixture.h"

namespace heddle::batch {

using heddle::test::holds_for_seeds;
using heddle::test::without_stalls;
using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

void call_in(Simulation& sim, Fixture& fixture, Duration when, int64_t count) {
  sim.pause(when);
  sim.expect(fixture.answers(count, static_cast<float>(10 * count)), "its own rows");
}

}  // namespace

TEST_CASE("simulated: a run beside which a lane was free, at its begin or at its end, teaches no cost") {
  holds_for_seeds(
      20,
      [](Simulation& sim) {
        CoalescerOptions options = with_equal_costs(with(2));
        options.door = false;
        Fixture fixture(options);
        fixture.kernel = [&](const device::Run&) { return sim.pause(milliseconds(1)), Status(); };
        for (int round = 0; round < 11; ++round) {
          run_together(
              2, [&](int caller) { call_in(sim, fixture, microseconds(500) * caller, round < 3 ? 1 : 2); });
        }
        sim.expect(fixture.coalescer->stats().rows_max == 64, "nothing is known");
        sim.expect(fixture.coalescer->stats().calls == 22, "each was answered");
      },
      without_stalls());
}

// Rows of callers who are inside or expected back say how many lanes are worth it, which stats() tells.
TEST_CASE("simulated: once all are back that were expected, no rows are, however few they bring") {
  holds_for_seeds(
      20,
      [](Simulation& sim) {
        CoalescerOptions options = with(4);
        options.door = false;
        options.least_share = 8;
        Fixture fixture(options);
        int lanes_at_last = 0;
        fixture.kernel = [&](const device::Run&) {
          lanes_at_last = fixture.coalescer->stats().lanes;
          return sim.pause(milliseconds(1)), Status();
        };
        Thread first("first", [&] { call_in(sim, fixture, Duration(0), 5); });
        Thread returns("returns", [&] {
          call_in(sim, fixture, microseconds(200), 7);
          call_in(sim, fixture, Duration(0), 1);
        });
        Thread waits("waits", [&] { call_in(sim, fixture, microseconds(500), 1); });
        first.join();
        returns.join();
        waits.join();
        sim.expect(lanes_at_last == 4, text("two rows have a lane each, of ", lanes_at_last));
      },
      without_stalls());
}

// One is answered and expected back, two fill a batch, and a fourth opens the next one, which nobody joins.
TEST_CASE("simulated: after a batch that nobody joined the next ones do not wait for callers to come back") {
  constexpr microseconds kRun{1000};
  holds_for_seeds(
      20,
      [&](Simulation& sim) {
        CoalescerOptions options = with(1, 2);
        options.door = false;
        options.cost = [&](int64_t rows) { return kRun + microseconds(rows); };
        Fixture fixture(options);
        fixture.kernel = [&](const device::Run&) { return sim.pause(kRun), Status(); };
        for (int round = 0; round < 4; ++round) {
          const TimePoint begin = Clock::real().now();
          Duration took(0);
          run_together(4, [&](int caller) {
            const Duration begins[] = {Duration(0), microseconds(100), microseconds(200), microseconds(1100)};
            call_in(sim, fixture, begins[caller], 1);
            if (caller == 3) took = Clock::real().now() - begin;
          });
          const bool waited = took > 3 * kRun + kRun / 4;
          sim.expect(waited == (round == 0), text("round ", round, ": ", took.count(), " ns"));
          sim.pause(milliseconds(10));
        }
      },
      without_stalls());
}

// Of two rows each, behind a run that lasts.
TEST_CASE("simulated: while batches wait there is one more at most, which nobody has joined") {
  holds_for_seeds(
      20,
      [](Simulation& sim) {
        CoalescerOptions options = with(1, 2);
        options.door = false;
        Fixture fixture(options);
        fixture.kernel = [&](const device::Run&) { return sim.pause(milliseconds(20)), Status(); };
        std::vector<uint64_t> bytes;
        run_together(8, [&](int caller) {
          if (caller < 7) return call_in(sim, fixture, milliseconds(caller), 1);
          for (int i = 0; i < 7; ++i) {
            sim.pause(i == 0 ? microseconds(500) : milliseconds(1));
            bytes.push_back(fixture.runtime->stats().slot_bytes);
          }
        });
        const std::vector<uint64_t> made = {1, 3, 3, 3, 3, 5, 5};  // the first row's memory included
        for (size_t i = 0; i < made.size(); ++i)
          sim.expect(bytes[i] == made[i] * bytes[0], text("after ", i, " rows that wait: ", bytes[i]));
      },
      without_stalls());
}

}  // namespace heddle::batch
