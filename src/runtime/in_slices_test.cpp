// Calls in slices of time on a device that computes by itself (admission/time_slices.h).
#include <doctest/doctest.h>

#include <functional>
#include <vector>

#include "base/thread.h"
#include "base/yield.h"
#include "runtime/at_once_fixture.h"

namespace heddle::runtime {
namespace {

using device::View;
using test::Rows;

struct Standing {
  ManualClock clock;  // no slice ends by itself, and none seems idle
};

struct InSlices : Standing, test::AtOnceFixture {
  explicit InSlices(const test::TestOptions& device = {.asynchronous = true}, int slices = 1)
      : AtOnceFixture("in slices", device, {.slices = slices, .clock = &clock}) {}
  Result<std::vector<View>> run(Stream& on, Model& model, const View& input, bool wait) const {
    return runtime->run(model, {.inputs = {&input, 1}, .stream = &on, .wait = wait, .in_slices = true});
  }
};

// A thread is in its slice until it waits for the device.
using Waits = std::function<bool(const InSlices&, Stream&, const View& result)>;
struct Way {
  const char* name;
  Waits waits;
};
const Way kWays[] = {
    {"a call that waits",
     [](const InSlices& f, Stream& on, const View& result) {
       const Ref<Model> model = f.load("identity");
       return f.run(on, *model, result, true).ok();
     }},
    {"a copy to the host",
     [](const InSlices& f, Stream& on, const View& result) {
       Rows target(2, 0);
       return f.runtime->copy(on, result, target.view()).ok() && target.values == test::values_of(result);
     }},
    {"a wait for all streams",
     [](const InSlices& f, Stream&, const View&) { return f.runtime->synchronize().ok(); }},
};

TEST_CASE("few threads' operators go on at once, by the device, and as many as were asked for") {
  CHECK(InSlices({.asynchronous = true}, 0).runtime->time_slices().width() == 2);
  CHECK(InSlices({.asynchronous = true}, 5).runtime->time_slices().width() == 5);
  struct Host {
    int threads, width;
  };
  for (const Host& host : {Host{1, 1}, {2, 2}, {3, 3}, {16, 3}, {20, 4}, {64, 12}}) {
    CAPTURE(host.threads);
    CHECK(TimeSlices::width_for(host.threads, true) == host.width);
  }
}

TEST_CASE("a thread that waits for an asynchronous device, in a call, a copy or for all, leaves its slice") {
  constexpr int kThreads = 4, kCalls = 20;
  for (const Way& way : kWays) {
    CAPTURE(way.name);
    InSlices f;
    const Ref<Model> model = f.load("identity");
    Atomic<int> right{0}, over{0};
    std::vector<Thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back("caller", [&, thread] {
        const auto lease = *f.runtime->streams().lease();
        Rows rows(2, static_cast<float>(thread));
        const View callers = rows.view();
        // In memory of the device: a call with the caller's own would wait, and leave its slice.
        const auto input = f.runtime->run(*model, {.inputs = {&callers, 1}});
        for (int i = 0; i < kCalls && input.ok(); ++i) {
          const auto made = f.run(*lease.stream(), *model, input->front(), false);
          const bool waited = made.ok() && way.waits(f, *lease.stream(), made->front());
          right.add_relaxed(waited && test::values_of(made->front()) == rows.values ? 1 : 0);
        }
        over.add_acq_rel(1);
      });
    }
    // A slice that is not left would be kept for good: then the clock ends that.
    bool was_left = true;
    const Deadline patience = Deadline::in(std::chrono::seconds(10));
    for (; over.load_acquire() < kThreads; give_way()) {
      if (!patience.expired()) continue;
      was_left = false;
      f.clock.advance(TimeSlices::kLong);
    }
    threads.clear();
    CHECK(right.load_relaxed() == kThreads * kCalls);
    CHECK(was_left);
    CHECK(f.runtime->stats().slices.waits > 0);
  }
}

// Runs as operators do, at once and in a slice.
bool runs(const InSlices& f, Stream& on, const Model& model) {
  Rows rows(2, 7);
  const View input = rows.view();
  const View* const inputs = &input;
  return InSlices::is_copy(f.runtime->try_run_on(model, {on, {&inputs, 1}, {}, true, Deadline::never()}),
                           rows);
}

TEST_CASE(
    "a long operator leaves its slice to others while it runs, where they have cores that do not help it") {
  struct Case {
    int threads;
    bool keeps_to_a_core, is_long, leaves;
  };
  for (const Case& c : {Case{4, true, true, true},
                        {4, true, false, false},
                        {4, false, true, false},
                        {1, true, true, false}}) {
    CAPTURE(c.threads);
    CAPTURE(c.keeps_to_a_core);
    CAPTURE(c.is_long);
    InSlices f({.threads = c.threads, .keeps_to_a_core = c.keeps_to_a_core});
    Atomic<bool> is_known{false}, has_come{false};
    f.device->set_kernel("operator", [&](const device::Run& run) {
      const TimePoint end = Clock::real().now() + std::chrono::microseconds(c.is_long ? 120 : 0);
      while (Clock::real().now() < end) relax_processor(1);
      if (is_known.load_acquire()) f.latch.wait();
      return test::copy_through(run);
    });
    const Ref<Model> timed = f.load("operator"), other = f.load("identity");
    Thread owner("owner", [&] {
      const auto own = *f.runtime->streams().lease();
      // The first runs are timed, and the shortest counts: all of them are hardly ever disturbed.
      for (int i = 0; i < PreparedCall::kTimed; ++i) CHECK(runs(f, *own.stream(), *timed));
      is_known.store_release(true);
      CHECK(runs(f, *own.stream(), *timed));
    });
    test::wait_until([&] { return f.latch.arrived() == 1; });
    Thread next("next", [&] {
      const auto own = *f.runtime->streams().lease();
      CHECK(runs(f, *own.stream(), *other));
      has_come.store_release(true);
    });
    const Deadline patience = Deadline::in(std::chrono::seconds(10));
    test::wait_until(
        [&] { return has_come.load_acquire() || f.runtime->stats().slices.waits > 0 || patience.expired(); });
    if (c.leaves) test::wait_until([&] { return has_come.load_acquire() || patience.expired(); });
    CHECK(has_come.load_acquire() == c.leaves);
    f.latch.open();
    for (; !has_come.load_acquire(); give_way()) f.clock.advance(TimeSlices::kLong);
  }
}

}  // namespace
}  // namespace heddle::runtime
