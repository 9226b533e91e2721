// The protocols of base under all schedules of two and three threads, up to a number of preemptions.
#include <doctest/doctest.h>

#include <memory>
#include <set>
#include <utility>

#include "base/condition.h"
#include "base/once_map.h"
#include "base/parker.h"
#include "base/read_epoch.h"
#include "base/schedules_fixture.h"
#include "base/sync.h"

namespace heddle {
namespace {

using test::at_once;
using test::explore;

TEST_CASE("schedules: two stores and two loads come in every order that sequential consistency has") {
  std::set<std::pair<int, int>> seen;
  const test::Explored all = test::explore_bound({"store_buffer", 2}, 3, [&](Simulation& sim, int) {
    Atomic<int> x{0}, y{0};
    int a = -1, b = -1;
    at_once(sim, 2, [&](int i) {
      (i == 0 ? x : y).store_relaxed(1);
      (i == 0 ? a : b) = (i == 0 ? y : x).load_relaxed();
    });
    seen.emplace(a, b);
  });
  CHECK(!all.failure);
  CHECK(seen == std::set<std::pair<int, int>>{{0, 1}, {1, 0}, {1, 1}});
}

// Two threads of k steps have (2k)! / (k! k!) schedules, and so many do not preempt more than they may.
TEST_CASE("schedules: each one up to the bound comes once") {
  const auto steps = [](int each) {
    return [each](Simulation& sim, int) {
      Atomic<int> x{0};
      at_once(sim, 2, [&](int) {
        for (int i = 0; i < each; ++i) x.add_relaxed(1);
      });
      sim.expect(x.load_relaxed() == 2 * each, "each step was done");
    };
  };
  const auto count = [&](size_t preemptions, int each) {
    return test::explore_bound({.name = "steps", .reduced = false}, preemptions, steps(each)).schedules;
  };
  CHECK(count(0, 3) == 2);
  // One thread first, then all switches away from it and back: of six steps in a row without bound, 20.
  CHECK(count(6, 3) == 20);
  CHECK(count(8, 4) == 70);
}

TEST_CASE(
    "schedules: what fails names its schedule, which fails again alone and with as few preemptions as can "
    "be") {
  const test::Scenario scenario{"check_then_act", 2, 3};
  const test::ScheduledBody body = [](Simulation& sim, int threads) {
    Atomic<int> free{1}, takers{0};
    at_once(sim, threads, [&](int) {
      if (free.load_acquire() == 0) return;
      free.store_release(0);
      takers.add_relaxed(1);
    });
    sim.expect(takers.load_relaxed() == 1, "the one place was taken once");
  };
  const test::Explored found = test::some_fails(scenario, body);
  REQUIRE(found.failure.has_value());
  CHECK(found.failure->find("the one place was taken once") != std::string::npos);
  const std::string words = "HEDDLE_SIM_SCHEDULE='check_then_act 2 ";
  const size_t at = found.failure->find(words);
  REQUIRE(at != std::string::npos);
  const std::string choices = found.failure->substr(at + words.size());
  CHECK(choices.find("1.0:") == 0);
  SystematicChoices again = SystematicChoices::replay(choices);
  const SimulationReport report = test::run_schedule(scenario, again, body);
  CHECK(report.failure.find("the one place was taken once") != std::string::npos);
  CHECK_FALSE(test::some_fails({"check_then_act", 2, 0}, body).failure.has_value());
}

// A thread looks, the other one acts, the first one acts: one order of two steps each way, of depth 2.
TEST_CASE("schedules: random priorities meet a bug at least as often as their authors prove") {
  int twice = 0;
  const test::Drawn drawn = test::draw({"check_then_act", 2}, 400, 2, [&](Simulation& sim, int threads) {
    Atomic<int> free{1}, takers{0};
    at_once(sim, threads, [&](int) {
      if (free.load_acquire() == 0) return;
      free.store_release(0);
      takers.add_relaxed(1);
    });
    if (takers.load_relaxed() == 2) ++twice;
  });
  CHECK(drawn.steps >= 4);
  CHECK(drawn.steps <= 8);
  CHECK(twice >= static_cast<int>(static_cast<double>(drawn.runs) * drawn.probability / 2));
  CHECK(twice < 400);
}

TEST_CASE("schedules: a deadline passes while others could run, at the price of a preemption") {
  for (const size_t preemptions : {0, 1}) {
    std::set<bool> told;
    const test::Explored all = test::explore_bound({"deadline", 2}, preemptions, [&](Simulation& sim, int) {
      Guarded<bool, Rank::kPool> there(false);
      at_once(sim, 2, [&](int i) {
        auto held = there.lock();
        if (i == 1) {
          *held = true;
          return held.notify_all();
        }
        told.insert(held.wait_until(Deadline::in(std::chrono::milliseconds(1)), [&] { return *held; }));
      });
    });
    CHECK(!all.failure);
    CHECK(told == (preemptions == 0 ? std::set{true} : std::set{false, true}));
  }
}

int asked_by_waits = 0;  // the check that is asked keeps nothing of its own

// Only where time stands is a wait of one period exactly that long.
TEST_CASE("schedules: a wait asks whether to go on after each period, and not where it ends with one") {
  ask_while_waiting([] {
    ++asked_by_waits;
    return false;
  });
  for (const int periods : {1, 2}) {
    for (const Duration beyond : {Duration(0), Duration(1)}) {
      asked_by_waits = 0;
      SystematicChoices first({});
      const SimulationReport report =
          test::run_schedule({"interrupt_period", 1}, first, [&](Simulation& sim, int threads) {
            const Duration time = periods * kInterruptPeriod + beyond;
            at_once(sim, threads, [&](int) {
              Guarded<bool, Rank::kPool> never(false);
              sim.expect(!never.lock().wait_until(Deadline::in(time), [] { return false; }), "late");
              Parker parker;
              sim.expect(parker.wait(Deadline::in(time)) == 0, "late");
            });
          });
      CHECK_MESSAGE(report.ok(), report.failure);
      CHECK(asked_by_waits == 2 * (periods - (beyond == Duration(0) ? 1 : 0)));
    }
  }
  ask_while_waiting(nullptr);
}

TEST_CASE("schedules: a condition loses no ring, whoever rings when") {
  for (const int count : {2, 3}) {
    explore({"condition", count, 3}, [](Simulation& sim, int threads) {
      Mutex mutex;
      Condition changed;
      int coins = 0, taken = 0;
      at_once(sim, threads, [&](int i) {
        if (i == 0) {
          for (int coin = 1; coin < threads; ++coin) {
            {
              const std::lock_guard held(mutex);
              ++coins;
            }
            changed.notify_one();
          }
          return;
        }
        std::unique_lock held(mutex);
        while (coins == 0) changed.wait(held, Deadline::never());
        --coins;
        ++taken;
      });
      sim.expect(taken == threads - 1 && coins == 0, "each took one");
    });
  }
}

TEST_CASE("schedules: a cache makes a key once for all who ask, and a failed make for all who joined it") {
  for (const int count : {2, 3}) {
    explore({"once_map_join", count, count == 2 ? 3u : 2u}, [](Simulation& sim, int threads) {
      OnceMap<int, int> map;
      Atomic<int> makes{0}, right{0}, failed{0};
      at_once(sim, threads, [&](int) {
        const auto got = map.get_or_make(7, [&]() -> Result<Ref<const int>> {
          if (makes.add_relaxed(1) == 0) return Status::exhausted("the first fails");
          return std::make_shared<const int>(49);
        });
        if (got.ok()) sim.expect(**got == 49, "the value");
        (got.ok() ? right : failed).add_relaxed(1);
      });
      const auto stats = map.stats();
      sim.expect(right.newest() + failed.newest() == threads, "each call had one answer");
      sim.expect(failed.newest() >= 1 && makes.newest() <= 2,
                 "the failure is the first make's, then it is made once");
      sim.expect(stats.makes == (right.newest() > 0 ? 1u : 0u) && stats.failures == 1, "counted");
      sim.expect(stats.waiting == 0, "nobody waits");
    });
  }
}

// Keys that say when they are gone: who compares one is a reader inside.
struct Marked {
  Marked(int of) : value(of) {}  // NOLINT: implicit
  Marked(const Marked& other) = default;
  ~Marked() { value = -1; }
  bool operator==(const Marked& other) const { return value == other.value; }
  int value;
};
struct HashOfMarked {
  size_t operator()(const Marked& key) const { return static_cast<size_t>(key.value); }
};

TEST_CASE("schedules: a cache drops what is evicted when nobody looks at it any more, and keeps who has it") {
  for (const int count : {2, 3}) {
    explore({"once_map_evict", count, count == 2 ? 3u : 2u}, [](Simulation& sim, int threads) {
      Atomic<int> living{0};
      struct Value {
        Value(int of, Atomic<int>& count) : key(of), living(count) { living.add_relaxed(1); }
        Value(const Value&) = delete;
        ~Value() { living.sub_relaxed(1); }
        const int key;
        Atomic<int>& living;
      };
      {
        OnceMap<Marked, Value, HashOfMarked> map({.count = 1});
        const auto get = [&](int key) {
          const auto got = map.get_or_make(
              key, [&]() -> Result<Ref<const Value>> { return std::make_shared<const Value>(key, living); });
          sim.expect(got.ok() && (*got)->key == key, "the value of the key");
        };
        get(0);
        at_once(sim, threads, [&](int i) { get(i); });
        sim.expect(map.stats().count == 1, "within the limit");
      }
      sim.expect(living.newest() == 0, "all are gone");
    });
  }
}

TEST_CASE("schedules: what a grace lets go of no reader is looking at") {
  for (const int count : {2, 3}) {
    explore({"read_epoch", count, 3}, [](Simulation& sim, int threads) {
      ReadEpoch epoch;
      Atomic<int> places[3];  // 1: what is published there may be looked at
      Atomic<int> published{0};
      places[0].store_relaxed(1);
      at_once(sim, threads, [&](int i) {
        if (i > 0) {
          for (int look = 0; look < (threads == 2 ? 2 : 1); ++look) {
            const auto inside = epoch.enter();
            sim.expect(places[published.load_seq_cst()].load_relaxed() == 1, "it is not gone");
          }
          return;
        }
        for (int next = 1; next < 3; ++next) {
          places[next].store_relaxed(1);
          published.store_seq_cst(next);
          ReadEpoch::Grace grace = epoch.begin();
          for (Backoff backoff; !epoch.passed(grace);) {
            if (!backoff.spin()) give_way();
          }
          places[next - 1].store_relaxed(0);
        }
      });
      sim.expect(epoch.entries() == (threads == 2 ? 2u : 2u), "each reader was counted");
    });
  }
}

TEST_CASE("schedules: of many threads, drawn: a cache makes each key once and keeps what is looked at") {
  test::draw({"once_map", 6}, 2000, 3, [](Simulation& sim, int threads) {
    OnceMap<int, int> map({.count = 2});
    Atomic<int> right{0};
    at_once(sim, threads, [&](int i) {
      for (const int key : {i % 3, (i + 1) % 3}) {
        const auto got = map.get_or_make(
            key, [&]() -> Result<Ref<const int>> { return std::make_shared<const int>(10 * key); });
        sim.expect(got.ok() && **got == 10 * key, "the value of the key");
        right.add_relaxed(1);
      }
    });
    sim.expect(right.newest() == 2 * threads, "each call had one answer");
    sim.expect(map.stats().count <= 2 && map.stats().waiting == 0, "within the limit, and nobody waits");
  });
}

}  // namespace
}  // namespace heddle
