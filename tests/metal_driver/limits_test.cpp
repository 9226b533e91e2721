// The table of limits, by macOS and GPU.
#include "drivers/metal/limits.h"

#include <doctest/doctest.h>

#include <fstream>
#include <set>
#include <sstream>

namespace heddle::metal::test {
namespace {

constexpr int64_t kM1 = 7, kM2 = 8, kM4 = 9;

TEST_CASE("a limit holds for the versions and GPUs of its row, and for no others") {
  struct Row {
    const char* name;
    Mac has, has_not;
  };
  const Row rows[] = {
      {"product terms", {26, 6, kM2}, {14, 0, kM4}},    {"product extents", {14, 3, kM4}, {14, 4, kM1}},
      {"scatter extremes", {14, 7, kM4}, {15, 0, kM1}}, {"lone gathers", {15, 1, kM4}, {15, 2, kM1}},
      {"fused attention", {15, 0, kM1}, {14, 7, kM1}},  {"convolution extents", {15, 0, kM4}, {15, 1, kM1}},
  };
  for (const Row& row : rows) {
    CAPTURE(std::string(row.name));
    int found = 0;
    for (const bool wanted : {true, false}) {
      for (const LimitReport& report : limits_of(wanted ? row.has : row.has_not)) {
        if (report.name != row.name) continue;
        ++found;
        CHECK(report.applies == wanted);
      }
    }
    CHECK(found == 2);
  }
}

TEST_CASE("the limits of a Mac are those of its rows") {
  const Limits old = Limits::of({14, 0, kM1}), fresh = Limits::of({26, 0, kM4});
  CHECK(old.product_terms == 32766);
  CHECK(old.product_extent == 32768);
  CHECK(old.scatter_extreme_bits == 0);
  CHECK(old.convolution_extent == 65536);
  CHECK_FALSE(old.lone_gathers);
  CHECK(old.sound_attention);
  CHECK(fresh.product_terms == Limits::kNone);
  CHECK(fresh.product_extent == Limits::kNone);
  CHECK(fresh.scatter_extreme_bits == 32);
  CHECK(fresh.convolution_extent == Limits::kNone);
  CHECK(fresh.lone_gathers);
  CHECK_FALSE(fresh.sound_attention);
  for (const Limits& limits : {old, fresh}) {
    CHECK(limits.array_elements == 2147483647);
    CHECK(limits.array_bytes == 4294967296);
    CHECK(limits.product_axes == 4);
  }
}

TEST_CASE("every row has a name of its own, and says what goes wrong and what is done") {
  std::set<std::string> names;
  for (const LimitReport& report : limits_of({14, 0, kM1})) {
    CHECK_MESSAGE(names.insert(report.name).second, report.name);
    CHECK_FALSE(report.limit.empty());
    CHECK_FALSE(report.driver.empty());
  }
  CHECK(names.size() > 25);
}

TEST_CASE("the table of limits in docs/drivers.md is the driver's") {
  std::string wanted =
      "| limit | where | what goes wrong | what the driver does |\n| --- | --- | --- | --- |\n";
  for (const LimitReport& report : limits_of({14, 0, kM1}))
    wanted +=
        "| " + report.name + " | " + report.where + " | " + report.limit + " | " + report.driver + " |\n";
  std::ostringstream document;
  document << std::ifstream(HEDDLE_DRIVERS_DOCUMENT).rdbuf();
  CHECK_MESSAGE(document.str().find("\n" + wanted + "\n") != std::string::npos, "it should be\n", wanted);
}

}  // namespace
}  // namespace heddle::metal::test
