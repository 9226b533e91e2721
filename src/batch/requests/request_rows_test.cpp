#include "batch/requests/request_rows.h"

#include <doctest/doctest.h>

#include <set>

namespace heddle::batch {
namespace {

using Shape = RequestRows::Shape;
const std::vector<int64_t> kFloats = {1};

uint64_t group_of(const RequestRows& rows, const std::vector<Shape>& arrays,
                  const std::vector<int64_t>& kinds = kFloats) {
  return rows.describe(kinds, arrays)->group;
}

TEST_CASE("requests of equal row shapes and kinds share a group, however many rows they have") {
  const RequestRows rows({});
  const uint64_t group = group_of(rows, {{1, 3}, {1}});
  CHECK(group_of(rows, {{7, 3}, {7}}) == group);
  const std::set<uint64_t> others = {group, group_of(rows, {{1, 4}, {1}}), group_of(rows, {{1, 3}}),
                                     group_of(rows, {{1}, {1, 3}}), group_of(rows, {{1, 3}, {1}}, {2})};
  CHECK(others.size() == 5);
}

TEST_CASE("with padding, equal ranks share a group, and buckets part them") {
  const RequestRows padded({.on = true});
  CHECK(group_of(padded, {{1, 3, 5}}) == group_of(padded, {{2, 9, 1}}));
  CHECK(group_of(padded, {{1, 3, 5}}) != group_of(padded, {{1, 3}}));
  CHECK(padded.describe(kFloats, std::vector<Shape>{{1, 3, 5}, {1, 9}, {1}})->length == 9);
  CHECK(RequestRows({}).describe(kFloats, std::vector<Shape>{{1, 3, 5}})->length == 0);
  const RequestRows bucketed({.on = true, .buckets = {4, 8}});
  CHECK(group_of(bucketed, {{1, 3}}) == group_of(bucketed, {{1, 4}}));
  CHECK(group_of(bucketed, {{1, 3}}) != group_of(bucketed, {{1, 5}}));
  CHECK(bucketed.describe(kFloats, std::vector<Shape>{{1, 9}}).status().code() == Code::invalid);
}

TEST_CASE("groups are forgotten when there are more than 4096, and no number is used twice") {
  constexpr int64_t kGroups = 4096;
  const RequestRows rows({});
  for (int64_t i = 0; i < kGroups; ++i) REQUIRE(rows.group({i}) == static_cast<uint64_t>(i) + 1);
  CHECK(rows.group({0}) == 1);
  CHECK(rows.group({kGroups}) == kGroups + 1);
  CHECK(rows.group({0}) == kGroups + 2);
  CHECK(rows.group({kGroups}) == kGroups + 1);
}

TEST_CASE("what is wrong with a request is named") {
  const RequestRows rows({});
  const auto error = [&](const std::vector<Shape>& arrays) {
    return rows.describe(kFloats, arrays).status().message();
  };
  CHECK(error({}) == "the request holds no array");
  CHECK(error({{0, 3}}) == "the request has no rows");
  CHECK(error({{-2, 3}}) == "the request has -2 rows");
  CHECK(error({{2}, {}}) == "input 1 is a single value and has no rows: axis 0 must count rows");
  CHECK(error({{2}, {3}}) ==
        "input 1 has 3 rows and input 0 has 2: all arrays of a request must have equally many rows");
}

TEST_CASE("a batch is as long as its longest request along each axis, or as its bucket") {
  const std::vector<Shape> arrays = {{1, 3, 5}, {2, 4, 2}};
  CHECK(RequestRows({.on = true}).stacked(arrays, 4) == Shape{3, 4, 5});
  CHECK(RequestRows({.on = true, .buckets = {6}}).stacked(arrays, 4) == Shape{3, 6, 5});
  CHECK(RequestRows({}).stacked(std::vector<Shape>{{1, 3}, {4, 3}}, 0) == Shape{5, 3});
  CHECK(RequestRows({.on = true, .buckets = {6}}).stacked(std::vector<Shape>{{1}, {2}}, 0) == Shape{3});
}

TEST_CASE("a result is cut back to its request's length, and never made longer") {
  const RequestRows cut({.on = true, .cut = true});
  CHECK(cut.own_length(8, 5) == 5);
  CHECK(cut.own_length(3, 5) == 3);
  CHECK(cut.own_length(8, 0) == 8);  // of arrays that have rows only
  CHECK(RequestRows({.on = true}).own_length(8, 5) == 8);
}

TEST_CASE("a request of more rows than a batch is cut into parts that cover it") {
  using Parts = std::vector<std::pair<int64_t, int64_t>>;
  CHECK(RequestRows::parts(11, 4) == Parts{{0, 4}, {4, 8}, {8, 11}});
  CHECK(RequestRows::parts(8, 4) == Parts{{0, 4}, {4, 8}});
  CHECK(RequestRows::parts(3, 4) == Parts{{0, 3}});
}

TEST_CASE("buckets ascend and come with padding, as does a cut") {
  CHECK(RequestRows::check({.on = true, .buckets = {4, 8}, .cut = true}).ok());
  CHECK_FALSE(RequestRows::check({.on = true, .buckets = {8, 4}}).ok());
  CHECK_FALSE(RequestRows::check({.on = true, .buckets = {0, 4}}).ok());
  CHECK_FALSE(RequestRows::check({.buckets = {4}}).ok());
  CHECK_FALSE(RequestRows::check({.cut = true}).ok());
}

}  // namespace
}  // namespace heddle::batch
