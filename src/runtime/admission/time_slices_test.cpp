#include "runtime/admission/time_slices.h"

#include <doctest/doctest.h>

#include <optional>
#include <vector>

#include "base/thread.h"
#include "base/yield.h"

namespace heddle::runtime {
namespace {

TEST_CASE("threads no more than the slices never wait, whichever of them calls") {
  constexpr int kThreads = 3, kCalls = 5000;
  TimeSlices slices(kThreads, Clock::real());
  Atomic<int> calls{0};
  run_together(kThreads, [&](int) {
    for (int i = 0; i < kCalls; ++i) {
      const TimeSlices::Call call(slices, Deadline::never());
      const TimeSlices::Call within(slices, Deadline::never());
      calls.add_relaxed(1);
    }
  });
  CHECK(calls.load_relaxed() == kThreads * kCalls);
  CHECK(slices.stats().waits == 0);
}

TEST_CASE(
    "sixteen threads over two slices: each call goes on, and a thread keeps its slice for many of them") {
  constexpr int kThreads = 16, kCalls = 3000;
  TimeSlices slices(2, Clock::real());
  Atomic<int> calls{0};
  run_together(kThreads, [&](int) {
    for (int i = 0; i < kCalls; ++i) {
      const TimeSlices::Call call(slices, Deadline::never());
      relax_processor(50);
      calls.add_relaxed(1);
    }
  });
  CHECK(calls.load_relaxed() == kThreads * kCalls);
  const TimeSlices::Stats stats = slices.stats();
  CHECK(stats.waits >= kThreads - 2);
  CHECK(stats.waits < kThreads * kCalls / 20);
  CHECK(stats.passed + stats.idle + stats.longs <= stats.waits);
}

constexpr Duration kPatience = std::chrono::seconds(10);  // with threads that need only be let run

// Stands still until it is advanced, and counts who looks.
class LookedAtClock final : public Clock {
 public:
  TimePoint now() const override {
    looks_.add_acq_rel(1);
    return time_.now();
  }
  void advance(Duration by) { time_.advance(by); }
  int looks() const { return looks_.load_acquire(); }

 private:
  ManualClock time_;
  mutable Atomic<int> looks_{0};
};

// One slice, that this thread has, and a thread that waits for it.
struct OneSlice {
  OneSlice() {
    const TimeSlices::Call first(slices, Deadline::never());
    waiter = Thread("waiter", [this] {
      const TimeSlices::Call call(slices, Deadline::never());
      over.store_release(true);
    });
    while (slices.stats().waits == 0) give_way();
    let_look();
  }
  ~OneSlice() {  // also where a check has failed
    for (; !over.load_acquire(); give_way()) clock.advance(TimeSlices::kLong);
  }
  // The waiter has looked at the slice after now, or has it: of two looks the second began after it.
  void let_look() {
    const int before = clock.looks();
    while (clock.looks() < before + 4 && !over.load_acquire()) give_way();
  }

  LookedAtClock clock;
  TimeSlices slices{1, clock};
  Atomic<bool> over{false};
  Thread waiter;
};

TEST_CASE(
    "a slice ends with the first call that ends kSlice after others began to wait, and no call earlier") {
  OneSlice one;
  constexpr Duration kStep = TimeSlices::kIdle / 2;  // so that it does not seem idle
  for (Duration used{0};; used += kStep) {
    CAPTURE(used.count());
    {
      const TimeSlices::Call call(one.slices, Deadline::never());
    }
    CHECK(one.slices.stats().passed == (used >= TimeSlices::kSlice ? 1 : 0));
    if (used >= TimeSlices::kSlice) break;
    one.clock.advance(kStep);
  }
  CHECK(one.slices.stats().idle == 0);
}

TEST_CASE("a slice is taken once its owner has not called for kIdle, or its call has taken kLong") {
  for (const bool is_busy : {false, true}) {
    CAPTURE(is_busy);
    OneSlice one;
    std::optional<TimeSlices::Call> call;
    if (is_busy) call.emplace(one.slices, Deadline::never());
    one.let_look();
    one.clock.advance((is_busy ? TimeSlices::kLong : TimeSlices::kIdle) - Duration(1));
    one.let_look();
    CHECK(one.slices.stats().idle + one.slices.stats().longs == 0);
    one.clock.advance(Duration(1));
    one.let_look();
    CHECK(one.slices.stats().idle == (is_busy ? 0 : 1));
    CHECK(one.slices.stats().longs == (is_busy ? 1 : 0));
  }
}

TEST_CASE("a thread that is about to wait for the device gives its slice to the first that waits, at once") {
  OneSlice one;
  one.slices.rest();
  // Its clock stands still.
  for (const Deadline patience = Deadline::in(kPatience); !one.over.load_acquire(); give_way()) {
    if (patience.expired()) break;
  }
  CHECK(one.over.load_acquire());
  const TimeSlices::Stats stats = one.slices.stats();
  CHECK(stats.passed == 1);
  CHECK(stats.idle + stats.longs == 0);
}

TEST_CASE("what one that waits saw of an idle slice, the next one knows") {
  LookedAtClock clock;
  TimeSlices slices(1, clock);
  {
    const TimeSlices::Call mine(slices, Deadline::never());
  }
  Thread brief("brief", [&, until = Deadline::at(clock.now() + TimeSlices::kIdle / 2)] {
    const TimeSlices::Call without(slices, until);
  });
  while (slices.stats().waits == 0) give_way();
  for (const int before = clock.looks(); clock.looks() < before + 4;) give_way();
  clock.advance(TimeSlices::kIdle / 2);
  brief.join();
  CHECK(slices.stats().idle == 0);
  clock.advance(TimeSlices::kIdle - TimeSlices::kIdle / 2);
  Atomic<bool> over{false};
  Thread next("next", [&] {
    const TimeSlices::Call call(slices, Deadline::never());
    over.store_release(true);
  });
  const Deadline patience = Deadline::in(kPatience);
  while (!over.load_acquire() && !patience.expired()) give_way();
  CHECK(over.load_acquire());
  for (; !over.load_acquire(); give_way()) clock.advance(TimeSlices::kIdle);
  next.join();
  CHECK(slices.stats().idle == 1);
}

TEST_CASE("the slice of a thread that rests is free where nobody waits, and its owner comes back to it") {
  TimeSlices slices(1, Clock::real());
  for (int turn = 0; turn < 3; ++turn) {
    {
      const TimeSlices::Call mine(slices, Deadline::never());
    }
    slices.rest();
    slices.rest();  // of no slice: nothing
    Thread other("other", [&] {
      const TimeSlices::Call call(slices, Deadline::never());
      slices.rest();  // within a call: nothing
    });
    other.join();
    // Only this thread, for the slice that the other one has kept.
    CHECK(slices.stats().waits == static_cast<uint64_t>(turn));
  }
}

}  // namespace
}  // namespace heddle::runtime
