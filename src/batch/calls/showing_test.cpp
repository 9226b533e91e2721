// Seats that callers take without the coalescer's lock.
#include <doctest/doctest.h>

#include <map>

#include "batch/calls/coalescer_fixture.h"

namespace heddle::batch {

namespace {

uint16_t kind_of_row(Fixture& f, int64_t length) {
  Ragged row(length, 0);
  const View view = row.view();
  return kind_of(f.coalescer->shape_of({&view, 1})->row_extents, false);
}

}  // namespace

TEST_CASE(
    "a caller that finds rows of another length under its number gives that seat up, and is counted once") {
  Fixture f(with(1), true, true);
  std::map<uint16_t, int64_t> lengths;
  int64_t one = 0, other = 0;
  for (int64_t length = 1; other == 0; ++length) {
    const auto [found, is_new] = lengths.try_emplace(kind_of_row(f, length), length);
    if (is_new) continue;
    one = found->second;
    other = length;
  }
  const int64_t good = f.behind_a_busy_lane(4, [&](int caller) {
    Ragged row(caller % 2 == 0 ? one : other, static_cast<float>(caller));
    return f.right(row, f.call(row));
  });
  CHECK(good == 5);
  const Coalescer::Stats stats = f.coalescer->stats();
  CHECK(stats.calls == 5);
  CHECK(stats.left == 0);
  CHECK(stats.parked == 0);
  CHECK(stats.refused == 0);
  int64_t rows = 0;
  for (const ir::Extents& run : f.runs()) {
    if (run[1] == one || run[1] == other) rows += run[0];
  }
  CHECK(rows > 4);  // seats that were given up had a row of zeros
}

}  // namespace heddle::batch
