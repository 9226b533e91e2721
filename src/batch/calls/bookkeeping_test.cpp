// What runs teach about costs, and who goes alone so that its run is measured.
#include <doctest/doctest.h>

#include <algorithm>

#include "batch/calls/coalescer_fixture.h"

namespace heddle::batch {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Where a row alone costs what it does in a batch of two, and both are known, joining does not pay.
TEST_CASE("a cost is learnt from runs that end well and have rows") {
  struct Case {
    const char* what;
    int64_t rows;
    bool fails;
    int64_t rows_max;
  };
  for (const Case& c : {Case{"rows of runs that end well", 1, false, 1}, Case{"runs that fail", 1, true, 64},
                        Case{"no rows", 0, false, 64}}) {
    CAPTURE(c.what);
    CoalescerOptions options = with_equal_costs(with(1));
    options.door = false;
    Fixture f(options);
    f.kernel = [&](const device::Run&) { return c.fails ? Status::invalid("it fails") : Status(); };
    for (int i = 0; i < 11; ++i) {
      Rows x(i < 3 ? c.rows : 2, 3);
      const auto result = f.call(x);
      CHECK((c.fails ? result.status().code() == Code::invalid : f.right(x, result)));
    }
    CHECK(f.coalescer->stats().rows_max == c.rows_max);
  }
}

TEST_CASE("of rows that wait where only batches are known, the first goes alone, and those behind it join") {
  CoalescerOptions options = with(1);
  options.door = false;
  options.cost = [](int64_t rows) { return milliseconds(2) + microseconds(rows); };
  Fixture f(options);
  for (int i = 0; i < 16; ++i) {
    Rows x(2, 3);
    CHECK(f.right(x, f.call(x)));
  }
  f.sizes.lock()->clear();
  const int64_t good = f.behind_a_busy_lane(3, [&](int caller) {
    Rows x(1, static_cast<float>(10 * caller));
    return f.right(x, f.call(x));
  });
  CHECK(good == 4);
  const std::vector<ir::Extents> runs = f.runs();
  REQUIRE(runs.size() == 3);  // of the one that held the lane, and two
  CHECK(std::min(runs[1][0], runs[2][0]) == 1);
  CHECK(std::max(runs[1][0], runs[2][0]) == 2);
}

TEST_CASE("a row that should go alone passes by a full batch and no other row goes alone beside it") {
  constexpr int64_t kRows[] = {2, 2, 1, 1};
  CoalescerOptions options = with(1, 4);
  options.door = false;
  options.cost = [](int64_t rows) { return milliseconds(2) + microseconds(rows); };
  Fixture f(options);
  for (int i = 0; i < 16; ++i) CHECK(f.answers(2, 3));
  f.sizes.lock()->clear();
  const int64_t good = f.behind_a_busy_lane(
      4, [&](int caller) { return f.answers(kRows[caller], static_cast<float>(10 * caller)); });
  CHECK(good == 5);
  CHECK(f.runs() == std::vector<ir::Extents>{{1, 4}, {4, 4}, {1, 4}, {1, 4}});
}

// While callers are expected back the door is shut. It would be for seconds here.
TEST_CASE("where joining does not pay nobody is expected back") {
  CoalescerOptions options = with(1);
  options.cost = [](int64_t rows) { return seconds(20) * rows; };
  Fixture f(options);
  REQUIRE(f.compile(2).ok());
  f.learn_that_joining_does_not_pay();
  const int64_t good = f.behind_a_busy_lane(3, [&](int caller) {
    Rows x(1, static_cast<float>(10 * caller));
    return f.right(x, f.call(x));
  });
  CHECK(good == 4);
  Rows x(1, 7);
  const View view = x.view();
  const View* const views[] = {&view};
  const auto ran = f.coalescer->try_call(views);
  REQUIRE(ran.has_value());
  CHECK(f.right(x, *ran));
}

}  // namespace heddle::batch
