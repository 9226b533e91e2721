// A gate under simulated schedules: once it is closed and empty, no call is inside, and none was forgotten.
#include "runtime/admission/gate.h"

#include <doctest/doctest.h>

#include "base/replay_fixture.h"
#include "base/simulation_fixture.h"
#include "base/thread.h"
#include "runtime/admission/governor.h"

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

// As Model::close does, beside calls through the gate and lone ones, which pass it by the word of a lane.
TEST_CASE("replayed: process_devices: a gate that closes beside the calls inside, and beside lone ones") {
  for (const bool lone : {false, true}) {
    heddle::test::log_for_model("process_devices", lone ? "lone" : "gate", 80, [&](Simulation& sim) {
      constexpr ModelId kModel{1};
      Gate gate;
      const auto governor = Governor::make("d", 1);
      bool closed = false;
      run_together(3, [&](int thread) {
        sim.play(thread);
        if (thread == 2) {
          gate.close();
          sim.expect(gate.wait_empty(Deadline::never()).ok(), "empty");
          sim.expect(governor->await_no_lone(kModel, Deadline::never()).ok(), "no lone call");
          closed = true;
          return;
        }
        if (!lone || thread == 0) {
          const Gate::Pass pass(gate);
          sim.expect(!pass || !closed, "inside, and not closed");
          return yield_point("inside");
        }
        for (int i = 0; i < 2; ++i) {
          const Permit permit = governor->try_enter_lone(kModel, 1);
          if (!permit) return;
          const bool late = gate.closed();
          sim.expect(late || !closed, "inside, and not closed");
          yield_point("inside");
        }
      });
    });
  }
}

}  // namespace heddle::runtime
