#include "base/condition.h"

#include <doctest/doctest.h>

#include <vector>

#include "base/thread.h"

namespace heddle {
namespace {

using std::chrono::milliseconds;

TEST_CASE("a wait ends at its deadline, not before, and holds the mutex again") {
  Mutex mutex;
  Condition changed;
  std::unique_lock held(mutex);
  const TimePoint start = Clock::real().now();
  const Deadline deadline = Deadline::in(milliseconds(20));
  while (!deadline.expired()) changed.wait(held, deadline);
  CHECK(Clock::real().now() - start >= milliseconds(20));
  CHECK(held.owns_lock());
}

TEST_CASE("a wait whose deadline has passed returns at once") {
  Mutex mutex;
  Condition changed;
  std::unique_lock held(mutex);
  changed.wait(held, Deadline::at(TimePoint()));
  changed.wait(held, Deadline::at(TimePoint::min()));
  CHECK(held.owns_lock());
}

TEST_CASE("a ring without a waiter does not wake later waiters") {
  Mutex mutex;
  Condition changed;
  changed.notify_one();
  changed.notify_all();
  std::unique_lock held(mutex);
  const TimePoint start = Clock::real().now();
  changed.wait(held, Deadline::in(milliseconds(5)));
  CHECK(Clock::real().now() - start >= milliseconds(5));
}

// One ring for one change, waiters that all wait for the same: what loses a wake-up stands still.
TEST_CASE("one ring a change is enough for any number of waiters") {
  struct Row {
    int givers, takers;
  };
  constexpr int kEach = 4000;
  for (const Row& row : {Row{1, 1}, Row{1, 6}, Row{4, 4}, Row{6, 1}}) {
    INFO(row.givers, " givers, ", row.takers, " takers");
    Mutex mutex;
    Condition changed;
    int there = 0, to_come = row.givers * kEach;
    std::vector<int> taken(static_cast<size_t>(row.takers));
    run_together(row.givers + row.takers, [&](int thread) {
      if (thread < row.givers) {
        for (int i = 0; i < kEach; ++i) {
          {
            const std::lock_guard held(mutex);
            ++there;
          }
          changed.notify_one();
        }
        return;
      }
      int& mine = taken[static_cast<size_t>(thread - row.givers)];
      for (;;) {
        std::unique_lock held(mutex);
        while (there == 0 && to_come != 0) changed.wait(held, Deadline::never());
        if (to_come == 0) return;
        --there;
        ++mine;
        if (--to_come == 0) changed.notify_all();
      }
    });
    int sum = 0;
    for (const int n : taken) sum += n;
    CHECK(sum == row.givers * kEach);
    CHECK(there == 0);
  }
}

TEST_CASE("notify_all wakes every waiter") {
  constexpr int kWaiters = 12;
  Mutex mutex;
  Condition changed;
  int round = 0, asleep = 0;
  std::vector<int> woken(kWaiters);
  run_together(kWaiters + 1, [&](int thread) {
    for (int next = 1; next <= 200; ++next) {
      std::unique_lock held(mutex);
      if (thread == kWaiters) {
        while (asleep != kWaiters) changed.wait(held, Deadline::never());
        asleep = 0;
        round = next;
        changed.notify_all();
        continue;
      }
      if (++asleep == kWaiters) changed.notify_all();
      while (round < next) changed.wait(held, Deadline::never());
      ++woken[static_cast<size_t>(thread)];
    }
  });
  CHECK(woken == std::vector<int>(kWaiters, 200));
}

}  // namespace
}  // namespace heddle
