// Batches on a device that does not end its work.
#include <doctest/doctest.h>

#include <utility>

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

// Behind a busy lane eight callers form two batches. While the first runs so many wait that the end of the
// second is shown. That one is stuck, and then ends with `ends`.
struct StuckWhileShown : Fixture {
  static constexpr int kCallers = 8, kBatch = 4;
  explicit StuckWhileShown(Status how = {})
      : Fixture(options(), false, false, {.asynchronous = true}), ends(std::move(how)) {
    kernel = [this](const device::Run& run) {
      if (run.inputs[0].extents[0] != kBatch || batches.add_acq_rel(1) == 0) return Status();
      stuck.wait();
      return ends;
    };
  }
  static CoalescerOptions options() {
    CoalescerOptions options = with(1, kBatch);
    options.look_on = 1;
    return options;
  }
  // Caller i, until its deadline.
  Code call_until(int i, Deadline deadline) {
    Rows x(1, static_cast<float>(i));
    const auto result = call(x, deadline);
    return result.ok() && !right(x, result) ? Code::internal : result.status().code();
  }
  void check_counts(uint64_t left) const {
    const Coalescer::Stats stats = coalescer->stats();
    CHECK(stats.batches == 3);
    CHECK(stats.rows[kBatch] == 2);
    CHECK(stats.left == left);
    CHECK(stats.calls + stats.left == kCallers + 1);
    CHECK(stats.parked == 0);
  }
  const Status ends;
  Atomic<int> batches{0};
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

  // The lane was given back once: while one call has it, another waits.
  Latch again;
  Atomic<int> first{1};
  f.kernel = [&](const device::Run&) {
    if (first.exchange_acq_rel(0) == 1) again.wait();
    return Status();
  };
  const Thread holder("holder", [&] {
    Rows x(1, 50);
    CHECK(f.right(x, f.call(x)));
  });
  wait_until([&] { return again.arrived() == 1; });
  CHECK(f.call_until(std::chrono::milliseconds(20)) == Code::deadline);
  again.open();
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

TEST_CASE(
    "a leader that leaves at its deadline while the end of its run is shown leaves that to the others") {
  StuckWhileShown f;
  Atomic<int> left{0};
  const Thread opener("opener", [&] {
    wait_until([&] { return left.load_acquire() == 1; });
    f.stuck.open();
  });
  const auto good = f.behind_a_busy_lane(f.kCallers, [&](int i) {
    const bool leads = i == f.kBatch;  // the first to come of the second batch
    const Code code =
        f.call_until(i, leads ? Deadline::in(std::chrono::milliseconds(500)) : Deadline::never());
    left.add_acq_rel(leads ? 1 : 0);
    return code == (leads ? Code::deadline : Code::ok);
  });
  CHECK(good == f.kCallers + 1);
  f.check_counts(1);
}

TEST_CASE("a run whose end is shown, and whose members have all left, gives its memory and its lane back") {
  StuckWhileShown f;
  const auto good = f.behind_a_busy_lane(f.kCallers, [&](int i) {
    const bool leaves = i >= f.kBatch;
    const Deadline deadline = leaves ? Deadline::in(std::chrono::milliseconds(500)) : Deadline::never();
    return f.call_until(i, deadline) == (leaves ? Code::deadline : Code::ok);
  });
  CHECK(good == f.kCallers + 1);
  CHECK(f.coalescer->stats().left == f.kBatch);
  f.stuck.open();
  wait_until([&] { return f.runtime->governor().stats().in_flight == 0; });
  f.coalescer->give_up_idle();
  f.runtime->allocator().empty_cache();
  CHECK(f.runtime->stats().slot_bytes == 0);
  Rows x(1, 3);
  CHECK(f.right(x, f.call(x)));
}

TEST_CASE("a device that is lost while the end of a run is shown is reported to each of its callers") {
  StuckWhileShown f(Status::device_lost("pulled"));
  f.stuck.open();
  const auto good = f.behind_a_busy_lane(f.kCallers, [&](int i) {
    return f.call_until(i, Deadline::never()) == (i >= f.kBatch ? Code::device_lost : Code::ok);
  });
  CHECK(good == f.kCallers + 1);
  f.check_counts(0);
}

}  // namespace heddle::batch
