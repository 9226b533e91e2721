#include "batch/policy/cost_table.h"

#include <doctest/doctest.h>

#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace heddle::batch {

namespace {

constexpr Duration kMicrosecond = std::chrono::microseconds(1);
constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

using Device = std::function<double(int64_t)>;  // rows -> microseconds

double steady(int64_t rows) { return 180.0 + 20.0 * static_cast<double>(rows); }
// A matrix unit of 16 rows: a part of a tile costs a whole one.
double tiled(int64_t rows) { return 10.0 + 160.0 * static_cast<double>((rows + 15) / 16); }
// Its cache is full at 24 rows.
double spilling(int64_t rows) {
  return steady(rows) + (rows > 24 ? 140.0 * static_cast<double>(rows - 24) : 0);
}

Duration micros(double us) { return Duration(static_cast<int64_t>(us * 1000)); }

void run(CostTable& table, const Device& device, int64_t rows, int times = 3) {
  for (int i = 0; i < times; ++i) table.record(rows, micros(device(rows)));
}

CostTable learnt(const Device& device, const std::vector<int64_t>& sizes) {
  CostTable table;
  for (const int64_t rows : sizes) run(table, device, rows);
  return table;
}

double estimated(const CostTable& table, int64_t rows) {
  return static_cast<double>(table.estimate(rows).value().count()) / 1000;
}

// Batches as large as the table says, until it has had time to settle.
int64_t settled(CostTable& table, const Device& device, int64_t max_rows, Duration bound = Duration::max()) {
  for (int i = 0; i < 200; ++i) run(table, device, table.best_rows(max_rows, bound), 1);
  return table.best_rows(max_rows, bound);
}

}  // namespace

TEST_CASE("an estimate is what ran, the line between two sizes, and a line beyond them") {
  struct Row {
    std::vector<int64_t> ran;
    int64_t rows;
    double us;
  };
  const std::vector<Row> rows = {
      {{1}, 1, 200},           {{1, 32, 64}, 32, 820},
      {{1, 64}, 32, 820},      {{1, 64}, 128, 2740},
      {{8, 64}, 1, 200},       {{32}, 16, 410},
      {{32}, 64, 1640},        {{1, 2, 3, 4, 5, 6, 7, 8}, 7, 320},
      {{16, 48}, 1000, 20180}, {{100000}, 50000, 1000090},
  };
  for (const Row& row : rows) {
    CAPTURE(row.rows);
    CAPTURE(row.us);
    CHECK(estimated(learnt(steady, row.ran), row.rows) == doctest::Approx(row.us).epsilon(0.001));
  }
  CHECK(!CostTable().estimate(1).has_value());
}

TEST_CASE("an estimate beyond what ran is never below zero nor above the average row") {
  CostTable falling;
  run(falling, [](int64_t rows) { return 1000.0 - static_cast<double>(rows); }, 60);
  run(falling, [](int64_t rows) { return 1000.0 - static_cast<double>(rows); }, 70);
  CHECK(estimated(falling, 1000) == doctest::Approx(930));
  CHECK(estimated(falling, 1) > 0);
  CostTable rising;
  run(rising, [](int64_t) { return 100.0; }, 60);
  run(rising, [](int64_t) { return 1000.0; }, 70);
  CHECK(estimated(rising, 140) == doctest::Approx(2000));
  CHECK(estimated(rising, 1) > 0);
}

TEST_CASE("one outlier changes nothing, a lasting change is followed") {
  for (const double factor : {0.01, 3.0, 1000.0}) {
    CAPTURE(factor);
    CostTable table = learnt(steady, {8, 16});
    run(table, [&](int64_t rows) { return factor * steady(rows); }, 16, 1);
    run(table, steady, 16, 2);
    CHECK(estimated(table, 16) == doctest::Approx(steady(16)));
    run(table, [&](int64_t rows) { return factor * steady(rows); }, 16, 100);
    CHECK(estimated(table, 16) == doctest::Approx(factor * steady(16)).epsilon(0.01));
  }
}

TEST_CASE("a slow first run is forgotten") {
  CostTable table;
  run(table, [](int64_t) { return 50000.0; }, 16, 1);
  run(table, steady, 16, 1);
  CHECK(estimated(table, 16) == doctest::Approx(steady(16)));
  run(table, steady, 16, 1);
  CHECK(estimated(table, 16) == doctest::Approx(steady(16)));
}

TEST_CASE("nothing known: everything is tried, but under a bound one row first") {
  const CostTable table;
  CHECK(table.best_rows(64) == 64);
  CHECK(table.best_rows(0) == 1);
  CHECK(table.best_rows(64, kMicrosecond * 1000) == 1);
}

TEST_CASE("a larger size is worth it while its rate does not fall") {
  struct Row {
    const char* property;
    Device device;
    std::vector<int64_t> ran;
    int64_t best;  // of 64
  };
  const std::vector<Row> rows = {
      {"a fixed cost is shared", steady, {1, 8, 32, 64}, 64},
      {"larger sizes are tried", steady, {1, 2, 3}, 64},
      {"a loss of 20 % is none", [](int64_t n) { return n * (n < 32 ? 10.0 : 12.5); }, {8, 16, 32}, 64},
      {"a loss of 30 % ends it", [](int64_t n) { return n * (n < 32 ? 10.0 : 14.5); }, {8, 16, 32, 64}, 28},
      {"small losses add up", [](int64_t n) { return n * (10.0 + 0.08 * n); }, {8, 16, 32, 64}, 56},
      {"a larger size makes up for it", tiled, {8, 16, 20, 32}, 64},
      {"a cache that is full", spilling, {8, 16, 24, 40, 64}, 32},
  };
  for (const Row& row : rows) {
    CAPTURE(row.property);
    CHECK(learnt(row.device, row.ran).best_rows(64) == row.best);
  }
}

TEST_CASE("batches as large as the table says come to rest near the best size") {
  CostTable first;
  CHECK(settled(first, steady, 64) == 64);
  CostTable second = learnt(spilling, {8});
  const int64_t rows = settled(second, spilling, 64);
  CHECK(rows >= 20);
  CHECK(rows <= 32);
}

TEST_CASE("a latency bound is reached and not exceeded") {
  for (const int64_t bound_us : {100, 200, 500, 1000, 1300, 5000}) {
    CAPTURE(bound_us);
    for (const Device& device :
         {Device(steady), Device([](int64_t n) { return 23.0 + 27.0 * static_cast<double>(n); })}) {
      CostTable table;
      for (int i = 0; i < 300; ++i) {
        const int64_t rows = table.best_rows(64, kMicrosecond * bound_us);
        if (rows > 1) CHECK(device(rows) <= static_cast<double>(bound_us));
        run(table, device, rows, 1);
      }
      const int64_t rows = table.best_rows(64, kMicrosecond * bound_us);
      CHECK((rows == 64 || device(rows + 1 + rows / 4) > static_cast<double>(bound_us)));
    }
  }
}

TEST_CASE("a verdict is looked at again, at a small price") {
  CostTable table = learnt(steady, {8, 16});
  run(table, [](int64_t rows) { return 5 * steady(rows); }, 64);  // the machine was busy
  REQUIRE(table.best_rows(64) < 64);
  int64_t tried = 0;
  for (int i = 0; i < 600; ++i) {
    const int64_t rows = table.best_rows(64);
    tried += rows == 64 ? 1 : 0;
    run(table, steady, rows, 1);
  }
  CHECK(tried > 0);
  CHECK(table.best_rows(64) == 64);

  CostTable bad = learnt(spilling, {8, 16, 24, 64});
  int64_t large = 0;
  for (int i = 0; i < 5000; ++i) {
    const int64_t rows = bad.best_rows(64);
    large += rows > 40 ? 1 : 0;
    run(bad, spilling, rows, 1);
  }
  CHECK(large > 0);
  CHECK(large < 5000 / 50);
}

TEST_CASE("joining is given up where a row costs no less in a batch, and tried again now and then") {
  struct Case {
    const char* name;
    Device device;
    bool joins;
  };
  const std::vector<Case> cases = {
      {"each row costs its own", [](int64_t rows) { return 60.0 * static_cast<double>(rows); }, false},
      {"a start that hardly counts", [](int64_t rows) { return 5 + 60.0 * static_cast<double>(rows); },
       false},
      {"a start of half a row", [](int64_t rows) { return 30 + 60.0 * static_cast<double>(rows); }, true},
      {"a tenth saved, less than joining costs",
       [](int64_t n) { return 6.0 + 57.0 * static_cast<double>(n); }, false},
      {"a tenth saved, of a long row", [](int64_t n) { return 600.0 + 5700.0 * static_cast<double>(n); },
       true},
      {"one start for all", steady, true},
      {"batches are slower", [](int64_t rows) { return static_cast<double>(rows * (rows + 9)); }, false},
  };
  for (const Case& each : cases) {
    CAPTURE(each.name);
    CostTable table = learnt(each.device, {1, 2, 8, 8, 8});
    CHECK(table.is_joining_worthwhile() == each.joins);
    CHECK((table.best_rows(64) > 1) == each.joins);
    CHECK(learnt(each.device, {1}).is_joining_worthwhile());  // nothing to compare with
    CHECK(learnt(each.device, {8}).is_joining_worthwhile());
  }
  CostTable table = learnt(cases[0].device, {1, 8, 8, 8});
  int64_t joined = 0;
  for (int i = 0; i < 20000; ++i) {
    const int64_t rows = std::min<int64_t>(table.best_rows(64), 8);
    joined += rows == 8 ? 1 : 0;
    run(table, cases[0].device, rows, 1);
  }
  CHECK(joined > 0);
  CHECK(joined < 20000 / 100);
  for (int i = 0; i < 5000; ++i) run(table, steady, std::min<int64_t>(table.best_rows(64), 8), 1);
  CHECK(table.is_joining_worthwhile());  // the model became another one
}

TEST_CASE("batches that were slow at first, since they compiled, are soon measured anew") {
  CostTable table = learnt(steady, {1});
  run(table, [](int64_t rows) { return 20 * steady(rows); }, 8, 8);
  REQUIRE(!table.is_joining_worthwhile());
  int64_t alone = 0;
  while (!table.is_joining_worthwhile() && alone < 1000) ++alone, run(table, steady, 1, 1);
  CHECK(alone <= 128);
  for (int i = 0; i < 200; ++i) run(table, steady, std::min<int64_t>(table.best_rows(64), 8), 1);
  CHECK(table.is_joining_worthwhile());
}

TEST_CASE("a row alone is asked for while it is not known, and batches are") {
  CostTable table;
  run(table, steady, 8, 15);
  CHECK(!table.needs_row_alone());
  run(table, steady, 8, 1);
  CHECK(table.needs_row_alone());
  run(table, steady, 1, 3);
  CHECK(!table.needs_row_alone());
  run(table, steady, 8, 600);
  CHECK(table.needs_row_alone());
  CostTable alone = learnt([](int64_t rows) { return 60.0 * static_cast<double>(rows); }, {1, 8, 8, 8});
  run(alone, steady, 8, 60);  // batches that were on their way
  CHECK(!alone.needs_row_alone());
}

TEST_CASE("noise does not keep a table from large batches") {
  std::mt19937_64 engine(7);
  CostTable table;
  int64_t small = 0;
  for (int i = 0; i < 3000; ++i) {
    const int64_t most = table.best_rows(64);
    const auto rows = static_cast<int64_t>(1 + engine() % static_cast<uint64_t>(most));
    const double noise = 0.9 + 0.2 * static_cast<double>(engine() % 1000) / 1000;
    run(table, [&](int64_t n) { return noise * steady(n); }, rows, 1);
    small += most < 32 ? 1 : 0;
  }
  CHECK(small < 30);
}

TEST_CASE("the ends of the numbers are no trap") {
  CostTable table;
  for (int i = 0; i < 3; ++i) {
    table.record(1, Duration::zero());
    table.record(kHuge, Duration::max());
    table.record(0, Duration(-5));
  }
  CHECK(table.estimate(kHuge).has_value());
  CHECK(table.estimate(-1).has_value());
  CHECK(table.best_rows(kHuge) >= 1);
  CHECK(table.best_rows(kHuge, kMicrosecond) >= 1);
  CHECK(table.best_rows(kHuge, Duration::zero()) == 1);
}

}  // namespace heddle::batch
