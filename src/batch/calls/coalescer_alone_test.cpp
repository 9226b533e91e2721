// Calls of a model whose rows cost no less in a batch than alone.
#include <doctest/doctest.h>

#include <vector>

#include "batch/calls/coalescer_fixture.h"

namespace heddle::batch {

TEST_CASE("where a row costs as much in a batch as alone, calls go alone, in the order they came") {
  constexpr int kCallers = 6;
  Fixture f(with_equal_costs(with(1)));
  f.learn_that_joining_does_not_pay();
  Guarded<std::vector<float>, Rank::kHelpers> order;
  f.kernel = [&](const device::Run& run) {
    order.lock()->push_back(Fixture::at(run.inputs[0], 0, 0));
    return Status();
  };
  const int64_t good = f.behind_a_busy_lane(kCallers, [&](int i) {
    Rows x(1, static_cast<float>(i));
    return f.right(x, f.call(x));
  });
  CHECK(good == kCallers + 1);
  CHECK(f.runs() == std::vector<ir::Extents>(kCallers + 1, ir::Extents{1, 4}));
  CHECK(*order.lock() == std::vector<float>{1000, 0, 1, 2, 3, 4, 5});
  const auto stats = f.coalescer->stats();
  CHECK(stats.calls == 11 + kCallers + 1);
  CHECK(stats.parked == 0);
}

TEST_CASE("a caller that waits to go alone may leave, and is bounded and refused like one that joins") {
  Fixture f(with_equal_costs(with(1, 64, 4)));
  f.learn_that_joining_does_not_pay();
  std::stop_source cancel;
  Atomic<int> expired{0};
  const auto leaves = [&](int i) {
    Rows x(1, static_cast<float>(i));
    if (i == 1) return f.call(x, Deadline::never(), cancel.get_token()).status().code() == Code::cancelled;
    if (i != 2) return f.right(x, f.call(x));
    const auto late = f.call(x, Deadline::at(Clock::real().now() + std::chrono::milliseconds(1)));
    expired.add_release(1);
    return late.status().code() == Code::deadline;
  };
  const int64_t good = f.behind_a_busy_lane(4, leaves, [&] {
    wait_until([&] { return expired.load_acquire() == 1; });
    wait_until([&] { return f.coalescer->stats().parked == 3; });
    cancel.request_stop();
    wait_until([&] { return f.coalescer->stats().parked == 2; });
  });
  CHECK(good == 5);
  CHECK(f.coalescer->stats().left == 2);
  CHECK(f.coalescer->stats().parked == 0);
  CHECK(f.runs() == std::vector<ir::Extents>(3, ir::Extents{1, 4}));

  Fixture full(with_equal_costs(with(1, 64, 2)));
  full.learn_that_joining_does_not_pay();
  Atomic<int> refused{0}, closed{0};
  const auto is_refused = [&](int) {
    Rows x(1, 1);
    const Code code = full.call(x).status().code();
    (code == Code::exhausted ? refused : closed).add_relaxed(code == Code::ok ? 0 : 1);
    return code == Code::exhausted || code == Code::unavailable;
  };
  const int64_t told = full.behind_a_busy_lane(5, is_refused, [&] {
    wait_until([&] { return full.coalescer->stats().refused == 3; });
    full.coalescer->close();
  });
  CHECK(told == 6);  // the holder's call was running, and ended as ever
  CHECK(refused.load_relaxed() == 3);
  CHECK(closed.load_relaxed() == 2);
}

TEST_CASE("calls that go alone use all their lanes, and no more") {
  constexpr int kCallers = 6, kCalls = 20;  // joining is tried again after 128
  CoalescerOptions options = with_equal_costs(with(1));
  options.lanes_alone = 3;
  Fixture f(options);
  f.learn_that_joining_does_not_pay();
  Atomic<int> inside{0}, most{0};
  f.kernel = [&](const device::Run& run) {
    const int now = inside.add_acq_rel(1) + 1;
    int seen = most.load_acquire();
    while (seen < now && !most.cas_strong_acq_rel(seen, now)) continue;
    if (run.inputs[0].extents[0] != 1) return Status::internal("a batch");
    inside.add_acq_rel(-1);
    return Status();
  };
  Atomic<int64_t> good{0};
  {
    std::vector<Thread> threads;
    for (int i = 0; i < kCallers; ++i) {
      threads.emplace_back("caller", [&, i] {
        for (int n = 0; n < kCalls; ++n) {
          Rows x(1, static_cast<float>(i * kCalls + n));
          good.add_relaxed(f.right(x, f.call(x)) ? 1 : 0);
        }
      });
    }
    for (Thread& thread : threads) thread.join();
  }
  CHECK(good.load_relaxed() == kCallers * kCalls);
  CHECK(most.load_acquire() <= 3);
}

TEST_CASE("rows that fill a batch, and no rows, run beside the lanes' batches") {
  for (const int64_t rows : {4, 5, 0}) {
    CAPTURE(rows);
    Fixture f(with(1, 4));
    Atomic<bool> answered{false};
    const auto body = [&](int caller) {
      if (caller == 0) {  // opens a batch, so that the next one is there
        Rows one(1, 3);
        return f.right(one, f.call(one));
      }
      wait_until([&] { return f.coalescer->stats().parked == 1; });
      Rows x(rows, 7);
      const bool is_right = f.right(x, f.call(x));
      answered.store_release(true);
      return is_right;
    };
    const int64_t good = f.behind_a_busy_lane(2, body, [&] {
      wait_until([&] { return answered.load_acquire() || f.coalescer->stats().parked == 2; });
      CHECK(f.coalescer->stats().parked == 1);
    });
    CHECK(good == 3);
  }
}

TEST_CASE("callers of several rows join, though no caller ever went alone with one") {
  constexpr int kCallers = 6;
  CoalescerOptions options = with(1);
  options.cost = [](int64_t) { return std::chrono::milliseconds(2); };  // a batch costs what a row does
  Fixture f(options);
  for (int i = 0; i < 40; ++i) {
    Rows x(4, static_cast<float>(i));
    REQUIRE(f.right(x, f.call(x)));
  }
  f.sizes.lock()->clear();
  const int64_t good = f.behind_a_busy_lane(kCallers, [&](int i) {
    Rows x(4, static_cast<float>(i));
    return f.right(x, f.call(x));
  });
  CHECK(good == kCallers + 1);
  CHECK(f.runs() == std::vector<ir::Extents>{{1, 4}, {4 * kCallers, 4}});
}

TEST_CASE("rows that go alone do not pass a batch that waits for a lane") {
  constexpr int kOthers = 4;
  CoalescerOptions options = with_equal_costs(with(1));
  options.lanes_alone = 2;
  Fixture f(options, true, true);  // exact: another length is another group
  f.learn_that_joining_does_not_pay();
  Atomic<bool> batch_runs{false};
  Atomic<int> lone_runs{0}, passed{0};
  // The first lone run holds the lane that the batch needs. The others need not wait for that lane; each
  // stays until the batch runs, or until it is clear that the batch was passed.
  f.kernel = [&](const device::Run& run) {
    if (run.inputs[0].extents[1] == 8) {
      batch_runs.store_release(true);
    } else if (lone_runs.add_acq_rel(1) == 0) {
      f.latch.wait();
    } else {
      const Deadline patience = Deadline::in(std::chrono::seconds(20));
      wait_until([&] { return batch_runs.load_acquire() || patience.expired(); });
      if (!batch_runs.load_acquire()) passed.add_release(1);
    }
    return Status();
  };
  Atomic<int> good{0};
  std::vector<Thread> callers;
  const auto call = [&](int64_t length) {
    callers.emplace_back("caller", [&, length] {
      Ragged x(length, static_cast<float>(length));
      good.add_relaxed(f.right(x, f.call(x)) ? 1 : 0);
    });
  };
  const auto wait_for_parked = [&](size_t callers_parked) {
    wait_until([&] { return f.coalescer->stats().parked == callers_parked || passed.load_acquire() > 0; });
  };
  call(4);
  wait_until([&] { return f.latch.arrived() == 1; });
  call(8);
  wait_for_parked(1);
  for (int i = 0; i < kOthers; ++i) call(4);
  wait_for_parked(1 + kOthers);
  f.latch.open();
  for (Thread& caller : callers) caller.join();
  CHECK(good.load_relaxed() == kOthers + 2);
  CHECK(lone_runs.load_relaxed() == kOthers + 1);
  CHECK(passed.load_relaxed() == 0);
}

}  // namespace heddle::batch
