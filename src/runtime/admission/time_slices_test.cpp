#include "runtime/admission/time_slices.h"

#include <doctest/doctest.h>

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

}  // namespace
}  // namespace heddle::runtime
