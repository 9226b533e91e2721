// A governor, and a door for lone calls, under the orders that they state.
#include <doctest/doctest.h>

#include <vector>

#include "base/schedules_fixture.h"
#include "base/watched_fixture.h"
#include "runtime/admission/governor.h"
#include "runtime/admission/lone_door.h"

namespace heddle::runtime {
namespace {

using heddle::test::at_once;
using heddle::test::explore;
using heddle::test::Watched;

TEST_CASE("weak orders: who holds the device sees what copies and calls did before, and they what it did") {
  for (const int count : {2, 3}) {
    explore({"governor_weak", count, count == 2 ? 2u : 1u, 3, true, count == 2 ? 2u : 1u},
            [](Simulation& sim, int threads) {
              const auto governor = Governor::make("d", 1);
              Watched<int> copied(0), called(0);
              at_once(sim, threads, [&](int i) {
                if (i == 1) {
                  const auto hold = governor->exclusive(Deadline::never());
                  sim.expect(hold.ok(), "a hold");
                  copied.set(copied.get() + 1);
                  called.set(called.get() + 1);
                } else if (i == 0) {
                  const auto copy = governor->enter_copy(ModelId{9}, Deadline::never());
                  sim.expect(copy.ok() && *copy, "a copy");
                  copied.set(copied.get() + 1);
                } else {
                  const auto call = governor->enter(ModelId{1}, Deadline::never());
                  sim.expect(call.ok() && *call, "a permit");
                  called.set(called.get() + 1);
                }
              });
              sim.expect(copied.get() == 2 && called.get() == threads - 1, "nothing is lost");
            });
  }
}

// Beside each other they are not in order: only the last to leave, and it is the hold that looks.
TEST_CASE("weak orders: who holds the device sees what each of two copies did") {
  explore({"governor_copies_weak", 3, 1, 2, true, 1}, [](Simulation& sim, int threads) {
    const auto governor = Governor::make("d", 1);
    Watched<int> copied[2];
    at_once(sim, threads, [&](int i) {
      if (i < 2) {
        const auto copy = governor->enter_copy(ModelId{9}, Deadline::never());
        sim.expect(copy.ok() && *copy, "a copy");
        copied[i].set(copied[i].get() + 1);
        return;
      }
      const auto hold = governor->exclusive(Deadline::never());
      sim.expect(hold.ok(), "a hold");
      for (Watched<int>& each : copied) each.set(each.get() + 1);
    });
    sim.expect(copied[0].get() == 2 && copied[1].get() == 2, "nothing is lost");
  });
}

TEST_CASE("weak orders: who calls beside the first limit finds the lanes made") {
  explore({"governor_limit_weak", 2, 3, 3, true, 3}, [](Simulation& sim, int threads) {
    const auto governor = Governor::make("d", 0);
    at_once(sim, threads, [&](int i) {
      if (i == 0) return governor->set_limit_once(1);
      const int before = governor->limit();
      sim.expect(before == 0 || before == 1, "none or that");
      const auto permit = governor->enter(ModelId{1}, Deadline::never());
      sim.expect(permit.ok() && *permit && permit->lane() == 0, "a permit");
    });
    sim.expect(governor->limit() == 1 && governor->stats().entered == 1, "one call was counted");
  });
}

TEST_CASE("weak orders: a lane's owners count on, and who sums finds what is counted made") {
  for (const int count : {2, 3}) {
    explore({"lone_door_weak", count, 2, 3, true, 2}, [](Simulation& sim, int threads) {
      const auto governor = Governor::make("d", 1);
      LoneDoor door(1, 1);
      Atomic<uint64_t> counted{0};
      at_once(sim, threads, [&](int i) {
        std::vector<uint64_t> by_rows(2);
        if (i == 0) {
          const uint64_t all = door.sum(by_rows);
          sim.expect(all == by_rows[0] + by_rows[1] && by_rows[0] == 0, "of one row each");
          return;
        }
        const Permit permit = governor->try_enter_lone(ModelId{1}, 1);
        if (!permit) return;
        door.count(permit.lane(), 1);
        counted.add_relaxed(1);
      });
      std::vector<uint64_t> by_rows(2);
      sim.expect(door.sum(by_rows) == counted.newest() && by_rows[1] == counted.newest(), "each is counted");
    });
  }
}

TEST_CASE("weak orders: who shuts the door finds a call on its lane, or that call finds the door shut") {
  explore({"lone_door_shut_weak", 2, 2, 3, true, 2}, [](Simulation& sim, int threads) {
    const auto governor = Governor::make("d", 1);
    LoneDoor door(1, 1);
    door.open(1);
    int found = 0;
    bool is_open = false;
    Permit permit;
    at_once(sim, threads, [&](int i) {
      if (i == 0) {
        door.shut();
        found = governor->lone(ModelId{1});
      } else {
        permit = governor->try_enter_lone(ModelId{1}, 1);
        is_open = door.is_open() != 0;
      }
    });
    sim.expect(static_cast<bool>(permit), "the lane was free");
    sim.expect(found == 1 || !is_open, "one of them learns of the other");
  });
}

}  // namespace
}  // namespace heddle::runtime
