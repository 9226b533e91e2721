#include "drivers/host/onednn/product_way.h"

#include <algorithm>
#include <bit>

#include "base/status.h"

namespace heddle::host {
namespace {

constexpr int64_t kFewestRows = 4;  // of a part: fewer leave the multipliers waiting for the weight
constexpr int64_t kBlock = 16;      // of rows, in panels
constexpr int64_t kBlocks[] = {48, 32, 16, 8};
constexpr int64_t kHighestAlone = 64;     // a rung: more rows are only more blocks
constexpr int64_t kRowsOfAThread = 16;    // of the highest rung of a team
constexpr int64_t kPanelBytes = 1 << 20;  // of a weight: less than that stays in a core's own cache anyway

// Multiplications that a core does while it brings in the K values of a column or of a row. Rows cost more:
// another core has just written them.
constexpr int64_t kColumnCost = 8, kRowCost = 24;

int64_t up(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t blocks_across(const ProductShape& s) { return up(s.n, s.columns_together); }

// Without repetition: ways that come to the same cut are one.
void add_way(const ProductShape& shape, const Way& way, std::vector<Way>& ways) {
  const auto same = [&](const Way& other) { return cut(shape, way) == cut(shape, other); };
  if (std::none_of(ways.begin(), ways.end(), same)) ways.push_back(way);
}

void simplest_first(const ProductShape& shape, std::vector<Way>& ways) {
  const auto calls = [&](const Way& way) {
    const Cut c = cut(shape, way);
    return pieces_of(shape, way) * c.blocks_of(c.rows);
  };
  std::stable_sort(ways.begin(), ways.end(), [&](const Way& a, const Way& b) { return calls(a) < calls(b); });
}

// In as many pieces as there are threads, or a few less: parts of rows that a thread can work with, and all
// threads left over side by side.
std::vector<Way> grids(const ProductShape& s, int64_t threads) {
  std::vector<Way> ways;
  for (int64_t parts = 1; parts <= threads;
       parts = parts * 2 > threads && parts < threads ? threads : parts * 2) {
    if (parts > 1 && s.m < parts * kFewestRows) break;
    const int64_t panels = s.rows_only ? 1 : std::min(threads / parts, blocks_across(s));
    ways.push_back({0, parts, std::max<int64_t>(panels, 1)});
  }
  return ways;
}

Way in_blocks(const ProductShape& s, Way way) {
  way.block = kBlock;
  return without_idle_block(s, way);
}

}  // namespace

std::string to_string(const Way& way) {
  std::string out = way.parts * way.panels == 1 ? "whole" : text(way.parts, " x ", way.panels, " pieces");
  if (way.block > 0) out += text(" by ", way.block, " rows");
  return out;
}

Cut cut(const ProductShape& shape, const Way& way) {
  const int64_t rows = up(shape.m, way.parts);
  const int64_t columns = std::min(up(blocks_across(shape), way.panels) * shape.columns_together, shape.n);
  const Cut size{rows, columns, way.block == 0 ? rows : way.block};
  return size.blocks_of(rows) == 1 ? Cut{rows, columns, rows} : size;
}

int64_t pieces_of(const ProductShape& shape, const Way& way) {
  const Cut c = cut(shape, way);
  return up(shape.m, c.rows) * up(shape.n, c.columns);
}

Way without_idle_block(const ProductShape& shape, Way way) {
  const Cut c = cut(shape, way);
  if (c.block == c.rows) way.block = 0;
  return way;
}

std::vector<Way> ways_alone(const ProductShape& shape) {
  std::vector<Way> ways = {Way{}};
  for (const int64_t block : kBlocks) {
    if (block < shape.m) add_way(shape, {block, 1, 1}, ways);
  }
  const int64_t bytes = shape.k * shape.n * (shape.bf16 ? 2 : 4);
  if (!shape.rows_only && bytes > kPanelBytes && shape.m > kBlock) {
    for (const int64_t panels : {2, 4}) add_way(shape, {kBlock, 1, panels}, ways);
  }
  simplest_first(shape, ways);
  return ways;
}

std::vector<Way> ways_shared(const ProductShape& shape, int width) {
  std::vector<Way> ways = {Way{}};
  for (const int64_t threads : {width, width / 2}) {
    if (threads < 2) continue;
    for (const Way& grid : grids(shape, threads)) {
      if (threads == width || grid.parts == 1) add_way(shape, grid, ways);
      if (threads == width) add_way(shape, in_blocks(shape, grid), ways);
    }
  }
  simplest_first(shape, ways);
  return ways;
}

Way default_shared(const ProductShape& shape, int width) {
  const auto cost = [&](const Way& way) {
    const Cut c = cut(shape, way);
    return c.rows * c.columns + kColumnCost * c.columns + kRowCost * c.rows;
  };
  Way best;
  for (const Way& grid : grids(shape, width)) {
    if (cost(grid) < cost(best)) best = grid;
  }
  return best;
}

int64_t rung_alone(int64_t m) {
  return m < kBlock ? 0 : std::min<int64_t>(std::bit_floor(static_cast<uint64_t>(m)), kHighestAlone);
}

int64_t rung_shared(int64_t m, int width) {
  const auto highest = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(width * kRowsOfAThread)));
  return std::min(static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(m))), highest);
}

}  // namespace heddle::host
