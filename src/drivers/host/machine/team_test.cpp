#include "drivers/host/machine/team.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "base/atomic.h"
#include "base/thread.h"
#include "drivers/host/machine/fake_machine_fixture.h"
#include "drivers/host/onednn/omp_scope.h"

namespace heddle::host {
namespace {

// Every look finds more time gone by than Team::kQuiet: helpers join whenever one caller is inside.
class HastyClock final : public Clock {
 public:
  TimePoint now() const override { return TimePoint(2 * Team::kQuiet * looks_.add_relaxed(1)); }

 private:
  mutable Atomic<int64_t> looks_{1};  // a test's clock: nothing is ordered by it
};

// Chunks that wait for each other can only end when as many threads run them; each calls body() first.
template <class Body>
int meet_in_one_loop(Team::Caller& caller, int chunks, Body&& body) {
  Atomic<int> arrived{0};
  caller.for_each(chunks, [&](int) {
    body();
    arrived.add_acq_rel(1);
    arrived.notify_all();
    for (int seen; (seen = arrived.load_acquire()) < chunks;) arrived.wait(seen);
  });
  return arrived.load_acquire();
}
int meet_in_one_loop(Team::Caller& caller, int chunks) {
  return meet_in_one_loop(caller, chunks, [] {});
}

double expected(int loop, int chunk) { return std::sqrt(1.0 + loop) * (chunk + 1); }

TEST_CASE("every chunk runs exactly once and its writes are visible when the loop returns") {
  for (int width : {1, 2, 4}) {
    Team team(width);
    Team::Caller caller(team);
    int wrong = 0;
    uint64_t ran = 0, wanted = 0;
    for (int loop = 0; loop < 3000; ++loop) {
      const int chunks = loop % 37;
      std::vector<double> out(static_cast<size_t>(chunks), 0);
      std::vector<int> times(static_cast<size_t>(chunks), 0);
      caller.for_each(chunks, [&](int chunk) {
        out[static_cast<size_t>(chunk)] = expected(loop, chunk);
        ++times[static_cast<size_t>(chunk)];
      });
      for (int chunk = 0; chunk < chunks; ++chunk) {
        if (out[static_cast<size_t>(chunk)] != expected(loop, chunk)) ++wrong;
        ran += static_cast<uint64_t>(times[static_cast<size_t>(chunk)]);
        if (times[static_cast<size_t>(chunk)] != 1) ++wrong;
      }
      wanted += static_cast<uint64_t>(chunks);
    }
    CHECK(wrong == 0);
    CHECK(ran == wanted);
  }
}

TEST_CASE("a loop of more chunks than the cursor can count still runs each once") {
  Team team(2);
  Team::Caller caller(team);
  std::vector<uint8_t> times(70000, 0);
  caller.for_each(70000, [&](int chunk) { ++times[static_cast<size_t>(chunk)]; });
  CHECK(times == std::vector<uint8_t>(70000, 1));
}

TEST_CASE("a lone caller's loop uses an idle core") {
  Team team(2);
  Team::Caller caller(team);
  CHECK(caller.share() == 2);
  for (int loop = 0; loop < 50; ++loop) {
    CHECK(meet_in_one_loop(caller, 2) == 2);
  }
}

TEST_CASE("callers inside together share the cores evenly, and for a moment longer") {
  struct Case {
    int width, callers, share;
  };
  for (const Case& each : {Case{16, 1, 16},
                           {16, 2, 8},
                           {16, 3, 5},
                           {16, 8, 2},
                           {16, 9, 1},
                           {16, 40, 1},
                           {128, 5, 25},
                           {3, 2, 1},
                           {1, 1, 1}}) {
    ManualClock clock(TimePoint(std::chrono::hours(1)));
    Team team(each.width, clock);
    std::vector<std::unique_ptr<Team::Caller>> callers;
    for (int i = 0; i < each.callers; ++i) callers.push_back(std::make_unique<Team::Caller>(team));
    for (const auto& caller : callers) CHECK(caller->share() == each.share);
    callers.resize(1);
    CHECK(callers[0]->share() == each.share);  // the others are most likely on their way
    clock.advance(Team::kQuiet);
    CHECK(callers[0]->share() == each.width);
  }
}

// Two chunks that wait for each other can only both end when two threads run them.
TEST_CASE("the loops of two callers each use an idle core, at the same time") {
  constexpr int kCallers = 2, kLoops = 30;
  Team team(4);
  Atomic<int> entered{0}, ran{0};
  run_together(kCallers, [&](int) {
    Team::Caller caller(team);
    entered.add_acq_rel(1);
    entered.notify_all();
    for (int seen; (seen = entered.load_acquire()) < kCallers;) entered.wait(seen);
    for (int loop = 0; loop < kLoops; ++loop) {
      ran.add_relaxed(meet_in_one_loop(caller, 2));
    }
    entered.add_acq_rel(1);  // both stay until both are done
    entered.notify_all();
    for (int seen; (seen = entered.load_acquire()) < 2 * kCallers;) entered.wait(seen);
  });
  CHECK(ran.load_relaxed() == kCallers * kLoops * 2);
}

TEST_CASE("with as many callers inside as cores each works alone on its own thread") {
  ManualClock clock(TimePoint(std::chrono::hours(1)));
  Team team(2, clock);
  Team::Caller first(team);
  CHECK(first.share() == 2);
  {
    Team::Caller second(team);
    CHECK(first.share() == 1);
    CHECK(second.share() == 1);
    int plain = 0;  // not atomic: TSan and the count show that only this thread runs the chunks
    first.for_each(1000, [&](int) { ++plain; });
    CHECK(plain == 1000);
    clock.advance(std::chrono::seconds(1));
  }
  CHECK(first.share() == 1);  // the next caller is most likely on its way
  clock.advance(Team::kQuiet);
  CHECK(first.share() == 2);
}

TEST_CASE("helpers leave at a chunk boundary when a second caller comes") {
  Team team(2);
  Team::Caller first(team);
  Atomic<int> inside{0};
  Atomic<int> after{0};
  Atomic<bool> second_in{false};
  std::vector<int> ran_by_owner(200, 0);
  static thread_local bool is_owner = false;
  is_owner = true;
  std::unique_ptr<Team::Caller> second;
  first.for_each(200, [&](int chunk) {
    // Both threads hold a chunk; then the owner's becomes the moment at which a second caller enters.
    if (inside.add_acq_rel(1) < 2) {
      inside.notify_all();
      for (int seen; (seen = inside.load_acquire()) < 2;) inside.wait(seen);
      if (is_owner) {
        second = std::make_unique<Team::Caller>(team);
        second_in.store_release(true);
        second_in.notify_all();
      } else {
        second_in.wait(false);
      }
      return;
    }
    if (!is_owner) after.add_relaxed(1);
    ran_by_owner[static_cast<size_t>(chunk)] += is_owner ? 1 : 0;
  });
  is_owner = false;
  CHECK(after.load_acquire() == 0);
  int owners = 0;
  for (int count : ran_by_owner) owners += count;
  CHECK(owners == 198);
}

TEST_CASE("callers that come and go beside loops lose no chunk") {
  constexpr int kThreads = 4, kLoops = 1500, kChunks = 9;
  const HastyClock clock;
  Team team(3, clock);
  Atomic<int> wrong{0};
  Atomic<uint64_t> chunks{0};
  {
    std::vector<Thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back("caller", [&, t] {
        for (int loop = 0; loop < kLoops; ++loop) {
          Team::Caller caller(team);
          double out[kChunks] = {};
          caller.for_each(kChunks, [&](int chunk) {
            out[chunk] += expected(loop + t, chunk);
            chunks.add_relaxed(1);
          });
          for (int chunk = 0; chunk < kChunks; ++chunk) {
            if (out[chunk] != expected(loop + t, chunk)) wrong.add_relaxed(1);
          }
        }
      });
    }
  }
  CHECK(wrong.load_acquire() == 0);
  CHECK(chunks.load_acquire() == uint64_t{kThreads} * kLoops * kChunks);
}

TEST_CASE("a team ends while its helpers spin, work or sleep") {
  int total = 0;
  for (int i = 0; i < 200; ++i) {
    Team team(3);
    if (i % 2 == 0) {
      Atomic<int> ran{0};
      Team::Caller(team).for_each(5, [&](int) { ran.add_relaxed(1); });
      total += ran.load_acquire();
    }
  }
  CHECK(total == 500);
}

TEST_CASE("OpenMP gives a team of one inside a scope and the caller's setting after it") {
  const int before = omp_threads_here();
  {
    const OmpScope scope;
    CHECK(omp_threads_here() == 1);
    {
      const OmpScope nested;
      CHECK(omp_threads_here() == 1);
    }
    CHECK(omp_threads_here() == 1);
  }
  CHECK(omp_threads_here() == before);
}

TEST_CASE("in a team of 128 the loops of 130 callers run every chunk once") {
  constexpr int kCallers = 130, kLoops = 10, kChunks = 150;
  const HastyClock clock;
  Team team(128, clock);
  CHECK(team.width() == 128);
  Atomic<int> wrong{0}, ran{0};
  run_together(kCallers, [&](int who) {
    for (int loop = 0; loop < kLoops; ++loop) {
      Team::Caller caller(team);
      std::vector<double> out(kChunks, 0);
      caller.for_each(kChunks, [&](int chunk) {
        out[static_cast<size_t>(chunk)] += expected(who + loop, chunk);
        ran.add_relaxed(1);
      });
      for (int chunk = 0; chunk < kChunks; ++chunk)
        wrong.add_relaxed(out[static_cast<size_t>(chunk)] == expected(who + loop, chunk) ? 0 : 1);
    }
  });
  CHECK(wrong.load_relaxed() == 0);
  CHECK(ran.load_relaxed() == kCallers * kLoops * kChunks);
  // One caller, 128 chunks that wait for each other: all of the team is in one loop.
  Team::Caller alone(team);
  CHECK(meet_in_one_loop(alone, 128) == 128);
}

// Two chunks that wait for each other: one is a helper's, whose processor is of the other node.
TEST_CASE("a helper is on its own node in its caller's loop, and its caller stays on its own") {
  const FakeRoot root(fake_nodes({.nodes = 2, .cores_each = 1}));
  static thread_local bool is_caller = false;
  const Nodes nodes = Nodes::read(read_budget(root.path()), root.path(), [] { return is_caller ? 0 : 1; });
  Team team(2, Clock::real(), &nodes);
  is_caller = true;
  const OnNode here(team.nodes());
  Team::Caller caller(team);
  for (int loop = 0; loop < 20; ++loop) {
    Atomic<int> callers_node{-2}, helpers_node{-2};
    meet_in_one_loop(caller, 2,
                     [&] { (is_caller ? callers_node : helpers_node).store_release(OnNode::now()); });
    CHECK(callers_node.load_acquire() == 0);
    CHECK(helpers_node.load_acquire() == 1);
  }
  is_caller = false;
}

}  // namespace
}  // namespace heddle::host
