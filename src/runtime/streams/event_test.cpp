#include "runtime/streams/event.h"
#include "device/plain_source_fixture.h"

#include <doctest/doctest.h>

#include "base/thread.h"
#include "runtime/streams/roster.h"
#include "runtime/test_device_fixture.h"

namespace heddle::runtime {

TEST_CASE("an event that was not recorded is over, and waiting for it is a no-op") {
  const Event event;
  CHECK_FALSE(event.recorded());
  CHECK(event.query());
  CHECK(event.wait(Deadline::never()).ok());
  CHECK(Event::elapsed(event, event).status().code() == Code::invalid);
}

TEST_CASE("an event keeps its moment: later work of its stream does not move it, nor does the stream's end") {
  const auto device = std::make_shared<test::TestDevice>(test::TestOptions{.asynchronous = true});
  test::Latch latch;
  device->set_kernel("slow", [&](const device::Run&) {
    latch.wait();
    return Status();
  });
  const auto module = *device->load(test::graph_named("slow"), {}, device::plain_source(*device), {});
  const ir::Extents extents{1, 4};
  const auto program = *module->compile({&extents, 1}, {});
  const Ref<device::Buffer> arena = *device::plain_source(*device)->allocate(64);
  test::Rows x(1), y(1);
  Event first, second;
  {
    Roster roster(device, Clock::real());
    const Ref<Stream> stream = *roster.make(1);
    REQUIRE(stream->turn()->submit({}).ok());
    first = stream->record();
    REQUIRE(first.wait(Deadline::never()).ok());
    device::CommandList list;
    list.run(program, arena, {x.view()}, {y.view()});
    REQUIRE(stream->turn()->submit(std::move(list)).ok());
    second = stream->record();
    CHECK(first.query());
    CHECK_FALSE(second.query());
    latch.open();
    REQUIRE(stream->synchronize(Deadline::never()).ok());
  }
  CHECK(first.query());
  CHECK(second.query());
  CHECK(second.wait(Deadline::at(TimePoint())).ok());
}

TEST_CASE("elapsed time is between the ends of the work, not between the calls") {
  ManualClock clock(TimePoint(std::chrono::hours(1)));
  const auto device = std::make_shared<test::TestDevice>(test::TestOptions{.asynchronous = true});
  test::Latch latch;
  device->set_kernel("slow", [&](const device::Run&) {
    latch.wait();
    clock.advance(std::chrono::milliseconds(30));
    return Status();
  });
  const auto module = *device->load(test::graph_named("slow"), {}, device::plain_source(*device), {});
  const ir::Extents extents{1, 4};
  const auto program = *module->compile({&extents, 1}, {});
  const Ref<device::Buffer> arena = *device::plain_source(*device)->allocate(64);
  Roster roster(device, clock);
  const Ref<Stream> stream = *roster.make(1);
  test::Rows x(1), y(1);

  const Event start = stream->record(Timed::yes);
  device::CommandList list;
  list.run(program, arena, {x.view()}, {y.view()});
  REQUIRE(stream->turn()->submit(std::move(list)).ok());
  const Event end = stream->record(Timed::yes);
  CHECK(Event::elapsed(start, end).status().code() == Code::unavailable);
  CHECK(Event::elapsed(start, stream->record()).status().code() == Code::invalid);
  latch.open();
  REQUIRE(end.wait(Deadline::never()).ok());
  clock.advance(std::chrono::hours(1));
  CHECK(*Event::elapsed(start, end) == std::chrono::milliseconds(30));
  CHECK(*Event::elapsed(end, start) == -std::chrono::milliseconds(30));
}

TEST_CASE("on a synchronous device an event is over, and dated, when it is recorded") {
  ManualClock clock(TimePoint(std::chrono::hours(1)));
  const auto device = std::make_shared<test::TestDevice>();
  Roster roster(device, clock);
  const Ref<Stream> stream = *roster.make(1);
  const Event start = stream->record(Timed::yes);
  clock.advance(std::chrono::microseconds(5));
  REQUIRE(stream->turn()->submit({}).ok());
  const Event end = stream->record(Timed::yes);
  CHECK(end.query());
  CHECK(*Event::elapsed(start, end) == std::chrono::microseconds(5));
}

TEST_CASE("an event on a stream that fails is over and tells the cause") {
  const auto device = std::make_shared<test::TestDevice>(test::TestOptions{.asynchronous = true});
  device->set_kernel("lost", [](const device::Run&) { return Status::device_lost("gone"); });
  const auto module = *device->load(test::graph_named("lost"), {}, device::plain_source(*device), {});
  const ir::Extents extents{1, 4};
  const auto program = *module->compile({&extents, 1}, {});
  const Ref<device::Buffer> arena = *device::plain_source(*device)->allocate(64);
  Roster roster(device, Clock::real());
  const Ref<Stream> stream = *roster.make(1);
  test::Rows x(1), y(1);
  device::CommandList list;
  list.run(program, arena, {x.view()}, {y.view()});
  REQUIRE(stream->turn()->submit(std::move(list)).ok());
  const Event event = stream->record(Timed::yes);
  CHECK(event.wait(Deadline::never()).code() == Code::device_lost);
  CHECK(event.query());
  CHECK(Event::elapsed(event, event).status().code() == Code::device_lost);
}

}  // namespace heddle::runtime
