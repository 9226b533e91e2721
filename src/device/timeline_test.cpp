#include "device/timeline.h"

#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <vector>

#include "base/thread.h"
#include "device/completing_queue_fixture.h"

namespace heddle::device {
namespace {

using namespace std::chrono_literals;

TEST_CASE("a wait for a value already reached returns at once") {
  CompletingQueue queue;
  queue.advance(3);
  CHECK(queue.timeline()->wait(2, Deadline::never()).ok());
  CHECK(queue.timeline()->wait(3, Deadline::never()).ok());
  CHECK(queue.timeline()->done(3));
  CHECK_FALSE(queue.timeline()->done(4));
}

TEST_CASE("a wait for a value not reached returns deadline and says how far the queue is") {
  CompletingQueue queue;
  queue.advance(1);
  const Status status = queue.timeline()->wait(2, Deadline::in(1ms));
  CHECK(status.code() == Code::deadline);
  CHECK(status.message().find("has reached 1") != std::string::npos);
}

TEST_CASE("a failure reaches waits for later values only, and is never replaced or passed") {
  CompletingQueue queue;
  queue.advance(1);
  queue.fail(Status::device_lost("the first cause"));
  queue.fail(Status::internal("the second cause"));
  queue.advance(9);
  Timeline& timeline = *queue.timeline();
  CHECK(timeline.wait(1, Deadline::never()).ok());
  for (uint64_t value : {2, 9, 100}) {
    const Status status = timeline.wait(value, Deadline::never());
    CHECK(status.code() == Code::device_lost);
    CHECK(status.message() == "the first cause");
  }
  CHECK(timeline.reached() == 1);
  CHECK(timeline.failure().code() == Code::device_lost);
}

TEST_CASE("each of 16 waiters wakes for its own value") {
  CompletingQueue queue;
  Atomic<int> woken{0};
  Atomic<int> wrong{0};
  {
    std::vector<Thread> threads;
    for (uint64_t value = 1; value <= 16; ++value) {
      threads.emplace_back("waiter", [&, value] {
        if (!queue.timeline()->wait(value, Deadline::never()).ok()) wrong.add_relaxed(1);
        if (queue.timeline()->reached() < value) wrong.add_relaxed(1);
        woken.add_relaxed(1);
      });
    }
    for (uint64_t value = 1; value <= 16; ++value) queue.advance(value);
  }
  CHECK(woken.load_acquire() == 16);
  CHECK(wrong.load_acquire() == 0);
}

TEST_CASE("a failure wakes every parked waiter with the cause") {
  CompletingQueue queue;
  Atomic<int> causes{0};
  {
    std::vector<Thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back("waiter", [&] {
        const Status status = queue.timeline()->wait(7, Deadline::never());
        if (status.code() == Code::device_lost && status.message() == "gone") causes.add_relaxed(1);
      });
    }
    queue.fail(Status::device_lost("gone"));
  }
  CHECK(causes.load_acquire() == 8);
}

// Each value publishes a plain write of the completion path: a waiter that returns early would read an old
// one (and TSan would say so).
TEST_CASE("no wait is lost or early while values advance as fast as they can") {
  constexpr uint64_t kValues = 4000;
  constexpr int kWaiters = 4;
  CompletingQueue queue;
  std::vector<uint64_t> published(kValues + 1, 0);
  Atomic<uint64_t> waits{0};
  Atomic<uint64_t> wrong{0};
  {
    std::vector<Thread> threads;
    for (int i = 0; i < kWaiters; ++i) {
      threads.emplace_back("waiter", [&] {
        for (uint64_t value = 1; value <= kValues; ++value) {
          if (!queue.timeline()->wait(value, Deadline::never()).ok()) wrong.add_relaxed(1);
          if (published[value] != value * value) wrong.add_relaxed(1);
          waits.add_relaxed(1);
        }
      });
    }
    for (uint64_t value = 1; value <= kValues; ++value) {
      published[value] = value * value;
      queue.advance(value);
    }
  }
  CHECK(wrong.load_acquire() == 0);
  CHECK(waits.load_acquire() == kWaiters * kValues);
}

// Its time is asked for by the thread that advances, which nothing but the value's publication comes after.
class WatchingClock final : public Clock {
 public:
  WatchingClock(const Timeline& timeline, uint64_t value) : timeline_(timeline), value_(value) {}
  TimePoint now() const override {
    late_ = timeline_.done(value_);
    return TimePoint(1s);
  }
  bool late() const { return late_; }

 private:
  const Timeline& timeline_;
  const uint64_t value_;
  mutable bool late_ = false;
};

TEST_CASE("a stamp is filled before its value is seen reached, and not before its own") {
  CompletingQueue queue;
  const WatchingClock first(*queue.timeline(), 2), second(*queue.timeline(), 3);
  const auto of_two = queue.timeline()->stamp(2, first);
  const auto of_three = queue.timeline()->stamp(3, second);
  queue.advance(1);
  CHECK_FALSE(of_two->filled());
  queue.advance(2);
  CHECK(of_two->filled());
  CHECK_FALSE(first.late());
  CHECK_FALSE(of_three->filled());
  queue.advance(7);
  CHECK(of_three->filled());
  CHECK_FALSE(second.late());
  CHECK(queue.timeline()->stamp(7, Clock::real())->filled());
}

// A device that nobody tells anything: it is asked, and moves on by one each time.
class PolledTimeline final : public Timeline {
 public:
  void look() override {
    looks.add_relaxed(1);
    step();
  }
  void watch(uint64_t value) override {
    watched.max_relaxed(value);
    if (step) step();
  }
  std::function<void()> step = [] {};
  Duration begin_looking() override { return patience; }
  void end_looking() override { ended.add_relaxed(1); }
  Duration patience{0};
  Atomic<uint64_t> looks{0}, watched{0}, ended{0};
};

class PolledQueue final : public Queue {
 public:
  PolledQueue() : Queue(std::make_shared<PolledTimeline>()) {}
  PolledTimeline& polled() { return static_cast<PolledTimeline&>(*timeline()); }
  Status submit(const CommandList&, uint64_t, NoLocksHeld) override { return {}; }
  void advance(uint64_t value) { timeline()->advance(value, completion()); }
};

TEST_CASE("a wait looks before it sleeps: at once, and for as long as it may") {
  PolledQueue queue;
  queue.advance(1);
  CHECK(queue.polled().wait(1, Deadline::never()).ok());
  CHECK(queue.polled().looks.load_relaxed() == 0);  // it knew
  queue.polled().step = [&] { queue.advance(2); };
  CHECK(queue.polled().wait(2, Deadline::never()).ok());
  CHECK(queue.polled().looks.load_relaxed() == 1);
  uint64_t value = 2;
  queue.polled().step = [&] { queue.advance(++value); };
  queue.polled().patience = std::chrono::seconds(60);
  CHECK(queue.polled().wait(50, Deadline::never()).ok());
  CHECK(queue.polled().looks.load_relaxed() == 1 + 48);
  CHECK(queue.polled().watched.load_relaxed() == 0);  // it never slept
  CHECK(queue.polled().ended.load_relaxed() == 1);
  CHECK(queue.polled().wait(50, Deadline::never()).ok());
  CHECK(queue.polled().ended.load_relaxed() == 1);  // it knew, and did not begin
  queue.polled().step = [] {};
  CHECK(queue.polled().wait(51, Deadline::in(Duration(0))).code() == Code::deadline);
  CHECK(queue.polled().ended.load_relaxed() == 2);  // its own deadline comes first
}

TEST_CASE("before a thread sleeps, and before a bell is awaited, the driver is told up to where") {
  PolledQueue queue;
  queue.polled().step = [] {};
  CHECK(queue.polled().wait(3, Deadline::in(Duration(0))).code() == Code::deadline);
  CHECK(queue.polled().watched.load_relaxed() == 3);
  CHECK(queue.polled().ring_at(5));
  CHECK(queue.polled().watched.load_relaxed() == 5);
}

}  // namespace
}  // namespace heddle::device
