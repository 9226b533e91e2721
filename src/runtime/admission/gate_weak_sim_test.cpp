// A gate under the orders that gate.h states.
#include <doctest/doctest.h>

#include "base/schedules_fixture.h"
#include "base/watched_fixture.h"
#include "runtime/admission/gate.h"

namespace heddle::runtime {
namespace {

using heddle::test::at_once;
using heddle::test::explore;
using heddle::test::Watched;

TEST_CASE("weak orders: who waits for a closed gate sees what calls did, and who is refused what closed it") {
  for (const int count : {2, 3}) {
    explore({"gate_weak", count, 2, 2, true, count == 2 ? 3u : 2u}, [](Simulation& sim, int threads) {
      Gate gate;
      Watched<int> reason(0), work[2];
      at_once(sim, threads, [&](int i) {
        if (i != 0) {
          const Gate::Pass pass(gate);
          if (!pass) return sim.expect(reason.get() == 1, "it is refused for a reason");
          return work[i - 1].set(1);
        }
        reason.set(1);
        gate.close();
        sim.expect(gate.wait_empty(Deadline::never()).ok(), "empty");
        for (Watched<int>& each : work) each.set(2);
      });
      sim.expect(gate.inside() == 0, "counted");
    });
  }
}

// A lone call passes it by a word of its own: see OwnerWords.
TEST_CASE("weak orders: who closes a gate finds a lone call's word, or that call finds the gate closed") {
  explore({"gate_lone", 2, 3, 3, true, 3}, [](Simulation& sim, int threads) {
    Gate gate;
    Atomic<int> word{0};
    bool late = false, found = false;
    at_once(sim, threads, [&](int i) {
      if (i == 0) {
        gate.close();
        found = word.load_seq_cst() != 0;
      } else {
        word.store_seq_cst(1);
        late = gate.closed();
      }
    });
    sim.expect(late || found, "one of them learns it");
  });
}

}  // namespace
}  // namespace heddle::runtime
