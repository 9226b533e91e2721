// No lock of the driver, nor of the double, is shared: two threads are inside at once wherever work is done.
#include "base/thread.h"
#include "device/plain_source_fixture.h"
#include "metal_driver_fixture.h"

namespace heddle::metal::test {
namespace {

using metal_double::Meeting;

constexpr uint64_t kTimes = 20;

// Two threads, each with a queue of its own, run until they have met kTimes at `where`.
void run_until_met(Meeting where, bool same_program) {
  const Machine machine;
  const auto device = open();
  const auto one = lookup(*device, 3), two = same_program ? one : lookup(*device, 3);
  metal_double::meet(where, 2, kTimes);
  Atomic<int> right{0};
  run_together(2, [&](int thread) {
    Session own(*device);
    for (uint64_t i = 0; i < kTimes; ++i) {
      const auto got =
          own.run(thread == 0 ? one : two, std::vector<ir::Tensor>{ir::Tensor::of_i64({1, thread, 4})});
      right.add_relaxed(got.ok() && (*got)[0].get(2) == 2.0 * thread && (*got)[0].get(5) == 9 ? 1 : 0);
    }
  });
  CHECK(right.load_acquire() == 2 * kTimes);
  CHECK(metal_double::met(where) == kTimes);
  CHECK(metal_double::missed(where) == 0);
}

TEST_CASE("runs of one program, and of two, are on the GPU at once") {
  run_until_met(Meeting::kRun, true);
  run_until_met(Meeting::kRun, false);
}

TEST_CASE("two threads submit at once, one program or two") {
  run_until_met(Meeting::kCommit, true);
  run_until_met(Meeting::kCommit, false);
}

TEST_CASE("two shapes of one module compile at once") {
  const Machine machine;
  const auto device = open();
  ir::Builder b;
  const ir::ValueId x = b.input("x", {DType::kF32, {ir::Dim::symbol("batch")}});
  b.output(*b.node("Exp", {x}));
  const auto module = *device->load(*b.take(), {}, device::plain_source(*device), NoLocksHeld());
  metal_double::meet(Meeting::kCompile, 2, 1);
  Atomic<int> made{0};
  run_together(2, [&](int thread) {
    const std::vector<Extents> shapes = {{1 + thread}};
    made.add_relaxed(module->compile(shapes, NoLocksHeld()).ok() ? 1 : 0);
  });
  CHECK(made.load_acquire() == 2);
  CHECK(metal_double::met(Meeting::kCompile) == 1);
  CHECK(metal_double::missed(Meeting::kCompile) == 0);
}

}  // namespace
}  // namespace heddle::metal::test
