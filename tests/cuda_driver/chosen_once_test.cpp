// Which of the ways to compute a problem is taken, and how often it is measured.
#include <doctest/doctest.h>

#include "drivers/cuda/libraries/chosen_once.h"
#include "drivers/host/machine/folder_fixture.h"

namespace heddle::cuda {
namespace {

using host::TestFolder;

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST_CASE("the fastest way is taken, or of those as good the one that needs the least workspace") {
  struct Row {
    std::vector<Measured> ways;
    size_t taken;
  };
  const auto library = [](float time, uint64_t bytes) { return Measured{time, bytes, false, 1}; };
  const auto ours = [](float time) { return Measured{time, 0, true, 1}; };
  const auto few = [](float time) { return Measured{time, 0, true, 1.2f}; };
  for (const Row& row : {
           Row{{library(10, 0)}, 0},
           Row{{library(12, 0), library(10, kMiB), ours(11)}, 1},
           Row{{library(10.2f, kMiB), library(10, 8 * kMiB), ours(11)}, 0},
           Row{{library(10, 8 * kMiB), library(10.25f, kMiB), library(10.29f, 0), ours(11)}, 2},
           Row{{library(10, 8 * kMiB), library(10.4f, 0), ours(11)}, 0},
           // 10.5 is as good as 10.25, but not as 10
           Row{{library(10, 8 * kMiB), library(10.25f, kMiB), library(10.5f, 0), ours(11)}, 1},
           Row{{library(10, kMiB), ours(10.2f)}, 1},
           Row{{library(10, 0), ours(10.2f)}, 0},  // neither needs any: the faster one
           Row{{library(10, 0), ours(10)}, 1},     // of equals ours, which is the last
           Row{{library(10, kMiB), library(10, kMiB), ours(11)}, 1},
           // For few rows: by a gain of 1.2, or as any other way if there is a workspace to spare.
           Row{{library(12, 0), ours(20), few(9.9f)}, 2},
           Row{{library(12, 0), ours(20), few(10.1f)}, 0},
           Row{{library(12, kMiB), ours(20), few(11.9f)}, 2},
           Row{{library(12, kMiB), ours(20), few(12.3f)}, 2},
           Row{{library(12, kMiB), ours(20), few(12.5f)}, 0},
           Row{{library(12, 0), ours(10), few(9.9f)}, 2},
           Row{{library(12, 0), ours(10), few(10.1f)}, 1},
           // the library's that would be taken without it needs none
           Row{{library(12, kMiB), library(12.1f, 0), ours(20), few(11)}, 1},
       }) {
    CAPTURE(row.ways.size());
    CAPTURE(row.taken);
    CHECK(taken(row.ways) == row.taken);
  }
}

using NumberChoices = ChosenOnce<int, int, std::hash<int>>;  // a problem is a number, and so is an algorithm

// Algorithms 1 and 2 of a library, and kernels of ours: 1 is the fastest.
struct AskedOfNumbers {
  int& measured;
  std::vector<int> has = {1, 2};
  std::vector<int> refuses = {};
  int problem = 7;
  static Result<NumberChoices::Ways> made_of(const std::vector<int>& algorithms) {
    NumberChoices::Ways ways;
    for (const int each : algorithms) ways.push_back({text(each), each, static_cast<uint64_t>(each)});
    ways.push_back({.word = AlgorithmStore::kOurs});
    return ways;
  }

  std::string name() const { return text("problem ", problem); }
  Result<NumberChoices::Ways> ways() const { return made_of(has); }
  static Result<NumberChoices::Chosen> unmeasured(const NumberChoices::Ways& ways) { return ways.back(); }
  Result<std::vector<float>> time(NumberChoices::Ways& ways) const {
    ++measured;
    HEDDLE_TRY(leave_out_refused(
        ways, [&](int by) -> Result<bool> { return std::ranges::find(refuses, by) == refuses.end(); }));
    std::vector<float> times;
    for (const auto& each : ways)
      times.push_back(each.algorithm ? static_cast<float>(10 * *each.algorithm) : 50);
    return times;
  }
};

std::string word_of(const NumberChoices& numbers, AskedOfNumbers asked) {
  const auto chosen = numbers.choose(asked.problem, asked);
  REQUIRE(chosen.ok());
  return chosen->word;
}

TEST_CASE("a problem is measured once in a process, and not in the next one") {
  const TestFolder folder;
  int measured = 0;
  for (int process = 0; process < 2; ++process) {
    const NumberChoices numbers({.folder = folder.path()}, "numbers", "here");
    for (int i = 0; i < 3; ++i) CHECK(word_of(numbers, {measured}) == "1");
    CHECK(measured == 1);
  }
  const NumberChoices elsewhere({.folder = folder.path()}, "numbers", "elsewhere");
  CHECK(word_of(elsewhere, {measured}) == "1");
  CHECK(measured == 2);
}

TEST_CASE("an algorithm that is kept and no longer proposed is measured anew, and what is measured is kept") {
  const TestFolder folder;
  int measured = 0;
  const auto in_a_process = [&](const AskedOfNumbers& asked) {
    return word_of(NumberChoices({.folder = folder.path()}, "numbers", "here"), asked);
  };
  CHECK(in_a_process({measured}) == "1");
  CHECK(in_a_process({measured, {2}}) == "2");
  CHECK(measured == 2);
  CHECK(in_a_process({measured}) == "2");
  CHECK(in_a_process({measured, {3}}) == "3");
  CHECK(measured == 3);
}

TEST_CASE("what the library refuses when it is measured is not taken, and without the rest ours are") {
  int measured = 0;
  CHECK(word_of(NumberChoices({}, "numbers", "here"), {measured, {1, 2}, {1}}) == "2");
  CHECK(word_of(NumberChoices({}, "numbers", "here"), {measured, {1, 2}, {1, 2}}) == AlgorithmStore::kOurs);
  CHECK(measured == 2);
}

TEST_CASE("without tuning the rule decides, and without a proposal the driver") {
  int measured = 0;
  const NumberChoices off({.on = false}, "numbers", "here");
  CHECK_FALSE(off.measures());
  CHECK(off.describe("by rule") == "by rule: HEDDLE_TUNE is off");
  CHECK(word_of(off, {measured}) == AlgorithmStore::kOurs);
  CHECK(word_of(NumberChoices({}, "numbers", "here"), {measured, {}}) == "");
  CHECK(measured == 0);
}

TEST_CASE("problems that are alike have one choice, but for the one that its algorithm does not fit") {
  const NumberChoices numbers({}, "numbers", "here");
  int measured = 0;
  const auto choose_for = [&](int problem) {
    return numbers.choose(problem, AskedOfNumbers{.measured = measured, .problem = problem});
  };
  const auto none = [](int) -> Result<std::optional<int>> { return std::optional<int>(); };
  const auto tenfold = [](int by) -> Result<std::optional<int>> { return std::optional(10 * by); };
  for (const int problem : {5, 6, 8}) {
    const auto chosen = numbers.choose_alike(problem, 8, choose_for, tenfold);
    REQUIRE(chosen.ok());
    CHECK(chosen->algorithm == (problem == 8 ? 1 : 10));
    CHECK(measured == 1);
  }
  CHECK(numbers.choose_alike(7, 8, choose_for, none)->algorithm == 1);
  CHECK(measured == 2);
}

TEST_CASE("a measurement that fails decides nothing") {
  struct Fails : AskedOfNumbers {
    Result<std::vector<float>> time(NumberChoices::Ways& ways) const {
      static_cast<void>(ways);
      ++measured;
      return Status::exhausted("no memory");
    }
  };
  const NumberChoices numbers({}, "numbers", "here");
  int measured = 0;
  CHECK(numbers.choose(7, Fails{{measured}}).status().code() == heddle::Code::exhausted);
  CHECK(word_of(numbers, {measured}) == "1");
  CHECK(measured == 2);
}

}  // namespace
}  // namespace heddle::cuda
