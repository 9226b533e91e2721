#include "base/clock.h"

#include <doctest/doctest.h>

namespace heddle {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("a manual clock moves only when it is advanced") {
  ManualClock clock(TimePoint(seconds(5)));
  CHECK(clock.now() == TimePoint(seconds(5)));
  clock.advance(milliseconds(1500));
  CHECK(clock.now() == TimePoint(milliseconds(6500)));
}

TEST_CASE("a deadline expires exactly at its time") {
  ManualClock clock;
  const Deadline soon = Deadline::in(milliseconds(10), clock);
  CHECK(soon.when() == TimePoint(milliseconds(10)));
  clock.advance(milliseconds(10) - Duration(1));
  CHECK(!soon.expired(clock));
  clock.advance(Duration(1));
  CHECK(soon.expired(clock));
  CHECK(Deadline::at(TimePoint(seconds(1))).when() == TimePoint(seconds(1)));
}

TEST_CASE("never does not expire and too long a wait means never") {
  ManualClock clock(TimePoint(seconds(1)));
  CHECK(Deadline::never().is_never());
  CHECK(Deadline::in(Duration::max(), clock).is_never());
  CHECK(!Deadline::in(seconds(1), clock).is_never());
  clock.advance(Duration::max() - seconds(2));
  CHECK(!Deadline::never().expired(clock));
}

TEST_CASE("a wait of zero or less has expired already") {
  CHECK(Deadline::in(Duration(0)).expired());
  CHECK(Deadline::in(-seconds(3)).expired());
  CHECK(!Deadline::in(seconds(3600)).expired());
}

TEST_CASE("real time does not go back") {
  TimePoint last = Clock::real().now();
  for (int i = 0; i < 10000; ++i) {
    const TimePoint now = Clock::real().now();
    REQUIRE(now >= last);
    last = now;
  }
}

}  // namespace
}  // namespace heddle
