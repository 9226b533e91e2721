// Seats that callers take without the coalescer's lock.
#include <doctest/doctest.h>

#include <array>
#include <optional>

#include "batch/calls/coalescer_fixture.h"

namespace heddle::batch {

namespace {

// Reads what calls count, beside them.
class Watcher {
 public:
  explicit Watcher(Fixture& f) : thread_("watcher", [&] { watch(*f.coalescer); }) {}
  ~Watcher() {
    over_.store_release(true);
    thread_.join();
  }
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

 private:
  void watch(Coalescer& coalescer) {
    while (!over_.load_acquire()) {
      static_cast<void>(coalescer.anyone_waits());
      static_cast<void>(coalescer.stats());
      give_way();
    }
  }

  Atomic<bool> over_{false};
  Thread thread_;
};

}  // namespace

TEST_CASE(
    "a caller that finds rows of another length under its number gives that seat up, and is counted once") {
  Fixture f(with(1), true, true);
  const auto [one, other] = lengths_alike(f);
  const int64_t good = f.behind_a_busy_lane(4, [&, one = one, other = other](int caller) {
    Ragged row(caller % 2 == 0 ? one : other, static_cast<float>(caller));
    return f.right(row, f.call(row));
  });
  CHECK(good == 5);
  const Coalescer::Stats stats = f.coalescer->stats();
  CHECK(stats.calls == 5);
  CHECK(stats.left == 0);
  CHECK(stats.parked == 0);
  CHECK(stats.refused == 0);
  int64_t rows = 0;
  for (const ir::Extents& run : f.runs()) {
    if (run[1] == one || run[1] == other) rows += run[0];
  }
  CHECK(rows > 4);  // seats that were given up had a row of zeros
}

TEST_CASE("callers of two lengths under one number, on many threads, are each counted once") {
  constexpr int kCallers = 8, kCalls = 150;
  CoalescerOptions options = with(1);
  options.door = false;
  Fixture f(options, true, true);
  const std::array<int64_t, 2> lengths = lengths_alike(f);
  Atomic<int64_t> good{0};
  std::optional<Watcher> watcher(f);
  run_together(kCallers, [&](int caller) {
    for (int i = 0; i < kCalls; ++i) {
      Ragged row(lengths[static_cast<size_t>(caller + i) % 2], static_cast<float>(caller * kCalls + i));
      good.add_relaxed(f.right(row, f.call(row)) ? 1 : 0);
    }
  });
  watcher.reset();
  CHECK(good.load_relaxed() == kCallers * kCalls);
  const Coalescer::Stats stats = f.coalescer->stats();
  CHECK(stats.calls == kCallers * kCalls);
  CHECK(stats.left == 0);
  CHECK(stats.parked == 0);
}

TEST_CASE("a batch of more rows than the word of seats can count is joined under the lock") {
  constexpr int64_t kRows = 3000, kCallers = 6;
  static_assert(kRows * kCallers > OpenSeats::kRowsMost);
  Fixture f(with(1, kRows * kCallers));
  const int64_t good = f.behind_a_busy_lane(kCallers, [&](int caller) {
    Rows rows(kRows, static_cast<float>(10 * caller));
    return f.right(rows, f.call(rows));
  });
  CHECK(good == kCallers + 1);
  CHECK(f.runs() == std::vector<ir::Extents>{{1, 4}, {kRows * kCallers, 4}});
}

TEST_CASE("callers who come to the lock take seats where others go on taking theirs: all are answered once") {
  constexpr int kCallers = 24, kCalls = 400;
  CoalescerOptions options = with(2);
  options.door = false;
  Fixture f(options);
  Atomic<int64_t> good{0};
  std::optional<Watcher> watcher(f);
  std::vector<Thread> threads;
  for (int caller = 0; caller < kCallers; ++caller) {
    threads.emplace_back("caller", [&, caller] {
      for (int i = 0; i < kCalls; ++i) {
        // Some bring two rows, which an open batch may have no room for while others still take its last.
        Rows rows(caller % 4 == 0 ? 2 : 1, static_cast<float>(caller * kCalls + i));
        good.add_relaxed(f.right(rows, f.call(rows)) ? 1 : 0);
      }
    });
  }
  for (Thread& thread : threads) thread.join();
  watcher.reset();
  CHECK(good.load_relaxed() == kCallers * kCalls);
  const Coalescer::Stats stats = f.coalescer->stats();
  CHECK(stats.calls == kCallers * kCalls);
  CHECK(stats.parked == 0);
  CHECK(stats.left == 0);
  int64_t rows = 0;
  for (const ir::Extents& run : f.runs()) rows += run[0];
  CHECK(rows == kCalls * (kCallers + kCallers / 4));
}

// Four callers are expected back, who had six rows, for half of what a batch costs.
TEST_CASE("callers that come back with fewer rows than they had do not wait for others") {
  constexpr std::chrono::seconds kCost{20};
  constexpr int64_t kBefore[] = {2, 2, 1, 0};
  CoalescerOptions options = with(1, 5);
  options.door = false;
  options.cost = [&](int64_t) { return kCost; };
  Fixture f(options);
  Atomic<int> back{0};
  const auto calls = [&](int caller) {
    const auto start = static_cast<float>(10 * caller);
    bool right =
        caller == 3 || f.answers(kBefore[caller], start);  // the holder comes back as the last caller
    back.add_release(1);
    wait_until([&] { return back.load_acquire() == 4; });
    const TimePoint asked = Clock::real().now();
    right = f.answers(1, start) && right;
    return right && Clock::real().now() - asked < kCost / 4;
  };
  const auto parked = [&] { return f.coalescer->stats().parked == 3; };
  CHECK(f.behind_a_busy_lane(4, calls, [&] { wait_until(parked); }) == 5);
  CHECK(f.runs() == std::vector<ir::Extents>{{1, 4}, {5, 4}, {4, 4}});
}

}  // namespace heddle::batch
