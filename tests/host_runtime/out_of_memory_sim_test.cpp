// What a thread that lacks memory submits to the simulated device: it is taken or refused, nothing is thrown,
// and it is over once what it waits for is.
#include <doctest/doctest.h>

#include <memory>

#include "base/thread.h"
#include "device/plain_source_fixture.h"
#include "drivers/host/host_device.h"
#include "drivers/sim/event.h"
#include "drivers/sim/sim_device.h"
#include "tests/host_runtime/poor_submission_fixture.h"

namespace heddle::sim {
namespace {

using device::CommandList;
using device::Point;
using device::View;
using heddle::test::PoorSubmission;
using heddle::test::submit_poorly;

// True: the n-th allocation was reached.
bool refuses_at(const Ref<device::Device>& host, int64_t n, bool from_there, uint64_t seed) {
  const auto device = *make_sim_device(host, {.seed = seed});
  const auto gate = std::make_shared<SimEvent>();
  const Point begins = *device->import_event(gate->foreign(), NoLocksHeld());
  const View view = View::contiguous(*device::plain_source(*device)->allocate(32), ir::DType::kF32, {8});
  const auto slow = *device->make_queue(NoLocksHeld()), poor = *device->make_queue(NoLocksHeld());
  CommandList first, second, third;
  first.wait(begins);
  first.fill(view, 1);
  second.wait({slow->timeline(), 1});
  second.fill(view, 2);
  third.fill(view, 3);
  REQUIRE(slow->submit(first, 1, NoLocksHeld()).ok());
  PoorSubmission result;
  {
    const Thread thread("poor", [&] { result = submit_poorly(*poor, second, 1, n, from_there); });
    const Status early = poor->timeline()->wait(1, Deadline::in(std::chrono::milliseconds(2)));
    CHECK(early.code() == Code::deadline);
    gate->signal();
  }
  REQUIRE(result.status.has_value());
  CHECK((result.status->ok() || (result.reached && result.status->code() == Code::exhausted)));
  REQUIRE(poor->timeline()->wait(1, Deadline::in(std::chrono::seconds(10))).ok());
  CHECK(slow->timeline()->done(1));
  REQUIRE(poor->submit(third, 2, NoLocksHeld()).ok());
  CHECK(poor->timeline()->wait(2, Deadline::in(std::chrono::seconds(10))).ok());
  CHECK(device->violations().empty());
  return result.reached;
}

TEST_CASE(
    "the simulated device refuses what lacks memory and reaches its value when what it waits for is over") {
  const Ref<device::Device> host = *host::make_host_device({.threads = 1});
  for (const uint64_t seed : {1, 2, 3}) {
    for (const bool from_there : {false, true}) {
      CAPTURE(seed);
      CAPTURE(from_there);
      int64_t n = 1;
      while (refuses_at(host, n, from_there, seed)) ++n;
      CHECK(n > 5);
    }
  }
}

TEST_CASE("a submission to the simulated device that finds no place waits until one before is over") {
  const Ref<device::Device> host = *host::make_host_device({.threads = 1});
  const auto device = *make_sim_device(host);
  const auto gate = std::make_shared<SimEvent>();
  const View view = View::contiguous(*device::plain_source(*device)->allocate(32), ir::DType::kF32, {8});
  const auto queue = *device->make_queue(NoLocksHeld());
  CommandList first, second;
  first.wait(*device->import_event(gate->foreign(), NoLocksHeld()));
  first.fill(view, 1);
  second.fill(view, 2);
  REQUIRE(queue->submit(first, 1, NoLocksHeld()).ok());
  PoorSubmission results[2];
  {
    const Thread thread("poor", [&] {
      for (uint64_t i = 0; i < 2; ++i) results[i] = submit_poorly(*queue, second, 2 + i, -1, true);
    });
    CHECK(queue->timeline()->wait(3, Deadline::in(std::chrono::milliseconds(2))).code() == Code::deadline);
    gate->signal();
  }
  for (const PoorSubmission& each : results) {
    REQUIRE(each.status.has_value());
    CHECK(each.status->code() == Code::exhausted);
  }
  CHECK(queue->timeline()->wait(3, Deadline::in(std::chrono::seconds(10))).ok());
  REQUIRE(queue->submit(second, 4, NoLocksHeld()).ok());
  CHECK(queue->timeline()->wait(4, Deadline::in(std::chrono::seconds(10))).ok());
  CHECK(device->violations().empty());
}

}  // namespace
}  // namespace heddle::sim
