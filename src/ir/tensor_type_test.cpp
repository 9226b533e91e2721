#include "ir/tensor_type.h"

#include <doctest/doctest.h>

namespace heddle::ir {

namespace {
const Dim kBatch = Dim::symbol("b");
const Dim kLength = Dim::symbol("s");
}  // namespace

TEST_CASE("shapes broadcast as NumPy's do, and refuse what can never fit") {
  struct Row {
    Shape a, b;
    std::string want;  // the shape, or a piece of the message
  };
  const Row rows[] = {
      {{}, {}, "[]"},
      {{}, {2, 3}, "[2, 3]"},
      {{2, 1}, {3}, "[2, 3]"},
      {{1}, {0}, "[0]"},
      {{kBatch, 1}, {1, kLength}, "[b, s]"},
      {{kBatch, 3}, {kBatch, 3}, "[b, 3]"},
      {{kBatch}, {4}, "[4]"},
      {{kBatch}, {kLength}, "[max(b, s)]"},
      {{Dim::min(kLength, 512)}, {kLength}, "[s]"},
      {{Dim::unknown()}, {kLength}, "[s]"},
      {{2}, {3}, "shapes [2] and [3] do not broadcast"},
      {{kBatch}, {kBatch + 1}, "do not broadcast: b against b + 1"},
      {{0}, {2}, "do not broadcast"},
  };
  for (const Row& row : rows) {
    for (const bool swapped : {false, true}) {
      const Result<Shape> got = swapped ? broadcast(row.b, row.a) : broadcast(row.a, row.b);
      CAPTURE(row.want);
      if (row.want[0] == '[') {
        REQUIRE(got.ok());
        CHECK(to_string(*got) == row.want);
      } else {
        REQUIRE(!got.ok());
        if (!swapped) CHECK(got.status().message().find(row.want) != std::string::npos);
      }
    }
  }
}

TEST_CASE("sizes that overflow or are negative are refused, with zeros in them too") {
  const auto check = [](std::vector<int64_t> dims) { return checked_elements(dims, DType::kF32); };
  CHECK(check({2, 3}).value() == 6);
  CHECK(check({}).value() == 1);
  CHECK(check({5, 0}).value() == 0);
  CHECK(!check({2, -1}).ok());
  CHECK(!check({INT64_MAX, INT64_MAX}).ok());
  CHECK(!check({int64_t{1} << 32, int64_t{1} << 32}).ok());
  CHECK(!check({0, INT64_MAX}).ok());
  CHECK(check({kMaxBytes / 4}).ok());
  CHECK(!check({kMaxBytes / 4 + 1}).ok());
}

TEST_CASE("an axis counts from either end") {
  CHECK(normalize_axis(-3, 3).value() == 0);
  CHECK(normalize_axis(2, 3).value() == 2);
  CHECK(normalize_axis(5, 3).status().message() == "axis 5 is outside [-3, 2]");
  CHECK(!normalize_axis(-4, 3).ok());
  CHECK(!normalize_axis(0, 0).ok());
}

}  // namespace heddle::ir
