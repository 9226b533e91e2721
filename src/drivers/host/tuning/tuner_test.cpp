#include "drivers/host/tuning/tuner.h"

#include <doctest/doctest.h>

#include <fstream>
#include <vector>

#include "base/thread.h"
#include "drivers/host/machine/folder_fixture.h"

namespace heddle::host {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

const std::vector<Way> kWays = {{}, {32, 1, 1}, {16, 1, 1}};
constexpr TuningKey kKey{64, 512, 1024, false, false, 1};
constexpr TuningKey kOther{32, 512, 1024, true, false, 16};

// A tuner whose clock and times are the test's.
struct Bench {
  explicit Bench(std::string folder = "", bool all = true)
      : tuner({.all = all,
               .folder = std::move(folder),
               .identity = "here",
               .warn = [this](const std::string& said) { warnings.push_back(said); },
               .clock = &clock}) {}

  std::optional<Way> decide(const TuningKey& key, std::vector<int> times_us) {
    const auto decided = tuner.decide(key, kWays, [&](size_t way) -> Result<Duration> {
      ++runs;
      clock.advance(microseconds(times_us[way]));
      return microseconds(times_us[way]);
    });
    REQUIRE(decided.ok());
    return *decided;
  }

  ManualClock clock;
  std::vector<std::string> warnings;
  int runs = 0;
  Tuner tuner;
};

TEST_CASE("a shape is measured once, and its decision kept for the next process") {
  const TestFolder folder;
  Bench first(folder.path());
  CHECK(first.decide(kKey, {300, 200, 100}) == kWays[2]);
  const int runs = first.runs;
  CHECK(runs > 0);
  CHECK(first.decide(kKey, {100, 200, 300}) == kWays[2]);
  CHECK(first.runs == runs);
  CHECK(first.decide(kOther, {100, 200, 300}) == kWays[0]);

  Bench second(folder.path());
  CHECK(second.decide(kKey, {100, 200, 300}) == kWays[2]);
  CHECK(second.decide(kOther, {300, 200, 100}) == kWays[0]);
  CHECK(second.runs == 0);
  CHECK(second.warnings.empty());
}

TEST_CASE("the decision that another process wrote first holds") {
  const TestFolder folder;
  Bench one(folder.path()), other(folder.path());
  CHECK(one.decide(kKey, {300, 200, 100}) == kWays[2]);
  CHECK(other.decide(kKey, {100, 200, 300}) == kWays[2]);
  CHECK(other.runs > 0);
}

TEST_CASE("what was measured while the machine was busy is neither taken nor kept") {
  const TestFolder folder;
  Bench bench(folder.path());
  int time_us = 4000;
  const auto decided = bench.tuner.decide(kKey, kWays, [&](size_t) -> Result<Duration> {
    time_us = time_us * 9 / 10;
    return microseconds(time_us);
  });
  REQUIRE(decided.ok());
  CHECK_FALSE(decided->has_value());
  CHECK(TuningFile(folder.path(), "here").read()->empty());
  CHECK(bench.decide(kKey, {300, 200, 100}) == kWays[2]);
}

TEST_CASE("a kept decision that is no way of the shape does not count") {
  const TestFolder folder;
  Decisions strange = {{kKey, Way{7, 3, 3}}};
  REQUIRE(TuningFile(folder.path(), "here").merge(strange).ok());
  Bench bench(folder.path());
  CHECK(bench.decide(kKey, {300, 200, 100}) == kWays[2]);
}

TEST_CASE("measuring takes a twentieth of the tuner's life at most") {
  Bench bench("", false);
  CHECK(bench.decide(kKey, {100, 200, 300}) == std::nullopt);  // nothing is left of no time
  CHECK(bench.runs == 0);
  Duration spent(0);
  int decided = 0;
  for (int64_t i = 0; i < 200; ++i) {
    bench.clock.advance(milliseconds(5));
    const TimePoint before = bench.clock.now();
    decided += bench.decide({64, 512, i, false, false, 1}, {200, 200, 200}).has_value() ? 1 : 0;
    spent += bench.clock.now() - before;
    const Duration life = bench.clock.now().time_since_epoch();
    CHECK(spent <= life / 20 + microseconds(200));  // the run at whose end time was over
  }
  CHECK(decided > 4);
}

TEST_CASE("a shape that takes longer than there is waits for twice as much time") {
  Bench bench("", false);
  bench.clock.advance(milliseconds(60));  // 3 ms
  CHECK(bench.decide(kKey, {900, 900, 900}) == std::nullopt);
  CHECK(bench.runs == 4);
  bench.clock.advance(milliseconds(120));
  CHECK(bench.decide(kKey, {900, 900, 900}) == std::nullopt);
  CHECK(bench.runs == 4);
  bench.clock.advance(milliseconds(60));
  CHECK(bench.decide(kKey, {900, 900, 900}) == kWays[0]);
  Bench at_once("", true);
  CHECK(at_once.decide(kKey, {900, 900, 900}) == kWays[0]);
}

TEST_CASE("a file that cannot be read is told once, and measured anew") {
  const TestFolder folder;
  const TuningFile file(folder.path(), "here");
  std::ofstream(file.path()) << "heddle products 1\nfor here\n";
  Bench bench(folder.path());
  REQUIRE(bench.warnings.size() == 1);
  CHECK(bench.warnings[0].find(file.path()) != std::string::npos);
  CHECK(bench.warnings[0].find("cut off") != std::string::npos);
  CHECK(bench.decide(kKey, {300, 200, 100}) == kWays[2]);
  CHECK(bench.decide(kOther, {300, 200, 100}) == kWays[2]);
  CHECK(bench.warnings.size() == 1);
  CHECK(file.read()->size() == 2);
}

TEST_CASE("a folder that cannot be written is told once, and decisions hold for the process") {
  const TestFolder folder;
  std::ofstream(folder.path() + "/file") << "no folder";
  Bench bench(folder.path() + "/file");
  CHECK(bench.decide(kKey, {300, 200, 100}) == kWays[2]);
  CHECK(bench.decide(kOther, {100, 200, 300}) == kWays[0]);
  REQUIRE(bench.warnings.size() == 1);
  CHECK(bench.warnings[0].find("this process only") != std::string::npos);
  CHECK(bench.decide(kKey, {100, 200, 300}) == kWays[2]);
}

TEST_CASE("a failure of what is timed is returned, and the next shape is measured") {
  Bench bench;
  const auto failed = bench.tuner.decide(
      kKey, kWays, [](size_t) -> Result<Duration> { return Status::internal("a broken kernel"); });
  CHECK(failed.status().code() == Code::internal);
  CHECK(bench.decide(kOther, {300, 200, 100}) == kWays[2]);
}

TEST_CASE("of threads that ask at once one measures, and nobody gets anything but its decision or none") {
  constexpr int kThreads = 8;
  const TestFolder folder;
  Tuner tuner({.all = true, .folder = folder.path(), .identity = "here"});
  Atomic<int> inside{0}, most_inside{0}, wrong{0}, decided{0};
  run_together(kThreads, [&](int thread) {
    for (int64_t i = 0; i < 20; ++i) {
      const int64_t n = (i + thread) % 20;
      const auto got =
          tuner.decide({64, 512, n, false, false, 1}, kWays, [&](size_t way) -> Result<Duration> {
            const int now = inside.add_acq_rel(1) + 1;
            if (now > most_inside.load_acquire()) most_inside.store_release(now);
            inside.sub_relaxed(1);
            return microseconds(way == static_cast<size_t>(n % 3) ? 100 : 200);
          });
      if (!got.ok() || (got->has_value() && **got != kWays[static_cast<size_t>(n % 3)])) wrong.add_relaxed(1);
      if (got.ok() && got->has_value()) decided.add_relaxed(1);
    }
  });
  CHECK(wrong.load_acquire() == 0);
  CHECK(most_inside.load_acquire() == 1);
  CHECK(decided.load_acquire() > 0);
  const Decisions kept = *TuningFile(folder.path(), "here").read();
  for (const auto& [key, way] : kept) CHECK(way == kWays[static_cast<size_t>(key.n % 3)]);
}

}  // namespace
}  // namespace heddle::host
