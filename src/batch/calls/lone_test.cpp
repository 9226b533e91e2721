// Calls through the door, beside those that join.
#include <doctest/doctest.h>

#include <vector>

#include "batch/calls/coalescer_fixture.h"

namespace heddle::batch {

namespace {

std::optional<Result<std::vector<View>>> try_call(Fixture& f, Rows& rows) {
  const View view = rows.view();
  const View* const input = &view;
  return f.coalescer->try_call({&input, 1});
}

}  // namespace

TEST_CASE("while nobody else is there, calls go through the door and are counted") {
  Fixture f(with(2));
  REQUIRE(f.compile(4).ok());
  for (int i = 0; i < 3; ++i) {
    Rows rows(1 + i, static_cast<float>(i));
    const auto result = try_call(f, rows);
    REQUIRE(result.has_value());
    CHECK(f.right(rows, *result));
  }
  const auto stats = f.coalescer->stats();
  CHECK(stats.calls == 3);
  CHECK(stats.batches == 3);
  CHECK(std::vector<uint64_t>(stats.rows.begin(), stats.rows.begin() + 4) ==
        std::vector<uint64_t>{0, 1, 1, 1});
}

TEST_CASE("callers that wait behind a call that came through the door run when it ends, in one batch") {
  Fixture f(with(1));
  REQUIRE(f.compile(4).ok());
  const int64_t good = f.behind_a_busy_lane(3, [&](int i) {
    Rows rows(1, static_cast<float>(10 * i));
    return f.right(rows, f.call(rows, Deadline::in(std::chrono::seconds(20))));
  });
  CHECK(good == 4);
  CHECK(f.runs() == std::vector<ir::Extents>{{1, 4}, {3, 4}});
  Rows rows(2, 5);
  CHECK(f.right(rows, f.call(rows)));
  CHECK(f.coalescer->stats().calls == 5);
}

// It tells nobody when it ends: a caller that waited for its lane would wait for ever.
TEST_CASE("a call on a stream is no lane busy to those who join calls: one beside it is answered meanwhile") {
  Fixture f(with(1));
  REQUIRE(f.compile(4).ok());
  f.hold_first = true;
  Thread on_stream("on a stream", [&] {
    const Ref<runtime::Stream> stream = *f.runtime->streams().default_stream();
    Rows rows(1, 9);
    const View view = rows.view();
    const View* const input = &view;
    const auto result = f.runtime->try_run_on(*f.model, {*stream, {&input, 1}, {}, false, Deadline::never()});
    REQUIRE(result.has_value());
    CHECK(f.right(rows, *result));
  });
  wait_until([&] { return f.latch.arrived() == 1; });
  CHECK(f.runtime->governor().lone(f.model->id()) == 0);
  for (int i = 0; i < 3; ++i) {
    Rows rows(1, static_cast<float>(i));
    CHECK(f.right(rows, f.call(rows, Deadline::in(std::chrono::seconds(20)))));
  }
  f.latch.open();
  on_stream.join();
}

TEST_CASE("the door is shut while a caller waits, and open again when all are gone") {
  Fixture f(with(1));
  REQUIRE(f.compile(4).ok());
  Rows late(1, 7);
  const int64_t good = f.behind_a_busy_lane(
      1,
      [&](int) {
        Rows rows(1, 3);
        return f.right(rows, f.call(rows));
      },
      [&] {
        wait_until([&] { return f.coalescer->stats().parked == 1; });
        CHECK_FALSE(try_call(f, late).has_value());
      });
  CHECK(good == 2);
  // Who was just answered may be expected back; a call that comes when that time is over finds nobody.
  wait_until([&] { return f.right(late, f.call(late)) && try_call(f, late).has_value(); });
}

TEST_CASE("a closed coalescer's door stays shut") {
  Fixture f(with(1));
  REQUIRE(f.compile(4).ok());
  f.coalescer->close();
  Rows rows(1, 1);
  CHECK_FALSE(try_call(f, rows).has_value());
  CHECK(f.call(rows).status().code() == Code::unavailable);
}

TEST_CASE("16 threads that come and go alone and together get their own rows, and each is counted") {
  constexpr int kThreads = 16, kTimes = 300;
  Fixture f(with(2, 8));
  REQUIRE(f.compile(4).ok());
  Atomic<int> right{0};
  run_together(kThreads, [&](int thread) {
    for (int i = 0; i < kTimes / (1 + thread % 4); ++i) {
      Rows rows(1 + i % 2, static_cast<float>(1000 * thread + i));
      right.add_relaxed(f.right(rows, f.call(rows)) ? 1 : 0);
    }
  });
  const int calls = 4 * (kTimes + kTimes / 2 + kTimes / 3 + kTimes / 4);
  CHECK(right.load_relaxed() == calls);
  CHECK(f.coalescer->stats().calls == static_cast<uint64_t>(calls));
  CHECK(f.coalescer->stats().parked == 0);
}

}  // namespace heddle::batch
