// A timeline under the orders that timeline.h states.
#include <doctest/doctest.h>

#include <memory>

#include "base/schedules_fixture.h"
#include "base/watched_fixture.h"
#include "device/completing_queue_fixture.h"
#include "device/timeline.h"

namespace heddle::device {
namespace {

using test::at_once;
using test::explore;
using test::Watched;

TEST_CASE("weak orders: who sees a value reached, asleep or awake, sees the results up to it") {
  for (const int count : {2, 3}) {
    explore({"timeline_weak", count, count == 2 ? 3u : 2u, 3, true, 2}, [](Simulation& sim, int threads) {
      CompletingQueue queue;
      const Timeline& timeline = *queue.timeline();
      Watched<int> result(0);
      at_once(sim, threads, [&](int i) {
        if (i == 0) {
          result.set(7);
          return queue.advance(1);
        }
        if (i == 2) {
          if (timeline.reached() == 1) sim.expect(result.get() == 7, "it is there");
          return;
        }
        if (timeline.done(1)) sim.expect(result.get() == 7, "it is there at once");
        sim.expect(queue.timeline()->wait(1, Deadline::never()).ok(), "it is reached");
        sim.expect(result.get() == 7, "it is there after the wait");
      });
    });
  }
}

TEST_CASE("weak orders: who sees that a queue has failed has its memory, which nothing touches any more") {
  for (const int count : {2, 3}) {
    explore({"timeline_fails_weak", count, 2, 3, true, count == 2 ? 3u : 1u},
            [](Simulation& sim, int threads) {
              CompletingQueue queue;
              Watched<int> memory(0);
              at_once(sim, threads, [&](int i) {
                if (i == 0) {
                  memory.set(1);
                  return queue.fail(Status::device_lost("gone"));
                }
                if (i == 2) {
                  if (queue.timeline()->failed()) sim.expect(memory.get() == 1, "as it was left");
                  return;
                }
                const Status status = queue.timeline()->wait(1, Deadline::never());
                sim.expect(!status.ok() && status.message() == "gone", "the cause is told");
                sim.expect(memory.get() == 1, "as it was left");
              });
            });
  }
}

TEST_CASE("weak orders: a stamp that comes beside the value is filled, and one that came before at once") {
  explore({"timeline_stamp_weak", 2, 3, 3, true, 3}, [](Simulation& sim, int threads) {
    CompletingQueue queue;
    const Ref<const Stamp> early = queue.timeline()->stamp(1, Clock::real());
    Ref<const Stamp> late;
    at_once(sim, threads, [&](int i) {
      if (i == 0) return queue.advance(1);
      if (queue.timeline()->done(1)) sim.expect(early->filled(), "who sees the value finds it filled");
      late = queue.timeline()->stamp(1, Clock::real());
    });
    sim.expect(early->filled() && late->filled(), "no stamp is forgotten");
  });
}

TEST_CASE("weak orders: the bell rings for who asked beside the value, and wakes it to the results") {
  explore({"timeline_bell_weak", 2, 3, 3, true, 3}, [](Simulation& sim, int threads) {
    CompletingQueue queue;
    const auto bell = std::make_shared<Bell>();
    queue.timeline()->attach(bell);
    Watched<int> result(0);
    at_once(sim, threads, [&](int i) {
      if (i == 0) {
        result.set(7);
        return queue.advance(1);
      }
      for (;;) {
        const uint64_t rings = bell->rings();
        if (queue.timeline()->done(1)) break;
        if (queue.timeline()->ring_at(1)) bell->wait(rings);
      }
      sim.expect(result.get() == 7, "it is there");
    });
  });
}

}  // namespace
}  // namespace heddle::device
