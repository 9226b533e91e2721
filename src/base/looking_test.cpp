#include "base/looking.h"

#include <doctest/doctest.h>

namespace heddle {

using namespace std::chrono_literals;

TEST_CASE("after a long turn a thread sleeps in its calls of the next 2 ms, and not at their end") {
  Looker looker;
  const TimePoint now = TimePoint() + 1h;
  CHECK_FALSE(looker.pauses(now));
  looker.long_turn(now);
  CHECK(looker.pauses(now));
  CHECK(looker.pauses(now + 2ms - 1ns));
  CHECK_FALSE(looker.pauses(now + 2ms));
}

TEST_CASE(
    "each long turn that follows doubles the pause up to a second, and fifty answers in time halve it") {
  Looker looker;
  TimePoint now = TimePoint() + 1h;
  const auto next_pause = [&] {
    looker.long_turn(now);
    Duration length = 0ns;
    for (Duration step = 1s; step > 0ns; step /= 2) {
      if (looker.pauses(now + length + step)) length += step;
    }
    now += 1h;
    return std::chrono::ceil<std::chrono::milliseconds>(length);
  };
  for (const auto expected : {2ms, 4ms, 8ms, 16ms, 32ms, 64ms, 128ms, 256ms, 512ms, 1000ms, 1000ms})
    CHECK(next_pause() == expected);
  for (int i = 0; i < 50; ++i) looker.in_time();
  const auto half = next_pause();
  CHECK(half > 400ms);
  CHECK(half < 500ms);
  for (int i = 0; i < 1000; ++i) looker.in_time();
  CHECK(next_pause() == 2ms);  // never shorter
}

// A crowd whose turns may take long, so that none is too long here.
TEST_CASE("a look ends when it has found, at the deadline, or when both time and turns are over") {
  constexpr int kCrowd = 1'000'000, kLooksEach = 4;
  int looks = 0;
  const auto looked = [&](int found_at, const Patience& patience, Deadline deadline = Deadline::never()) {
    looks = 0;
    return look_for([&] { return ++looks == found_at; }, kCrowd, patience, deadline);
  };
  CHECK(looked(1, {0ns, 1}));
  CHECK(looks == 1);
  CHECK(looked(kLooksEach + 1, {0ns, 2}));
  CHECK_FALSE(looked(kLooksEach + 1, {0ns, 1}));
  CHECK(looks == kLooksEach);
  CHECK_FALSE(looked(0, {0ns, 3}));
  CHECK(looks == 3 * kLooksEach);
  CHECK_FALSE(looked(1, {0ns, 0}));
  CHECK(looked(50 * kLooksEach, {1h, 0}));
  CHECK_FALSE(looked(1, {1h, 3}, Deadline::at(TimePoint::min())));
  CHECK(looks == 0);
}

}  // namespace heddle
