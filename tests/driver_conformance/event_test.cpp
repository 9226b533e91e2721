// Events of others: points made from them, and events signalled in a queue's order.
#include <chrono>
#include <vector>

#include "base/yield.h"
#include "driver_fixture.h"
#include "session_fixture.h"

namespace heddle::conformance {
namespace {

using namespace std::chrono_literals;
using device::CommandList;
using device::Point;
using device::View;
using ir::DType;

VendorEvent event_of(const Driver& driver) {
  return driver.make_event == nullptr ? VendorEvent{} : driver.make_event();
}

// Of one queue, without the wait that Session::submit() does.
class Line {
 public:
  explicit Line(device::Device& device) : queue_(device.make_queue(NoLocksHeld()).value()) {}
  ~Line() { static_cast<void>(wait()); }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;
  Result<Point> submit(CommandList list) {
    lists_.push_back(std::make_unique<CommandList>(std::move(list)));
    HEDDLE_TRY(queue_->submit(*lists_.back(), lists_.size(), NoLocksHeld()));
    return Point{queue_->timeline(), lists_.size()};
  }
  Status wait(Deadline deadline = Deadline::never()) {
    return queue_->timeline()->wait(lists_.size(), deadline);
  }

 private:
  std::unique_ptr<device::Queue> queue_;
  std::vector<std::unique_ptr<CommandList>> lists_;
};

CommandList fill_after(const Point& point, const View& to, double value) {
  CommandList list;
  list.wait(point);
  list.fill(to, value);
  return list;
}

DRIVER_TEST(a_foreign_event_orders_queues,
            "what waits for a point made from a foreign event runs once that is reached, and not before") {
  const VendorEvent stranger = event_of(driver);
  HEDDLE_TRY_ASSIGN(const Point point, device.import_event(stranger.event, NoLocksHeld()));
  CHECK_FALSE(device.traits().events.empty());
  const View a = empty_like(device, DType::kI32, {16}), b = empty_like(device, DType::kI32, {16});
  Line first(device), second(device), free(device);
  a.buffer->mark_write(point);  // as for a tensor that comes with an event
  std::vector<Point> waits;
  a.buffer->collect_waits(false, nullptr, waits);
  REQUIRE(waits.size() == 1);
  HEDDLE_TRY(first.submit(fill_after(waits[0], a, 7)).status());
  HEDDLE_TRY(second.submit(fill_after(point, b, 8)).status());
  // Neither keeps other queues, and the host that waits for it may leave.
  CommandList list;
  list.fill(empty_like(device, DType::kI32, {16}), 1);
  HEDDLE_TRY(free.submit(std::move(list)).status());
  HEDDLE_TRY(free.wait());
  for (const Point& each : {point, Point{point}}) {
    CHECK(each.timeline->wait(each.value, Deadline::in(1ms)).code() == Code::deadline);
  }
  CHECK(first.wait(Deadline::in(1ms)).code() == Code::deadline);
  CHECK(second.wait(Deadline::in(1ms)).code() == Code::deadline);
  CHECK_FALSE(point.done());

  stranger.reach();
  CHECK(point.timeline->wait(point.value, Deadline::never()).ok());
  CHECK(point.done());
  HEDDLE_TRY(first.wait());
  HEDDLE_TRY(second.wait());
  CHECK(download(device, a).get_i64(15) == 7);
  CHECK(download(device, b).get_i64(15) == 8);

  // One that is reached already: known to a host that looks, and nobody waits.
  HEDDLE_TRY_ASSIGN(const Point late, device.import_event(stranger.event, NoLocksHeld()));
  while (!late.done()) {
    late.timeline->look();
    give_way();
  }
  HEDDLE_TRY(first.submit(fill_after(late, a, 9)).status());
  HEDDLE_TRY(first.wait());
  CHECK(download(device, a).get_i64(0) == 9);
  return {};
}

DRIVER_TEST(a_foreign_event_is_signalled,
            "a signalled event is reached when all before it on its queue is over, and others see that") {
  const VendorEvent gate = event_of(driver), signalled = event_of(driver);
  Line writer(device), reader(device);
  const View a = empty_like(device, DType::kI32, {16}), b = empty_like(device, DType::kI32, {16});
  if (device.traits().events.empty()) {
    CommandList refused;
    refused.signal(signalled.event);
    return writer.submit(std::move(refused)).status();
  }
  HEDDLE_TRY_ASSIGN(const Point begins, device.import_event(gate.event, NoLocksHeld()));
  CommandList list = fill_after(begins, a, 5);
  list.signal(signalled.event);
  HEDDLE_TRY(writer.submit(std::move(list)).status());
  HEDDLE_TRY_ASSIGN(const Point ends, device.import_event(signalled.event, NoLocksHeld()));
  CommandList copy;
  copy.wait(ends);  // all that orders it after the fill
  copy.copy(a, b);
  HEDDLE_TRY(reader.submit(std::move(copy)).status());
  CHECK(ends.timeline->wait(ends.value, Deadline::in(1ms)).code() == Code::deadline);
  CHECK_FALSE(signalled.reached());

  gate.reach();
  HEDDLE_TRY(reader.wait());
  CHECK(signalled.reached());
  HEDDLE_TRY(ends.timeline->wait(ends.value, Deadline::never()));
  HEDDLE_TRY(writer.wait());
  CHECK(download(device, b).get_i64(15) == 5);
  CommandList empty;
  empty.signal({});
  CHECK(writer.submit(std::move(empty)).status().code() == Code::invalid);
  return {};
}

DRIVER_TEST(a_refused_submission_waits,
            "a refused submission is over once what it waits for is, and not before") {
  const VendorEvent gate = event_of(driver);
  HEDDLE_TRY_ASSIGN(const Point begins, device.import_event(gate.event, NoLocksHeld()));
  const View a = empty_like(device, DType::kI32, {16}), b = empty_like(device, DType::kF32, {16});
  Line slow(device), refused(device), later(device);
  HEDDLE_TRY_ASSIGN(const Point awaited, slow.submit(fill_after(begins, a, 5)));
  CommandList list;
  list.wait(awaited);
  list.copy(a, b);
  CHECK(refused.submit(std::move(list)).status().code() == Code::invalid);
  CHECK(refused.wait(Deadline::in(1ms)).code() == Code::deadline);
  // What comes behind it, on its queue or another one, and touches what it would have.
  CommandList behind;
  behind.fill(a, 7);
  HEDDLE_TRY_ASSIGN(const Point next, refused.submit(std::move(behind)));
  HEDDLE_TRY(later.submit(fill_after({next.timeline, next.value - 1}, b, 8)).status());
  CHECK(refused.wait(Deadline::in(1ms)).code() == Code::deadline);
  CHECK(later.wait(Deadline::in(1ms)).code() == Code::deadline);
  gate.reach();
  HEDDLE_TRY(later.wait());
  HEDDLE_TRY(refused.wait());
  CHECK(slow.wait(Deadline::in(Duration(0))).ok());  // it is over by now
  CHECK(download(device, a).get_i64(15) == 7);
  CHECK(download(device, b).get(15) == 8);
  return {};
}

}  // namespace
}  // namespace heddle::conformance
