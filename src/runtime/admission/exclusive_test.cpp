// What an exclusive hold keeps off, and what it waits for.
#include <doctest/doctest.h>

#include <functional>
#include <optional>

#include "base/thread.h"
#include "runtime/admission/held_fixture.h"

namespace heddle::runtime {

namespace {

using device::View;
using test::kAtOnce;
using test::Rows;

struct ExclusiveFixture : test::HeldFixture {
  explicit ExclusiveFixture(bool asynchronous)
      : HeldFixture({.asynchronous = asynchronous, .name = "exclusive-test"}),
        second(*runtime->streams().lease()) {
    y = *runtime->allocate(ir::DType::kF32, {1, 4});
    REQUIRE(runtime->fill(a(), y, 1).ok());
    REQUIRE(runtime->synchronize().ok());
  }
  Stream& b() { return *second; }
  Result<Exclusive> hold(Deadline deadline = Deadline::never()) {
    return runtime->governor().exclusive(deadline);
  }
  void until_waiting(int callers) {
    test::wait_until([&] { return runtime->governor().stats().waiting == callers; });
  }
  std::vector<float> read(const View& view) {
    Rows rows(1);
    REQUIRE(runtime->copy(b(), view, rows.view()).ok());
    return rows.values;
  }

  StreamLease second;
  View y;
};

// Work other than calls, each on stream a.
struct Work {
  const char* name;
  std::function<Status(ExclusiveFixture&, Deadline)> begin;
};
const Work kWork[] = {
    {"copy", [](ExclusiveFixture& f, Deadline d) { return f.runtime->copy(f.a(), f.x, f.y, d); }},
    {"copy to the caller's memory",
     [](ExclusiveFixture& f, Deadline d) {
       Rows to(1);
       HEDDLE_TRY(f.runtime->copy(f.a(), f.x, to.view(), d));
       return to.values == std::vector<float>(4, 5) ? Status() : Status::internal("wrong values");
     }},
    {"fill", [](ExclusiveFixture& f, Deadline d) { return f.runtime->fill(f.a(), f.y, 5, d); }},
};

}  // namespace

TEST_CASE("an exclusive hold begins when the copies and fills that are under way are over") {
  for (const bool asynchronous : {false, true}) {
    for (const Work& work : kWork) {
      CAPTURE(asynchronous);
      CAPTURE(work.name);
      ExclusiveFixture f(asynchronous);
      f.hold_copies.store_release(true);
      Thread worker("worker", [&] { CHECK(work.begin(f, Deadline::never()).ok()); });
      test::wait_until([&] { return f.latch.arrived() == 1; });
      const bool waits = f.hold(kAtOnce).status().code() == Code::deadline;
      CHECK(waits);
      if (!waits) {
        f.latch.open();
        continue;
      }
      Atomic<bool> over{false};
      const Thread opener("opener", [&] {
        f.until_waiting(1);
        over.store_release(true);
        f.latch.open();
      });
      const auto hold = f.hold();
      CHECK(hold.ok());
      CHECK(over.load_acquire());
      CHECK(f.a().query());
      worker.join();
    }
  }
}

TEST_CASE("copies and fills of other threads wait for the end of a hold; its holder copies and fills") {
  for (const bool asynchronous : {false, true}) {
    for (const Work& work : kWork) {
      CAPTURE(asynchronous);
      CAPTURE(work.name);
      ExclusiveFixture f(asynchronous);
      std::optional<Exclusive> hold = *f.hold();
      const uint64_t last = f.a().last_submitted();
      bool kept_off = false;
      Thread("late", [&] { kept_off = work.begin(f, kAtOnce).code() == Code::deadline; }).join();
      CHECK(kept_off);
      if (!kept_off) continue;
      Thread worker("worker", [&] { CHECK(work.begin(f, Deadline::never()).ok()); });
      f.until_waiting(1);
      CHECK(f.a().last_submitted() == last);
      for (const Work& own : kWork) CHECK(own.begin(f, kAtOnce).ok());  // the worker keeps no Turn
      CHECK(f.a().last_submitted() == last + 3);
      REQUIRE(f.runtime->fill(f.a(), f.y, 7, kAtOnce).ok());
      CHECK(f.read(f.y) == std::vector<float>(4, 7));
      hold.reset();
      worker.join();
      CHECK(f.a().last_submitted() == last + 5);
      CHECK(f.read(f.x) == std::vector<float>(4, 5));
      CHECK(f.runtime->governor().stats().waiting == 0);
    }
  }
}

TEST_CASE("a stream's wait for another stream's work waits for the end of a hold, unless that work is over") {
  ExclusiveFixture f(true);
  const auto outputs = f.runtime->run(*f.held, {.inputs = {&f.x, 1}, .stream = &f.b(), .wait = false});
  REQUIRE(outputs.ok());
  const Event event = f.b().record();
  CHECK(f.runtime->wait(f.a(), event, kAtOnce).ok());  // no hold is on
  const Thread opener("opener", [&] {
    f.until_waiting(1);  // the hold collects: a new submission waits
    CHECK(f.runtime->wait(f.a(), event, kAtOnce).code() == Code::deadline);
    f.latch.open();
  });
  const auto hold = f.hold();
  Thread("other", [&] { CHECK(f.runtime->wait(f.a(), event, kAtOnce).ok()); }).join();
}

TEST_CASE("a copy that parks before the hold begins lets its holder use the stream") {
  for (const bool asynchronous : {false, true}) {
    CAPTURE(asynchronous);
    ExclusiveFixture f(asynchronous);
    Thread runner("runner",
                  [&] { CHECK(f.runtime->run(*f.held, {.inputs = {&f.x, 1}, .stream = &f.b()}).ok()); });
    test::wait_until([&] { return f.latch.arrived() == 1; });
    Thread copier("copier", [&] {
      f.until_waiting(1);
      CHECK(f.runtime->copy(f.a(), f.x, f.y).ok());
    });
    const Thread opener("opener", [&] {
      f.until_waiting(2);
      f.latch.open();
    });
    {
      const auto hold = f.hold();
      CHECK(f.runtime->fill(f.a(), f.y, 9, Deadline::in(std::chrono::seconds(10))).ok());
    }
    copier.join();
    CHECK(f.read(f.y) == std::vector<float>(4, 5));
  }
}

TEST_CASE("parked copies run between two holds, and a hold waits for the one before it") {
  ExclusiveFixture f(false);
  std::optional<Exclusive> first = *f.hold();
  std::vector<Thread> threads;
  f.hold_copies.store_release(true);
  threads.emplace_back("copier", [&] { CHECK(f.runtime->copy(f.a(), f.x, f.y).ok()); });
  f.until_waiting(1);
  threads.emplace_back("holder", [&] {
    const auto second = f.hold();
    CHECK(f.device->counts().copies.load_acquire() == 1);
  });
  f.until_waiting(2);
  first.reset();
  test::wait_until([&] { return f.latch.arrived() == 1; });
  f.until_waiting(1);  // the second hold, for the copy
  f.latch.open();
  threads.clear();
}

TEST_CASE("the holder may close the runtime: parked copies are refused") {
  for (const bool asynchronous : {false, true}) {
    ExclusiveFixture f(asynchronous);
    const auto hold = f.hold();
    const Thread copier("copier", [&] {
      CHECK(f.runtime->copy(f.a(), f.x, f.y).code() == Code::unavailable);
      CHECK(f.runtime->fill(f.a(), f.y, 2).code() == Code::unavailable);
    });
    f.until_waiting(1);
    f.runtime->close();
    CHECK(f.runtime->governor().stats().waiting == 0);
  }
}

TEST_CASE("no copy runs during a hold, whatever many threads do, and all of them end") {
  constexpr int kRounds = 100, kCopiers = 6, kHolders = 2;
  for (const bool asynchronous : {false, true}) {
    ExclusiveFixture f(asynchronous);
    Atomic<int> right{0}, holds{0};
    Atomic<uint64_t> during{0};
    run_together(kCopiers + kHolders, [&](int thread) {
      Stream& stream = thread % 2 == 0 ? f.a() : f.b();
      Rows start(1, static_cast<float>(10 * thread)), end(1);
      const View mine = *f.runtime->allocate(ir::DType::kF32, {1, 4});
      for (int i = 0; i < kRounds; ++i) {
        if (thread >= kCopiers) {
          const auto hold = f.hold();
          const uint64_t before = f.a().last_submitted() + f.b().last_submitted();
          for (int k = 0; k < 8; ++k) give_way();
          during.add_relaxed(f.a().in_flight() + f.b().in_flight());
          during.add_relaxed(f.a().last_submitted() + f.b().last_submitted() - before);
          holds.add_relaxed(1);
          continue;
        }
        end.values.assign(4, -1);
        if (!f.runtime->copy(stream, start.view(), mine).ok()) continue;
        if (!f.runtime->copy(stream, mine, end.view()).ok()) continue;
        right.add_relaxed(end.values == start.values ? 1 : 0);
      }
    });
    CHECK(during.load_relaxed() == 0);
    CHECK(right.load_relaxed() == kCopiers * kRounds);
    CHECK(holds.load_relaxed() == kHolders * kRounds);
    CHECK(f.device->counts().copies.load_relaxed() == 2 * kCopiers * kRounds);
    CHECK(f.runtime->governor().stats().waiting == 0);
  }
}

}  // namespace heddle::runtime
