// Whom a request that comes tells: a worker that sleeps, the keeper, or nobody.
#include <doctest/doctest.h>

#include <functional>
#include <list>
#include <string_view>

#include "base/simulation_fixture.h"
#include "base/strategy.h"
#include "base/thread.h"
#include "batch/requests/request_queue.h"

namespace heddle::batch {
namespace {

using heddle::test::holds_for_seeds;
using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;

const Deadline kAtOnce = Deadline::at(TimePoint::min());
char payload;

Request some_request(TimePoint deadline = TimePoint::max()) {
  Request request;
  request.payload = &payload;
  request.deadline = deadline;
  return request;
}

// Stands still, and counts how often one thread looks.
class CountingClock final : public Clock {
 public:
  TimePoint now() const override {
    if (Simulation::current()->thread_number() == keeper.load_relaxed()) looks.add_relaxed(1);
    return began;
  }
  Atomic<uint32_t> keeper{0};
  mutable Atomic<int> looks{0};
  const TimePoint began = Clock::real().now();
};

// A queue of three lanes, and a keeper that looks once before it sleeps.
struct Kept {
  Kept(Simulation& sim, Duration hang_after) : sim(sim), queue(options(hang_after), clock) {
    keeper = Thread("keeper", [this] {
      clock.keeper.store_relaxed(this->sim.thread_number());
      this->sim.expect(queue.care(Deadline::never()).closed, "nothing hangs, and nothing is late");
    });
    sim.pause(milliseconds(1));
  }
  ~Kept() {
    static_cast<void>(queue.close());
    keeper.join();
  }
  static QueueOptions options(Duration hang_after) {
    QueueOptions options;
    options.lanes = 3;
    options.limits.max_rows = 1;
    options.hang_after = hang_after;
    return options;
  }
  void submit(TimePoint deadline = TimePoint::max()) {
    sim.expect(queue.submit(some_request(deadline), kAtOnce).ok(), "there is room");
  }
  void has_looked(int times) {
    sim.pause(milliseconds(1));
    sim.expect(clock.looks.load_relaxed() == times, "the keeper slept otherwise");
  }

  Simulation& sim;
  CountingClock clock;
  RequestQueue queue;
  Thread keeper;
};

TEST_CASE("simulated: a batch that is taken wakes the keeper only if it is the first that can hang") {
  for (const bool can_hang : {false, true}) {
    CAPTURE(can_hang);
    holds_for_seeds(20,
                    [&](Simulation& sim) {
                      Kept kept(sim, can_hang ? hours(1) : Duration::max());
                      for (int i = 0; i < 3; ++i) {
                        kept.submit();
                        sim.expect(kept.queue.try_take().has_value(), "it is taken");
                        kept.has_looked(can_hang ? 2 : 1);
                      }
                    },
                    {.stall_max = Duration(0)});
  }
}

TEST_CASE("simulated: a request wakes the keeper only if its deadline is before all that it waits for") {
  holds_for_seeds(20,
                  [](Simulation& sim) {
                    Kept kept(sim, hours(1));
                    kept.submit();
                    sim.expect(kept.queue.try_take().has_value(), "it is taken, and can hang");
                    kept.has_looked(2);
                    kept.submit(kept.clock.began + hours(1));
                    kept.has_looked(2);
                    kept.submit(kept.clock.began + hours(1) - Duration(1));
                    kept.has_looked(3);
                    kept.submit(kept.clock.began + hours(1));
                    kept.has_looked(3);
                  },
                  {.stall_max = Duration(0)});
}

// The queue has one lane. Three callers were answered 10 ms before the time at which they are waited for no
// more, and one of them is back.
struct Came {
  const char* what;
  bool tells;
  std::function<void(QueueOptions&, Request&)> as = [](QueueOptions&, Request&) {};
  int sleepers = 1;
  bool returning = true, runs = false;
  int more_back = 0;
  Duration later{0};
};

void run_three(Simulation& sim, RequestQueue& queue, ManualClock& clock) {
  for (int i = 0; i < 3; ++i) sim.expect(queue.submit(some_request(), kAtOnce).ok(), "there is room");
  const auto work = queue.try_take();
  sim.expect(work && work->batch.size() == 3, "all at once");
  clock.advance(milliseconds(40));
  sim.expect(static_cast<bool>(queue.ran(work->ticket)), "nobody abandoned it");
  queue.finish(work->ticket, false);
}

void come(Simulation& sim, const Came& came) {
  QueueOptions options;
  options.limits.max_rows = 8;
  Request request = some_request();
  came.as(options, request);
  ManualClock clock(Clock::real().now());
  RequestQueue queue(options, clock);
  const auto submit = [&] { sim.expect(queue.submit(some_request(), kAtOnce).ok(), "there is room"); };
  if (came.returning) run_three(sim, queue, clock);
  for (int i = 0; i < (came.returning ? 1 : 0) + came.more_back; ++i) submit();
  if (came.runs) {
    submit();
    sim.expect(queue.try_take().has_value(), "it runs");
  }
  std::list<Thread> workers;
  for (int i = 0; i < came.sleepers; ++i)
    workers.emplace_back("worker", [&] { static_cast<void>(queue.take(Deadline::never())); });
  sim.pause(microseconds(10));
  clock.advance(came.later);
  sim.play(0);
  sim.expect(queue.submit(request, kAtOnce).ok(), "there is room");
  sim.play(-1);
  static_cast<void>(queue.close());
}

TEST_CASE("simulated: a request tells a worker that sleeps, unless that waits for others who come back") {
  const auto urgent = [](QueueOptions&, Request& r) { r.deadline = Clock::real().now() + hours(1); };
  const auto cost = [](QueueOptions& o, Request&) { o.limits.max_cost = 100; };
  const auto preferred = [](QueueOptions& o, Request&) { o.limits.preferred_rows = {8}; };
  const auto fills = [](QueueOptions& o, Request& r) {
    o.limits.max_rows = 3;
    r.rows = 2;
  };
  const auto nearly = [](QueueOptions& o, Request& r) {
    o.limits.max_rows = 4;
    r.rows = 2;
  };
  const Came cases[] = {
      {.what = "nobody sleeps", .tells = false, .sleepers = 0, .returning = false},
      {.what = "a worker sleeps", .tells = true, .returning = false},
      {.what = "the lane is taken", .tells = false, .returning = false, .runs = true},
      {.what = "others come back", .tells = false},
      {.what = "it has a deadline", .tells = true, .as = urgent},
      {.what = "costs are limited", .tells = true, .as = cost},
      {.what = "a number of rows is preferred", .tells = true, .as = preferred},
      {.what = "it fills the batch", .tells = true, .as = fills},
      {.what = "a row is missing", .tells = false, .as = nearly},
      {.what = "it is the last to come back", .tells = true, .more_back = 1},
      {.what = "their time is nearly over", .tells = false, .later = milliseconds(10) - Duration(1)},
      {.what = "their time is over", .tells = true, .later = milliseconds(10)},
  };
  for (const Came& came : cases) {
    CAPTURE(came.what);
    SystematicChoices first({0, 0});  // no wait ends for no reason
    first.begin();
    SimulationOptions options;
    options.strategy = &first;
    options.listen = true;
    const SimulationReport report = simulate(1, [&](Simulation& sim) { come(sim, came); }, options);
    REQUIRE_MESSAGE(report.ok(), report.failure);
    REQUIRE(report.told.size() >= 1);
    CHECK(std::string_view(report.told.front().name) == "queue.admit");
    CHECK(report.told.front().value == (came.tells ? 1 : 0));
  }
}

}  // namespace
}  // namespace heddle::batch
