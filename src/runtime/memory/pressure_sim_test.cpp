// Callbacks that may free memory, and who waits for them, under simulated schedules.
#include "runtime/memory/pressure.h"

#include <doctest/doctest.h>

#include "base/simulation_fixture.h"
#include "base/thread.h"

namespace heddle::runtime {

using heddle::test::holds_for_seeds;
using heddle::test::without_stalls;
using std::chrono::milliseconds;

TEST_CASE("simulated: who waits for others' callbacks waits for those that had begun, and for no later one") {
  holds_for_seeds(
      20,
      [](Simulation& sim) {
        Pressure pressure;
        pressure.add([&](uint64_t ms) { sim.pause(milliseconds(ms)); });
        Thread before("before", [&] { sim.expect(pressure.call(20), "there is a callback"); });
        Thread after("after", [&] {
          sim.pause(milliseconds(10));
          sim.expect(pressure.call(100), "there is a callback");
        });
        sim.pause(milliseconds(5));
        pressure.wait_for_others();
        sim.expect(pressure.calls() == 1, "the first is over, the second is not");
        before.join();
        after.join();
        sim.expect(pressure.calls() == 2, "both were called");
      },
      without_stalls());
}

}  // namespace heddle::runtime
