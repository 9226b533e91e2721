// Calls that a queue has joined: one batch, in the coalescer's seats.
#include <doctest/doctest.h>

#include "batch/calls/coalescer_fixture.h"

namespace heddle::batch {

namespace {

struct Together {
  std::vector<Rows> rows;
  std::vector<Coalescer::Views> calls;
  int formed = 0;
  void add(Rows own) {
    rows.push_back(std::move(own));
    calls.push_back({rows.back().view()});
  }
  Result<Coalescer::Batch> run(Fixture& f) {
    return f.coalescer->run_together(calls, [&] { ++formed; });
  }
};

}  // namespace

TEST_CASE("calls that run together share one run at once, also while the lanes are busy") {
  Fixture f(with(1));
  Together t;
  for (int i = 0; i < 5; ++i) t.add(Rows(1 + i % 2, static_cast<float>(10 * i)));
  const int64_t good = f.behind_a_busy_lane(0, {}, [&] {
    const auto batch = t.run(f);
    REQUIRE(batch.ok());
    for (size_t i = 0; i < 5; ++i) CHECK(f.right(t.rows[i], f.coalescer->answer(*batch, t.calls[i], i)));
  });
  CHECK(good == 1);
  CHECK(t.formed == 1);
  CHECK(f.runs() == std::vector<ir::Extents>{{7, 4}, {1, 4}});
  CHECK(f.coalescer->stats().calls == 6);
  CHECK(f.coalescer->stats().parked == 0);
}

TEST_CASE("a batch of a queue's, with nobody there or expected back, leaves no memory with the coalescer") {
  Fixture f;
  {
    Together t;
    t.add(Rows(3, 1));
    const auto batch = t.run(f);
    REQUIRE(batch.ok());
    CHECK(f.right(t.rows[0], f.coalescer->answer(*batch, t.calls[0], 0)));
    CHECK(f.runtime->stats().slot_bytes > 0);
  }
  f.runtime->allocator().empty_cache();
  CHECK(f.runtime->stats().slot_bytes == 0);
}

TEST_CASE("of calls that run together a bad row fails its own, and nothing runs twice") {
  Fixture f;
  f.kernel = [&](const device::Run& run) {
    for (int64_t i = 0; i < run.inputs[0].extents[0]; ++i) {
      if (Fixture::at(run.inputs[0], i, 0) == 20) run.row_faults->record(i, Status::invalid("index 20"));
    }
    return Status();
  };
  Together t;
  for (int i = 0; i < 5; ++i) t.add(Rows(1, static_cast<float>(10 * i)));
  const auto batch = t.run(f);
  REQUIRE(batch.ok());
  for (size_t i = 0; i < 5; ++i) {
    const auto result = f.coalescer->answer(*batch, t.calls[i], i);
    CHECK((i == 2 ? result.status().code() == Code::invalid : f.right(t.rows[i], result)));
  }
  CHECK(f.runs().size() == 1);
}

TEST_CASE("ragged calls run together padded; where only the padded whole fails, each runs alone") {
  for (const int64_t table : {100, 6}) {
    Fixture f({}, true);
    f.kernel = [&](const device::Run& run) {
      return run.inputs[0].extents[1] > table ? Status::invalid("a table of positions") : Status();
    };
    Together t;
    for (const int64_t length : {5, 7, 3, 6}) t.add(Ragged(length, static_cast<float>(length)));
    const auto batch = t.run(f);
    REQUIRE(batch.ok());
    for (size_t i = 0; i < 4; ++i) {
      const auto result = f.coalescer->answer(*batch, t.calls[i], i);
      CHECK((i == 1 && table == 6 ? result.status().code() == Code::invalid : f.right(t.rows[i], result)));
    }
  }
}

TEST_CASE("rows of no length run together with their like only") {
  Fixture f({}, true);
  Together empty, mixed;
  for (int i = 0; i < 3; ++i) empty.add(Ragged(0, 0));
  const auto batch = empty.run(f);
  REQUIRE(batch.ok());
  for (size_t i = 0; i < 3; ++i)
    CHECK(f.right(empty.rows[i], f.coalescer->answer(*batch, empty.calls[i], i)));
  CHECK(f.runs() == std::vector<ir::Extents>{{3, 0}});
  for (const int64_t length : {3, 0}) mixed.add(Ragged(length, 1));
  const auto none = f.coalescer->shape_of(mixed.calls[1]), three = f.coalescer->shape_of(mixed.calls[0]);
  CHECK_FALSE(same_rows(none->row_extents, three->row_extents));
}

TEST_CASE("a failure of the run is that of all who ran together, and after closing none does") {
  Fixture f(with(1));
  f.kernel = [&](const device::Run& run) {
    return run.inputs[0].extents[0] == 3 ? Status::exhausted("no memory for three") : Status();
  };
  Together t;
  for (int i = 0; i < 3; ++i) t.add(Rows(1, static_cast<float>(i)));
  CHECK(t.run(f).status().code() == Code::exhausted);
  Rows x(1, 1);
  CHECK(f.right(x, f.call(x)));  // the lane is free again
  CHECK(f.coalescer->stats().parked == 0);
  f.coalescer->close();
  CHECK(t.run(f).status().code() == Code::unavailable);
}

}  // namespace heddle::batch
