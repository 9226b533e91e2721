#include "runtime/admission/gate.h"

#include <doctest/doctest.h>

#include "base/thread.h"

namespace heddle::runtime {

TEST_CASE("a closed gate refuses new calls and waits for those inside") {
  Gate gate;
  auto inside = std::make_unique<Gate::Pass>(gate);
  CHECK(static_cast<bool>(*inside));
  gate.close();
  CHECK_FALSE(static_cast<bool>(Gate::Pass(gate)));
  CHECK(gate.inside() == 1);
  CHECK(gate.wait_empty(Deadline::at(TimePoint())).code() == Code::deadline);
  {
    const Thread leaver("leaver", [&] { inside.reset(); });
    CHECK(gate.wait_empty(Deadline::never()).ok());
  }
  CHECK(gate.inside() == 0);
}

TEST_CASE("after close and wait no call is inside, however many come and go") {
  for (int round = 0; round < 20; ++round) {
    Gate gate;
    Atomic<uint64_t> passed{0}, after{0};
    Atomic<bool> emptied{false};
    run_together(8, [&](int thread) {
      if (thread == 0) {
        while (passed.load_acquire() < 100) give_way();
        gate.close();
        CHECK(gate.wait_empty(Deadline::never()).ok());
        emptied.store_seq_cst(true);
        return;
      }
      for (;;) {
        const Gate::Pass pass(gate);
        if (!pass) break;
        if (emptied.load_seq_cst()) after.add_relaxed(1);
        passed.add_acq_rel(1);
      }
    });
    CHECK(after.load_relaxed() == 0);
    CHECK(passed.load_relaxed() >= 100);
  }
}

}  // namespace heddle::runtime
