#include "drivers/host/onednn/product_way.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

namespace heddle::host {
namespace {

std::vector<ProductShape> some_shapes() {
  std::vector<ProductShape> shapes;
  for (const int64_t m : {1, 2, 3, 7, 8, 16, 17, 20, 21, 33, 48, 64, 100, 128, 1000}) {
    for (const int64_t n : {16, 100, 333, 512, 1024}) {
      for (const bool rows_only : {false, true})
        shapes.push_back({m, 512, n, 64, rows_only && m > 1, rows_only});
    }
  }
  return shapes;
}

TEST_CASE("a cut covers each row and each column once, and no panel ends inside the weight's blocks") {
  for (const ProductShape& shape : some_shapes()) {
    for (const int width : {2, 3, 8, 16}) {
      std::vector<Way> ways = ways_shared(shape, width);
      for (const Way& way : ways_alone(shape)) ways.push_back(way);
      ways.push_back(default_shared(shape, width));
      for (const Way& way : ways) {
        CAPTURE(to_string(way));
        const Cut c = cut(shape, way);
        REQUIRE((c.columns == shape.n || c.columns % shape.columns_together == 0));
        int64_t rows = 0, pieces = 0;
        for (int64_t row = 0; row < shape.m; row += c.rows) {
          const int64_t part = std::min(c.rows, shape.m - row), blocks = c.blocks_of(part);
          const int64_t last = part - c.block * (blocks - 1);
          REQUIRE(last > 0);
          REQUIRE(last <= c.block + c.block / 4);
          rows += part;
          for (int64_t column = 0; column < shape.n; column += c.columns) ++pieces;
        }
        REQUIRE(rows == shape.m);
        REQUIRE(pieces == pieces_of(shape, way));
        if (shape.rows_only) REQUIRE(way.panels == 1);
      }
    }
  }
}

TEST_CASE("what may be chosen has the simplest first, no cut twice, and what is taken unmeasured") {
  for (const ProductShape& shape : some_shapes()) {
    CHECK(ways_alone(shape).front() == Way{});
    for (const int width : {2, 3, 8, 16}) {
      for (const std::vector<Way>& ways : {ways_alone(shape), ways_shared(shape, width)}) {
        std::vector<int64_t> calls;
        for (size_t i = 0; i < ways.size(); ++i) {
          const Cut c = cut(shape, ways[i]);
          calls.push_back(pieces_of(shape, ways[i]) * c.blocks_of(c.rows));
          for (size_t j = 0; j < i; ++j) CHECK_FALSE(cut(shape, ways[j]) == c);
        }
        CHECK(std::is_sorted(calls.begin(), calls.end()));
      }
      CHECK(pieces_of(shape, default_shared(shape, width)) <= width);
      const std::vector<Way> ways = ways_shared(shape, width);
      const Cut taken = cut(shape, default_shared(shape, width));
      CHECK(std::ranges::any_of(ways, [&](const Way& way) { return cut(shape, way) == taken; }));
    }
  }
}

TEST_CASE("unmeasured, 64 rows on 16 cores go in a grid, a few rows by columns, many by rows") {
  const ProductShape many{64, 1024, 1024, 64, false, false};
  const Way grid = default_shared(many, 16);
  CHECK(grid.parts > 1);
  CHECK(grid.panels > 1);
  CHECK(pieces_of(many, grid) == 16);
  CHECK(grid.block == 0);
  CHECK(default_shared({1, 1024, 1024, 64, false, false}, 16) == Way{0, 1, 16});
  CHECK(default_shared({64, 1024, 1024, 64, true, true}, 16) == Way{0, 16, 1});
  CHECK(default_shared({4096, 512, 512, 64, false, false}, 16).parts >= 8);
}

TEST_CASE("a rung is the largest power of two that is not above the rows") {
  CHECK(rung_alone(15) == 0);
  CHECK(rung_alone(16) == 16);
  CHECK(rung_alone(63) == 32);
  CHECK(rung_alone(5000) == 64);
  CHECK(rung_shared(1, 16) == 1);
  CHECK(rung_shared(3, 16) == 2);
  CHECK(rung_shared(255, 16) == 128);
  CHECK(rung_shared(5000, 16) == 256);
  CHECK(rung_shared(5000, 3) == 32);
}

}  // namespace
}  // namespace heddle::host
