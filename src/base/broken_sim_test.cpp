// Protocols that are wrong on purpose. Each must fail under some seed, with a report that says how: what the
// simulation cannot see here it would not see in ours.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "base/simulation_fixture.h"
#include "base/sync.h"
#include "base/thread.h"

namespace heddle {
namespace {

struct Broken {
  const char* name;
  test::SimulatedBody body;
  std::vector<std::string> words;  // of the report
};

// The flag is set before, and the sleeper looks at it outside, the lock: the ring may come in between.
void lose_a_wake_up(Simulation&) {
  Mutex mutex;
  Condition changed;
  Atomic<bool> ready{false};
  Thread setter("setter", [&] {
    ready.store_release(true);
    changed.notify_one();
  });
  if (ready.load_acquire()) return;
  std::unique_lock held(mutex);
  changed.wait(held, Deadline::never());
  while (!ready.load_acquire()) changed.wait(held, Deadline::never());
}

void lock_in_both_orders(Simulation&) {
  Mutex a, b;  // without ranks, which would abort before it happens
  a.set_name("a");
  b.set_name("b");
  const auto both = [](Mutex& first, Mutex& second) {
    first.lock();
    second.lock();
    second.unlock();
    first.unlock();
  };
  Thread one("one", [&] { both(a, b); });
  Thread other("other", [&] { both(b, a); });
}

void check_then_act(Simulation& sim) {
  Atomic<int> free{1}, takers{0};
  run_together(2, [&](int) {
    if (free.load_acquire() == 0) return;
    free.store_release(0);
    takers.add_relaxed(1);
  });
  sim.expect(takers.load_relaxed() == 1, "the one place was taken once");
}

void add_without_a_lock(Simulation& sim) {
  Guarded<int, Rank::kPool> sum(0);
  run_together(3, [&](int) {
    const int seen = *sum.lock();
    *sum.lock() = seen + 1;
  });
  sim.expect(*sum.lock() == 3, "each of three added one");
}

// One ring for two changes that different sleepers wait for.
void wake_the_wrong_one(Simulation&) {
  Guarded<int, Rank::kPool> turn(0);
  std::vector<Thread> threads;
  for (int i = 1; i <= 2; ++i) {
    threads.emplace_back("waits-for-turn", [&, i] {
      auto held = turn.lock();
      held.wait([&] { return *held >= i; });
      *held += 1;
      held.notify_one();
    });
  }
  *turn.lock() = 1;
  turn.notify_one();
}

// Takes "woken" for "it holds".
void trust_a_wake_up(Simulation& sim) {
  Mutex mutex;
  Condition changed;
  bool ready = false;
  Thread setter("setter", [&] {
    const std::lock_guard held(mutex);
    ready = true;
    changed.notify_one();
  });
  bool seen = false;
  {
    std::unique_lock held(mutex);
    if (!ready) changed.wait(held, Deadline::never());
    seen = ready;
  }
  setter.join();
  sim.expect(seen, "a wait ends when it is ready");
}

// Takes a deadline for the other's failure: an answer that comes after the look at the clock is lost.
void give_up_and_be_answered(Simulation& sim) {
  Guarded<int, Rank::kPool> answer(0);
  int taken = 0;
  Atomic<bool> gone{false};
  Thread answerer("answerer", [&] {
    sim.pause(std::chrono::milliseconds(1));
    if (gone.load_acquire()) return;
    *answer.lock() = 1;
    answer.notify_all();
  });
  {
    auto held = answer.lock();
    if (held.wait_until(Deadline::in(std::chrono::milliseconds(1)), [&] { return *held != 0; }))
      taken = *held;
  }
  gone.store_release(true);
  answerer.join();
  sim.expect(taken == *answer.lock(), "an answer that was given was taken");
}

void spin_for_a_value_that_is_gone(Simulation&) {
  Atomic<int> value{0};
  Thread writer("writer", [&] {
    value.store_release(1);
    value.store_release(2);
  });
  while (value.load_acquire() < 2) {
    if (value.load_acquire() != 1) continue;
    // The writer may be past 1: waits for a value that is not coming again.
    while (value.load_acquire() == 2) give_way();
  }
}

TEST_CASE("some seed shows what is wrong with each broken protocol, and shows it again") {
  const std::vector<Broken> all = {
      {"a wake-up is lost", lose_a_wake_up, {"deadlock", "'body' (1) waits: condition wait"}},
      {"two locks in both orders",
       lock_in_both_orders,
       {"deadlock", "waits: lock of rank 'b', for 'other'", "waits: lock of rank 'a', for 'one'"}},
      {"a look and an act that another comes between", check_then_act, {"the one place was taken once"}},
      {"a sum is read and written under two locks", add_without_a_lock, {"each of three added one"}},
      {"one ring for two kinds of sleepers", wake_the_wrong_one, {"deadlock", "'waits-for-turn'"}},
      {"a wait without a predicate", trust_a_wake_up, {"a wait ends when it is ready"}},
      {"an answer beside the deadline", give_up_and_be_answered, {"an answer that was given was taken"}},
      {"a loop for a value that is gone", spin_for_a_value_that_is_gone, {"more than 20000 steps"}},
  };
  constexpr uint64_t kSeeds = 500;
  const SimulationOptions options{.steps_max = 20'000};
  for (const Broken& broken : all) {
    INFO(broken.name);
    const auto first = test::some_seed_fails(kSeeds, broken.body, options);
    REQUIRE_MESSAGE(first.has_value(), "no seed of ", kSeeds, " failed");
    const std::string seed = "seed " + std::to_string(first->seed) + ",";
    CHECK(first->failure.find(seed) == 0);
    for (const std::string& words : broken.words) {
      CHECK_MESSAGE(first->failure.find(words) != std::string::npos, words, " is not in\n", first->failure);
    }
    CHECK(simulate(first->seed, broken.body, options).failure == first->failure);
  }
}

TEST_CASE("what is right beside a broken protocol fails under no seed") {
  test::holds_for_seeds(2000, [](Simulation& sim) {
    Atomic<int> free{1}, takers{0};
    Guarded<int, Rank::kPool> sum(0);
    run_together(3, [&](int) {
      if (int seen = 1; free.cas_strong_acq_rel(seen, 0)) takers.add_relaxed(1);
      ++*sum.lock();
      sum.notify_all();
      auto held = sum.lock();
      held.wait([&] { return *held == 3; });
    });
    sim.expect(takers.load_relaxed() == 1, "one got the place");
  });
}

}  // namespace
}  // namespace heddle
