// A queue's workers: those that could not start, died, hang, or were replaced; and room without a thread.
#include <doctest/doctest.h>

#include "batch/requests/owed_fixture.h"
#include "batch/requests/request_queue.h"

namespace heddle::batch {
namespace {

using test::all_of;
using test::mine;

using namespace std::chrono_literals;

const Deadline kAtOnce = Deadline::at(TimePoint::min());
char payloads[16];

Request payload(size_t i) {
  Request request;
  request.payload = &payloads[i];
  return request;
}

QueueOptions workers(int count, size_t capacity = 16) {
  QueueOptions options;
  options.lanes = count;
  options.capacity = capacity;
  options.hang_after = 50ms;
  return options;
}

// Takes a batch and lets it hang.
uint64_t hung_batch(RequestQueue& queue, ManualClock& clock) {
  const auto work = queue.try_take();
  REQUIRE(work);
  clock.advance(50ms);
  CHECK(queue.care(kAtOnce).hung == std::vector<uint64_t>{work->ticket});
  return work->ticket;
}

TEST_CASE("a queue whose only worker hangs hands out what waits and refuses until it comes back") {
  ManualClock clock;
  RequestQueue queue(workers(1), clock);
  REQUIRE(queue.submit(payload(0), kAtOnce).ok());
  const uint64_t ticket = hung_batch(queue, clock);
  REQUIRE(queue.submit(payload(1), kAtOnce).ok());
  const Hang hang = queue.hang(ticket);
  CHECK(mine(hang.owed));
  CHECK_FALSE(hang.replace);
  CHECK(all_of(hang.owed) == std::vector<void*>{&payloads[1]});
  CHECK(queue.health().serving == 0);
  CHECK(queue.health().hung == 1);
  const Status refused = queue.submit(payload(2), kAtOnce).status();
  CHECK(refused.message() ==
        "a worker has run one batch for more than hang_after=0.05 s; new requests are taken when it comes "
        "back");
  CHECK_FALSE(mine(queue.ran(ticket)));
  CHECK(queue.finish(ticket, false));
  CHECK(queue.health().serving == 1);
  CHECK(queue.health().hung == 0);
  CHECK(queue.submit(payload(2), kAtOnce).ok());
  CHECK(all_of(queue.close()).size() == 1);
}

TEST_CASE("of two workers one that hangs is replaced, and ends when it comes back") {
  ManualClock clock;
  RequestQueue queue(workers(2), clock);
  REQUIRE(queue.submit(payload(0), kAtOnce).ok());
  const uint64_t ticket = hung_batch(queue, clock);
  REQUIRE(queue.submit(payload(1), kAtOnce).ok());
  const Hang hang = queue.hang(ticket);
  CHECK(hang.replace);
  CHECK(all_of(hang.owed).empty());
  CHECK(queue.health().serving == 2);
  CHECK(queue.health().restarts == 1);
  CHECK_FALSE(queue.finish(ticket, false));
  const auto other = queue.try_take();
  REQUIRE(other);
  CHECK(mine(queue.ran(other->ticket)));
  CHECK(queue.finish(other->ticket, false));
}

TEST_CASE("a worker that is back before it is given up does not hang") {
  ManualClock clock;
  RequestQueue queue(workers(1), clock);
  REQUIRE(queue.submit(payload(0), kAtOnce).ok());
  const uint64_t ticket = hung_batch(queue, clock);
  CHECK(mine(queue.ran(ticket)));
  CHECK_FALSE(mine(queue.hang(ticket).owed));
  CHECK(queue.finish(ticket, false));
  CHECK_FALSE(mine(queue.hang(ticket).owed));
  CHECK(queue.health().serving == 1);
}

TEST_CASE("the last worker that cannot start hands out what waits, and a dead one is to be replaced") {
  RequestQueue queue(workers(2));
  REQUIRE(queue.submit(payload(0), kAtOnce).ok());
  CHECK(queue.worker_died("it died"));
  CHECK(queue.health().restarts == 1);
  CHECK(all_of(queue.lost_worker("no device")).empty());
  CHECK(queue.health().serving == 1);
  CHECK(all_of(queue.lost_worker("no device")).size() == 1);
  CHECK(queue.submit(payload(1), kAtOnce).status().message() == "no device");
  static_cast<void>(queue.close());
  CHECK_FALSE(queue.worker_died("it died"));
}

TEST_CASE("room is kept for those who seek it without a thread, in order of arrival") {
  RequestQueue queue(workers(1, 1));
  const Request waits = payload(0);
  RequestId id = 0;
  REQUIRE(*queue.try_submit({&waits, 1}, {&id, 1}));
  int told[2] = {};
  const uint64_t first = queue.seek_room(1, [&] { ++told[0]; });
  const uint64_t second = queue.seek_room(1, [&] { ++told[1]; });
  const Request wanted = payload(1);
  RequestId admitted = 0;
  CHECK_FALSE(*queue.try_submit({&wanted, 1}, {&admitted, 1}, first));  // not yet
  CHECK(told[0] + told[1] == 0);
  CHECK(mine(queue.cancel(id)));
  CHECK(told[0] == 1);
  CHECK(told[1] == 0);
  CHECK_FALSE(*queue.try_submit({&wanted, 1}, {&admitted, 1}));  // kept for another
  CHECK_FALSE(*queue.try_submit({&wanted, 1}, {&admitted, 1}, second));
  SUBCASE("taken") {
    CHECK(*queue.try_submit({&wanted, 1}, {&admitted, 1}, first));
    CHECK(mine(queue.cancel(admitted)));
  }
  SUBCASE("given back") { queue.leave_room(first); }
  CHECK(told[1] == 1);
  CHECK(*queue.try_submit({&wanted, 1}, {&admitted, 1}, second));
  queue.leave_room(second);
  CHECK(queue.metrics().depth == 1);
  CHECK(all_of(queue.close()).size() == 1);
}

TEST_CASE("who leaves before there is room is not told, and keeps nobody from it") {
  RequestQueue queue(workers(1, 1));
  const Request waits = payload(0);
  RequestId id = 0;
  REQUIRE(*queue.try_submit({&waits, 1}, {&id, 1}));
  int told[2] = {};
  const uint64_t first = queue.seek_room(1, [&] { ++told[0]; });
  queue.seek_room(1, [&] { ++told[1]; });
  queue.leave_room(0);  // which nobody is
  queue.leave_room(first);
  CHECK(mine(queue.cancel(id)));
  CHECK(told[0] == 0);
  CHECK(told[1] == 1);
}

TEST_CASE("those who seek room are told that there will be none, and are refused") {
  RequestQueue queue(workers(1, 1));
  REQUIRE(queue.submit(payload(0), kAtOnce).ok());
  int told = 0;
  const uint64_t seeker = queue.seek_room(1, [&] { ++told; });
  SUBCASE("closed") { CHECK(all_of(queue.close()).size() == 1); }
  SUBCASE("draining") { CHECK(queue.drain(kAtOnce).code() == Code::deadline); }
  CHECK(told == 1);
  const Request wanted = payload(1);
  RequestId id = 0;
  CHECK(queue.try_submit({&wanted, 1}, {&id, 1}, seeker).status().code() == Code::unavailable);
  queue.seek_room(1, [&] { ++told; });
  CHECK(told == 2);
  static_cast<void>(queue.close());
}

}  // namespace
}  // namespace heddle::batch
