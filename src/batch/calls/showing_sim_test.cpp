// Seats that callers take without the coalescer's lock, under simulated schedules.
#include <doctest/doctest.h>

#include <array>
#include <vector>

#include "base/simulation_fixture.h"
#include "batch/calls/coalescer_fixture.h"

namespace heddle::batch {

using heddle::test::holds_for_seeds;

// In some seeds the batch has run and is published before the seat is given up.
TEST_CASE("simulated: a seat among rows of another length is given up at any time, with no rows of its own") {
  constexpr int kCallers = 4, kCalls = 4;
  std::array<int64_t, 2> lengths{};
  holds_for_seeds(200, [&](Simulation& sim) {
    CoalescerOptions options = with(2);
    options.door = false;
    Fixture fixture(options, true, true);
    if (lengths[0] == 0) lengths = lengths_alike(fixture);
    std::vector<Thread> threads;
    for (int caller = 0; caller < kCallers; ++caller) {
      threads.emplace_back("caller", [&, caller] {
        for (int i = 0; i < kCalls; ++i) {
          Ragged row(lengths[static_cast<size_t>(caller + i) % 2], static_cast<float>(caller * kCalls + i));
          sim.expect(fixture.right(row, fixture.call(row)), "its own rows");
        }
      });
    }
    for (Thread& thread : threads) thread.join();
    const Coalescer::Stats stats = fixture.coalescer->stats();
    sim.expect(stats.calls == kCallers * kCalls, "each call is counted once");
    sim.expect(stats.left == 0 && stats.parked == 0, "nobody left, nobody waits");
  });
}

}  // namespace heddle::batch
