#include "base/sync.h"

#include <doctest/doctest.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/thread.h"
#include "tests/child_fixture.h"

namespace heddle {
namespace {

using std::chrono::milliseconds;

using Inner = Guarded<int, Rank::kStream>;
using Outer = Guarded<int, Rank::kCache>;

LockCounts stats_of(Rank rank) { return read_lock_counts()[static_cast<size_t>(rank)]; }

#ifndef NDEBUG
struct Misuse {
  const char* name;
  void (*act)();
  std::vector<std::string> words;
};

const std::vector<Misuse> kMisuses = {
    {"an outer rank inside an inner one",
     [] {
       Inner inner(0);
       Outer outer(0);
       const auto held = inner.lock();
       *outer.lock() = 1;
     },
     {"lock order", "'cache'", "'stream'"}},
    {"two locks of one rank",
     [] {
       Inner a(0), b(0);
       const auto held = a.lock();
       *b.lock() = 1;
     },
     {"'stream' is taken while 'stream'"}},
    {"trying an outer rank inside an inner one",
     [] {
       Inner inner(0);
       Outer outer(0);
       const auto held = inner.lock();
       static_cast<void>(outer.try_lock());
     },
     {"'cache' is taken while 'stream'"}},
    {"a call that may block under a lock",
     [] {
       Inner inner(0);
       const auto held = inner.lock();
       const NoLocksHeld token;
     },
     {"may block", "'stream'"}},
    {"a wait with a second lock held",
     [] {
       Inner inner(0);
       Outer outer(0);
       const auto held = outer.lock();
       inner.lock().wait([] { return true; });
     },
     {"wait on 'stream'", "'cache'"}},
};

TEST_CASE("child: a misuse of locks" * doctest::skip()) {
  std::signal(SIGABRT, SIG_DFL);  // not the test framework's
  const std::string name = std::getenv("HEDDLE_TEST_MISUSE");
  for (const Misuse& misuse : kMisuses) {
    if (misuse.name == name) misuse.act();
  }
}

TEST_CASE("taking locks out of order, or blocking under one, aborts and names the ranks") {
  for (const Misuse& misuse : kMisuses) {
    const test::Child child =
        test::run_child("child: a misuse of locks", {std::string("HEDDLE_TEST_MISUSE=") + misuse.name});
    INFO(misuse.name, ": ", child.said);
    CHECK(child.signal == SIGABRT);
    for (const std::string& part : misuse.words) CHECK(child.said.find(part) != std::string::npos);
  }
}
#endif

TEST_CASE("increasing ranks may be nested, again and again, and released in any order") {
  Outer outer(0);
  Inner inner(0);
  for (int i = 0; i < 3; ++i) {
    std::optional<Outer::Held> first = outer.try_lock();
    std::optional<Inner::Held> second = inner.try_lock();
    REQUIRE(first.has_value());
    REQUIRE(second.has_value());
    ++**first;
    ++**second;
    first.reset();
    second.reset();
    const NoLocksHeld token;
  }
  CHECK(*outer.lock() == 3);
  CHECK(*std::as_const(inner).lock() == 3);
}

TEST_CASE("changes made under the lock by many threads are all there") {
  Guarded<std::vector<int>, Rank::kPool> data;
  Inner tried(0);
  run_together(8, [&](int thread) {
    for (int i = 0; i < 1000; ++i) {
      data.lock()->push_back(thread);
      for (bool done = false; !done;) {
        if (auto held = tried.try_lock()) {
          ++**held;
          done = true;
        }
      }
    }
  });
  std::vector<int> counts(8);
  for (const int thread : *data.lock()) ++counts[static_cast<size_t>(thread)];
  CHECK(counts == std::vector<int>(8, 1000));
  CHECK(*tried.lock() == 8000);
}

TEST_CASE("a try fails while another thread holds the lock") {
  Inner inner(0);
  auto held = inner.lock();
  bool got = true;
  Thread("trier", [&] { got = inner.try_lock().has_value(); }).join();
  CHECK(!got);
}

TEST_CASE("waiters wake on the predicate they wait for") {
  constexpr int kTurns = 2000;
  Guarded<int, Rank::kPool> turn(0);
  std::vector<int> order;  // written by whose turn it is
  run_together(2, [&](int thread) {
    for (int i = thread; i < kTurns; i += 2) {
      auto held = turn.lock();
      held.wait([&] { return *held == i; });
      order.push_back(i);
      ++*held;
      held.notify_one();
    }
  });
  REQUIRE(order.size() == kTurns);
  for (int i = 0; i < kTurns; ++i) REQUIRE(order[static_cast<size_t>(i)] == i);
}

TEST_CASE("a wait with a deadline says whether the predicate holds") {
  Guarded<bool, Rank::kPool> flag(false);
  {
    auto held = flag.lock();
    const TimePoint start = Clock::real().now();
    CHECK(!held.wait_until(Deadline::in(milliseconds(5)), [&] { return *held; }));
    CHECK(Clock::real().now() - start >= milliseconds(5));
    CHECK(!held.wait_until(Deadline::in(Duration(0)), [&] { return *held; }));
    *held = true;
    CHECK(held.wait_until(Deadline::in(Duration(0)), [&] { return *held; }));
    *held = false;
  }
  Thread setter("setter", [&] {
    *flag.lock() = true;
    flag.notify_all();
  });
  auto held = flag.lock();
  CHECK(held.wait_until(Deadline::never(), [&] { return *held; }));
}

TEST_CASE("lock statistics count acquisitions and contentions per rank, and only when on") {
  Inner inner(0);
  clear_lock_counts();
  *inner.lock() = 1;
  CHECK(stats_of(Rank::kStream).acquisitions == 0);

  set_lock_counting(true);
  for (int i = 0; i < 10; ++i) ++*inner.lock();
  CHECK(inner.try_lock().has_value());
  CHECK(stats_of(Rank::kStream).acquisitions == 11);
  CHECK(stats_of(Rank::kStream).contentions == 0);
  {
    auto held = std::make_unique<Inner::Held>(inner.lock());
    Thread waiter("waiter", [&] { ++*inner.lock(); });
    while (stats_of(Rank::kStream).contentions == 0) give_way();  // the waiter has met the lock
    held.reset();
  }
  set_lock_counting(false);
  const LockCounts seen = stats_of(Rank::kStream);
  CHECK(seen.name == "stream");
  CHECK(seen.acquisitions == 13);
  CHECK(seen.contentions == 1);
  CHECK(seen.longest_wait_ns > 0);
  CHECK(stats_of(Rank::kCache).acquisitions == 0);
  CHECK(*inner.lock() == 12);
  CHECK(read_lock_counts().size() == static_cast<size_t>(kRanks));
}

TEST_CASE("a wait with a deadline asks whether to go on, with no lock held, and ends when told to") {
  static Guarded<int, Rank::kCache> value{0};
  static Atomic<int> times_asked;
  ask_while_waiting([] {
    auto free = value.try_lock();
    return free.has_value() && times_asked.add_relaxed(1) == 1;
  });
  CHECK_FALSE(value.lock().wait_until(Deadline::never(), [] { return false; }));
  CHECK(times_asked.load_relaxed() == 2);
  ask_while_waiting(nullptr);
}

}  // namespace
}  // namespace heddle
