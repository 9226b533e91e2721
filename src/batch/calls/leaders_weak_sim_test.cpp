// Leaders under the orders that leaders.cpp states.
#include <doctest/doctest.h>

#include "base/schedules_fixture.h"
#include "base/watched_fixture.h"
#include "batch/calls/leaders.h"

namespace heddle::batch {
namespace {

using heddle::test::at_once;
using heddle::test::explore;
using heddle::test::Watched;

TEST_CASE("weak orders: who waits until nothing is owed sees what came before each promise was settled") {
  for (const int count : {2, 3}) {
    explore({"leaders_weak", count, 2, 3, true, count == 2 ? 2u : 1u}, [](Simulation& sim, int threads) {
      Leaders leaders(1, {});
      for (int i = 1; i < threads; ++i) sim.expect(leaders.owe().ok(), "a promise");
      Watched<int> done[2];
      at_once(sim, threads, [&](int i) {
        if (i != 0) {
          done[i - 1].set(1);
          return leaders.settle();
        }
        sim.expect(leaders.await_settled(Deadline::never()), "settled");
        for (int each = 1; each < threads; ++each) sim.expect(done[each - 1].get() == 1, "it is visible");
      });
      leaders.stop();
    });
  }
}

TEST_CASE("weak orders: a promise beside the stop is refused, or awaited") {
  explore({"leaders_stop_weak", 2, 2, 3, true, 2}, [](Simulation& sim, int threads) {
    Leaders leaders(1, {});
    Watched<int> done(0);
    bool promised = false;
    at_once(sim, threads, [&](int i) {
      if (i == 0) return leaders.stop();
      promised = leaders.owe().ok();
      if (!promised) return;
      done.set(1);
      leaders.settle();
    });
    sim.expect(done.get() == (promised ? 1 : 0), "counted");
    sim.expect(leaders.owe().code() == Code::unavailable, "stopped");
  });
}

TEST_CASE("weak orders: a task that is posted while its leader looks is run, and finds what came before") {
  explore({"leaders_post_weak", 2, 2, 3, true, 1}, [](Simulation& sim, int threads) {
    Leaders leaders(1, {}, 1);
    sim.expect(leaders.owe().ok() && leaders.owe().ok(), "two promises");
    Watched<int> before(0), ran(0);
    at_once(sim, threads, [&](int i) {
      if (i == 0) return leaders.settle();
      before.set(1);
      leaders.post([&] {
        ran.set(before.get());
        leaders.settle();
      });
    });
    sim.expect(leaders.await_settled(Deadline::never()) && ran.get() == 1, "it ran");
    leaders.stop();
  });
}

}  // namespace
}  // namespace heddle::batch
