// Threads that wait in a request queue under simulated schedules: what wakes them in time.
#include <doctest/doctest.h>

#include "base/simulation_fixture.h"
#include "base/thread.h"
#include "batch/requests/request_queue.h"

namespace heddle::batch {
namespace {

using heddle::test::holds_for_seeds;
using std::chrono::milliseconds;

Request request_until(TimePoint deadline) {
  static char payload;
  Request request;
  request.payload = &payload;
  request.deadline = deadline;
  return request;
}

// Of how many requests its batch was, none of which was late.
size_t run_next_batch(Simulation& sim, RequestQueue& queue, Duration time) {
  const Result<Work> work = queue.take(Deadline::never());
  sim.expect(work.ok() && !work->expired, "nothing was late");
  queue.formed(work->ticket);
  sim.pause(time);
  sim.expect(static_cast<bool>(queue.ran(work->ticket)), "nobody abandoned it");
  queue.finish(work->ticket, false);
  return work->batch.size();
}

void submit(Simulation& sim, RequestQueue& queue, TimePoint deadline = TimePoint::max()) {
  sim.expect(queue.submit(request_until(deadline), Deadline::never()).ok(), "there is room");
}

// Three requests have run together for `time`: as many are expected back.
void run_three(Simulation& sim, RequestQueue& queue, Duration time) {
  for (int i = 0; i < 3; ++i) submit(sim, queue);
  sim.expect(run_next_batch(sim, queue, time) == 3, "three are expected back");
}

TEST_CASE("simulated: who waits for batches that hang learns of one that is taken afterwards") {
  holds_for_seeds(50, [](Simulation& sim) {
    QueueOptions options;
    options.hang_after = milliseconds(1);
    RequestQueue queue(options);
    run_together(2, [&](int thread) {
      if (thread == 0) return sim.expect(queue.care(Deadline::never()).hung.size() == 1, "it is reported");
      submit(sim, queue);
      sim.expect(queue.take(Deadline::never()).ok(), "it is taken, and hangs");
    });
  });
}

TEST_CASE("simulated: a request with a deadline wakes a worker that waits for callers to come back") {
  holds_for_seeds(50,
                  [](Simulation& sim) {
                    QueueOptions options;
                    options.limits.max_rows = 8;
                    RequestQueue queue(options);
                    run_three(sim, queue, milliseconds(40));
                    Thread worker("worker", [&] {
                      sim.expect(run_next_batch(sim, queue, milliseconds(1)) == 2, "it has those that came");
                    });
                    submit(sim, queue);
                    sim.pause(milliseconds(1));
                    submit(sim, queue, Clock::real().now() + milliseconds(1));
                    worker.join();
                  },
                  {.stall_max = Duration(0)});  // how long it waits is its own doing then
}

TEST_CASE("simulated: a worker goes on when the time is over in which a batch's callers are woken") {
  holds_for_seeds(50,
                  [](Simulation& sim) {
                    QueueOptions options;
                    options.limits.max_wait = milliseconds(5);
                    RequestQueue queue(options);
                    submit(sim, queue);
                    const auto work = queue.try_take();
                    sim.expect(work && static_cast<bool>(queue.ran(work->ticket)), "it ran");
                    queue.finish(work->ticket, false, std::chrono::seconds(1));
                    const TimePoint began = Clock::real().now();
                    Thread worker("worker", [&] {
                      sim.expect(queue.take(Deadline::in(std::chrono::seconds(1))).ok(), "the next one");
                    });
                    submit(sim, queue);
                    worker.join();
                    const Duration waited = Clock::real().now() - began;
                    sim.expect(waited < milliseconds(10), "max_wait at most");
                  },
                  {.stall_max = Duration(0)});
}

TEST_CASE("simulated: limits that change wake a worker that waits for callers to come back") {
  holds_for_seeds(50,
                  [](Simulation& sim) {
                    QueueOptions options;
                    options.limits.max_rows = 8;
                    options.limits.max_wait = std::chrono::seconds(10);
                    RequestQueue queue(options);
                    run_three(sim, queue, std::chrono::seconds(4));
                    submit(sim, queue);
                    const TimePoint began = Clock::real().now();
                    Duration waited{};
                    Thread worker("worker", [&] {
                      sim.expect(queue.take(Deadline::never()).ok(), "it has the one that came");
                      waited = Clock::real().now() - began;
                    });
                    sim.pause(milliseconds(2));
                    Limits one = queue.limits();
                    one.max_rows = 1;
                    queue.set_limits(one);
                    worker.join();
                    sim.expect(waited >= milliseconds(2) && waited < milliseconds(10),
                               "it waits for no others");
                  },
                  {.stall_max = Duration(0)});  // how long it waits is its own doing then
}

}  // namespace
}  // namespace heddle::batch
