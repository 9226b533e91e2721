// Does a queue wait for callers just answered, in virtual time? Its one worker takes 1 ms for a batch.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "batch/requests/owed_fixture.h"
#include "batch/requests/request_queue.h"

namespace heddle::batch {
namespace {

using test::mine;

using namespace std::chrono_literals;

constexpr Duration kRun = 1ms;
constexpr Duration kTick = 10us;

// Callers are told apart by their payload, which is the address of their own count of answers.
class Day {
 public:
  static constexpr size_t kCallers = 8;

  Day() : queue_(options(), clock_) {}

  void call(size_t caller, Duration from_now) { arrivals_.emplace(clock_.now() + from_now, caller); }
  // Each caller calls again, a little later than the one before it, until it has been answered so often.
  void call_in_a_loop(uint64_t times) {
    times_ = times;
    for (size_t i = 0; i < kCallers; ++i) call(i, Duration::zero());
  }
  void pass(Duration time) {
    for (const TimePoint end = clock_.now() + time; clock_.now() < end; clock_.advance(kTick)) tick();
  }

  const std::vector<size_t>& batches() const { return batches_; }  // requests in each
  uint64_t answers(size_t caller) const { return answers_[caller]; }
  // Batches that waited although the worker was free.
  int waited() const { return waited_; }

 private:
  static QueueOptions options() {
    QueueOptions options;
    options.limits.max_rows = kCallers;
    return options;
  }

  void tick() {
    const TimePoint now = clock_.now();
    if (running_ && now >= over_at_) end_run();
    for (auto next = arrivals_.begin(); next != arrivals_.end() && next->first <= now;
         next = arrivals_.erase(next)) {
      Request request;
      request.payload = &answers_[next->second];
      CHECK(queue_.submit(request, Deadline::at(TimePoint::min())).ok());
    }
    if (running_) return;
    running_ = queue_.try_take();
    if (!running_) {
      waits_ = queue_.metrics().depth != 0;
      return;
    }
    waited_ += std::exchange(waits_, false) ? 1 : 0;
    batches_.push_back(running_->batch.size());
    over_at_ = now + kRun;
  }

  void end_run() {
    queue_.formed(running_->ticket);
    CHECK(mine(queue_.ran(running_->ticket)));
    queue_.finish(running_->ticket, false);
    for (void* const payload : running_->batch) {
      auto* const count = static_cast<uint64_t*>(payload);
      const auto caller = static_cast<size_t>(count - answers_);
      if (++*count < times_) call(caller, 100us + caller * kTick);
    }
    running_.reset();
  }

  ManualClock clock_;
  RequestQueue queue_;
  std::multimap<TimePoint, size_t> arrivals_;
  uint64_t answers_[kCallers] = {};
  std::vector<size_t> batches_;
  std::optional<Work> running_;
  TimePoint over_at_;
  uint64_t times_ = 0;
  bool waits_ = false;
  int waited_ = 0;
};

// One alone, two that meet behind it, and one that comes just after their answer: never to be joined.
void strangers(Day& day, int times) {
  for (int i = 0; i < times; ++i) {
    day.call(0, 0ms);
    day.call(1, 300us);
    day.call(2, 500us);
    day.call(3, 2100us);
    day.pass(5ms);
  }
}

TEST_CASE("blocking callers come back into one batch of all, each answered as often as it called") {
  Day day;
  day.call_in_a_loop(50);
  day.pass(100ms);
  for (size_t i = 0; i < Day::kCallers; ++i) CHECK(day.answers(i) == 50);
  CHECK(day.batches() == std::vector<size_t>(50, Day::kCallers));
}

TEST_CASE("where nobody comes back, a queue stops waiting, and only tries again once in a while") {
  Day day;
  strangers(day, 200);
  CHECK(day.batches().size() == 600);
  for (size_t i = 0; i < 4; ++i) CHECK(day.answers(i) == 200);
  CHECK(day.waited() >= 2);
  CHECK(day.waited() <= 10);
}

TEST_CASE("callers that begin to come back are noticed") {
  Day day;
  strangers(day, 100);
  const size_t before = day.batches().size();
  day.call_in_a_loop(2000);
  day.pass(1s);
  const std::vector<size_t> batches(day.batches().begin() + static_cast<ptrdiff_t>(before),
                                    day.batches().end());
  REQUIRE(batches.size() > 600);
  CHECK(std::count(batches.begin(), batches.begin() + 32, Day::kCallers) <= 8);  // not yet
  CHECK(std::count(batches.end() - 100, batches.end(), Day::kCallers) >= 95);
}

// Of `requests` with `rows` each: taken at once, 40 ms of run, answered.
void run_at_once(RequestQueue& queue, ManualClock& clock, size_t requests, int64_t rows) {
  static char payload;
  for (size_t i = 0; i < requests; ++i) {
    Request request;
    request.payload = &payload;
    request.rows = rows;
    CHECK(queue.submit(request, Deadline::at(TimePoint::min())).ok());
  }
  const auto work = queue.try_take();
  REQUIRE(work);
  CHECK(work->batch.size() == requests);
  queue.formed(work->ticket);
  clock.advance(40ms);
  CHECK(mine(queue.ran(work->ticket)));
  queue.finish(work->ticket, false);
}

TEST_CASE("a full batch, which waits for nobody, says nothing of whether callers come back") {
  ManualClock clock;
  QueueOptions options;
  options.limits.max_rows = 8;
  options.limits.max_wait = 100ms;
  RequestQueue queue(options, clock);
  for (int round = 0; round < 3; ++round) {
    run_at_once(queue, clock, 8, 1);
    run_at_once(queue, clock, 1, 8);  // seven more are expected, and have no place in it
    clock.advance(1s);
  }
  run_at_once(queue, clock, 8, 1);
  Request one;
  one.payload = &clock;
  CHECK(queue.submit(one, Deadline::at(TimePoint::min())).ok());
  CHECK_FALSE(queue.try_take());  // it waits for the others
  clock.advance(11ms);
  CHECK(queue.try_take()->batch.size() == 1);
}

}  // namespace
}  // namespace heddle::batch
