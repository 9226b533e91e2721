// Timelines under all schedules of two and three threads, up to a number of preemptions.
#include <doctest/doctest.h>

#include "base/schedules_fixture.h"
#include "device/completing_queue_fixture.h"
#include "device/timeline.h"

namespace heddle::device {
namespace {

using test::at_once;
using test::explore;

TEST_CASE("schedules: a timeline wakes all who wait for a value, and fills a stamp that comes beside it") {
  for (const int count : {2, 3}) {
    explore({"timeline", count, 3}, [](Simulation& sim, int threads) {
      CompletingQueue queue;
      int done = 0;
      Atomic<int> seen{0};
      Ref<const Stamp> stamp;
      at_once(sim, threads, [&](int i) {
        if (i == 0) {
          done = 1;
          queue.advance(1);
          return;
        }
        if (i == 2) {
          stamp = queue.timeline()->stamp(1, Clock::real());
          return;
        }
        sim.expect(queue.timeline()->wait(1, Deadline::never()).ok(), "it is reached");
        sim.expect(done == 1, "what was done before is visible");
        seen.add_relaxed(1);
      });
      sim.expect(seen.newest() == 1, "the wait ended");
      sim.expect(threads == 2 || stamp->filled(), "the stamp is filled");
    });
  }
}

TEST_CASE(
    "schedules: a timeline's failure ends each wait with its cause, and its bell rings for who sleeps") {
  for (const int count : {2, 3}) {
    explore({"timeline_fails", count, 3}, [](Simulation& sim, int threads) {
      CompletingQueue queue;
      const auto bell = std::make_shared<Bell>();
      queue.timeline()->attach(bell);
      at_once(sim, threads, [&](int i) {
        if (i == 0) {
          queue.advance(1);
          queue.fail(Status::device_lost("gone"));
        } else if (i == 1) {
          sim.expect(queue.timeline()->wait(1, Deadline::never()).ok(), "1 is reached before the failure");
          const Status status = queue.timeline()->wait(2, Deadline::never());
          sim.expect(!status.ok() && status.message() == "gone", "2 is not, and the cause is told");
        } else {
          for (;;) {
            const uint64_t rings = bell->rings();
            if (queue.timeline()->done(1)) break;
            if (queue.timeline()->ring_at(1)) bell->wait(rings);
          }
        }
      });
    });
  }
}

}  // namespace
}  // namespace heddle::device
