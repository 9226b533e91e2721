// A full device is shared fairly between models, shown by counting runs.
#include "on_test_device_fixture.h"

namespace heddle::api_test {

TEST_CASE("a light caller behind eight heavy ones waits until at most two heavy calls have ended") {
  for (const bool asynchronous : {false, true}) {
    CAPTURE(asynchronous);
    constexpr int kLanes = 4;
    runtime::Options options;
    options.in_flight = kLanes;
    const OnTestDevice f(asynchronous, options);
    std::array<Latch, 8> latches;  // each heavy run waits for its own
    Atomic<size_t> heavy_runs{0}, light_runs{0};
    f.driver->set_kernel("heavy", [&](const device::Run& run) {
      latches[heavy_runs.add_acq_rel(1)].wait();
      return affine(run);
    });
    f.driver->set_kernel("light", [&](const device::Run& run) {
      light_runs.add_acq_rel(1);
      return affine(run);
    });
    const Model heavy = f.model("heavy"), light = f.model("light");
    // Now: a call that takes a lane and gives it back unused may have made another one wait before.
    const auto waiting = [&] { return f.runtime().governor().stats().waiting; };
    Atomic<int> right{0};
    run_together(9, [&](int thread) {
      const Tensor x = rows(2, static_cast<float>(thread));
      if (thread < 8) {
        right.add_relaxed(is_affine(x, heavy({x})[0]) ? 1 : 0);
        return;
      }
      wait_until([&] { return heavy_runs.load_acquire() == kLanes && waiting() == 8 - kLanes; });
      const Thread caller("light", [&] { right.add_relaxed(is_affine(x, light({x})[0]) ? 1 : 0); });
      wait_until([&] { return waiting() == 8 - kLanes + 1; });
      for (size_t ended = 1; ended <= 2 && light_runs.load_acquire() == 0; ++ended) {
        latches[ended - 1].open();
        wait_until(
            [&] { return light_runs.load_acquire() == 1 || heavy_runs.load_acquire() == kLanes + ended; });
      }
      CHECK(light_runs.load_acquire() == 1);
      for (Latch& latch : latches) latch.open();
    });
    CHECK(right.load_acquire() == 9);
    CHECK(heavy_runs.load_acquire() == 8);
  }
}

}  // namespace heddle::api_test
