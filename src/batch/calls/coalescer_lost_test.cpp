// Batches on a device that does not end its work.
#include <doctest/doctest.h>

#include "batch/calls/coalescer_fixture.h"

namespace heddle::batch {

namespace {

struct Stuck : Fixture {
  Stuck() : Fixture(with(1), false, false, {.asynchronous = true}) {
    kernel = [this](const device::Run& run) {
      if (run.inputs[0].extents[0] > 1) stuck.wait();
      return Status();
    };
  }
  Code call_until(std::chrono::milliseconds wait) {
    Rows x(1, 7);
    return call(x, Deadline::in(wait)).status().code();
  }
  Latch stuck;
};

}  // namespace

TEST_CASE("a leader that leaves at its deadline hands its run on, which is not repeated") {
  Stuck f;
  Atomic<int> left{0};
  const Thread opener("opener", [&] {
    wait_until([&] { return left.load_acquire() == 1; });
    f.stuck.open();
  });
  const auto good = f.behind_a_busy_lane(4, [&](int i) {
    Rows x(1, static_cast<float>(i));
    if (i != 0) return f.right(x, f.call(x));  // the first to come leads
    const Code code = f.call_until(std::chrono::milliseconds(200));
    left.add_acq_rel(1);
    return code == Code::deadline;
  });
  CHECK(good == 5);
  CHECK(f.runs().size() == 2);
  CHECK(f.coalescer->stats().left == 1);
  CHECK(f.coalescer->stats().parked == 0);
}

TEST_CASE("a batch that never ends lets all its callers go at their deadlines, and the coalescer goes on") {
  Stuck f;
  const auto good = f.behind_a_busy_lane(
      4, [&](int) { return f.call_until(std::chrono::milliseconds(20)) == Code::deadline; },
      [&] { wait_until([&] { return f.coalescer->stats().parked + f.coalescer->stats().left == 4; }); });
  CHECK(good == 5);
  CHECK(f.coalescer->stats().left == 4);
  Rows x(1, 3);
  CHECK(f.right(x, f.call(x)));
  f.stuck.open();
  CHECK(f.runtime->synchronize().ok());
  wait_until([&] { return f.runtime->governor().stats().in_flight == 0; });
}

}  // namespace heddle::batch
