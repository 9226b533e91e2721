// Lane choices trial by trial: which runs are one, what wins, and when the next look comes.
#include <doctest/doctest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "batch/policy/lane_choice.h"

namespace heddle::batch {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

struct Trials {
  LaneChoice choice;
  TimePoint now = TimePoint(std::chrono::hours(1));

  void run(int64_t rows, Duration after) {
    now += after;
    choice.served(rows, now);
  }
  // Exactly one trial, of 1/128 s, whose rate is proportional to `rows`. Rows of runs that were under way do
  // not count.
  void trial(int64_t rows) {
    const int settled = choice.lanes() + 4;
    for (int i = 0; i < settled; ++i) run(1'000'000, microseconds(10));
    for (int i = 1; i < settled; ++i) run(0, microseconds(10));
    run(rows, nanoseconds(7'812'500) - (settled - 1) * microseconds(10));
  }
  // Trials until other lanes are tried.
  int at_home(int64_t rows) {
    const int home = choice.lanes();
    for (int trials = 1; trials < 1000; ++trials) {
      trial(rows);
      if (choice.lanes() != home) return trials;
    }
    return 0;
  }
};

TEST_CASE("lane choice: a neighbour is chosen that serves a twentieth more in two trials of two") {
  for (const int64_t better : {105, 104}) {
    CAPTURE(better);
    Trials run{LaneChoice(2)};
    for (int win = 1; win <= 2; ++win) {
      run.trial(100);
      REQUIRE(run.choice.lanes() == 1);
      CHECK(run.choice.chosen() == 2);
      run.trial(better);
      if (better == 104) break;
      CHECK(run.choice.lanes() == (win == 1 ? 2 : 1));
    }
    CHECK(run.choice.chosen() == (better == 105 ? 1 : 2));
    CHECK(run.choice.for_lone_calls() == run.choice.chosen());
  }
}

TEST_CASE("lane choice: one win is none, and the next look needs two again") {
  Trials run{LaneChoice(2)};
  for (int round = 0; round < 3; ++round) {
    run.at_home(100);
    run.trial(110);
    CHECK(run.at_home(100) == 1);  // a neighbour that won is looked at again at once
    run.trial(100);
    CHECK(run.choice.chosen() == 2);
  }
}

TEST_CASE(
    "lane choice: with both neighbours rejected the next looks come after twice as many trials, up to 64") {
  Trials run{LaneChoice(4)};
  for (int wait = 1, looks = 0; looks < 9; ++looks) {
    CAPTURE(looks);
    CHECK(run.choice.settled_on_all() == false);
    for (const int neighbour : {1, 4}) {
      CHECK(run.at_home(100) == wait);
      CHECK(run.choice.lanes() == neighbour);
      run.trial(90);
      CHECK(run.choice.lanes() == 2);
    }
    wait = std::min(2 * wait, LaneChoice::kMostTrials);
  }
}

TEST_CASE("lane choice: all lanes are settled on when the next look is eight trials away") {
  Trials run{LaneChoice(2)};
  int rejected = 0;
  for (; !run.choice.settled_on_all() && rejected < 100; ++rejected) {
    run.at_home(100);
    run.trial(90);
  }
  CHECK(run.at_home(100) == LaneChoice::kSettled);
  CHECK(LaneChoice(1).settled_on_all());
}

TEST_CASE("lane choice: a rate half as high again, or lower as much, makes the looks begin anew") {
  for (const auto& [rate, jumps] :
       std::vector<std::pair<int64_t, bool>>{{150, false}, {151, true}, {67, false}, {66, true}}) {
    CAPTURE(rate);
    Trials run{LaneChoice(4)};
    for (int looks = 0; looks < 6; ++looks) {
      run.at_home(100);
      run.trial(90);
    }
    CHECK(run.at_home(rate) == (jumps ? 1 : 8));
  }
}

TEST_CASE("lane choice: a trial ends with the run that is the last it needs, in time and in number") {
  const auto lanes_after = [](Duration first, Duration later, int runs) {
    Trials run{LaneChoice(2)};
    for (int i = 0; i < 6; ++i) run.run(1, first);
    for (int i = 0; i < runs; ++i) run.run(1, later);
    return run.choice.lanes();
  };
  const Duration soon = microseconds(1);
  CHECK(lanes_after(soon, milliseconds(1), 5) == 2);  // six are needed
  CHECK(lanes_after(soon, milliseconds(1), 6) == 1);
  CHECK(lanes_after(soon, microseconds(500), 7) == 2);  // 4 ms are needed
  CHECK(lanes_after(soon, microseconds(500), 8) == 1);
  CHECK(lanes_after(LaneChoice::kGap, LaneChoice::kGap, 6) == 1);
  CHECK(lanes_after(soon, LaneChoice::kGap + nanoseconds(1), 100) == 2);
}

TEST_CASE("lane choice: rows that it is not told of make a trial begin anew") {
  Trials run{LaneChoice(2)};
  for (int i = 0; i < 11; ++i) run.run(1, milliseconds(1));
  run.choice.forget_trial();
  for (int i = 0; i < 11; ++i) run.run(1, milliseconds(1));
  CHECK(run.choice.lanes() == 2);
  run.run(1, milliseconds(1));
  CHECK(run.choice.lanes() == 1);
}

TEST_CASE("lane choice: what is suggested counts before the first trial alone") {
  Trials run{LaneChoice(4)};
  run.trial(100);
  run.choice.suggest_one();  // lanes were measured, and nothing was compared
  CHECK(run.choice.chosen() == 2);
  Trials twice{LaneChoice(4)};
  twice.choice.suggest_one();
  CHECK(twice.choice.chosen() == 1);
  CHECK(twice.at_home(100) == 1);
  twice.trial(200);
  twice.at_home(100);
  twice.trial(200);
  REQUIRE(twice.choice.chosen() == 2);
  twice.choice.suggest_one();
  CHECK(twice.choice.chosen() == 2);
}

}  // namespace
}  // namespace heddle::batch
