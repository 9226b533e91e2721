// What becomes of submissions to a queue that broke, and of what CUDA takes in part: they are over once what
// they wait for is, and not before.
#include <doctest/doctest.h>

#include <memory>

#include "base/thread.h"
#include "base/yield.h"
#include "drivers/cuda/cuda_device.h"
#include "tests/cuda_double/cuda_double.h"
#include "tests/cuda_double/faults.h"
#include "tests/driver_conformance/session_fixture.h"

namespace heddle::cuda::refusals {
namespace {

using cuda_double::Call;
using device::CommandList;
using device::Point;
using device::View;

constexpr auto kMoment = std::chrono::milliseconds(5);
constexpr auto kLong = std::chrono::seconds(60);

// CUDA's functions, of which that one that lets a stream wait can be made to fail.
Atomic<bool> waits_fail{false};
const DriverApi& api_without_waits() {
  static const DriverApi made = [] {
    DriverApi api = cuda_double::api();
    api.stream_wait = [](StreamHandle stream, EventHandle event, unsigned flags) {
      if (waits_fail.load_relaxed()) return kOutOfMemory;
      return cuda_double::api().stream_wait(stream, event, flags);
    };
    return api;
  }();
  return made;
}

Ref<device::Device> fresh_device(const DriverApi& api = cuda_double::api()) {
  cuda_double::forget_faults();
  return make_cuda_device({.api = &api, .image = cuda_double::image()}).value();
}

// An event of a stranger's, which the test reaches.
struct Gate {
  explicit Gate(device::Device& device)
      : event(cuda_double::make_held_event()),
        point(device.import_event({event, 0, nullptr}, NoLocksHeld()).value()) {}
  ~Gate() { reach(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void reach() const {
    if (!cuda_double::is_reached(event)) cuda_double::reach(event);
  }
  const EventHandle event;
  const Point point;
};

// A queue whose lists live as long as it does.
class Line {
 public:
  explicit Line(device::Device& device) : queue_(device.make_queue(NoLocksHeld()).value()) {}
  Status submit(CommandList list) {
    lists_.push_back(std::make_unique<CommandList>(std::move(list)));
    return queue_->submit(*lists_.back(), lists_.size(), NoLocksHeld());
  }
  Point last() const { return {queue_->timeline(), lists_.size()}; }
  Status wait(Deadline deadline = Deadline::in(kLong)) const {
    return last().timeline->wait(last().value, deadline);
  }
  bool is_under_way() const { return wait(Deadline::in(kMoment)).code() == heddle::Code::deadline; }

 private:
  std::vector<std::unique_ptr<CommandList>> lists_;
  std::unique_ptr<device::Queue> queue_;
};

CommandList fill_after(const Point& point, const View& view, double value) {
  CommandList list;
  list.wait(point);
  list.fill(view, value);
  return list;
}
CommandList copy_after(const Point& point, const View& from, const View& to) {
  CommandList list;
  list.wait(point);
  list.copy(from, to);
  return list;
}

// A slow line, which writes `a` after `begins`; one that is broken by its first submission, and fails when
// `ends` is reached and what it refused is over; and one that was given to wait for that submission alone.
struct Broken {
  explicit Broken(const DriverApi& api = cuda_double::api()) : device(fresh_device(api)) {
    REQUIRE(slow.submit(fill_after(begins.point, a, 5)).ok());
    cuda_double::refuse(Call::kLaunch, kInvalidValue, 0, 1);
    REQUIRE_FALSE(line.submit(fill_after(ends.point, a, 6)).ok());
    REQUIRE_FALSE(first_over.submit(fill_after(line.last(), b, 7)).ok());
  }
  ~Broken() {
    waits_fail.store_relaxed(false);
    cuda_double::forget_faults();
  }
  Broken(const Broken&) = delete;
  Broken& operator=(const Broken&) = delete;
  void end_first() const {
    ends.reach();
    CHECK(first_over.wait().ok());
  }

  const Ref<device::Device> device;
  const View a = conformance::empty_like(*device, ir::DType::kF32, {8});
  const View b = conformance::empty_like(*device, ir::DType::kF32, {8});
  Line slow{*device}, line{*device}, first_over{*device};
  const Gate begins{*device}, ends{*device};
};

TEST_CASE("a queue that broke fails when what it refused since and that waits for others is over as well") {
  Broken broken;
  CHECK(broken.line.submit(copy_after(broken.slow.last(), broken.a, broken.b)).code() ==
        heddle::Code::device_lost);
  broken.end_first();
  CHECK(broken.line.is_under_way());
  CHECK_FALSE(broken.line.last().timeline->failed());
  broken.begins.reach();
  CHECK(broken.line.wait().code() == heddle::Code::device_lost);
  CHECK(broken.slow.wait(Deadline::in(Duration(0))).ok());  // it is over by now
  CHECK(broken.device->lost().ok());
}

TEST_CASE("what is refused and waits for what a broken queue refused is not over before that") {
  Broken broken;
  Line refused(*broken.device), later(*broken.device);
  CHECK_FALSE(broken.line.submit(copy_after(broken.slow.last(), broken.a, broken.b)).ok());
  CHECK_FALSE(refused.submit(fill_after(broken.line.last(), broken.a, 8)).ok());
  REQUIRE(later.submit(fill_after(refused.last(), broken.a, 9)).ok());
  broken.end_first();
  CHECK(refused.is_under_way());
  CHECK(later.is_under_way());
  broken.begins.reach();
  CHECK(refused.wait().ok());
  CHECK(later.wait().ok());
  CHECK(conformance::download(*broken.device, broken.a).get(0) == 9);
}

TEST_CASE("the end of what a broken queue refused may be refused by CUDA: it is waited for all the same") {
  Broken broken;
  cuda_double::refuse(Call::kWrite, kInvalidValue, 0, 1);
  const int before = cuda_double::calls_of(Call::kSynchronize);
  Status refused;
  {
    const Thread submits(
        "submits", [&] { refused = broken.line.submit(copy_after(broken.slow.last(), broken.a, broken.b)); });
    broken.end_first();
    while (cuda_double::calls_of(Call::kSynchronize) == before) give_way();
    CHECK(broken.line.is_under_way());
    broken.begins.reach();
  }
  CHECK(refused.code() == heddle::Code::device_lost);
  CHECK(broken.line.wait().code() == heddle::Code::device_lost);
  CHECK(broken.slow.wait(Deadline::in(Duration(0))).ok());
}

// Whether `line` takes or refuses it, it returns when `slow` is over.
void check_that_it_waits(const Broken& broken, Line& line) {
  bool was_over = false;
  Atomic<bool> begun{false}, returned{false};
  const Thread submits("submits", [&] {
    begun.store_relaxed(true);  // which orders nothing
    CHECK_FALSE(line.submit(copy_after(broken.slow.last(), broken.a, broken.b)).ok());
    was_over = broken.slow.wait(Deadline::in(Duration(0))).ok();
    returned.store_release(true);  // read by the test
  });
  while (!begun.load_relaxed()) give_way();
  for (const Deadline moment = Deadline::in(kMoment); !moment.expired() && !returned.load_acquire();)
    give_way();
  broken.begins.reach();
  while (!returned.load_acquire()) give_way();
  CHECK(was_over);
}

TEST_CASE("a submission to a queue that has failed returns when what it waits for is over") {
  Broken broken;
  broken.ends.reach();
  REQUIRE(broken.line.wait().code() == heddle::Code::device_lost);
  check_that_it_waits(broken, broken.line);
}

TEST_CASE("for what CUDA's stream cannot wait the host waits") {
  Broken broken(api_without_waits());
  Line refuses(*broken.device);
  CommandList invalid;
  invalid.signal({});
  REQUIRE_FALSE(refuses.submit(std::move(invalid)).ok());
  waits_fail.store_relaxed(true);
  check_that_it_waits(broken, refuses);
  waits_fail.store_relaxed(false);
}

TEST_CASE("a submission that CUDA takes in part is over when all that it waits for is") {
  Broken broken;
  Line half(*broken.device);
  CommandList list;
  list.fill(broken.b, 1);
  list.wait(broken.slow.last());
  list.copy(broken.a, broken.b);
  cuda_double::refuse(Call::kLaunch, kInvalidValue, 0, 1);
  CHECK_FALSE(half.submit(std::move(list)).ok());
  CHECK(half.is_under_way());
  broken.begins.reach();
  CHECK(half.wait().code() == heddle::Code::device_lost);
  CHECK(broken.slow.wait(Deadline::in(Duration(0))).ok());
}

TEST_CASE("of a device that is lost while CUDA takes a submission nothing is over that was not") {
  const Ref<device::Device> device = fresh_device();
  const View view = conformance::empty_like(*device, ir::DType::kF32, {8});
  {
    const Gate gate(*device);
    Line line(*device);
    REQUIRE(line.submit(fill_after(gate.point, view, 1)).ok());
    const Point first = line.last();
    cuda_double::refuse(Call::kWrite, kIllegalAddress, 0, 1);
    CommandList list;
    list.fill(view, 2);
    CHECK_FALSE(line.submit(std::move(list)).ok());
    CHECK(line.wait().code() == heddle::Code::device_lost);
    CHECK_FALSE(first.done());
    gate.reach();
  }
  cuda_double::forget_faults();
}

}  // namespace
}  // namespace heddle::cuda::refusals
