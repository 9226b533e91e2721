// Every fault that the double has on request: what it does to a driver without its defence, and that it does
// nothing to ours.
#include <optional>

#include "base/thread.h"
#include "metal_driver_fixture.h"
#include "tests/driver_conformance/driver_fixture.h"

namespace heddle::metal::test {
namespace {

// Fills `view` on a queue of its own and waits. What the timeline says.
Status fill_and_wait(Session& session, const device::View& view, double value) {
  device::CommandList list;
  list.fill(view, value);
  return session.submit(list);
}

Defences without(bool Defences::* defence) {
  Defences defences;
  defences.*defence = false;
  return defences;
}

// True when the mistake in the data is known as soon as the submission is said to be over.
bool tells_in_time(const Defences& defences) {
  const Machine machine;
  const auto device = open(defences);
  const auto program = lookup(*device, 3);
  metal_double::set(Fault::kHandlerAfterWait, true);
  bool told = true;
  for (int round = 0; round < 5; ++round) {
    Session session(*device);
    const auto faults = std::make_shared<device::RowFaults>(0);
    device::CommandList list;
    list.run(program, *session.arena_for(*program), {upload(*device, ir::Tensor::of_i64({1, 9, 2}))},
             {empty_like(*device, DType::kF32, {3, 2})}, faults);
    REQUIRE(session.submit(list).ok());
    told = told && faults->whole().code() == Code::invalid;
    // The list outlives the handler, as it would if the submission were over.
    wait_until([] { return metal_double::count(Count::kHandlers) >= metal_double::count(Count::kCommits); });
    wait_until([&] { return faults->whole().code() == Code::invalid; });
  }
  return told;
}

TEST_CASE("a completion handler that comes after the wait in Metal has returned loses no result") {
  CHECK_FALSE(tells_in_time(without(&Defences::handlers_end_submissions)));
  CHECK(tells_in_time({}));
}

Status failure_of(Fault fault, const Defences& defences) {
  const Machine machine;
  const auto device = open(defences);
  Session session(*device);
  const device::View view = empty_like(*device, DType::kF32, {8});
  metal_double::set(fault, true);
  const Status first = fill_and_wait(session, view, 1);
  metal_double::set(fault, false);
  if (first.ok()) return first;
  // Failed for good, and only this queue.
  CHECK(session.queue().timeline()->failed());
  CHECK_FALSE(fill_and_wait(session, view, 2).ok());
  Session other(*device);
  CHECK(fill_and_wait(other, view, 3).ok());
  CHECK(download(view).get(7) == 3);
  return first;
}

TEST_CASE("a command buffer's error fails its queue for good, with Metal's own text") {
  struct Row {
    Fault fault;
    Code code;
    const char* text;
  };
  const Row rows[] = {{Fault::kDeviceRemoved, Code::device_lost, "removed"},
                      {Fault::kCommandBufferError, Code::device_lost, "Internal Error"},
                      {Fault::kCommandBufferOutOfMemory, Code::exhausted, "Insufficient Memory"}};
  for (const Row& row : rows) {
    CAPTURE(std::string(row.text));
    CHECK(failure_of(row.fault, without(&Defences::errors_fail_timeline)).ok());
    const Status failure = failure_of(row.fault, {});
    CHECK(failure.code() == row.code);
    CHECK_MESSAGE(failure.message().find(row.text) != std::string::npos, failure.message());
  }
}

TEST_CASE("a device is lost when it was removed, and not when a queue failed") {
  for (const Fault fault :
       {Fault::kDeviceRemoved, Fault::kCommandBufferError, Fault::kCommandBufferOutOfMemory}) {
    const Machine machine;
    const auto device = open();
    Session session(*device);
    CHECK(device->lost().ok());
    metal_double::set(fault, true);
    CHECK_FALSE(fill_and_wait(session, empty_like(*device, DType::kF32, {8}), 1).ok());
    CHECK(device->lost().ok() == (fault != Fault::kDeviceRemoved));
  }
}

TEST_CASE("memory that Metal does not have is exhausted") {
  const Machine machine;
  const auto device = open(), trusting = open(without(&Defences::notices_nil));
  metal_double::set(Fault::kOutOfMemory, true);
  const auto unseen = trusting->allocate(4096, device::MemoryKind::device, NoLocksHeld());
  REQUIRE(unseen.ok());
  CHECK((*unseen)->host() == nullptr);
  CHECK(device->allocate(4096, device::MemoryKind::device, NoLocksHeld()).status().code() == Code::exhausted);
  metal_double::set(Fault::kOutOfMemory, false);
  CHECK(device->allocate(4096, device::MemoryKind::device, NoLocksHeld()).ok());
}

TEST_CASE("kernels that cannot be compiled are told when the device is opened") {
  const Machine machine;
  metal_double::set(Fault::kCompileFailure, true);
  CHECK(make_metal_device({without(&Defences::notices_nil), kStuckAfter}).ok());
  const auto device = make_metal_device({});
  CHECK(device.status().code() == Code::internal);
  CHECK(device.status().message().find("cannot be compiled") != std::string::npos);
}

TEST_CASE("a kernel that never ends holds no wait beyond its deadline, and other queues go on") {
  const Machine machine;
  const auto device = open();
  Session stuck(*device), other(*device);
  const device::View view = empty_like(*device, DType::kF32, {8}),
                     apart = empty_like(*device, DType::kF32, {8});
  metal_double::set(Fault::kKernelNeverEnds, true);
  device::CommandList list;
  list.fill(view, 1);
  const uint64_t value = stuck.next_value();
  REQUIRE(stuck.queue().submit(list, value, NoLocksHeld()).ok());
  const auto timeline = stuck.queue().timeline();
  CHECK(timeline->wait(value, Deadline::in(std::chrono::milliseconds(30))).code() == Code::deadline);
  wait_until([] { return !metal_double::is_on(Fault::kKernelNeverEnds); });  // it has begun
  CHECK(fill_and_wait(other, apart, 2).ok());
  rescue_until([&] { return timeline->failed(); });
  const Status failure = timeline->wait(value, Deadline::never());
  CHECK(failure.code() == Code::device_lost);
  CHECK_MESSAGE(failure.message().find("Timeout") != std::string::npos, failure.message());
}

TEST_CASE("without the handlers' defence a kernel that never ends holds the thread that submits") {
  const Machine machine;
  const auto device = open(without(&Defences::handlers_end_submissions));
  Session stuck(*device);
  const device::View view = empty_like(*device, DType::kF32, {8});
  metal_double::set(Fault::kKernelNeverEnds, true);
  device::CommandList list;
  list.fill(view, 1);
  Atomic<bool> returned{false};
  const uint64_t value = stuck.next_value();
  {
    const Thread submitter("submitter", [&] {
      static_cast<void>(stuck.queue().submit(list, value, NoLocksHeld()));
      returned.store_release(true);
    });
    wait_until([] { return !metal_double::is_on(Fault::kKernelNeverEnds); });
    CHECK(stuck.queue().timeline()->wait(value, Deadline::in(kStuckAfter)).code() == Code::deadline);
    CHECK_FALSE(returned.load_acquire());
    rescue_until([&] { return returned.load_acquire(); });
  }
}

Flood flood_with_fills(const Defences& defences) {
  const Machine machine;
  const auto device = open(defences);
  Session session(*device);
  device::CommandList list;
  list.fill(empty_like(*device, DType::kF32, {8}), 1);
  return flood(session, std::vector(70, list));
}

TEST_CASE("a flood behind a kernel that never ends is refused in time, not held inside Metal") {
  CHECK(flood_with_fills(without(&Defences::below_metals_limit)).held == 1);
  const Flood result = flood_with_fills({});
  CHECK(result.held == 0);
  CHECK(result.last.code() == Code::exhausted);
}

TEST_CASE("an event of others is signalled though its command buffer has failed") {
  for (const Fault fault : {Fault::kDeviceRemoved, Fault::kCommandBufferError}) {
    const Machine machine;
    const auto device = open();
    const conformance::VendorEvent stranger = conformance::make_metal_event();
    Session session(*device);
    device::CommandList list;
    list.fill(empty_like(*device, DType::kF32, {8}), 1);
    list.signal(stranger.event);
    metal_double::set(fault, true);
    CHECK_FALSE(session.submit(list).ok());
    CHECK(stranger.reached());
  }
}

TEST_CASE("a wait for a queue that fails returns the cause, does not hang, and runs no further") {
  const Machine machine;
  const auto device = open();
  for (int round = 0; round < 20; ++round) {
    metal_double::seed(static_cast<uint64_t>(round));
    Session first(*device), second(*device);
    const device::View shared = empty_like(*device, DType::kF32, {8}),
                       seen = empty_like(*device, DType::kF32, {8});
    metal_double::set(Fault::kCommandBufferError, true);
    device::CommandList writes, reads;
    writes.fill(shared, 1);
    reads.wait({first.queue().timeline(), 1});
    reads.copy(shared, seen);
    REQUIRE(first.queue().submit(writes, 1, NoLocksHeld()).ok());
    const Status submitted = second.queue().submit(reads, 1, NoLocksHeld());
    const Status waited = second.queue().timeline()->wait(1, Deadline::never());
    CHECK_FALSE((submitted.ok() && waited.ok()));
    CHECK(first.queue().timeline()->wait(1, Deadline::never()).code() == Code::device_lost);
    metal_double::set(Fault::kCommandBufferError, false);
  }
}

}  // namespace
}  // namespace heddle::metal::test
