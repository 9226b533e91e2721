// Callers that were just answered: are they waited for, for how long, and what is learnt of them?
#include <doctest/doctest.h>

#include <optional>

#include "batch/requests/numbered_requests_fixture.h"

namespace heddle::batch {
namespace {

using test::mine;
using test::options;
using test::request;
using test::run_empty;

using namespace std::chrono_literals;

const Deadline kNoWait = Deadline::at(TimePoint::min());

struct TwoLanes {
  explicit TwoLanes(Duration max_wait = 100ms) : queue(with_two(max_wait), clock) {}
  static QueueOptions with_two(Duration max_wait) {
    QueueOptions two = options(8, max_wait);
    two.lanes = 2;
    return two;
  }
  // Six requests, three on each lane, have run for 40 ms.
  void start_six() {
    for (size_t i = 0; i < 6; ++i) REQUIRE(queue.submit(request(i), kNoWait).ok());
    one = queue.try_take();
    other = queue.try_take();
    REQUIRE(one);
    REQUIRE(other);
    clock.advance(40ms);
  }

  ManualClock clock;
  RequestQueue queue;
  std::optional<Work> one, other;
};

TEST_CASE("callers just answered are waited for, a quarter of their batch's run time at most") {
  ManualClock clock;
  RequestQueue queue(options(8, 100ms), clock);
  for (size_t i = 0; i < 3; ++i) REQUIRE(queue.submit(request(i), kNoWait).ok());
  const auto first = queue.try_take();
  REQUIRE(first);
  CHECK(first->batch.size() == 3);
  queue.formed(first->ticket);
  clock.advance(40ms);
  CHECK(mine(queue.ran(first->ticket)));
  queue.finish(first->ticket, false);

  REQUIRE(queue.submit(request(4), kNoWait).ok());
  CHECK_FALSE(queue.try_take());  // two more are expected
  clock.advance(9ms);
  CHECK_FALSE(queue.try_take());
  SUBCASE("the last one back ends the wait") {
    REQUIRE(queue.submit(request(5), kNoWait).ok());
    CHECK_FALSE(queue.try_take());
    REQUIRE(queue.submit(request(6), kNoWait).ok());
    CHECK(queue.try_take()->batch.size() == 3);
  }
  SUBCASE("so does the time") {
    clock.advance(1ms);
    CHECK(queue.try_take()->batch.size() == 1);
  }
}

TEST_CASE(
    "callers expected back have their share of the lanes until their time is over, or the queue drains") {
  TwoLanes lanes;
  auto& [clock, queue, one, other] = lanes;
  lanes.start_six();
  for (const auto* const run : {&one, &other}) {
    CHECK((*run)->batch.size() == 3);
    run_empty(queue, **run);
  }
  for (size_t i = 0; i < 4; ++i) REQUIRE(queue.submit(request(i), kNoWait).ok());  // four of six come back
  size_t share = 2;
  SUBCASE("the time is not over") {
    share = 3;
    clock.advance(9ms);
  }
  SUBCASE("the time is over") { clock.advance(10ms); }
  SUBCASE("the queue drains") { CHECK(queue.drain(kNoWait).code() == Code::deadline); }
  const auto next = queue.try_take();
  REQUIRE(next);
  CHECK(next->batch.size() == share);
}

TEST_CASE("callers whose time is just over are not added to those of the next batch") {
  for (const int64_t late_ns : {-1, 0}) {
    CAPTURE(late_ns);
    TwoLanes lanes;
    auto& [clock, queue, one, other] = lanes;
    lanes.start_six();
    run_empty(queue, *one);  // three are expected until 50 ms
    clock.advance(10ms + Duration(late_ns));
    run_empty(queue, *other);
    for (size_t i = 0; i < 4; ++i) REQUIRE(queue.submit(request(i), kNoWait).ok());
    const auto next = queue.try_take();
    REQUIRE(next);
    CHECK(next->batch.size() == (late_ns == 0 ? 2 : 3));  // of four rows for two lanes, or of six
  }
}

TEST_CASE("more callers that come than are expected back leave nobody expected, and take their share") {
  TwoLanes lanes;
  auto& [clock, queue, one, other] = lanes;
  lanes.start_six();
  run_empty(queue, *one);
  run_empty(queue, *other);
  for (size_t i = 0; i < 7; ++i) REQUIRE(queue.submit(request(i), kNoWait).ok());
  CHECK(queue.try_take()->batch.size() == 4);
}

TEST_CASE(
    "a batch that waits to grow, with nobody expected back, says nothing of whether callers come back") {
  TwoLanes lanes(4ms);
  auto& [clock, queue, one, other] = lanes;
  for (int round = 0; round < 8; ++round) {
    CAPTURE(round);
    for (size_t i = 0; i < 3; ++i) REQUIRE(queue.submit(request(i), kNoWait).ok());
    const auto two_rows = queue.try_take();
    REQUIRE(two_rows);
    CHECK_FALSE(queue.try_take());  // the third waits for company, and has none
    clock.advance(4ms);
    const auto third = queue.try_take();
    REQUIRE(third);
    run_empty(queue, *third);
    run_empty(queue, *two_rows);
    clock.advance(10ms);  // no caller is waited for any more
  }
  lanes.start_six();
  run_empty(queue, *one);
  run_empty(queue, *other);
  REQUIRE(queue.submit(request(0), kNoWait).ok());
  CHECK_FALSE(queue.try_take());  // it waits for the others that were just answered
}

TEST_CASE("a request that waits for a lane says nothing of whether callers come back") {
  ManualClock clock;
  RequestQueue queue(options(3, 100ms), clock);
  const auto three_are_answered = [&] {
    for (size_t i = 0; i < 3; ++i) REQUIRE(queue.submit(request(i), kNoWait).ok());
    const auto work = queue.try_take();
    REQUIRE(work);
    clock.advance(40ms);
    run_empty(queue, *work);
  };
  for (int round = 0; round < 8; ++round) {
    CAPTURE(round);
    three_are_answered();
    Request full = request(0);
    full.rows = 3;
    REQUIRE(queue.submit(full, kNoWait).ok());
    const auto running = queue.try_take();
    REQUIRE(running);
    REQUIRE(queue.submit(request(1), kNoWait).ok());
    CHECK_FALSE(queue.try_take());  // the lane is taken
    clock.advance(10ms);            // nobody else came back
    run_empty(queue, *running);
    run_empty(queue, *queue.try_take());
  }
  three_are_answered();
  REQUIRE(queue.submit(request(0), kNoWait).ok());
  CHECK_FALSE(queue.try_take());  // it waits for the two others
}

}  // namespace
}  // namespace heddle::batch
