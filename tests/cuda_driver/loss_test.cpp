// What CUDA fails at, and what becomes of the device: lost for good and by name, or as it was.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/thread.h"
#include "base/yield.h"
#include "device/plain_source_fixture.h"
#include "drivers/cuda/cuda_device.h"
#include "ir/builder.h"
#include "tests/child_fixture.h"
#include "tests/cuda_double/cuda_double.h"
#include "tests/cuda_double/faults.h"
#include "tests/driver_conformance/session_fixture.h"

namespace heddle::cuda {
namespace {

using cuda_double::Call;
using device::CommandList;
using device::MemoryKind;

Ref<device::Device> fresh_device() {
  cuda_double::forget_faults();
  return make_cuda_device({.api = &cuda_double::api(), .image = cuda_double::image()}).value();
}

// Every fault is over when the device of the test is gone.
struct Faults {
  Faults() = default;
  ~Faults() { cuda_double::forget_faults(); }
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;
};

Result<Ref<const device::Program>> program_of_one_sum(device::Device& device) {
  ir::Builder b;
  const ir::ValueId x = b.input("x", {ir::DType::kF32, {4}});
  b.output(*b.node("Add", {x, x}, {}, "sum"));
  HEDDLE_TRY_ASSIGN(ir::Graph graph, b.take());
  HEDDLE_TRY_ASSIGN(const Ref<const device::Module> module,
                    device.load(std::move(graph), {}, device::plain_source(device), NoLocksHeld()));
  return conformance::compile(*module, {ir::Tensor::zeros(ir::DType::kF32, {4})});
}

CommandList fill_of(const device::View& view, double value) {
  CommandList list;
  list.fill(view, value);
  return list;
}

void check_lost(device::Device& device, const Status& status) {
  CHECK(status.code() == heddle::Code::device_lost);
  CHECK(status.message().find("CUDA_ERROR_ILLEGAL_ADDRESS") != std::string::npos);
  CHECK(status.message().find("restart") != std::string::npos);
  CHECK(device.lost().code() == heddle::Code::device_lost);
  CHECK(device.allocate(64, MemoryKind::device, NoLocksHeld()).status().code() == heddle::Code::device_lost);
  CHECK(device.make_queue(NoLocksHeld()).status().code() == heddle::Code::device_lost);
}

TEST_CASE("an error that ends the context loses the device by its name, whichever call says so first") {
  for (const Call call : {Call::kLaunch, Call::kWrite}) {
    CAPTURE(static_cast<int>(call));
    const Faults faults;
    const Ref<device::Device> device = fresh_device();
    conformance::Session session(*device);
    const device::View view = conformance::empty_like(*device, ir::DType::kI32, {16});
    REQUIRE(session.submit(fill_of(view, 1)).ok());
    cuda_double::refuse(call, kIllegalAddress, 0, 1);
    check_lost(*device, session.submit(fill_of(view, 2)));
    CHECK(session.submit(fill_of(view, 3)).code() == heddle::Code::device_lost);
  }
}

TEST_CASE("a stranger's mistake on the GPU fails what is in flight: nobody waits for ever") {
  const Faults faults;
  const Ref<device::Device> device = fresh_device();
  const auto gate = cuda_double::make_held_event();
  const device::Point held = device->import_event({gate, 0, nullptr}, NoLocksHeld()).value();
  const device::View view = conformance::empty_like(*device, ir::DType::kI32, {16});
  const auto queue = device->make_queue(NoLocksHeld()).value();
  CommandList list = fill_of(view, 1);
  CommandList waiting;
  waiting.wait(held);
  waiting.fill(view, 2);
  REQUIRE(queue->submit(waiting, 1, NoLocksHeld()).ok());
  REQUIRE(queue->submit(list, 2, NoLocksHeld()).ok());
  const auto wait = [&] { return queue->timeline()->wait(2, Deadline::in(std::chrono::milliseconds(1))); };
  CHECK(wait().code() == heddle::Code::deadline);
  cuda_double::lose_context(kIllegalAddress);
  check_lost(*device, queue->timeline()->wait(2, Deadline::in(std::chrono::seconds(30))));
  CHECK_FALSE(queue->timeline()->done(1));
  cuda_double::reach(gate);  // the double's thread goes on; it does nothing more
}

TEST_CASE("memory that runs out is looked for in what CUDA keeps, once; then the error has the numbers") {
  const Faults faults;
  const Ref<device::Device> device = fresh_device();
  cuda_double::refuse(Call::kAllocate, kOutOfMemory, 0, 1);
  CHECK(device->allocate(4096, MemoryKind::device, NoLocksHeld()).ok());
  CHECK(cuda_double::calls_of(Call::kTrim) == 1);
  cuda_double::refuse(Call::kAllocate, kOutOfMemory, 0, 2);
  const Status none = device->allocate(4096, MemoryKind::device, NoLocksHeld()).status();
  CHECK(none.code() == heddle::Code::exhausted);
  CHECK(none.message().find("4096 bytes") != std::string::npos);
  CHECK(none.message().find("are free") != std::string::npos);
  cuda_double::refuse(Call::kPin, kOutOfMemory, 0, 1);
  CHECK(device->allocate(4096, MemoryKind::staging, NoLocksHeld()).status().code() ==
        heddle::Code::exhausted);
  CHECK(device->lost().ok());
  CHECK(device->allocate(4096, MemoryKind::device, NoLocksHeld()).ok());
}

TEST_CASE("a submission that CUDA takes half of breaks its queue from there on, and no other") {
  const Faults faults;
  const Ref<device::Device> device = fresh_device();
  const device::View view = conformance::empty_like(*device, ir::DType::kI32, {16});
  const auto broken = device->make_queue(NoLocksHeld()).value();
  CommandList before = fill_of(view, 1), half, after = fill_of(view, 4);
  half.fill(view, 2);
  half.fill(view, 3);
  REQUIRE(broken->submit(before, 1, NoLocksHeld()).ok());
  cuda_double::refuse(Call::kLaunch, kInvalidValue, 1, 1);
  CHECK_FALSE(broken->submit(half, 2, NoLocksHeld()).ok());
  const Status failed = broken->timeline()->wait(2, Deadline::never());
  CHECK(failed.code() == heddle::Code::device_lost);
  CHECK(failed.message().find("could not be enqueued to its end") != std::string::npos);
  CHECK(broken->timeline()->wait(1, Deadline::never()).ok());
  CHECK_FALSE(broken->submit(after, 3, NoLocksHeld()).ok());
  CHECK(device->lost().ok());
  CHECK(conformance::Session(*device).submit(after).ok());
  // Another queue that was told to wait for it learns of it.
  const auto other = device->make_queue(NoLocksHeld()).value();
  CommandList waits;
  waits.wait({broken->timeline(), 2});
  waits.fill(view, 5);
  CHECK_FALSE(other->submit(waits, 1, NoLocksHeld()).ok());
}

TEST_CASE("a queue that is destroyed waits for its work") {
  const Ref<device::Device> device = fresh_device();
  const auto gate = cuda_double::make_held_event();
  const device::Point held = device->import_event({gate, 0, nullptr}, NoLocksHeld()).value();
  const device::View view = conformance::empty_like(*device, ir::DType::kI32, {16});
  auto queue = device->make_queue(NoLocksHeld()).value();
  const Ref<device::Timeline> timeline = queue->timeline();
  CommandList list;
  list.wait(held);
  list.fill(view, 7);
  REQUIRE(queue->submit(list, 1, NoLocksHeld()).ok());
  const Thread stranger("stranger", [&] {
    for (int i = 0; i < 1000; ++i) give_way();
    cuda_double::reach(gate);
  });
  queue.reset();
  CHECK(timeline->done(1));
  CHECK(conformance::download(*device, view).get_i64(15) == 7);
}

TEST_CASE("a forked child may destroy what the parent made: CUDA is not asked for anything") {
  if (!test::kForksWithThreads) return;
  Ref<device::Device> device = fresh_device();
  auto program = program_of_one_sum(*device).value();
  auto session = std::make_unique<conformance::Session>(*device);
  auto memory = device->allocate(64, MemoryKind::staging, NoLocksHeld()).value();
  const ir::Tensor x = ir::Tensor::zeros(ir::DType::kF32, {4});
  REQUIRE(session->run(program, {x}).ok());
  const pid_t child = fork();
  if (child == 0) {
    memory.reset();
    session.reset();
    program.reset();
    device.reset();
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(session->run(program, {x}).ok());
}

}  // namespace
}  // namespace heddle::cuda
