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

// Eight threads, each with a queue of its own, on one program: how many results are right.
int right_of(const Ref<device::Device>& device, const Ref<const device::Program>& program, int threads) {
  Atomic<int> right{0};
  run_together(threads, [&](int thread) {
    Session own(*device);
    for (uint64_t i = 0; i < kTimes; ++i) {
      const auto got = own.run(program, std::vector<ir::Tensor>{ir::Tensor::of_i64({1, thread % 5, 4})});
      right.add_relaxed(got.ok() && (*got)[0].get(2) == 2.0 * (thread % 5) && (*got)[0].get(5) == 9 ? 1 : 0);
    }
  });
  return right.load_acquire();
}

TEST_CASE("an executable that two threads must not encode at once is encoded in turn") {
  constexpr int kThreads = 8;
  const Machine machine;
  const auto device = open();
  metal_double::set(Fault::kExecutableNotReentrant, true);
  CHECK(right_of(device, lookup(*device, 3), kThreads) == kThreads * static_cast<int>(kTimes));
}

TEST_CASE("without turns two threads encode one executable at once, and what both encoded is wrong") {
  const Machine machine;
  Defences defences;
  defences.encodes_in_turn = false;
  const auto device = open(defences);
  metal_double::set(Fault::kExecutableNotReentrant, true);
  metal_double::meet(Meeting::kEncode, 2, kTimes);
  CHECK(right_of(device, lookup(*device, 3), 2) < 2 * static_cast<int>(kTimes));
  CHECK(metal_double::met(Meeting::kEncode) == kTimes);
}

TEST_CASE("two programs are encoded at once: turns are an executable's, not the process's") {
  run_until_met(Meeting::kEncode, false);
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
