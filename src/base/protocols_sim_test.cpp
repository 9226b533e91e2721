// The protocols of base under simulated schedules, each against what one thread alone would get.
#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/first_failure.h"
#include "base/once_map.h"
#include "base/parker.h"
#include "base/replay_fixture.h"
#include "base/schedules_fixture.h"
#include "base/simulation_fixture.h"
#include "base/spin_guarded.h"
#include "base/strategy.h"
#include "base/sync.h"
#include "base/thread.h"

namespace heddle {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

TEST_CASE("simulated: what producers put in, consumers take out, each item once") {
  test::holds_for_seeds(2000, [](Simulation& sim) {
    constexpr int kEach = 6;
    constexpr size_t kRoom = 2;
    struct Box {
      std::deque<int> items;
      bool closed = false;
    };
    Guarded<Box, Rank::kPool> box;
    const int producers = 1 + static_cast<int>(sim.random(3));
    const int consumers = 1 + static_cast<int>(sim.random(3));
    std::vector<std::vector<int>> taken(static_cast<size_t>(consumers));
    std::vector<Thread> takers;
    for (int c = 0; c < consumers; ++c) {
      takers.emplace_back("consumer", [&, c] {
        for (;;) {
          auto held = box.lock();
          held.wait([&] { return held->closed || !held->items.empty(); });
          if (held->items.empty()) return;
          taken[static_cast<size_t>(c)].push_back(held->items.front());
          held->items.pop_front();
          held.notify_all();
        }
      });
    }
    run_together(producers, [&](int p) {
      for (int i = 0; i < kEach; ++i) {
        auto held = box.lock();
        held.wait([&] { return held->items.size() < kRoom; });
        held->items.push_back(p * kEach + i);
        held.notify_all();
      }
    });
    box.lock()->closed = true;
    box.notify_all();
    for (Thread& taker : takers) taker.join();
    std::vector<int> all, expected(static_cast<size_t>(producers * kEach));
    for (const auto& some : taken) all.insert(all.end(), some.begin(), some.end());
    std::sort(all.begin(), all.end());
    std::iota(expected.begin(), expected.end(), 0);
    sim.expect(all == expected, "each item was taken once");
  });
}

TEST_CASE("simulated: data behind a spin lock has one holder at a time, and each change is kept") {
  test::holds_for_seeds(500, [](Simulation& sim) {
    struct Sum {
      int value = 0;
      bool held = false;
    };
    SpinGuarded<Sum, Rank::kPool> sum;
    run_together(3, [&](int thread) {
      const auto add = [&](Sum& mine) {
        sim.expect(!mine.held, "held by one");
        mine.held = true;
        const int seen = mine.value;
        yield_point("between");
        mine.value = seen + 1;
        mine.held = false;
      };
      for (int round = 0; round < 3; ++round) {
        auto tried = thread == 0 ? std::nullopt : sum.try_lock();
        if (tried.has_value()) {
          add(**tried);
        } else {
          add(*sum.lock());
        }
      }
    });
    sim.expect(sum.lock()->value == 9, "no addition is lost");
  });
}

TEST_CASE("simulated: a wait with a deadline is answered or late, and one ring a change is enough") {
  test::holds_for_seeds(2000, [](Simulation& sim) {
    Guarded<int, Rank::kPool> coins(0);
    Atomic<int> got{0}, late{0};
    Thread giver("giver", [&] {
      for (int i = 0; i < 3; ++i) {
        sim.pause(microseconds(sim.random(100)));
        ++*coins.lock();
        coins.notify_one();
      }
    });
    run_together(3, [&](int i) {
      const bool patient = i == 0;
      const Deadline deadline = patient ? Deadline::never() : Deadline::in(microseconds(sim.random(150)));
      auto held = coins.lock();
      if (held.wait_until(deadline, [&] { return *held > 0; })) {
        --*held;
        got.add_relaxed(1);
        if (*held > 0) held.notify_one();
      } else {
        sim.expect(deadline.expired(), "nobody leaves before its deadline");
        late.add_relaxed(1);
        if (*held > 0) held.notify_one();
      }
    });
    giver.join();
    sim.expect(got.load_relaxed() + late.load_relaxed() == 3, "each was answered or late");
    sim.expect(*coins.lock() == 3 - got.load_relaxed(), "no coin is lost");
  });
}

TEST_CASE("simulated: the first recorded failure is the one, and is there once it shows") {
  test::holds_for_seeds(1000, [](Simulation& sim) {
    FirstFailure failure;
    std::vector<std::string> seen(3);
    run_together(3, [&](int i) {
      failure.record(Status::internal("cause ", i));
      const Status found = failure.status();
      if (!found.ok()) seen[static_cast<size_t>(i)] = found.message();
    });
    const std::string first = failure.status().message();
    sim.expect(!first.empty(), "one was recorded");
    for (const std::string& each : seen) sim.expect(each.empty() || each == first, "all see the same one");
  });
}

// Values know their key, and count who lives.
struct Counted {
  Counted(int of, Atomic<int>& count) : key(of), living(count) { living.add_relaxed(1); }
  ~Counted() { living.sub_relaxed(1); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  const int key;
  Atomic<int>& living;
};

struct Makes {
  Atomic<int> living{0}, flying{0}, made{0}, refused{0};
  Atomic<int> in_flight[4];  // per key
};

Result<Ref<const Counted>> make(Simulation& sim, Makes& makes, int key, bool fails) {
  // Even keys are removed meanwhile: their flight goes on, beside the one of a later call.
  sim.expect(makes.in_flight[key].add_acq_rel(1) == 0 || key % 2 == 0, "one flight per key");
  yield_point("make");
  makes.in_flight[key].sub_acq_rel(1);
  if (fails) {
    makes.refused.add_relaxed(1);
    return Status::exhausted("no memory for key ", key);
  }
  makes.made.add_relaxed(1);
  return std::make_shared<const Counted>(key, makes.living);
}

TEST_CASE("simulated: a cache gives each key its value through eviction, failure and removal") {
  test::holds_for_seeds(2000, [](Simulation& sim) {
    Makes makes;
    {
      OnceMap<int, Counted> map({.count = 2});
      Atomic<int> calls{0}, good{0}, failed{0};
      run_together(3, [&](int thread) {
        for (int i = 0; i < 4; ++i) {
          const int key = static_cast<int>(sim.random(4));
          const bool fails = sim.random(5) == 0;
          const auto got = map.get_or_make(key, [&] { return make(sim, makes, key, fails); });
          calls.add_relaxed(1);
          (got.ok() ? good : failed).add_relaxed(1);
          if (got.ok()) sim.expect((*got)->key == key, "the value is that of the key");
          if (!got.ok()) sim.expect(got.status().code() == Code::exhausted, "a failure is its make's");
          if (thread == 0 && i == 2) map.erase_if([](int k) { return k % 2 == 0; });
        }
      });
      const auto stats = map.stats();
      sim.expect(stats.makes == static_cast<uint64_t>(makes.made.load_relaxed()), "makes are counted");
      sim.expect(stats.failures == static_cast<uint64_t>(makes.refused.load_relaxed()), "so are failures");
      sim.expect(stats.hits + stats.misses == 12, "each call is a hit or a miss");
      sim.expect(stats.count <= 2 && stats.waiting == 0, "within the limit, and nobody waits");
      sim.expect(good.load_relaxed() + failed.load_relaxed() == 12, "each call has one answer");
      sim.expect(makes.living.load_relaxed() >= static_cast<int>(stats.count), "what is kept lives");
      map.clear();
      sim.expect(makes.living.load_relaxed() == 0, "what is dropped dies");
    }
  });
}

// The thread of that number does a step, then others do so many, again and again.
class OneStepOfMany final : public Strategy {
 public:
  OneStepOfMany(uint32_t rare, int others) : rare_(rare), others_(others) {}
  size_t next(const Turn& turn) override {
    left_ = left_ == 0 ? others_ : left_ - 1;
    const auto ready = turn.threads.first(turn.ready);
    const auto found = std::find_if(ready.begin(), ready.end(),
                                    [&](uint32_t each) { return (each == rare_) == (left_ == 0); });
    return found == ready.end() ? 0 : static_cast<size_t>(found - ready.begin());
  }
  size_t among(size_t) override { return 0; }
  size_t stale(size_t) override { return 0; }
  std::string describe() const override { return "one step of many"; }

 private:
  const uint32_t rare_;
  const int others_;
  int left_ = 0;
};

TEST_CASE("simulated: hits between any two steps of an eviction do not keep it going") {
  const auto body = [](Simulation& sim) {
    OnceMap<int, int> map({.count = 2});
    const auto put = [&](int key) {
      const auto made =
          map.get_or_make(key, []() -> Result<Ref<const int>> { return std::make_shared<const int>(7); });
      sim.expect(made.ok(), "it is made");
    };
    for (int key = 0; key < 2; ++key) put(key);
    Atomic<bool> over{false};
    int rounds = 0;
    test::at_once(sim, 2, [&](int i) {
      if (i == 0) {
        put(2);
        return over.store_release(true);
      }
      for (; !over.load_acquire(); ++rounds) {
        for (int key = 0; key < 2; ++key) static_cast<void>(map.peek(key));
      }
    });
    sim.expect(rounds > 20, "there were hits meanwhile");
    sim.expect(map.stats().count == 2 && map.stats().evictions == 1, "one of them went");
  };
  OneStepOfMany strategy(2, 50);  // a round of the reader is less
  const SimulationReport report = simulate(1, body, {.steps_max = 20'000, .strategy = &strategy});
  CHECK_MESSAGE(report.ok(), report.failure);
}

TEST_CASE("simulated: a join of another's flight ends at its deadline, and the flight goes on") {
  test::holds_for_seeds(2000, [](Simulation& sim) {
    OnceMap<int, int> map;
    Atomic<int> makes{0}, late{0};
    run_together(3, [&](int) {
      const auto got = map.get_or_make(
          7,
          [&]() -> Result<Ref<const int>> {
            makes.add_relaxed(1);
            sim.pause(milliseconds(1));
            return std::make_shared<const int>(49);
          },
          Deadline::in(microseconds(sim.random(2000))));
      if (got.ok()) {
        sim.expect(**got == 49, "the value");
      } else {
        sim.expect(got.status().code() == Code::deadline, "or late");
        late.add_relaxed(1);
      }
    });
    sim.expect(makes.load_relaxed() == 1 && late.load_relaxed() < 3, "made once, by one who got it");
    sim.expect(*map.peek(7) == 49 && map.stats().waiting == 0, "it was kept");
  });
}

TEST_CASE("simulated: makes that ask for each other's keys end with an error, and never wait in a circle") {
  test::holds_for_seeds(2000, [](Simulation& sim) {
    OnceMap<int, int> map;
    Atomic<int> circles{0};
    const std::function<Result<Ref<const int>>(int, int)> ask = [&](int key, int depth) {
      return map.get_or_make(key, [&, key, depth]() -> Result<Ref<const int>> {
        if (depth == 0) return std::make_shared<const int>(key);
        const auto other = ask((key + 1) % 3, depth - 1);
        if (!other.ok()) circles.add_relaxed(1);
        return std::make_shared<const int>(key);
      });
    };
    run_together(3, [&](int i) {
      const auto got = ask(i, 3);
      sim.expect(got.ok() && **got == i, "each gets its own key");
    });
    sim.expect(map.stats().count == 3, "all keys are there");
  });
}

TEST_CASE("replayed: parker: three threads tell one that sleeps, as long as its deadline lets it") {
  test::log_for_model("parker", "sleep", 100, [](Simulation& sim) {
    Parker parker;
    constexpr uint32_t kAll = 2 + 4 + 8;
    uint32_t all = 0;
    run_together(4, [&](int thread) {
      sim.play(thread);
      if (sim.random(2) == 0) sim.pause(microseconds(sim.random(3)));
      if (thread < 3) return parker.tell(uint32_t{2} << thread);
      const bool patient = sim.random(2) == 0;
      while (all != kAll) {
        const uint32_t told =
            parker.wait(patient ? Deadline::never() : Deadline::in(microseconds(sim.random(6))));
        sim.expect(told != 0 || !patient, "it ends when told");
        parker.take(told);
        all |= told;
        if (told == 0) break;
      }
    });
    for (uint32_t bit = 2; bit < kAll; bit *= 2) {
      sim.expect(((all & bit) != 0) != parker.take(bit), "what was told is taken, or lies there");
    }
  });
}

// Asks as a process of the model does: for its first key, and within a make at will for the next one.
Result<Ref<const int>> ask_as_in_model(Simulation& sim, OnceMap<int, int>& map, int key, int keys, int depth,
                                       Deadline deadline) {
  return map.get_or_make(
      key,
      [&]() -> Result<Ref<const int>> {
        yield_point("make");
        const uint64_t choice = sim.random(keys > 1 ? 4 : 2);
        if (choice == 0) return Status::exhausted("no memory");
        if (choice == 1 || depth == 2) return std::make_shared<const int>(key);
        return ask_as_in_model(sim, map, (key + 1) % keys, keys, depth + 1, deadline);
      },
      deadline);
}

TEST_CASE("replayed: once_map: three ask for a key, at most until a deadline, while it is erased") {
  test::log_for_model("once_map", "flights", 100, [](Simulation& sim) {
    OnceMap<int, int> map;
    run_together(4, [&](int thread) {
      sim.play(thread);
      if (sim.random(2) == 0) sim.pause(microseconds(sim.random(3)));
      if (thread == 3) return map.erase_if([](int) { return true; });
      const bool patient = sim.random(2) == 0;
      const Deadline deadline = patient ? Deadline::never() : Deadline::in(microseconds(sim.random(6)));
      const auto got = ask_as_in_model(sim, map, 0, 1, 0, deadline);
      sim.expect(got.ok() || got.status().code() != Code::deadline || !patient, "late only with a deadline");
    });
    sim.expect(map.stats().waiting == 0, "nobody waits");
  });
}

TEST_CASE("replayed: once_map: three ask for two keys, whose makes ask for each other") {
  test::log_for_model("once_map", "nested", 60, [](Simulation& sim) {
    OnceMap<int, int> map;
    run_together(3, [&](int thread) {
      sim.play(thread);
      if (sim.random(2) == 0) sim.pause(microseconds(sim.random(3)));
      const auto got = ask_as_in_model(sim, map, thread % 2, 2, 0, Deadline::never());
      sim.expect(!got.ok() || **got == 0 || **got == 1, "a value");
    });
    const auto stats = map.stats();
    sim.expect(stats.waiting == 0 && stats.makes >= stats.count, "nobody waits, and what is there was made");
  });
}

Result<Ref<const int>> made_of(int value) { return std::make_shared<const int>(value); }

TEST_CASE(
    "replayed: read_epoch: two read a cache while entries are evicted, a table goes and all is erased") {
  test::log_for_model("read_epoch", "reclaim", 80, [](Simulation& sim) {
    OnceMap<int, int> map({.count = 1});
    // As in the model at its begin: nothing is there, and the table has room for two.
    for (const int key : {-1, -2}) {
      sim.expect(map.get_or_make(key, [] { return made_of(0); }).ok(), "made");
    }
    map.clear();
    run_together(4, [&](int thread) {
      if (sim.random(2) == 0) sim.pause(microseconds(sim.random(5)));
      if (thread % 2 == 1) {  // readers share the second stripe of the epoch's two: so are threads numbered
        sim.play(thread / 2);
        for (int i = 0; i < 2; ++i) sim.expect(map.peek(-3) == nullptr, "it was never there");
      }
      if (thread != 0) return;
      for (int key = 0; key < 3; ++key) {
        const auto made = map.get_or_make(key, [&] {
          sim.play(2);  // from here on: its own probe is a reader's
          return made_of(key);
        });
        sim.play(-1);
        sim.expect(made.ok() && **made == key, "the value");
      }
      sim.play(3);
      map.clear();
    });
    sim.expect(map.stats().count == 0, "all was erased");
  });
}

}  // namespace
}  // namespace heddle
