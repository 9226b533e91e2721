// Places and their words under the orders that owner_words.h states.
#include "runtime/admission/owner_words.h"

#include <doctest/doctest.h>

#include "base/schedules_fixture.h"
#include "base/sync.h"
#include "base/watched_fixture.h"

namespace heddle::runtime {
namespace {

using heddle::test::at_once;
using heddle::test::explore;
using heddle::test::Watched;

constexpr uint64_t kOwner = 7;

TEST_CASE("weak orders: what a place's owner did is visible to the next one") {
  for (const int count : {2, 3}) {
    explore({"owner_words_weak", count, 2, 2, true, 2}, [](Simulation& sim, int threads) {
      OwnerWords words;
      Watched<int> used(0);
      words.open(1, OwnerWords::kFree);
      Atomic<int> takes{0};
      at_once(sim, threads, [&](int) {
        if (words.try_take(kOwner, 0, 1) != 0) return;
        used.set(used.get() + 1);
        takes.add_relaxed(1);
        sim.expect(!words.give_back(0), "nobody is parked");
      });
      sim.expect(takes.newest() >= 1 && used.get() == takes.newest(), "each owner was alone");
    });
  }
}

TEST_CASE("weak orders: who parks finds the place free, or its owner finds that somebody is parked") {
  explore({"owner_words_parks", 2, 3, 3, true, 3}, [](Simulation& sim, int threads) {
    OwnerWords words;
    words.open(1, kOwner);
    bool told = false, found = false;
    at_once(sim, threads, [&](int i) {
      if (i == 0) {
        told = words.give_back(0);
      } else {
        words.park();
        found = words.take_parked(kOwner) == 0;
      }
    });
    sim.expect(told || found, "one of them acts");
  });
}

}  // namespace
}  // namespace heddle::runtime
