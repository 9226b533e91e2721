#include <doctest/doctest.h>

#include <vector>

#include "base/simulation_fixture.h"
#include "base/thread.h"
#include "base/yield.h"
#include "drivers/host/machine/team.h"

namespace heddle::host {
namespace {

using heddle::test::holds_for_seeds;

TEST_CASE("simulated: every chunk of every caller's loop runs once, and its writes are there at the end") {
  constexpr int kCallers = 3, kLoops = 4;
  holds_for_seeds(300, [](Simulation& sim) {
    const int width = 2 + static_cast<int>(sim.random(4));
    Atomic<int> wrong{0}, ran{0};
    int wanted = 0;
    {
      Team team(width);
      std::vector<int> chunks;
      for (int loop = 0; loop < kLoops; ++loop) {
        chunks.push_back(1 + static_cast<int>(sim.random(9)));
        wanted += kCallers * chunks.back();
      }
      run_together(kCallers, [&](int me) {
        for (int loop = 0; loop < kLoops; ++loop) {
          Team::Caller caller(team);
          const int count = chunks[static_cast<size_t>(loop)];
          std::vector<int> out(static_cast<size_t>(count), 0);
          caller.for_each(count, [&](int chunk) {
            yield_point("in a chunk");
            out[static_cast<size_t>(chunk)] += 100 * me + chunk;
            ran.add_relaxed(1);
          });
          for (int chunk = 0; chunk < count; ++chunk)
            wrong.add_relaxed(out[static_cast<size_t>(chunk)] == 100 * me + chunk ? 0 : 1);
        }
      });
    }
    sim.expect(wrong.load_relaxed() == 0, "a chunk ran once, for its own caller");
    sim.expect(ran.load_relaxed() == wanted, "as many chunks ran as there are");
  });
}

TEST_CASE("simulated: a lone caller's chunks that wait for each other are all taken") {
  holds_for_seeds(300, [](Simulation& sim) {
    const int width = 2 + static_cast<int>(sim.random(6));
    Team team(width);
    for (int loop = 0; loop < 3; ++loop) {
      if (sim.random(2) == 0) sim.pause(std::chrono::milliseconds(1));  // helpers sleep by now
      Team::Caller caller(team);
      Atomic<int> arrived{0};
      caller.for_each(width, [&](int) {
        arrived.add_acq_rel(1);
        while (arrived.load_acquire() < width) give_way();
      });
      sim.expect(arrived.load_acquire() == width, "each thread of the team has one");
    }
  });
}

}  // namespace
}  // namespace heddle::host
