#include "drivers/host/tuning/fastest.h"

#include <doctest/doctest.h>

#include <vector>

namespace heddle::host {
namespace {

using std::chrono::microseconds;

constexpr Duration kLongEnough = std::chrono::seconds(1);

// What each run of each way takes; the last one again and again.
struct Script {
  std::vector<std::vector<int>> times_us;
  ManualClock clock = ManualClock();
  std::vector<size_t> ran = {};  // in order

  Result<std::optional<size_t>> choose(Duration most = kLongEnough) {
    std::vector<size_t> runs(times_us.size(), 0);
    return fastest(times_us.size(), most, clock, [&](size_t way) -> Result<Duration> {
      ran.push_back(way);
      const std::vector<int>& of = times_us[way];
      const Duration taken = microseconds(of[std::min(runs[way]++, of.size() - 1)]);
      clock.advance(taken);
      return taken;
    });
  }
};

TEST_CASE("the fastest way is chosen; of ways within noise the first") {
  struct Line {
    const char* what;
    std::vector<std::vector<int>> times_us;
    size_t chosen;
  };
  for (const Line& line :
       {Line{"the last is the fastest", {{200}, {150}, {100}}, 2},
        Line{"the first is", {{100}, {150}, {200}}, 0},
        Line{"4 % slower, and the simplest", {{104}, {120}, {100}}, 0},
        Line{"6 % slower", {{106}, {103}, {100}}, 1},
        Line{"a slow first run says nothing", {{100}, {180, 80}, {90}}, 1}, Line{"one way", {{100}}, 0}}) {
    CAPTURE(line.what);
    Script script{line.times_us};
    const auto chosen = script.choose();
    REQUIRE(chosen.ok());
    REQUIRE(chosen->has_value());
    CHECK(**chosen == line.chosen);
  }
}

TEST_CASE("ways are run in turn, and those that are much slower no more after the first round") {
  Script script{{{200, 201}, {1000}, {220}}};
  REQUIRE(script.choose().ok());
  CHECK(script.ran == std::vector<size_t>{0, 1, 2, 0, 2});
}

TEST_CASE("short ways are run more often, long ones until two times agree") {
  Script brief{{{10}, {12}, {90, 8}}}, longer{{{1000}, {1200}}};
  CHECK(*brief.choose() == std::optional<size_t>(2));
  CHECK(brief.ran.size() == 3 * kRoundsOfShort + 2);
  REQUIRE(longer.choose().ok());
  CHECK(longer.ran.size() == 2 * 2);
}

TEST_CASE("a disturbed time is measured again, and the choice is that of the quiet machine") {
  // The second way is the fastest; what else the machine did hit its first three runs.
  Script script{{{1000}, {1400, 1200, 950, 700, 710}}};
  const auto chosen = script.choose();
  REQUIRE(chosen.ok());
  REQUIRE(chosen->has_value());
  CHECK(**chosen == 1);
  CHECK(script.ran.size() == 10 + 2);  // confirmed
}

TEST_CASE("a choice other than the simplest is confirmed, and may be taken back") {
  // Something hit the first runs of the simplest way alike.
  Script script{{{1070, 1071, 1000}, {1000}, {1300}}};
  CHECK(*script.choose() == std::optional<size_t>(0));
  CHECK(script.ran == std::vector<size_t>{0, 1, 2, 0, 1, 2, 0, 1});
}

TEST_CASE("nothing is chosen where times never agree, time is over or something came between") {
  std::vector<int> faster = {9000};
  while (faster.size() < kRounds) faster.push_back(faster.back() * 85 / 100);
  Script wild{{faster, faster}};
  const auto none = wild.choose();
  REQUIRE(none.ok());
  CHECK_FALSE(none->has_value());
  CHECK(wild.ran.size() == 2 * kRounds);

  Script slow{{{600}, {500}}};
  const auto late = slow.choose(microseconds(1500));
  REQUIRE(late.ok());
  CHECK_FALSE(late->has_value());
  CHECK(slow.ran.size() == 3);
  Script hopeless{{{600}, {500}}};
  const auto at_once = hopeless.choose(microseconds(1000));
  REQUIRE(at_once.ok());
  CHECK_FALSE(at_once->has_value());
  CHECK(hopeless.ran.size() == 1);

  int runs = 0;
  const auto disturbed = fastest(2, kLongEnough, slow.clock, [&](size_t) -> Result<Duration> {
    if (++runs == 3) return Status::unavailable("another caller");
    return microseconds(100);
  });
  REQUIRE(disturbed.ok());
  CHECK_FALSE(disturbed->has_value());
  CHECK(runs == 3);
}

TEST_CASE("ways that are out of the question are never chosen; a failure is returned") {
  const ManualClock clock;
  const auto none =
      fastest(2, kLongEnough, clock, [](size_t) -> Result<Duration> { return Duration::max(); });
  REQUIRE(none.ok());
  CHECK_FALSE(none->has_value());
  const auto second = fastest(2, kLongEnough, clock, [](size_t way) -> Result<Duration> {
    return way == 0 ? Duration::max() : microseconds(100);
  });
  REQUIRE(second.ok());
  CHECK(*second == std::optional<size_t>(1));
  const auto failed = fastest(2, kLongEnough, clock,
                              [](size_t) -> Result<Duration> { return Status::internal("a broken kernel"); });
  CHECK(failed.status().code() == Code::internal);
}

}  // namespace
}  // namespace heddle::host
