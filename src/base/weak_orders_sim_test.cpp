// What base does without a lock, under the orders that it states: loads find older values where those allow
// it, and data that is no atomic is watched.
#include <doctest/doctest.h>

#include <memory>
#include <utility>

#include "base/bell.h"
#include "base/clock.h"
#include "base/condition.h"
#include "base/first_failure.h"
#include "base/once_map.h"
#include "base/parker.h"
#include "base/read_epoch.h"
#include "base/schedules_fixture.h"
#include "base/spin_guarded.h"
#include "base/stamp.h"
#include "base/sync.h"
#include "base/watched_fixture.h"

namespace heddle {
namespace {

using test::at_once;
using test::explore;
using test::Watched;

test::Scenario weak(const char* name, int threads, size_t preemptions, size_t stale) {
  return {name, threads, preemptions, preemptions, true, stale};
}

struct HashOfWatched {
  size_t operator()(const Watched<int>& key) const { return static_cast<size_t>(key.get()); }
};

// The value of 0 is there, in a table with room or without; thread 0 makes 1, which evicts it while the
// others look for it or for 1.
void evict_beside_readers(Simulation& sim, int threads, int looked_for, bool room) {
  using Value = Watched<int, false>;
  OnceMap<Watched<int>, Value, HashOfWatched> map({.count = 1});
  const auto get = [&](int key) {
    const auto got = map.get_or_make(Watched<int>(key), [&]() -> Result<Ref<const Value>> {
      return std::make_shared<const Value>(10 * key);
    });
    sim.expect(got.ok() && (*got)->get() == 10 * key, "the value of the key, as it was made");
  };
  if (room) get(7);
  get(0);
  const uint64_t tables = map.stats().tables;
  at_once(sim, threads, [&](int i) {
    if (i == 0) return get(1);
    const int key = i == threads - 1 ? looked_for : 1 - looked_for;
    const Ref<const Value> found = map.peek(Watched<int>(key));
    if (found != nullptr) sim.expect(found->get() == 10 * key, "the value of the key");
  });
  sim.expect(map.stats().count == 1, "within the limit");
  sim.expect((map.stats().tables == tables) == room, "a table is made where there is no room");
}

TEST_CASE("weak orders: readers of a cache see what a node holds, and none looks at one that is gone") {
  struct Case {
    const char* name;
    int threads, looked_for;
    bool room;
  };
  for (const Case& each : {Case{"once_map_evicted", 2, 0, true},
                           {"once_map_inserted", 2, 1, true},
                           {"once_map_renewed", 2, 0, false},
                           {"once_map_both", 3, 0, true}}) {
    const bool few = each.threads == 2;
    explore(weak(each.name, each.threads, few ? 3 : 2, few ? 3 : 1), [&](Simulation& sim, int threads) {
      evict_beside_readers(sim, threads, each.looked_for, each.room);
    });
  }
}

// Entries that a table has no room for make a new one.
TEST_CASE(
    "weak orders: a cache's new table is seen whole, and the old one is kept while somebody looks at it") {
  explore(weak("once_map_table", 2, 2, 2), [](Simulation& sim, int threads) {
    using Value = Watched<int, false>;
    OnceMap<Watched<int>, Value, HashOfWatched> map;
    const auto get = [&](int key) {
      const auto got = map.get_or_make(Watched<int>(key), [&]() -> Result<Ref<const Value>> {
        return std::make_shared<const Value>(key);
      });
      sim.expect(got.ok() && (*got)->get() == key, "the value of the key");
    };
    get(0);
    const uint64_t tables = map.stats().tables;
    at_once(sim, threads, [&](int i) {
      if (i == 0) return get(1);
      const Ref<const Value> found = map.peek(Watched<int>(0));
      sim.expect(found != nullptr && found->get() == 0, "in either table");
    });
    sim.expect(map.stats().tables == tables + 1, "a table was built");
  });
}

void leave_before_the_end(Simulation& sim, int threads) {
  ReadEpoch epoch;
  std::unique_ptr<Watched<int>> things[3];
  Atomic<Watched<int>*> published{nullptr};
  for (int i = 0; i < 3; ++i) things[i] = std::make_unique<Watched<int>>(i);
  published.store_seq_cst(things[0].get());
  at_once(sim, threads, [&](int i) {
    if (i > 0) {
      const auto inside = epoch.enter();
      sim.expect(published.load_seq_cst()->get() >= 0, "it is there");
      return;
    }
    for (int next = 1; next < 3; ++next) {
      published.store_seq_cst(things[next].get());
      ReadEpoch::Grace grace = epoch.begin();
      while (!epoch.passed(grace)) give_way();
      things[next - 1].reset();
    }
  });
}

TEST_CASE("weak orders: what a grace lets go of ends after each reader's last look") {
  explore(weak("read_epoch_weak", 2, 3, 3), leave_before_the_end);
  explore(weak("read_epoch_weak", 3, 2, 1), leave_before_the_end);
}

TEST_CASE("weak orders: a ring is not missed by who goes to sleep beside it") {
  explore(weak("condition_weak", 2, 3, 3), [](Simulation& sim, int threads) {
    Mutex mutex;
    Condition changed;
    Watched<int> coins(0);
    at_once(sim, threads, [&](int i) {
      if (i == 0) {
        {
          const std::lock_guard held(mutex);
          coins.set(1);
        }
        changed.notify_one();
        return;
      }
      std::unique_lock held(mutex);
      while (coins.get() == 0) changed.wait(held, Deadline::never());
      coins.set(0);
    });
    sim.expect(coins.get() == 0, "it was taken");
  });
}

TEST_CASE("weak orders: a thread that is told finds what came before, asleep or awake") {
  explore(weak("parker_weak", 3, 2, 2), [](Simulation& sim, int threads) {
    Parker parker;
    Watched<int> left[2];
    at_once(sim, threads, [&](int i) {
      if (i > 0) {
        left[i - 1].set(i);
        parker.tell(static_cast<uint32_t>(i));
        return;
      }
      for (uint32_t told = 0; told != 3;) {
        const uint32_t now = parker.wait(Deadline::never());
        sim.expect(parker.take(now), "what was told is there");
        for (int teller = 1; teller <= 2; ++teller) {
          if ((now & static_cast<uint32_t>(teller)) != 0)
            sim.expect(left[teller - 1].get() == teller, "what it left is visible");
        }
        told |= now;
      }
    });
  });
}

TEST_CASE("weak orders: who waits for a bell hears each ring, and finds what came before it") {
  explore(weak("bell_weak", 3, 2, 2), [](Simulation& sim, int threads) {
    Bell bell;
    Watched<int> left[2];
    at_once(sim, threads, [&](int i) {
      if (i > 0) {
        left[i - 1].set(i);
        return bell.ring();
      }
      for (uint64_t seen = bell.rings(); seen < 2; seen = bell.rings()) bell.wait(seen);
      sim.expect(left[0].get() + left[1].get() == 3, "what both left is visible");
    });
    sim.expect(bell.rings() == 2, "each ring is counted");
  });
}

bool always() { return true; }

TEST_CASE("weak orders: a thread that is asked to end its wait finds what came before what it was told") {
  explore(weak("parker_asked_weak", 2, 3, 3), [](Simulation& sim, int threads) {
    Parker parker;
    Watched<int> left(0);
    uint32_t told = 0;
    ask_while_waiting(always);
    at_once(sim, threads, [&](int i) {
      if (i == 1) {
        left.set(1);
        return parker.tell(1);
      }
      told = parker.wait(Deadline::never());
      if (told != 0) sim.expect(left.get() == 1, "what came before is visible");
    });
    ask_while_waiting(nullptr);
    sim.expect(parker.take(1), "what was told is there");
  });
}

TEST_CASE("weak orders: data behind a spin lock goes from holder to holder") {
  explore(weak("spin_guarded_weak", 2, 3, 3), [](Simulation& sim, int threads) {
    SpinGuarded<Watched<int>, Rank::kPool> sum;
    at_once(sim, threads, [&](int) {
      auto held = sum.lock();
      held->set(held->get() + 1);
    });
    sim.expect(sum.lock()->get() == threads, "no addition is lost");
  });
}

TEST_CASE("weak orders: who sees that there is a first failure sees which") {
  explore(weak("first_failure_weak", 3, 2, 2), [](Simulation& sim, int threads) {
    FirstFailure failure;
    at_once(sim, threads, [&](int i) {
      if (i > 0) return failure.record(Status::internal("cause ", i));
      const Status found = failure.status();
      sim.expect(found.ok() || !found.message().empty(), "a cause or none");
    });
    sim.expect(!failure.status().ok(), "one was recorded");
  });
}

// Thread 0 does `first` and then tells; thread 1 looks, and where `told` finds what `first` did.
template <class Thing>
void finds_what_came_before(const char* name, void (*tell)(Thing&), bool (*told)(const Thing&)) {
  explore(weak(name, 2, 3, 3), [&](Simulation& sim, int threads) {
    Thing thing;
    Watched<int> left(0);
    at_once(sim, threads, [&](int i) {
      if (i == 0) {
        left.set(1);
        tell(thing);
      } else if (told(thing)) {
        sim.expect(left.get() == 1, "what came before is visible");
      }
    });
    sim.expect(told(thing), "told");
  });
}

struct Stamped {
  ManualClock clock{TimePoint(Duration(7))};
  Stamp stamp{clock};
};

TEST_CASE("weak orders: who sees a time sees what came before it") {
  finds_what_came_before<ManualClock>(
      "clock_weak", [](ManualClock& clock) { clock.advance(Duration(1)); },
      [](const ManualClock& clock) { return clock.now() == TimePoint(Duration(1)); });
  finds_what_came_before<Stamped>(
      "stamp_filled_weak", [](Stamped& stamped) { stamped.stamp.fill(); },
      [](const Stamped& stamped) { return stamped.stamp.filled(); });
  finds_what_came_before<Stamped>(
      "stamp_when_weak", [](Stamped& stamped) { stamped.stamp.fill(); },
      [](const Stamped& stamped) { return stamped.stamp.when() == TimePoint(Duration(7)); });
}

// What a wait asks reads what was written before it was given.
Watched<int>* asked_for = nullptr;
bool end_the_wait() { return asked_for->get() == 1; }

TEST_CASE("weak orders: what a wait asks finds what came before it was given") {
  struct Case {
    const char* name;
    void (*wait)();
  };
  const Case cases[] = {
      {"asks_guarded_weak",
       [] {
         Guarded<int, Rank::kLog> nothing;
         static_cast<void>(
             nothing.lock().wait_until(Deadline::in(kInterruptPeriod + Duration(1)), [] { return false; }));
       }},
      {"asks_parker_weak", [] { Parker().wait(Deadline::in(kInterruptPeriod + Duration(1))); }},
  };
  for (const Case& each : cases) {
    explore(weak(each.name, 2, 2, 2), [&](Simulation& sim, int threads) {
      Watched<int> left(0);
      asked_for = &left;
      at_once(sim, threads, [&](int i) {
        if (i == 1) return each.wait();
        left.set(1);
        ask_while_waiting(end_the_wait);
      });
      ask_while_waiting(nullptr);
      sim.expect(left.get() == 1, "it was given");
    });
  }
}

}  // namespace
}  // namespace heddle
