// The cost table at its edges: the run that settles a size, the last run that counts as fresh, ties.
#include <doctest/doctest.h>

#include <limits>
#include <utility>
#include <vector>

#include "batch/policy/cost_table.h"

namespace heddle::batch {
namespace {

constexpr int64_t kAnyRows = std::numeric_limits<int64_t>::max();

void run_of(CostTable& table, int64_t rows, const std::vector<int64_t>& ns_each_row) {
  for (const int64_t ns : ns_each_row) table.record(rows, Duration(ns * rows));
}

int64_t estimate_of(const CostTable& table, int64_t rows) { return table.estimate(rows).value().count(); }

TEST_CASE("an estimate lies on the line between its two neighbours, whichever of many sizes they are") {
  CostTable table;
  run_of(table, 1, {1000});
  run_of(table, 3, {900});
  run_of(table, 8, {800});
  run_of(table, 16, {700});
  CHECK(estimate_of(table, 2) == (1000 + 2700) / 2);
  CHECK(estimate_of(table, 4) == 2700 + (6400 - 2700) / 5);
  CHECK(estimate_of(table, 12) == (6400 + 11200) / 2);
  for (const auto& [rows, ns] : {std::pair{1, 1000}, {3, 2700}, {8, 6400}, {16, 11200}})
    CHECK(estimate_of(table, rows) == ns);
}

TEST_CASE(
    "two runs of a size give the lower time, three the middle one, and later ones move it by an eighth") {
  CostTable table;
  run_of(table, 8, {1000});
  CHECK(estimate_of(table, 8) == 8 * 1000);
  run_of(table, 8, {3000});
  CHECK(estimate_of(table, 8) == 8 * 1000);
  run_of(table, 8, {2000});
  CHECK(estimate_of(table, 8) == 8 * 2000);
  run_of(table, 8, {2800});  // the middle of the last three
  CHECK(estimate_of(table, 8) == 8 * 2100);
}

TEST_CASE("a size is kept for 512 runs of others, and made anew after one more") {
  for (const int others : {512, 513}) {
    CAPTURE(others);
    CostTable table;
    run_of(table, 8, {1000, 1000, 1000});
    run_of(table, 64, std::vector<int64_t>(static_cast<size_t>(others), 1000));
    run_of(table, 8, {5000});
    CHECK(estimate_of(table, 8) == 8 * (others == 512 ? 1000 : 5000));
  }
}

TEST_CASE(
    "a size that costs more a row ends the range one row before it, also if it is the largest asked for") {
  for (const int64_t slow : {2, 3, 4, 5, 7, 17}) {
    CAPTURE(slow);
    CostTable table;
    run_of(table, 1, {750, 750, 750});
    run_of(table, slow, {2000, 2000, 2000});
    CHECK(table.best_rows(slow - 1) == slow - 1);
    CHECK(table.best_rows(slow) == slow - 1);
    CHECK(table.best_rows(kAnyRows) == slow - 1);
  }
  CostTable table;
  run_of(table, 1, {750, 750, 750});
  run_of(table, 2, {1000, 1000, 1000});  // three quarters of it are no more
  CHECK(table.best_rows(2) == 2);
}

TEST_CASE("the two largest sizes of a table are told apart") {
  constexpr int64_t kBelow = 7 << 14, kLast = 1 << 17;
  CostTable table;
  run_of(table, kBelow, {100});
  run_of(table, kLast, {300});
  CHECK(estimate_of(table, kBelow) == 100 * kBelow);
  CHECK(estimate_of(table, kLast) == 300 * kLast);
}

// Joining is worth it where a row alone costs more than 1.03 times a row of a batch and 10 us.
TEST_CASE("joining is given up at the eighth batch where a row alone is no dearer than the limit") {
  for (const int64_t alone : {10103, 10104}) {
    CAPTURE(alone);
    CostTable table;
    run_of(table, 1, {alone, alone, alone});
    run_of(table, 4, std::vector<int64_t>(7, 100));
    CHECK(table.is_joining_worthwhile());
    run_of(table, 4, {100});
    CHECK(table.is_joining_worthwhile() == (alone > 10103));
  }
}

TEST_CASE("of sizes that ran equally often the smaller one says whether joining pays") {
  for (const bool small_pays : {false, true}) {
    CAPTURE(small_pays);
    CostTable table;
    run_of(table, 1, {101'000, 101'000, 101'000});
    run_of(table, 2, std::vector<int64_t>(4, small_pays ? 10'000 : 100'000));
    run_of(table, 4, std::vector<int64_t>(4, small_pays ? 100'000 : 10'000));
    CHECK(table.is_joining_worthwhile() == small_pays);
  }
}

// Four known sizes, against each bound from nothing to more than the largest takes.
TEST_CASE("under a bound as many rows are run as the known sizes say fit, not one fewer and not one more") {
  constexpr int64_t kMost = 4;
  CostTable table;
  for (int64_t rows = 1; rows <= kMost; ++rows) {
    const int64_t ns = 40'000 + 80'000 / rows;
    run_of(table, rows, {ns, ns, ns});
  }
  REQUIRE(table.best_rows(kMost, Duration::max()) == kMost);
  for (int64_t bound = 0; bound <= estimate_of(table, kMost) + 2000; bound += 1000) {
    CAPTURE(bound);
    int64_t fits = 1;
    for (int64_t rows = 2; rows <= kMost; ++rows) fits = estimate_of(table, rows) <= bound ? rows : fits;
    CHECK(table.best_rows(kMost, Duration(bound)) == fits);
  }
}

TEST_CASE("when joining is tried again nothing is known of any batch") {
  CostTable table;
  run_of(table, 1, {1000, 1000, 1000});
  run_of(table, 2, std::vector<int64_t>(8, 4000));
  run_of(table, 4, {3000});
  REQUIRE(!table.is_joining_worthwhile());
  for (int i = 0; i < 10'000 && !table.is_joining_worthwhile(); ++i) run_of(table, 1, {1000});
  REQUIRE(table.is_joining_worthwhile());
  CHECK(estimate_of(table, 2) == 2 * 1000);
  CHECK(estimate_of(table, 4) == 4 * 1000);
}

TEST_CASE("the longest run that there is has an estimate") {
  CostTable table;
  table.record(1, Duration::max());
  CHECK(table.estimate(1) == Duration::max());
  CHECK(table.estimate(2) == Duration::max());
}

}  // namespace
}  // namespace heddle::batch
