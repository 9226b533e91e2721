// What the Metal driver does while the host has no memory. A program by itself: its operator new fails where
// a test says so.
#include <new>
#include <optional>

#include "drivers/metal/flight.h"
#include "drivers/metal/program.h"
#include "drivers/metal/queue.h"
#include "metal_driver_fixture.h"
#include "tests/driver_conformance/driver_fixture.h"
#include "tests/host_runtime/poor_submission_fixture.h"

namespace heddle::metal::test {
namespace {

using device::CommandList;
using device::Point;
using device::View;
using heddle::test::fails_in;
using heddle::test::PoorSubmission;
using heddle::test::submit_poorly;

const OpenDevice& open_of(const device::Device& device) {
  return *static_cast<const OpenDevice*>(device.maker());
}

// A queue's book, and its submissions as they are once they are committed.
struct Book {
  Book(const OpenDevice& open, uint64_t submissions) {
    auto event = Owned<id<MTLSharedEvent>>::adopt([open.device.get() newSharedEvent]);
    timeline = std::make_shared<MetalTimeline>(std::move(event), Defences(), MetalQueue::key());
    for (uint64_t value = 1; value <= submissions; ++value) {
      REQUIRE(timeline->begin(value, kStuckAfter).ok());
      flights.push_back(std::make_shared<Flight>(timeline, value, open));
    }
  }
  Ref<MetalTimeline> timeline;
  std::vector<Ref<Flight>> flights;
};

TEST_CASE("submissions that are over are seen without memory of the host, whatever waits for them") {
  constexpr size_t kSubmissions = 40;
  const Machine machine;
  const auto device = open();
  Book first(open_of(*device), kSubmissions), second(open_of(*device), kSubmissions);
  for (size_t i = 0; i < kSubmissions; ++i) {
    second.flights[i]->wait_for(first.timeline, i + 1);
    for (int words = 0; words < 3; ++words) REQUIRE(first.flights[i]->stage(64).ok());
  }
  fails_in = -1;
  for (const auto& flight : second.flights) flight->completed(nil);
  const bool early = second.timeline->done(1);
  for (const auto& flight : first.flights) flight->completed(nil);
  fails_in = 0;
  CHECK_FALSE(early);
  CHECK(first.timeline->done(kSubmissions));
  CHECK(second.timeline->done(kSubmissions));
  fails_in = -1;  // their places are used again
  for (uint64_t value = 1; value <= kSubmissions; ++value)
    static_cast<void>(first.timeline->begin(kSubmissions + value, kStuckAfter));
  fails_in = 0;
}

TEST_CASE("a row's fault that finds no memory is one of the whole run and the queue goes on") {
  const Machine machine;
  const auto device = open();
  const auto program = lookup(*device, 3);
  const auto& metal = static_cast<const MetalProgram&>(*program);
  REQUIRE(metal.checks() == 1);
  Book book(open_of(*device), 2);
  std::vector<device::Run> runs(2);
  for (size_t i = 0; i < 2; ++i) {
    runs[i].row_faults = std::make_shared<device::RowFaults>(3);
    const auto words = book.flights[i]->stage(static_cast<uint64_t>(metal.check(0).flags) * sizeof(int32_t));
    REQUIRE(words.ok());
    auto* const flags = static_cast<int32_t*>([*words contents]);
    for (int64_t flag = 0; flag < metal.check(0).flags; ++flag) flags[flag] = flag == 1;
    book.flights[i]->check({&runs[i], &metal, {*words}});
  }
  fails_in = -1;
  book.flights[0]->completed(nil);
  fails_in = 0;
  CHECK(runs[0].row_faults->whole().code() == Code::exhausted);
  book.flights[1]->completed(nil);
  CHECK(runs[1].row_faults->whole().ok());
  CHECK(runs[1].row_faults->of(1).code() == Code::invalid);
  CHECK(book.timeline->done(2));
}

// Without command buffers, as the double's would lack memory where Metal's do not.
TEST_CASE("a submission that lacks memory is refused and over once what it waits for is") {
  for (const bool from_there : {false, true}) {
    CAPTURE(from_there);
    bool reached = true;
    for (int64_t n = 1; reached; ++n) {
      CAPTURE(n);
      const Machine machine;
      const auto device = open();
      const auto gate = conformance::make_metal_event();
      const Point begins = *device->import_event(gate.event, NoLocksHeld());
      const View view = empty_like(*device, DType::kF32, {8});
      const auto slow = *device->make_queue(NoLocksHeld()), refused = *device->make_queue(NoLocksHeld());
      CommandList first, second;
      first.wait(begins);
      first.fill(view, 1);
      REQUIRE(slow->submit(first, 1, NoLocksHeld()).ok());
      second.wait({slow->timeline(), 1});
      second.fill(view, 2);
      metal_double::set(Fault::kNoCommandBuffer, true);
      PoorSubmission submitted;
      {
        const Thread poor("poor", [&] { submitted = submit_poorly(*refused, second, 1, n, from_there); });
        const auto early = refused->timeline()->wait(1, Deadline::in(std::chrono::milliseconds(3)));
        CHECK(early.code() == Code::deadline);
        gate.reach();
      }
      reached = submitted.reached;
      REQUIRE(submitted.status.has_value());
      CHECK_FALSE(submitted.status->ok());
      REQUIRE(refused->timeline()->wait(1, Deadline::in(std::chrono::seconds(10))).ok());
      CHECK(slow->timeline()->done(1));
    }
  }
}

TEST_CASE("a submission for which there is no place waits until one in flight is over") {
  const Machine machine;
  const auto device = open();
  const auto gate = conformance::make_metal_event();
  const Point begins = *device->import_event(gate.event, NoLocksHeld());
  const View view = empty_like(*device, DType::kF32, {8});
  const auto queue = *device->make_queue(NoLocksHeld());
  CommandList first, second;
  first.wait(begins);
  first.fill(view, 1);
  second.fill(view, 2);
  REQUIRE(queue->submit(first, 1, NoLocksHeld()).ok());
  PoorSubmission submitted;
  {
    const Thread poor("poor", [&] { submitted = submit_poorly(*queue, second, 2, -1, true); });
    CHECK(queue->timeline()->wait(2, Deadline::in(std::chrono::milliseconds(3))).code() == Code::deadline);
    gate.reach();
  }
  REQUIRE(submitted.status.has_value());
  CHECK(submitted.status->code() == Code::exhausted);
  CHECK(queue->timeline()->wait(2, Deadline::in(std::chrono::seconds(10))).ok());
  REQUIRE(queue->submit(second, 3, NoLocksHeld()).ok());
  CHECK(queue->timeline()->wait(3, Deadline::in(std::chrono::seconds(10))).ok());
  CHECK(download(view).get(7) == 2);
}

}  // namespace
}  // namespace heddle::metal::test
