// What threads that release one view to other libraries' streams at once leave in its history.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "base/simulation_fixture.h"
#include "base/thread.h"
#include "runtime/runtime.h"
#include "runtime/test_device_fixture.h"

namespace heddle::runtime {

namespace {

using device::Point;
using heddle::test::holds_for_seeds;

// Whose streams of other libraries are the points that they were given.
class Lending final : public test::TestDevice {
 public:
  using TestDevice::TestDevice;
  Result<Point> import_stream(void* stream, NoLocksHeld) override { return *static_cast<Point*>(stream); }
};

Point unreached_point() { return {std::make_shared<device::Timeline>(), 1}; }

}  // namespace

TEST_CASE("simulated: a view that several streams of others release at once waits for each of them") {
  holds_for_seeds(500, [](Simulation& sim) {
    const auto runtime = *Runtime::make(std::make_shared<Lending>(test::TestOptions{}), {});
    const device::View view = *runtime->allocate(ir::DType::kF32, {1, 4});
    std::array<Point, 4> uses;  // our write, our read, and what two others' streams were given
    for (Point& each : uses) each = unreached_point();
    view.buffer->mark_write(uses[0]);
    run_together(3, [&](int thread) {
      if (thread == 0) {
        view.buffer->mark_read(uses[1]);
      } else {
        sim.expect(runtime->released_by(&uses[static_cast<size_t>(thread) + 1], view).ok(), "it is released");
      }
    });
    std::vector<Point> waits;
    view.buffer->collect_waits(true, nullptr, waits);
    for (const Point& use : uses) {
      const auto is_it = [&](const Point& wait) { return wait.timeline == use.timeline; };
      sim.expect(std::ranges::any_of(waits, is_it), "who writes waits for each use");
    }
  });
}

}  // namespace heddle::runtime
