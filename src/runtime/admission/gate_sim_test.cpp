// A gate under simulated schedules: once it is closed and empty, no call is inside, and none was forgotten.
#include "runtime/admission/gate.h"

#include <doctest/doctest.h>

#include "base/simulation_fixture.h"
#include "base/thread.h"

namespace heddle::runtime {

TEST_CASE("simulated: after close() and wait_empty() nobody is inside, and what was done there is visible") {
  heddle::test::holds_for_seeds(2000, [](Simulation& sim) {
    Gate gate;
    int done[3] = {};
    Atomic<int> inside{0};
    bool closed = false;  // written once the gate is closed and empty
    run_together(4, [&](int thread) {
      if (thread == 3) {
        gate.close();
        const bool hurries = sim.random(2) == 0;
        const Deadline deadline = hurries ? Deadline::in(std::chrono::microseconds(1)) : Deadline::never();
        Status empty = gate.wait_empty(deadline);
        if (!empty.ok()) empty = gate.wait_empty(Deadline::never());
        sim.expect(empty.ok() && inside.load_relaxed() == 0, "nobody is inside");
        closed = true;
        return;
      }
      for (int i = 0; i < 3; ++i) {
        const Gate::Pass pass(gate);
        if (!pass) return;
        inside.add_relaxed(1);
        sim.expect(!closed, "nobody comes in once it is empty");
        yield_point("inside");
        ++done[thread];
        sim.expect(!closed, "nobody is left behind inside");
        inside.sub_relaxed(1);
      }
    });
    sim.expect(gate.inside() == 0, "counted");
  });
}

}  // namespace heddle::runtime
