#include "batch/requests/request_queue.h"

#include <doctest/doctest.h>

#include <limits>
#include <numeric>
#include <set>

#include "base/thread.h"
#include "batch/requests/numbered_requests_fixture.h"

namespace heddle::batch {
namespace {

using test::all_of;
using test::index_of;
using test::indices;
using test::mine;
using test::options;
using test::request;
using test::run_empty;

using namespace std::chrono_literals;

const Deadline kNow = Deadline::at(TimePoint::min());

TEST_CASE("an idle queue gives a lone request at once") {
  ManualClock clock;
  RequestQueue queue(options(8), clock);
  REQUIRE(queue.submit(request(3), kNow).ok());
  const auto work = queue.try_take();
  REQUIRE(work);
  CHECK(indices(work->batch) == std::vector<size_t>{3});
  CHECK_FALSE(queue.try_take());
  run_empty(queue, *work);
  CHECK(queue.metrics().total.count() == 1);
}

TEST_CASE("a request of no rows, or of more than can be added up, is refused and not counted") {
  ManualClock clock;
  RequestQueue queue(options(8), clock);
  for (const int64_t rows : {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    Request wrong = request(1);
    wrong.rows = rows;
    const Request both[] = {request(0), wrong};
    RequestId ids[2] = {};
    for (const Status& status : {queue.submit(both, ids, kNow), queue.try_submit(both, ids).status()}) {
      CHECK(status.code() == Code::invalid);
      CHECK(status.message() ==
            text("the request has ", rows, " rows; it must have 1 to ", WaitingList::kRowsMost));
    }
    CHECK(queue.metrics().submitted == 0);
    CHECK(queue.metrics().depth == 0);
  }
}

TEST_CASE("a batch is of one group, in order of arrival, and never larger than its limit") {
  ManualClock clock;
  RequestQueue queue(options(4), clock);
  for (size_t i = 0; i < 12; ++i) {
    REQUIRE(queue.submit(request(i, i % 2), kNow).ok());
    clock.advance(1us);
  }
  std::vector<size_t> order[2];
  for (int batch = 0; batch < 4; ++batch) {
    const auto work = queue.try_take();
    REQUIRE(work);
    CHECK(work->batch.size() <= 4);
    std::set<size_t> groups;
    for (size_t i : indices(work->batch)) {
      groups.insert(i % 2);
      order[i % 2].push_back(i);
    }
    CHECK(groups.size() == 1);
    run_empty(queue, *work);
    clock.advance(1s);  // no caller is waited for any more
  }
  CHECK(order[0] == std::vector<size_t>{0, 2, 4, 6, 8, 10});
  CHECK(order[1] == std::vector<size_t>{1, 3, 5, 7, 9, 11});
}

TEST_CASE("a queue of one lane cuts a batch back to the rows that are preferred") {
  ManualClock clock;
  QueueOptions preferred = options(8);
  preferred.limits.preferred_rows = {2};
  RequestQueue queue(preferred, clock);
  for (size_t i = 0; i < 3; ++i) REQUIRE(queue.submit(request(i), kNow).ok());
  const auto work = queue.try_take();
  REQUIRE(work);
  CHECK(work->batch.size() == 2);
}

TEST_CASE("a batch whose callers are still being woken counts as running until told, max_wait at most") {
  ManualClock clock;
  RequestQueue queue(options(8, 5ms), clock);
  REQUIRE(queue.submit(request(0), kNow).ok());
  const auto work = queue.try_take();
  REQUIRE(work);
  queue.formed(work->ticket);
  CHECK(mine(queue.ran(work->ticket)));
  queue.finish(work->ticket, false, 1s);
  REQUIRE(queue.submit(request(1), kNow).ok());
  CHECK_FALSE(queue.try_take());
  SUBCASE("told") { queue.told(work->ticket); }
  SUBCASE("never told") { clock.advance(5ms); }
  SUBCASE("draining") { CHECK(queue.drain(Deadline::at(TimePoint::min())).code() == Code::deadline); }
  CHECK(queue.try_take()->batch.size() == 1);
  CHECK(queue.metrics().batches == 1);
}

TEST_CASE("batches are counted by their rows, one to each power of two, and the largest together") {
  struct Case {
    int64_t rows;
    size_t place;
  };
  const size_t last = QueueMetrics().batches_by_rows.size() - 1;
  for (const Case& each :
       {Case{1, 0}, {2, 1}, {3, 2}, {4, 2}, {5, 3}, {8, 3}, {9, 4}, {int64_t{1} << 38, last}}) {
    CAPTURE(each.rows);
    ManualClock clock;
    RequestQueue queue(options(each.rows), clock);
    Request rows = request(0);
    rows.rows = each.rows;
    REQUIRE(queue.submit(rows, kNow).ok());
    run_empty(queue, *queue.try_take());
    const QueueMetrics metrics = queue.metrics();
    for (size_t i = 0; i <= last; ++i) CHECK(metrics.batches_by_rows[i] == (i == each.place ? 1 : 0));
  }
}

TEST_CASE("a batch's time is divided into forming, running and answering, and other tickets change none") {
  ManualClock clock;
  RequestQueue queue(options(8), clock);
  REQUIRE(queue.submit(request(0), kNow).ok());
  const auto work = queue.try_take();
  REQUIRE(work);
  const uint64_t other = work->ticket + 1;
  clock.advance(1ms);
  queue.formed(work->ticket);
  clock.advance(2ms);
  queue.formed(other);
  queue.told(other);
  queue.told(work->ticket);  // it runs: nobody is told yet
  REQUIRE(queue.submit(request(1), kNow).ok());
  CHECK_FALSE(queue.try_take());  // so the lane is taken
  CHECK(mine(queue.ran(work->ticket)));
  clock.advance(3ms);
  queue.finish(work->ticket, false);
  const QueueMetrics metrics = queue.metrics();
  const auto nanoseconds = [](Duration time) { return static_cast<uint64_t>(time.count()); };
  CHECK(metrics.form.sum() == nanoseconds(1ms));
  CHECK(metrics.run.sum() == nanoseconds(2ms));
  CHECK(metrics.scatter.sum() == nanoseconds(3ms));
}

TEST_CASE("a full queue refuses at once, or admits in order of arrival when room comes") {
  RequestQueue queue(options(1, 0ms, 2));
  REQUIRE(queue.submit(request(0), kNow).ok());
  REQUIRE(queue.submit(request(1), kNow).ok());
  CHECK(queue.submit(request(2), kNow).status().code() == Code::exhausted);
  CHECK(queue.submit(request(2), Deadline::in(2ms)).status().code() == Code::exhausted);
  CHECK(queue.metrics().rejected == 2);
  Atomic<bool> admitted;
  size_t taken = 0;
  {
    const Thread waiting("waiting", [&] {
      CHECK(queue.submit(request(2), Deadline::never()).ok());
      admitted.store_release(true);
    });
    while (!admitted.load_acquire()) {
      if (const auto work = queue.try_take()) {
        run_empty(queue, *work);
        ++taken;
      }
    }
    CHECK(taken >= 1);
  }
  CHECK(taken + all_of(queue.close()).size() == 3);
}

TEST_CASE("a request of several parts is admitted whole or not at all") {
  RequestQueue queue(options(4, 0ms, 4));
  const std::vector<Request> three = {request(0), request(1), request(2)};
  std::vector<RequestId> ids(5);
  REQUIRE(queue.submit(three, ids, kNow).ok());
  CHECK(queue.submit(three, ids, kNow).code() == Code::exhausted);
  CHECK(queue.metrics().depth == 3);
  const std::vector<Request> five(5, request(3));
  CHECK(queue.submit(five, ids, kNow).code() == Code::invalid);  // would never fit
  CHECK(all_of(queue.close()).size() == 3);
}

TEST_CASE(
    "cancelling before dispatch gives the payload back and frees the room; during a batch it is refused") {
  RequestQueue queue(options(4, 0ms, 1));
  const RequestId first = *queue.submit(request(0), kNow);
  CHECK(mine(queue.cancel(first)));
  CHECK_FALSE(mine(queue.cancel(first)));
  const RequestId second = *queue.submit(request(1), kNow);
  const auto work = queue.try_take();
  REQUIRE(work);
  CHECK(indices(work->batch) == std::vector<size_t>{1});
  CHECK_FALSE(mine(queue.cancel(second)));
  run_empty(queue, *work);
  CHECK(queue.metrics().cancelled == 1);
}

TEST_CASE("a request whose deadline passes while all workers are busy is given to care()") {
  ManualClock clock;
  RequestQueue queue(options(1), clock);
  REQUIRE(queue.submit(request(0), kNow).ok());
  const auto busy = queue.try_take();
  REQUIRE(busy);
  Request hurried = request(1);
  hurried.deadline = clock.now() + 5ms;
  REQUIRE(queue.submit(hurried, kNow).ok());
  REQUIRE(queue.submit(request(2), kNow).ok());
  CHECK(all_of(queue.care(kNow).expired).empty());
  clock.advance(5ms);
  CHECK(indices(all_of(queue.care(kNow).expired)) == std::vector<size_t>{1});
  CHECK(queue.metrics().expired == 1);
  run_empty(queue, *busy);
  CHECK(indices(queue.try_take()->batch) == std::vector<size_t>{2});
}

TEST_CASE("a deadline deep behind a full batch is kept") {
  ManualClock clock;
  RequestQueue queue(options(2), clock);
  for (size_t i = 0; i < 100; ++i) REQUIRE(queue.submit(request(i), kNow).ok());
  Request hurried = request(100);
  hurried.deadline = clock.now() + 1ms;
  REQUIRE(queue.submit(hurried, kNow).ok());
  clock.advance(1ms);
  const auto work = queue.try_take();
  REQUIRE(work);
  CHECK(work->ticket == 0);
  CHECK(indices(all_of(work->expired)) == std::vector<size_t>{100});
}

TEST_CASE("a hung batch is reported once, and its worker learns that others answered") {
  ManualClock clock;
  QueueOptions o = options(1);
  o.hang_after = 50ms;
  RequestQueue queue(o, clock);
  REQUIRE(queue.submit(request(0), kNow).ok());
  const auto work = queue.try_take();
  REQUIRE(work);
  queue.formed(work->ticket);
  clock.advance(49ms);
  CHECK(queue.care(kNow).hung.empty());
  clock.advance(1ms);
  CHECK(queue.care(kNow).hung == std::vector<uint64_t>{work->ticket});
  CHECK(queue.care(kNow).hung.empty());
  SUBCASE("given up by a close") {
    CHECK(mine(queue.abandon(work->ticket)));
    CHECK_FALSE(mine(queue.abandon(work->ticket)));
    CHECK_FALSE(mine(queue.hang(work->ticket).owed));
  }
  SUBCASE("given up as hung") {
    CHECK(mine(queue.hang(work->ticket).owed));
    CHECK_FALSE(mine(queue.hang(work->ticket).owed));
    CHECK_FALSE(mine(queue.abandon(work->ticket)));
  }
  CHECK_FALSE(mine(queue.ran(work->ticket)));
  CHECK(queue.finish(work->ticket, false));
  CHECK(queue.metrics().hung_batches == 1);
}

TEST_CASE("close gives back what waits and refuses from then on; drain runs it first") {
  RequestQueue queue(options(4, 1h));
  for (size_t i = 0; i < 3; ++i) REQUIRE(queue.submit(request(i), kNow).ok());
  SUBCASE("close") {
    CHECK(all_of(queue.close()).size() == 3);
    CHECK(all_of(queue.close()).empty());
    CHECK(queue.take(Deadline::never()).status().code() == Code::unavailable);
  }
  SUBCASE("drain") {
    size_t ran = 0;
    {
      const Thread worker("worker", [&] {
        for (;;) {
          const Result<Work> work = queue.take(Deadline::never());
          if (!work.ok()) return;
          ran += work->batch.size();
          run_empty(queue, *work);
        }
      });
      CHECK(queue.drain(Deadline::never()).ok());
      CHECK(queue.submit(request(4), kNow).status().code() == Code::unavailable);
      CHECK(all_of(queue.close()).empty());
    }
    CHECK(ran == 3);
  }
  SUBCASE("drain ends at its deadline without a worker") {
    CHECK(queue.drain(Deadline::in(1ms)).code() == Code::deadline);
    CHECK(all_of(queue.close()).size() == 3);
  }
  CHECK(queue.submit(request(5), kNow).status().code() == Code::unavailable);
}

TEST_CASE("limits and capacity change while requests wait") {
  ManualClock clock;
  RequestQueue queue(options(2, 5ms, 4), clock);
  for (size_t i = 0; i < 4; ++i) REQUIRE(queue.submit(request(i), kNow).ok());
  CHECK(queue.submit(request(4), kNow).status().code() == Code::exhausted);
  queue.set_capacity(8);
  CHECK(queue.submit(request(4), kNow).ok());
  Limits limits = queue.limits();
  limits.max_rows = 5;
  queue.set_limits(limits);
  CHECK(queue.try_take()->batch.size() == 5);
}

TEST_CASE("ten thousand waiting requests of three groups and two priorities leave in order") {
  ManualClock clock;
  RequestQueue queue(options(64), clock);
  for (size_t i = 0; i < 10'000; ++i) {
    Request r = request(i, i % 3);
    r.priority = static_cast<int>(i % 2);
    REQUIRE(queue.submit(r, kNow).ok());
  }
  std::vector<int> seen(10'000);
  std::vector<size_t> last(6, 0);
  size_t all = 0;
  while (const auto work = queue.try_take()) {
    for (const size_t i : indices(work->batch)) {
      ++seen[i];
      CHECK(last[i % 6] <= i);
      last[i % 6] = i;
    }
    all += work->batch.size();
    run_empty(queue, *work);
    clock.advance(1s);
  }
  CHECK(all == 10'000);
  CHECK(std::set<int>(seen.begin(), seen.end()) == std::set<int>{1});
}

// Every payload is answered by exactly one of: a batch, expiry, cancel, close.
TEST_CASE("eight producers, three workers, cancels, deadlines and a close: each request comes back once") {
  constexpr size_t kEach = 1000;
  constexpr size_t kProducers = 8;
  QueueOptions o = options(16, 200us, 256);
  o.lanes = 3;
  RequestQueue queue(o);
  std::vector<Atomic<int>> answers(kEach * kProducers);
  std::vector<Atomic<int>> refused(kEach * kProducers);
  const auto answer = [&](const std::vector<void*>& payloads) {
    for (void* p : payloads) answers[index_of(p)].add_relaxed(1);
  };
  Atomic<int> producing(kProducers);
  run_together(kProducers + 4, [&](int thread) {
    const auto t = static_cast<size_t>(thread);
    if (t < kProducers) {
      for (size_t i = t * kEach; i < (t + 1) * kEach; ++i) {
        Request r = request(i, i % 2);
        if (i % 7 == 0) r.deadline = Clock::real().now() + 100us;
        const Result<RequestId> id = queue.submit(r, i % 3 == 0 ? kNow : Deadline::in(10s));
        if (!id.ok()) refused[i].store_relaxed(1);
        if (id.ok() && i % 5 == 0 && mine(queue.cancel(*id))) answers[i].add_relaxed(1);
      }
      if (producing.add_acq_rel(-1) == 1) answer(all_of(queue.close()));
    } else if (t < kProducers + 3) {
      while (true) {
        const Result<Work> work = queue.take(Deadline::never());
        if (!work.ok()) break;
        answer(work->batch);
        answer(all_of(work->expired));
        if (work->ticket != 0) run_empty(queue, *work);
      }
    } else {
      while (true) {
        const Care care = queue.care(Deadline::never());
        answer(all_of(care.expired));
        if (care.closed) break;
      }
    }
  });
  size_t wrong = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    wrong += answers[i].load_relaxed() + refused[i].load_relaxed() != 1 ? 1 : 0;
  }
  CHECK(wrong == 0);
}

TEST_CASE("a histogram's percentiles are at most an eighth too high") {
  Histogram h;
  for (int64_t v = 1; v <= 100'000; ++v) h.add(v);
  for (const double share : {0.5, 0.95, 0.99}) {
    const double exact = share * 100'000;
    const auto got = static_cast<double>(h.percentile(share));
    CHECK(got >= exact);
    CHECK(got <= exact * 1.13);
  }
  CHECK(h.count() == 100'000);
  CHECK(Histogram().percentile(0.5) == 0);
}

TEST_CASE("a histogram's buckets follow each other without a gap, and none is wider than an eighth") {
  const auto last_of_bucket = [](int64_t value) {
    Histogram h;
    h.add(value);
    return static_cast<int64_t>(h.percentile(1));
  };
  CHECK(last_of_bucket(-1) == 0);
  for (int64_t first = 0; first < 1 << 20;) {
    const int64_t last = last_of_bucket(first);
    REQUIRE(last >= first);
    CHECK(last - first <= first / 8);
    CHECK(last_of_bucket(last) == last);
    CHECK((first < 8 ? last == first : (last + 1) % ((last - first) + 1) == 0));
    first = last + 1;
  }
  const int64_t most = std::numeric_limits<int64_t>::max();
  CHECK(last_of_bucket(most) == most);
}

}  // namespace
}  // namespace heddle::batch
