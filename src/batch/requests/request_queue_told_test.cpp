// Workers that sleep in take(): who wakes them, and that nobody is forgotten.
#include <doctest/doctest.h>

#include <list>

#include "base/thread.h"
#include "batch/requests/owed_fixture.h"
#include "batch/requests/request_queue.h"

namespace heddle::batch {
namespace {

using test::all_of;
using test::mine;

using namespace std::chrono_literals;

const Deadline kDoNotWait = Deadline::at(TimePoint::min());
char told_payloads[16];

// The machine's. A queue looks at it under its lock, the last thing before a worker sleeps.
class WatchedClock final : public Clock {
 public:
  TimePoint now() const override {
    looks_.add_acq_rel(1);
    return Clock::real().now();
  }
  int looks() const { return looks_.load_acquire(); }

 private:
  mutable Atomic<int> looks_{0};
};

// A queue whose time limits never pass: what wakes a worker is that it was told.
struct Told {
  explicit Told(int lanes) : queue(options(lanes), clock) {}
  ~Told() {
    static_cast<void>(queue.close());
    workers.clear();
  }
  static QueueOptions options(int lanes) {
    QueueOptions options;
    options.limits.max_rows = 1;
    options.limits.max_wait = 1h;
    options.lanes = lanes;
    return options;
  }
  void submit(size_t count = 1) {
    std::vector<Request> requests(count);
    std::vector<RequestId> ids(count);
    for (Request& each : requests) each.payload = &told_payloads[0];
    REQUIRE(queue.submit(requests, ids, kDoNotWait).ok());
  }
  // Takes one batch. Asleep when this returns: no other thread looks at the clock meanwhile, and the worker
  // that did has let the lock go.
  void sleeper() {
    const int before = clock.looks();
    workers.emplace_back("worker", [this] {
      const auto work = queue.take(Deadline::never());
      if (work.ok()) tickets.lock()->push_back(work->ticket);
      (work.ok() ? taken : refused).add_release(1);
    });
    while (clock.looks() == before) give_way();
    static_cast<void>(queue.health());
    REQUIRE(taken.load_acquire() + refused.load_acquire() < static_cast<int>(workers.size()));
  }
  // Patience turns a worker that sleeps for ever into a failure.
  bool comes_to(const Atomic<int>& count, int wanted) const {
    const Deadline patience = Deadline::in(10s);
    while (count.load_acquire() < wanted && !patience.expired()) give_way();
    return count.load_acquire() == wanted;
  }
  uint64_t run_begun() {
    submit();
    const auto work = queue.try_take();
    REQUIRE(work);
    return work->ticket;
  }

  WatchedClock clock;
  RequestQueue queue;
  Atomic<int> taken{0}, refused{0};
  Guarded<std::vector<uint64_t>, Rank::kLog> tickets;
  std::list<Thread> workers;
};

TEST_CASE("a request that comes wakes a worker, however many came while none slept") {
  Told t(1);
  for (int i = 0; i < 5; ++i) CHECK(t.queue.finish(t.run_begun(), false));
  for (int i = 1; i <= 3; ++i) {
    t.sleeper();
    t.submit();
    CHECK(t.comes_to(t.taken, i));
    const uint64_t ticket = t.tickets.lock()->back();
    CHECK(t.queue.finish(ticket, false));
  }
}

TEST_CASE("of requests that come together each has a worker of those that sleep, while lanes are free") {
  Told t(3);
  for (int i = 0; i < 3; ++i) t.sleeper();
  t.submit(3);
  CHECK(t.comes_to(t.taken, 3));  // nobody has finished: each tells the next
}

TEST_CASE("a worker that sleeps for want of a lane is woken when a batch ends") {
  Told t(1);
  const uint64_t ticket = t.run_begun();
  t.submit();
  t.sleeper();
  SUBCASE("at once") { CHECK(t.queue.finish(ticket, false)); }
  SUBCASE("with its callers told") {
    CHECK(t.queue.finish(ticket, false, 1h));
    t.queue.told(ticket);
  }
  SUBCASE("with a failure") { CHECK(t.queue.finish(ticket, true)); }
  SUBCASE("given up") { CHECK(mine(t.queue.abandon(ticket))); }
  CHECK(t.comes_to(t.taken, 1));
}

TEST_CASE("a worker asleep while a batch lingers is woken when its callers are told, or the queue drains") {
  Told t(1);
  const uint64_t ticket = t.run_begun();
  CHECK(mine(t.queue.ran(ticket)));
  CHECK(t.queue.finish(ticket, false, 1h));
  t.submit();
  t.sleeper();
  SUBCASE("told") { t.queue.told(ticket); }
  SUBCASE("draining") { CHECK(t.queue.drain(kDoNotWait).code() == Code::deadline); }
  CHECK(t.comes_to(t.taken, 1));
}

TEST_CASE("a queue that closes wakes every worker that sleeps") {
  Told t(3);
  for (int i = 0; i < 3; ++i) t.sleeper();
  CHECK(all_of(t.queue.close()).empty());
  CHECK(t.comes_to(t.refused, 3));
}

TEST_CASE("workers that die at once are all counted") {
  constexpr int kThreads = 4, kDeaths = 5000;
  Told t(kThreads);
  run_together(kThreads, [&](int) {
    for (int i = 0; i < kDeaths; ++i) CHECK(t.queue.worker_died("it died"));
  });
  CHECK(t.queue.health().restarts == kThreads * kDeaths);
}

}  // namespace
}  // namespace heddle::batch
