#include "batch/policy/batch_policy.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "batch/policy/policy_simulation_fixture.h"

namespace heddle::batch {

namespace {

constexpr Duration kUs = microseconds(1);

TimePoint at(int64_t us) { return TimePoint(kUs * us); }

std::string to_string(const Decision& decision) {
  const auto listed = [](std::string out, const std::vector<RequestId>& ids) {
    for (const RequestId id : ids) out += " " + std::to_string(id);
    return out;
  };
  if (const auto* take = std::get_if<Take>(&decision)) return listed("take", take->ids);
  if (const auto* expire = std::get_if<Expire>(&decision)) return listed("expire", expire->ids);
  const TimePoint until = std::get<Wait>(decision).until;
  if (until == TimePoint::max()) return "wait";
  return "wait " + std::to_string(until.time_since_epoch() / kUs);
}

struct Example {
  std::string property;
  std::vector<Waiting> waiting;
  Running running;
  Limits limits;
  std::string decision;  // asked at 1000 us
};

Waiting waits(RequestId id, int64_t arrived_us) { return {.id = id, .arrived = at(arrived_us)}; }

Waiting until(Waiting request, int64_t deadline_us) {
  request.deadline = at(deadline_us);
  return request;
}

Waiting of(Waiting request, uint64_t group, int priority) {
  request.group = group;
  request.priority = priority;
  return request;
}

Waiting sized(Waiting request, int64_t rows, int64_t cost = 0) {
  request.rows = rows;
  request.cost = cost;
  return request;
}

void check(const std::vector<Example>& examples) {
  for (const Example& example : examples) {
    CAPTURE(example.property);
    CHECK(to_string(decide(at(1000), example.waiting, example.running, example.limits)) == example.decision);
  }
}

const Running kOneBusyOfTwo = {.lanes = 2, .busy = 1};
const Running kSomeReturn = {.lanes = 2, .active = 8, .returning = 2, .returning_until = at(1200)};

}  // namespace

TEST_CASE("when a batch is due") {
  check({
      {"nothing waits", {}, {}, {}, "wait"},
      {"a lone caller never waits", {waits(1, 1000)}, {}, {}, "take 1"},
      {"a lone caller does not wait for max_wait", {waits(1, 1000)}, {}, {.max_wait = kUs * 500}, "take 1"},
      {"no lane is free", {waits(1, 900)}, {.busy = 1}, {}, "wait"},
      {"no lane is free, a deadline comes", {until(waits(1, 900), 1300)}, {.busy = 1}, {}, "wait 1300"},
      {"no lane is free, a deadline is there",
       {waits(1, 900), until(waits(2, 900), 1000)},
       {.busy = 1},
       {},
       "expire 2"},
      {"without max_wait a free lane is used", {waits(1, 900)}, kOneBusyOfTwo, {}, "take 1"},
      {"with max_wait it waits while another lane runs",
       {waits(2, 950), waits(1, 900)},
       kOneBusyOfTwo,
       {.max_wait = kUs * 500},
       "wait 1400"},
      {"max_wait is over", {waits(1, 500)}, kOneBusyOfTwo, {.max_wait = kUs * 500}, "take 1"},
      {"callers are expected back", {waits(1, 990)}, kSomeReturn, {}, "wait 1200"},
      {"callers are expected back, but not for longer than max_wait",
       {waits(1, 990)},
       kSomeReturn,
       {.max_wait = kUs * 100},
       "wait 1090"},
      {"a deadline is near", {until(waits(1, 900), 1200)}, kSomeReturn, {}, "wait 1125"},
      {"a deadline is nearer", {until(waits(1, 100), 1200)}, kSomeReturn, {}, "take 1"},
      {"an expected caller is late",
       {waits(1, 990)},
       {.lanes = 2, .active = 8, .returning = 2, .returning_until = at(1000)},
       {},
       "take 1"},
      {"all callers are back",
       {waits(1, 990)},
       {.lanes = 2, .active = 8, .returning_until = at(1200)},
       {},
       "take 1"},
  });
}

TEST_CASE("what a batch holds") {
  const std::vector<Waiting> five = {waits(1, 1), waits(2, 2), waits(3, 3), waits(4, 4), waits(5, 5)};
  const std::vector<Waiting> wide = {sized(waits(1, 1), 2, 10), sized(waits(2, 2), 1, 30),
                                     sized(waits(3, 3), 1, 1)};
  check({
      {"everything that fits", five, {}, {}, "take 1 2 3 4 5"},
      {"no more than max_rows", five, {}, {.max_rows = 3}, "take 1 2 3"},
      {"no more than the lane's share", five, {.lanes = 2, .active = 7}, {}, "take 1 2 3 4"},
      {"a full share does not wait",
       {waits(1, 1), waits(2, 2)},
       {.lanes = 2, .active = 4, .returning = 2, .returning_until = at(1200)},
       {},
       "take 1 2"},
      {"the oversized alone", {sized(waits(1, 1), 9), waits(2, 2)}, {}, {.max_rows = 4}, "take 1"},
      {"no request overtakes one that does not fit",
       {waits(1, 1), sized(waits(2, 2), 4), waits(3, 3)},
       {},
       {.max_rows = 4},
       "take 1"},
      {"no more than the sum of costs", wide, {}, {.max_cost = 40}, "take 1 2"},
      {"a batch of all of the cost does not wait",
       {sized(waits(1, 990), 1, 10), sized(waits(2, 990), 1, 30)},
       kSomeReturn,
       {.max_cost = 40},
       "take 1 2"},
      {"one of less does", {sized(waits(1, 990), 1, 39)}, kSomeReturn, {.max_cost = 40}, "wait 1200"},
      {"no more than the padded area", wide, {}, {.max_cost = 90, .cost_kind = CostKind::padded}, "take 1 2"},
      {"a padded area counts every row", wide, {}, {.max_cost = 89, .cost_kind = CostKind::padded}, "take 1"},
      {"the largest preferred size", five, {}, {.preferred_rows = {2, 4, 8}}, "take 1 2 3 4"},
      {"a preferred size does not wait",
       five,
       kSomeReturn,
       {.max_rows = 8, .preferred_rows = {4}},
       "take 1 2 3 4"},
      {"a full batch is not cut", five, {}, {.max_rows = 5, .preferred_rows = {2}}, "take 1 2 3 4 5"},
      {"a preferred size is met exactly or not at all",
       {sized(waits(1, 1), 3), sized(waits(2, 2), 3)},
       {},
       {.preferred_rows = {4}},
       "take 1 2"},
  });
}

TEST_CASE("which request goes first") {
  const Limits slow = {.max_rows = 1, .aging = kUs * 100};
  check({
      {"the earlier", {waits(2, 5), waits(1, 6)}, {}, slow, "take 2"},
      {"the smaller id of equals", {waits(2, 5), waits(1, 5)}, {}, slow, "take 1"},
      {"the higher priority", {waits(1, 990), of(waits(2, 995), 0, 1)}, {}, slow, "take 2"},
      {"a request that waited a step longer is equal and earlier",
       {waits(1, 900), of(waits(2, 995), 0, 1)},
       {},
       slow,
       "take 1"},
      {"a priority does not age when aging is zero",
       {waits(1, 0), of(waits(2, 995), 0, 1)},
       {},
       {.max_rows = 1, .aging = {}},
       "take 2"},
      {"the group of the highest", {waits(1, 1), of(waits(2, 995), 7, 10), waits(3, 3)}, {}, slow, "take 2"},
      {"a due group passes one that waits for callers",
       {of(waits(1, 990), 7, 1), waits(2, 995), waits(3, 995), waits(4, 995), waits(5, 995)},
       kSomeReturn,
       {},
       "take 2 3 4 5"},
      {"but not for longer than one step of aging",
       {of(waits(1, 900), 7, 1), waits(2, 995), waits(3, 995), waits(4, 995), waits(5, 995)},
       kSomeReturn,
       {.aging = kUs * 100},
       "take 1"},
  });
}

TEST_CASE("the ends of the clock and of the numbers are no trap") {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  Waiting ancient = waits(1, 0);
  ancient.arrived = TimePoint::min();
  Waiting future = waits(2, 2000);
  Waiting huge = sized(waits(3, 1), kMost, kMost);
  Waiting huger = sized(waits(4, 2), kMost, kMost);
  huger.priority = std::numeric_limits<int>::max();
  ancient.priority = std::numeric_limits<int>::max();
  future.deadline = TimePoint(Duration(kMost - 1));
  check({
      {"a wait beyond the clock", {waits(1, 900)}, kOneBusyOfTwo, {.max_wait = Duration(kMost - 1)}, "wait"},
      {"arrived before all time", {waits(2, 5), ancient}, {}, {.aging = Duration(1)}, "take 1 2"},
      {"arrives later", {future}, {}, {}, "take 2"},
      {"arrives later, and others return", {future}, kSomeReturn, {}, "wait 1200"},
      {"sums saturate", {huge, huger}, {}, {.max_cost = kMost}, "take 4"},
      {"areas saturate",
       {sized(waits(1, 1), 2, kMost / 2), waits(2, 2)},
       {},
       {.max_cost = kMost, .cost_kind = CostKind::padded},
       "take 1"},
  });
  CHECK(rows_per_batch({.lanes = 0, .active = std::numeric_limits<int>::max()}, {.max_rows = kMost}) ==
        std::numeric_limits<int>::max());
  CHECK(rows_per_batch({}, {.max_rows = 0}) == 1);
  CHECK(rows_per_batch({.lanes = 4, .active = 5}, {}) == 2);
  CHECK(rows_per_batch({.lanes = 4, .active = 1000}, {}) == 64);
}

TEST_CASE("more requests than usual are ordered like few") {
  std::vector<Waiting> many;
  for (int64_t i = 0; i < 500; ++i) many.push_back(of(waits(static_cast<RequestId>(i), 1000 - i), i % 3, 0));
  const Question question{at(1000), many, {}, {.max_rows = 4}};
  const Decision decision = question.ask(decide);
  CHECK(to_string(decision) == "take 499 496 493 490");
  CHECK(fault_of(question, decision, decide).value_or("none") == "none");
}

}  // namespace heddle::batch
