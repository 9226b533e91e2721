#include "batch/calls/leaders.h"

#include <doctest/doctest.h>

#include "base/sync.h"
#include "runtime/test_device_fixture.h"

namespace heddle::batch {

using runtime::test::Latch;
using runtime::test::wait_until;

TEST_CASE("leaders start when there is something to do, each task runs once, and stopping waits for all") {
  Atomic<int> done{0};
  Leaders leaders(3, {});
  CHECK(leaders.threads() == 0);
  run_together(4, [&](int) {
    for (int i = 0; i < 250; ++i) {
      REQUIRE(leaders.owe().ok());
      leaders.post([&] {
        done.add_acq_rel(1);
        leaders.settle();
      });
    }
  });
  CHECK(leaders.threads() >= 1);
  CHECK(leaders.threads() <= 3);
  leaders.stop();
  CHECK(done.load_acquire() == 1000);
  CHECK(leaders.owe().code() == Code::unavailable);
}

TEST_CASE("timers ring in their order, before what was posted, and not when they were forgotten") {
  Atomic<int> rung{0};
  Guarded<std::vector<int>, Rank::kHelpers> order;
  Latch latch;
  Leaders leaders(1, {});
  REQUIRE(leaders.owe().ok());
  leaders.post([&] { latch.wait(); });
  wait_until([&] { return latch.arrived() == 1; });
  const TimePoint now = Clock::real().now();
  const auto note = [&](int which) {
    return [&, which] {
      order.lock()->push_back(which);
      rung.add_release(1);
    };
  };
  leaders.post(note(4));
  for (const int ms : {3, 1, 2}) leaders.at({now + std::chrono::milliseconds(ms), 1, 0}, note(ms));
  leaders.at({now + std::chrono::milliseconds(2), 2, 0}, note(9));
  leaders.forget({now + std::chrono::milliseconds(2), 2, 0});
  wait_until([&] { return Clock::real().now() > now + std::chrono::milliseconds(3); });
  latch.open();
  wait_until([&] { return rung.load_acquire() == 4; });
  CHECK(*order.lock() == std::vector<int>{1, 2, 3, 4});
  leaders.settle();
}

TEST_CASE("a timer rings while another leader is busy, whether it was set before or afterwards") {
  for (const bool before : {false, true}) {
    Atomic<int> rung{0};
    Latch latch;
    Leaders leaders(2, {});
    REQUIRE(leaders.owe().ok());
    const auto set = [&] {
      leaders.at({Clock::real().now() + std::chrono::milliseconds(1), 1, 0}, [&] { rung.add_release(1); });
    };
    if (before) set();
    leaders.post([&] { latch.wait(); });
    wait_until([&] { return latch.arrived() == 1; });
    if (!before) set();
    wait_until([&] { return rung.load_acquire() == 1; });
    latch.open();
    leaders.settle();
  }
}

TEST_CASE("stopping waits for what is owed, and what settles it may come afterwards") {
  Atomic<bool> stopped{false};
  Leaders leaders(2, {});
  REQUIRE(leaders.owe().ok());
  CHECK_FALSE(leaders.await_settled(Deadline::in(std::chrono::milliseconds(1))));
  Thread stopper("stopper", [&] {
    leaders.stop();
    stopped.store_release(true);
  });
  wait_until([&] {
    if (!leaders.owe().ok()) return true;
    leaders.settle();
    return false;
  });
  CHECK_FALSE(stopped.load_acquire());
  leaders.post([&] { leaders.settle(); });
  stopper.join();
  CHECK(leaders.await_settled(Deadline::never()));
}

// Nothing but relaxed operations between the threads: the thread sanitizer sees what the lock alone orders.
TEST_CASE("a leader that asks whether all is settled is refused at once, and another one starts after that") {
  Atomic<int> asked{0};
  Atomic<bool> other_came{false};
  Leaders leaders(2, {});
  REQUIRE(leaders.owe().ok());
  leaders.post([&] {
    leaders.settle();
    asked.store_relaxed(leaders.await_settled(Deadline::never()) ? 1 : 2);
    while (!other_came.load_relaxed()) give_way();
  });
  wait_until([&] { return asked.load_relaxed() != 0; });
  CHECK(asked.load_relaxed() == 2);
  REQUIRE(leaders.owe().ok());
  leaders.post([&] {
    other_came.store_relaxed(true);
    leaders.settle();
  });
  CHECK(leaders.threads() == 2);
  CHECK(leaders.await_settled(Deadline::never()));
}

TEST_CASE("leaders that start for promises made at once, and while others ask, are as many as tasks need") {
  constexpr int kMost = 4, kRounds = 50;
  for (int round = 0; round < kRounds; ++round) {
    Atomic<int> promised{0}, settled{0}, met{0};
    Leaders leaders(kMost, {});
    run_together(3, [&](int i) {
      if (leaders.owe().ok()) promised.add_relaxed(1);
      for (int task = 0; i == 0 && task < kMost; ++task) {
        leaders.post([&] {
          met.add_relaxed(1);
          while (met.load_relaxed() < kMost) give_way();
        });
      }
      do {
        if (leaders.await_settled(Deadline::at(TimePoint::min()))) settled.add_relaxed(1);
      } while (met.load_relaxed() < kMost);
      leaders.settle();
    });
    REQUIRE(promised.load_relaxed() == 3);
    CHECK(settled.load_relaxed() == 0);  // who asks still owes its own
    CHECK(met.load_relaxed() == kMost);
    CHECK(leaders.threads() == kMost);
    CHECK(leaders.await_settled(Deadline::never()));
  }
}

}  // namespace heddle::batch
