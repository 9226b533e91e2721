// The protocols of base under all schedules of two and three threads, up to a number of preemptions.
#include <doctest/doctest.h>

#include <memory>
#include <set>

#include "base/condition.h"
#include "base/once_map.h"
#include "base/schedules_fixture.h"

namespace heddle {
namespace {

using test::at_once;
using test::explore;

TEST_CASE("schedules: one of two stores and two loads comes in every order that sequential consistency has") {
  std::set<std::pair<int, int>> seen;
  explore({"store_buffer", 2, 3}, [&](Simulation&, int) {
    Atomic<int> x{0}, y{0};
    int a = -1, b = -1;
    at_once(*Simulation::current(), 2, [&](int i) {
      (i == 0 ? x : y).store_relaxed(1);
      (i == 0 ? a : b) = (i == 0 ? y : x).load_relaxed();
    });
    seen.emplace(a, b);
  });
  CHECK(seen == std::set<std::pair<int, int>>{{0, 1}, {1, 0}, {1, 1}});
}

TEST_CASE("schedules: a condition loses no ring, whoever rings when") {
  for (const int count : {2, 3}) {
    explore({"condition", count, 3}, [](Simulation& sim, int threads) {
      Mutex mutex;
      Condition changed;
      int coins = 0, taken = 0;
      at_once(sim, threads, [&](int i) {
        if (i == 0) {
          for (int coin = 1; coin < threads; ++coin) {
            {
              const std::lock_guard held(mutex);
              ++coins;
            }
            changed.notify_one();
          }
          return;
        }
        std::unique_lock held(mutex);
        while (coins == 0) changed.wait(held, Deadline::never());
        --coins;
        ++taken;
      });
      sim.expect(taken == threads - 1 && coins == 0, "each took one");
    });
  }
}

}  // namespace
}  // namespace heddle
