// Programs that change beside calls on lanes, under the orders that both state.
#include <doctest/doctest.h>

#include "base/schedules_fixture.h"
#include "runtime/admission/governor.h"
#include "runtime/executables.h"

namespace heddle::runtime {
namespace {

TEST_CASE("weak orders: a lane is visited after programs have changed, or its owner sees so as it leaves") {
  heddle::test::explore({"executables_weak", 2, 3, 3, true, 3}, [](Simulation& sim, int threads) {
    const auto governor = Governor::make("d", 1);
    Executables executables({});
    bool is_visited = false;
    executables.on_change([&] { governor->with_free_lanes([&](int) { is_visited = true; }); });
    uint64_t there = 0, left = 0;
    heddle::test::at_once(sim, threads, [&](int i) {
      if (i == 0) return executables.forget(ModelId{1});
      {
        const auto permit = governor->enter(ModelId{2}, Deadline::never());
        sim.expect(permit.ok() && *permit, "a permit");
        there = executables.changes();
      }
      left = executables.changes();
    });
    sim.expect(is_visited || there == 1 || left == 1, "somebody drops what the lane keeps");
  });
}

}  // namespace
}  // namespace heddle::runtime
