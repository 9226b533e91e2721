// The schedule: equal seeds, equal decisions.
#include "drivers/sim/schedule.h"

#include <doctest/doctest.h>

#include <vector>

#include "base/thread.h"

namespace heddle::sim {
namespace {

constexpr uint64_t kLongest = 1000;
using Decisions = std::vector<uint64_t>;

Decisions draw(Schedule& schedule, int count) {
  Decisions decisions;
  for (int i = 0; i < count; ++i) decisions.push_back(schedule.delay(kLongest));
  return decisions;
}

std::vector<Decisions> decisions_of(uint64_t seed, uint64_t lanes) {
  std::vector<Decisions> all;
  for (uint64_t lane = 0; lane < lanes; ++lane) {
    Schedule schedule(seed, lane);
    all.push_back(draw(schedule, 200));
  }
  return all;
}

// How often the sequences agree when the second is shifted by `by`.
int agreements(const Decisions& a, const Decisions& b, size_t by) {
  int same = 0;
  for (size_t i = 0; i + by < b.size(); ++i) same += a[i] == b[i + by] && a[i] != 0 ? 1 : 0;
  return same;
}

}  // namespace

TEST_CASE("equal seeds give each lane equal decisions") {
  const auto first = decisions_of(7, 8);
  CHECK(decisions_of(7, 8) == first);
  CHECK(decisions_of(8, 8) != first);
}

TEST_CASE("lanes and seeds have decisions of their own: no sequence is another one shifted") {
  std::vector<Decisions> all = decisions_of(7, 8);
  for (Decisions& each : decisions_of(8, 8)) all.push_back(std::move(each));
  for (size_t a = 0; a < all.size(); ++a) {
    for (size_t b = 0; b < all.size(); ++b) {
      for (size_t by = 0; by < 8 && a != b; ++by) CHECK(agreements(all[a], all[b], by) < 10);
    }
  }
}

TEST_CASE("a lane's decisions do not depend on when other lanes take theirs") {
  const auto apart = decisions_of(7, 2);
  Schedule first(7, 0), second(7, 1);
  Decisions of_first, of_second;
  Thread other("other", [&] { of_second = draw(second, 200); });
  of_first = draw(first, 200);
  other.join();
  CHECK(of_first == apart[0]);
  CHECK(of_second == apart[1]);
}

TEST_CASE("about one decision in four delays, none for longer than the longest delay, none at zero") {
  Schedule schedule(3, 0);
  int held = 0;
  for (const uint64_t delay : draw(schedule, 200)) {
    held += delay > 0 ? 1 : 0;
    CHECK(delay < kLongest);
  }
  CHECK(held > 20);
  CHECK(held < 100);
  for (int i = 0; i < 100; ++i) CHECK(schedule.delay(0) == 0);
}

TEST_CASE("draws below a bound reach all of it and nothing beyond") {
  Schedule schedule(5, 2);
  std::vector<int> seen(7);
  for (int i = 0; i < 700; ++i) {
    const uint64_t drawn = schedule.below(7);
    REQUIRE(drawn < 7);
    ++seen[drawn];
  }
  for (const int times : seen) CHECK(times > 50);
  CHECK(schedule.below(0) == 0);
}

}  // namespace heddle::sim
