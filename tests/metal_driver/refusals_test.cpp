// What becomes of a submission that finds no command buffer, or whose queue is broken: it is over once what
// it waits for is, and not before.
#include <memory>

#include "metal_driver_fixture.h"
#include "tests/driver_conformance/driver_fixture.h"

namespace heddle::metal::test {
namespace {

using conformance::VendorEvent;
using device::CommandList;
using device::Point;
using device::View;

constexpr auto kMoment = std::chrono::milliseconds(5);

// An event of a stranger's, which the test reaches.
struct Gate {
  explicit Gate(device::Device& device) : point(*device.import_event(event.event, NoLocksHeld())) {}
  void reach() const { event.reach(); }
  const VendorEvent event = conformance::make_metal_event();
  const Point point;
};

// A queue whose lists live as long as it does.
class Line {
 public:
  explicit Line(device::Device& device) : queue_(*device.make_queue(NoLocksHeld())) {}
  ~Line() {
    if (!lists_.empty()) static_cast<void>(wait());
  }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;
  Status submit(CommandList list) {
    lists_.push_back(std::make_unique<CommandList>(std::move(list)));
    return queue_->submit(*lists_.back(), lists_.size(), NoLocksHeld());
  }
  Point last() const { return {queue_->timeline(), lists_.size()}; }
  Status wait(Deadline deadline = Deadline::never()) const {
    return last().timeline->wait(last().value, deadline);
  }
  bool is_under_way() const { return wait(Deadline::in(kMoment)).code() == Code::deadline; }

 private:
  std::unique_ptr<device::Queue> queue_;
  std::vector<std::unique_ptr<CommandList>> lists_;
};

CommandList fill_after(const Point& point, const View& view, double value) {
  CommandList list;
  list.wait(point);
  list.fill(view, value);
  return list;
}

struct Floats {
  explicit Floats(device::Device& device) : view(empty_like(device, DType::kF32, {8})) {}
  double first() const { return download(view).get(0); }
  const View view;
};

// Makes `line` one that finds no command buffer: as many as it may have are behind `gate`, or Metal gives
// none.
enum class Lack : uint8_t { kStuck, kNone };
void take_command_buffers(Line& line, Lack lack, const Gate& gate, const View& apart) {
  if (lack == Lack::kNone) {
    metal_double::set(Fault::kNoCommandBuffer, true);
    return;
  }
  for (size_t i = 0; i < 48; ++i) REQUIRE(line.submit(fill_after(gate.point, apart, 1)).ok());
}
void give_command_buffers(Line& line, Lack lack, const Gate& gate) {
  metal_double::set(Fault::kNoCommandBuffer, false);
  gate.reach();
  if (lack == Lack::kNone) return;
  wait_until([&] { return line.last().timeline->done(48); });
}

TEST_CASE("a submission that finds no command buffer is over when what it waits for is") {
  for (const Lack lack : {Lack::kStuck, Lack::kNone}) {
    CAPTURE(static_cast<int>(lack));
    const Machine machine;
    const auto device = open();
    const Gate begins(*device), stuck(*device);
    const Floats a(*device), b(*device), apart(*device);
    Line slow(*device), refused(*device), later(*device);
    REQUIRE(slow.submit(fill_after(begins.point, a.view, 5)).ok());
    take_command_buffers(refused, lack, stuck, apart.view);
    CommandList list;
    list.wait(slow.last());
    list.copy(a.view, b.view);
    CHECK_FALSE(refused.submit(std::move(list)).ok());
    give_command_buffers(refused, lack, stuck);
    CHECK(refused.is_under_way());
    // What comes behind it, on its queue or another one, and touches what it would have.
    REQUIRE(later.submit(fill_after(refused.last(), b.view, 8)).ok());
    CommandList behind;
    behind.fill(a.view, 7);
    REQUIRE(refused.submit(std::move(behind)).ok());
    CHECK(later.is_under_way());
    CHECK(refused.is_under_way());
    begins.reach();
    CHECK(later.wait().ok());
    CHECK(refused.wait().ok());
    CHECK(slow.wait(Deadline::in(Duration(0))).ok());  // it is over by now
    CHECK(a.first() == 7);
    CHECK(b.first() == 8);
  }
}

TEST_CASE(
    "queues that wait for a submission which found no command buffer go on, though none comes behind it") {
  for (const Lack lack : {Lack::kStuck, Lack::kNone}) {
    CAPTURE(static_cast<int>(lack));
    const Machine machine;
    const auto device = open();
    const Gate begins(*device), stuck(*device);
    const Floats a(*device), apart(*device);
    Line refused(*device), later(*device);
    take_command_buffers(refused, lack, stuck, apart.view);
    CHECK_FALSE(refused.submit(fill_after(begins.point, a.view, 1)).ok());
    give_command_buffers(refused, lack, stuck);
    CHECK(refused.is_under_way());
    REQUIRE(later.submit(fill_after(refused.last(), a.view, 8)).ok());
    CHECK(later.is_under_way());
    begins.reach();
    CHECK(later.wait(Deadline::in(std::chrono::seconds(10))).ok());
    CHECK(refused.wait().ok());
    CHECK(a.first() == 8);
  }
}

// Of two submissions of a queue the first has failed, and the second is a kernel that does not end.
class Broken {
 public:
  explicit Broken(device::Device& device) : first_(device), second_(device), a_(device), line(device) {
    REQUIRE(line.submit(fill_after(first_.point, a_.view, 1)).ok());
    REQUIRE(line.submit(fill_after(second_.point, a_.view, 2)).ok());
    metal_double::set(Fault::kCommandBufferError, true);
    first_.reach();
    wait_until([] { return metal_double::count(Count::kSettled) == 1; });
    metal_double::set(Fault::kKernelNeverEnds, true);
    second_.reach();
    wait_until([] { return !metal_double::is_on(Fault::kKernelNeverEnds); });
  }
  void end() {
    rescue_until([&] { return line.last().timeline->failed(); });
  }

 private:
  const Gate first_, second_;
  const Floats a_;

 public:
  Line line;
};

TEST_CASE("what waited for a queue that broke has not failed while that still runs") {
  const Machine machine;
  const auto device = open();
  Broken broken(*device);
  const Floats a(*device);
  Line waits(*device);
  REQUIRE(waits.submit(fill_after(broken.line.last(), a.view, 1)).ok());
  metal_double::set(Fault::kDeviceRemoved, true);  // it runs no more, and the kernel does
  wait_until([] { return metal_double::count(Count::kSettled) == 2; });
  CHECK(broken.line.is_under_way());
  CHECK(waits.is_under_way());
  broken.end();
  CHECK(waits.wait().code() == Code::device_lost);
}

TEST_CASE("what is refused and waits for a queue that broke is not over while that still runs") {
  for (const bool has_commands : {false, true}) {
    CAPTURE(has_commands);
    const Machine machine;
    const auto device = open();
    Broken broken(*device);
    const Floats a(*device);
    Line refused(*device);
    metal_double::set(Fault::kNoCommandBuffer, !has_commands);
    CommandList list = fill_after(broken.line.last(), a.view, 1);
    list.signal({});  // which is invalid
    CHECK_FALSE(refused.submit(std::move(list)).ok());
    CHECK(refused.is_under_way());
    metal_double::set(Fault::kNoCommandBuffer, false);
    broken.end();
    CHECK(refused.wait().ok());
  }
}

TEST_CASE("a queue that broke fails when what it refused since and that waits for others is over as well") {
  const Machine machine;
  const auto device = open();
  const Gate begins(*device);
  const Floats a(*device), b(*device);
  Broken broken(*device);
  Line slow(*device);
  REQUIRE(slow.submit(fill_after(begins.point, a.view, 5)).ok());
  CommandList list;
  list.wait(slow.last());
  list.copy(a.view, b.view);
  CHECK_FALSE(broken.line.submit(std::move(list)).ok());
  rescue_until([] { return metal_double::count(Count::kSettled) == 2; });
  CHECK(broken.line.is_under_way());
  begins.reach();
  CHECK(broken.line.wait().code() == Code::device_lost);
  CHECK(slow.wait(Deadline::in(Duration(0))).ok());
}

}  // namespace
}  // namespace heddle::metal::test
