// A device that accepts work and never ends it: every wait has an end.
#include <doctest/doctest.h>

#include <functional>
#include <optional>

#include "base/thread.h"
#include "runtime/admission/held_fixture.h"

namespace heddle::runtime {

namespace {

using device::View;
using test::kAtOnce;
using test::Rows;

// A call on stream a is in flight, which ends when the latch is opened.
struct LostDeviceFixture : test::HeldFixture {
  explicit LostDeviceFixture(int in_flight = 2)
      : HeldFixture({.asynchronous = true, .queue_depth = in_flight, .name = "lost-test"}) {
    REQUIRE(runtime->run(*held, {.inputs = {&x, 1}, .stream = &a(), .wait = false}).ok());
    test::wait_until([&] { return latch.arrived() == 1; });
  }
  ~LostDeviceFixture() { latch.open(); }
};

struct Wait {
  const char* name;
  std::function<Status(LostDeviceFixture&)> wait;
};
const Wait kWaits[] = {
    {"results",
     [](LostDeviceFixture& f) {
       return f.runtime->run(*f.held, {.inputs = {&f.x, 1}, .deadline = kAtOnce}).status();
     }},
    {"results of a call on a stream",
     [](LostDeviceFixture& f) {
       return f.runtime->run(*f.held, {.inputs = {&f.x, 1}, .stream = &f.a(), .deadline = kAtOnce}).status();
     }},
    {"a copy behind it",
     [](LostDeviceFixture& f) {
       auto to = std::make_shared<Rows>(1);
       return f.runtime->copy(f.a(), f.x, to->view(), kAtOnce, to);
     }},
    {"a turn",
     [](LostDeviceFixture& f) {
       const auto turn = f.a().turn();
       return f.runtime->run(*f.held, {.inputs = {&f.x, 1}, .stream = &f.a(), .deadline = kAtOnce}).status();
     }},
    {"a copy's turn",
     [](LostDeviceFixture& f) {
       const auto turn = f.a().turn();
       return f.runtime->fill(f.a(), f.x, 1, kAtOnce);
     }},
    {"a permit",
     [](LostDeviceFixture& f) {
       const auto other = f.runtime->governor().enter(f.held->id(), Deadline::never());
       return f.runtime->run(*f.held, {.inputs = {&f.x, 1}, .deadline = kAtOnce}).status();
     }},
    {"an exclusive hold",
     [](LostDeviceFixture& f) { return f.runtime->governor().exclusive(kAtOnce).status(); }},
    {"an event", [](LostDeviceFixture& f) { return f.a().record().wait(kAtOnce); }},
    {"a stream", [](LostDeviceFixture& f) { return f.a().synchronize(kAtOnce); }},
    {"the device", [](LostDeviceFixture& f) { return f.runtime->synchronize(kAtOnce); }},
    {"the end of a model's calls",
     [](LostDeviceFixture& f) {
       const Thread caller("caller", [&] {
         Rows mine(1);
         const View view = mine.view();
         CHECK(f.runtime->run(*f.held, {.inputs = {&view, 1}}).ok());
       });
       test::wait_until([&] { return f.latch.arrived() == 2; });
       const Status status = f.held->close(kAtOnce);
       f.latch.open();
       return status;
     }},
};

}  // namespace

TEST_CASE("every wait for a device that never ends its work ends at its deadline") {
  for (const Wait& each : kWaits) {
    CAPTURE(each.name);
    LostDeviceFixture f;
    CHECK(each.wait(f).code() == Code::deadline);
    f.latch.open();
    CHECK(f.runtime->synchronize().ok());
    test::wait_until([&] { return f.runtime->governor().stats().in_flight == 0; });
    CHECK(f.runtime->stats().in_flight == 0);
  }
}

TEST_CASE("a device that is gone gets no more queues, and every call is told why") {
  for (const bool asynchronous : {false, true}) {
    CAPTURE(asynchronous);
    auto device = std::make_shared<test::TestDevice>(
        test::TestOptions{.asynchronous = asynchronous, .name = asynchronous ? "gone-later" : "gone"});
    device->set_kernel("lost", [&](const device::Run&) {
      device->lose();
      return device->lost();
    });
    const Ref<Runtime> runtime = *Runtime::make(device);
    const Ref<Model> model = *runtime->load(test::graph_named("lost"));
    Rows x(1);
    const View view = x.view();
    const auto call = [&] { return runtime->run(*model, {.inputs = {&view, 1}}).status(); };
    CHECK(call().code() == Code::device_lost);
    const uint64_t made = device->counts().queues_made.load_acquire();
    for (int i = 0; i < 5; ++i) {
      const Status status = call();
      CHECK(status.code() == Code::device_lost);
      CHECK(status.message().find("the cable was pulled") != std::string::npos);
      CHECK(runtime->streams().lease().status().code() == Code::device_lost);
    }
    CHECK(device->counts().queues_made.load_acquire() == made);
  }
}

TEST_CASE("a device holds as many submissions as it asks for, more than its lanes, and no more") {
  constexpr int kInFlight = 12;
  LostDeviceFixture f(kInFlight);
  const Call call = {.inputs = {&f.x, 1}, .stream = &f.a(), .deadline = kAtOnce, .wait = false};
  for (int i = 1; i < kInFlight; ++i) CHECK(f.runtime->run(*f.held, call).ok());
  CHECK(f.runtime->governor().stats().parked == 0);
  CHECK(f.runtime->run(*f.held, call).status().code() == Code::deadline);
  CHECK(f.device->counts().queues.load_acquire() == 1);  // calls on one stream need no other
}

TEST_CASE("a call that leaves at its deadline keeps its caller's memory until the work is over") {
  LostDeviceFixture f;
  auto x = std::make_shared<Rows>(1, 3.0F);
  const View view = x->view();
  const std::weak_ptr<Rows> watched = x;
  const auto late =
      f.runtime->run(*f.held, {.inputs = {&view, 1}, .deadline = kAtOnce, .keep = std::move(x)});
  CHECK(late.status().code() == Code::deadline);
  auto to = std::make_shared<Rows>(1);
  const std::weak_ptr<Rows> target = to;
  const View target_view = to->view();
  CHECK(f.runtime->copy(f.a(), f.x, target_view, kAtOnce, std::move(to)).code() == Code::deadline);
  CHECK_FALSE(watched.expired());
  CHECK_FALSE(target.expired());
  f.latch.open();
  CHECK(f.runtime->synchronize().ok());
  test::wait_until([&] { return watched.expired() && target.expired(); });
}

TEST_CASE("memory of the caller without an owner is waited for to the end, whatever the deadline") {
  LostDeviceFixture f;
  Rows to(1);
  Atomic<bool> over{false};
  Thread copier("copier", [&] {
    CHECK(f.runtime->copy(f.a(), f.x, to.view(), Deadline::in(std::chrono::milliseconds(1))).ok());
    over.store_release(true);
  });
  test::wait_until([&] { return f.runtime->stats().in_flight == 2; });
  test::wait_until(
      [until = Clock::real().now() + std::chrono::milliseconds(2)] { return Clock::real().now() >= until; });
  CHECK_FALSE(over.load_acquire());
  f.latch.open();
  copier.join();
  CHECK(to.values == std::vector<float>(4, 5));
}

}  // namespace heddle::runtime
