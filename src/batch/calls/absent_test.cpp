// Calls that no thread waits for: each is answered once, as a thread's would be.
#include <doctest/doctest.h>

#include <string>
#include <thread>

#include "batch/calls/absent_fixture.h"

namespace heddle::batch {

using namespace std::chrono_literals;

TEST_CASE("a lone submission runs at once with its own memory, on another thread, and is answered once") {
  Fixture f;
  CHECK(f.coalescer->leaders() == 0);  // none before they are needed
  const std::byte* seen = nullptr;
  auto thread = std::this_thread::get_id();
  f.kernel = [&](const device::Run& run) {
    seen = run.inputs[0].host();
    thread = std::this_thread::get_id();
    return Status();
  };
  for (int i = 1; i <= 10; ++i) {
    Letters letters(f);
    Rows x(3, 5);
    const std::byte* const own = x.view().host();
    REQUIRE(letters.post(std::move(x)).ok());
    CHECK(letters.wait().right == 1);
    CHECK(seen == own);
    CHECK(thread != std::this_thread::get_id());
  }
  CHECK(f.coalescer->stats().calls == 10);
  CHECK(f.coalescer->stats().rows[3] == 10);
  CHECK(f.coalescer->stats().parked == 0);
}

TEST_CASE("submissions that find the lane busy share one run, and each gets its own rows") {
  Fixture f(with(1));
  Letters letters(f);
  const auto counts = behind_a_held_lane(f, letters, [&] {
    for (int i = 0; i < 9; ++i) REQUIRE(letters.post(Rows(1 + i % 3, static_cast<float>(100 * i))).ok());
    CHECK(f.coalescer->stats().parked == 10);
  });
  CHECK(counts.right == 10);
  CHECK(f.runs() == std::vector<ir::Extents>{{1, 4}, {18, 4}});
  CHECK(f.coalescer->stats().calls == 10);
  CHECK(f.coalescer->stats().parked == 0);
  CHECK(f.coalescer->leaders() <= 2);
}

namespace {

void check_answers_together(int answers, int together) {
  CAPTURE(answers);
  CoalescerOptions options = with(1, answers);
  options.more_leaders = together;
  Fixture f(options);
  Letters letters(f);
  Atomic<int> inside{0}, alone{0};
  const TimePoint end = Clock::real().now() + std::chrono::seconds(20);
  const Letters::Counts counts = behind_a_held_lane(f, letters, [&] {
    for (int i = 0; i < answers; ++i) {
      const auto waits = [&](Sent&) {
        inside.add_relaxed(1);
        wait_until([&] { return inside.load_relaxed() >= together || Clock::real().now() >= end; });
        if (inside.load_relaxed() < together) alone.add_relaxed(1);
      };
      REQUIRE(letters.post(Rows(1, static_cast<float>(i)), Deadline::never(), {}, waits).ok());
    }
  });
  CHECK(alone.load_relaxed() == 0);
  CHECK(counts.right == answers + 1);
  CHECK(f.coalescer->stats().batches == 2);
}

}  // namespace

TEST_CASE(
    "answers of a batch that take long keep four leaders at once, fewer of few and one for each sixteen") {
  check_answers_together(8, 2);
  check_answers_together(16, 4);
  check_answers_together(40, 4);
  check_answers_together(96, 6);
}

TEST_CASE("what a submission brought goes with its answer, though its batch has others to answer") {
  Fixture f(with(1));
  Letters letters(f);
  Rows first(1, 1);
  auto owner = std::make_shared<int>(0);
  const std::weak_ptr<int> held = owner;
  bool was_held = true;
  const Letters::Counts counts = behind_a_held_lane(f, letters, [&] {
    REQUIRE(f.coalescer->submit({submitted(first.view(), [](const auto&) {}, std::move(owner))}).ok());
    REQUIRE(letters.post(Rows(1, 2), Deadline::never(), {}, [&](Sent&) { was_held = !held.expired(); }).ok());
    CHECK_FALSE(held.expired());
  });
  CHECK(counts.right == 2);
  CHECK(f.runs() == std::vector<ir::Extents>{{1, 4}, {2, 4}});
  CHECK_FALSE(was_held);
}

TEST_CASE("a batch that has a member with a thread is led by it, and the others are answered by leaders") {
  Fixture f(with(1));
  Letters letters(f);
  auto leader = std::this_thread::get_id();
  f.kernel = [&](const device::Run&) { return leader = std::this_thread::get_id(), Status(); };
  Atomic<int> good{0};
  auto caller = std::this_thread::get_id();
  std::vector<Thread> threads;
  const auto answered_by = [&](Sent&) { good.add_relaxed(std::this_thread::get_id() != caller ? 1 : 0); };
  const auto counts = behind_a_held_lane(f, letters, [&] {
    REQUIRE(letters.post(Rows(1, 1), Deadline::never(), {}, answered_by).ok());
    threads.emplace_back("caller", [&] {
      caller = std::this_thread::get_id();
      Rows x(2, 2);
      good.add_relaxed(f.right(x, f.call(x)) ? 1 : 0);
    });
    wait_until([&] { return f.coalescer->stats().parked == 3; });
    REQUIRE(letters.post(Rows(1, 3), Deadline::never(), {}, answered_by).ok());
  });
  threads.clear();
  CHECK(counts.right == 3);
  CHECK(good.load_relaxed() == 3);
  CHECK(leader == caller);
  CHECK(f.runs() == std::vector<ir::Extents>{{1, 4}, {4, 4}});
}

TEST_CASE("what is wrong with a submission is thrown at once, and its answer never comes") {
  Fixture f(with(1, 64, 2));
  Letters letters(f);
  Rows narrow(1, 3);
  narrow.extents = {1, 2};
  CHECK(letters.post(std::move(narrow)).code() == Code::invalid);
  const auto counts = behind_a_held_lane(f, letters, [&] {
    REQUIRE(letters.post(Rows(1, 1)).ok());
    CHECK(letters.post(Rows(1, 2)).code() == Code::exhausted);  // two wait: the one that runs is one of them
  });
  CHECK(counts.right == 2);
  CHECK(letters.answered() == 2);

  Fixture none(with(1, 64, 0));  // none may wait, and none has to
  Letters lone(none);
  CHECK(lone.post(Rows(1, 1)).ok());
  CHECK(lone.wait().right == 1);
}

TEST_CASE("a fault of the data reaches its own submission only, and nothing runs twice") {
  Fixture f(with(1));
  f.kernel = [&](const device::Run& run) {
    for (int64_t i = 0; run.row_faults != nullptr && i < run.inputs[0].extents[0]; ++i) {
      if (Fixture::at(run.inputs[0], i, 0) == 200) run.row_faults->record(i, Status::invalid("index 200"));
    }
    return Status();
  };
  Letters letters(f);
  const auto counts = behind_a_held_lane(f, letters, [&] {
    for (int i = 0; i < 5; ++i) REQUIRE(letters.post(Rows(2, static_cast<float>(100 * i))).ok());
  });
  CHECK(counts.right == 5);
  CHECK(counts.invalid == 1);
  CHECK(f.runs().size() == 2);
}

TEST_CASE("ragged submissions are padded and cut back; where only the padded whole fails, each runs alone") {
  for (const int64_t table : {100, 6}) {
    Fixture f(with(1), true);
    f.kernel = [&](const device::Run& run) {
      return run.inputs[0].extents[1] > table ? Status::invalid("a table of positions") : Status();
    };
    Letters letters(f);
    const auto counts = behind_a_held_lane(f, letters, [&] {
      for (const int64_t length : {5, 7, 3, 6}) REQUIRE(letters.post(Ragged(length, 10)).ok());
    });
    CHECK(counts.right == (table == 100 ? 5 : 4));
    CHECK(counts.invalid == (table == 100 ? 0 : 1));
    CHECK(f.runs().size() == (table == 100 ? 2U : 4U));
  }
}

TEST_CASE("a submission leaves at its deadline or when it is cancelled, and the others do not notice") {
  Fixture f(with(1));
  Letters letters(f);
  std::stop_source stop, stopped;
  stopped.request_stop();
  const auto counts = behind_a_held_lane(f, letters, [&] {
    for (int i = 0; i < 8; ++i) {
      const Deadline deadline = i == 1 || i == 5 ? Deadline::in(1ms) : Deadline::never();
      REQUIRE(letters
                  .post(Rows(1, static_cast<float>(i)), deadline,
                        i == 3   ? stop.get_token()
                        : i == 6 ? stopped.get_token()
                                 : std::stop_token())
                  .ok());
    }
    wait_until([&] { return letters.answered() == 3; });
    stop.request_stop();
    wait_until([&] { return letters.answered() == 4; });
  });
  CHECK(counts.right == 5);
  CHECK(counts.deadline == 2);
  CHECK(counts.cancelled == 2);
  CHECK(f.coalescer->stats().left == 4);
  CHECK(f.coalescer->stats().parked == 0);
}

TEST_CASE("a batch that all its submissions have left is never run") {
  Fixture f(with(1));
  Letters letters(f);
  std::stop_source stop;
  const auto counts = behind_a_held_lane(f, letters, [&] {
    for (int i = 0; i < 3; ++i)
      REQUIRE(letters.post(Rows(1, static_cast<float>(i)), Deadline::never(), stop.get_token()).ok());
    stop.request_stop();
    wait_until([&] { return letters.answered() == 3; });
  });
  CHECK(counts.cancelled == 3);
  CHECK(f.runs().size() == 1);
  REQUIRE(letters.post(Rows(1, 5)).ok());
  CHECK(letters.wait().right == 2);
}

TEST_CASE("a cancellation after the answer changes nothing") {
  Fixture f;
  Letters letters(f);
  std::stop_source stop;
  REQUIRE(letters.post(Rows(1, 5), Deadline::in(1h), stop.get_token()).ok());
  CHECK(letters.wait().right == 1);
  stop.request_stop();
  f.coalescer->close();
  CHECK(letters.wait().right == 1);
}

TEST_CASE("an answer may submit again") {
  Fixture f(with(2));
  Letters letters(f);
  Atomic<int> left{200};
  std::function<void(Sent&)> again = [&](Sent&) {
    const int i = left.sub_acq_rel(1);
    if (i > 0) CHECK(letters.post(Rows(1, static_cast<float>(i)), Deadline::never(), {}, again).ok());
  };
  for (int i = 0; i < 4; ++i) REQUIRE(letters.post(Rows(1, 7), Deadline::never(), {}, again).ok());
  CHECK(letters.wait().right == 204);
}

TEST_CASE("closing answers what waits, lets what runs end, and returns when all have their answers") {
  Fixture f(with(1));
  Letters letters(f);
  Thread closer;
  const auto counts = behind_a_held_lane(f, letters, [&] {
    for (int i = 0; i < 4; ++i) REQUIRE(letters.post(Rows(1, static_cast<float>(i)), Deadline::in(1h)).ok());
    closer = Thread("closer", [&] {
      f.coalescer->close();
      CHECK(letters.answered() == 5);
    });
    wait_until([&] { return letters.answered() == 4; });
    CHECK(letters.post(Rows(1, 9)).code() == Code::unavailable);
  });
  closer.join();
  CHECK(counts.right == 1);
  CHECK(counts.unavailable == 4);
}

TEST_CASE("an answer may close the coalescer, and be the end of it") {
  CoalescerOptions options = with(1);
  Guarded<std::vector<Ref<Leader>>, Rank::kHelpers> outlived;
  options.outlives = [&](Ref<Leader> leader) { outlived.lock()->push_back(std::move(leader)); };
  Fixture f(options);
  Ref<Coalescer> own = std::move(f.coalescer);
  f.coalescer = std::make_shared<Coalescer>(
      f.runtime, f.model, *RowLayout::make(f.model->inputs(), f.model->outputs(), {}, false), options);
  Rows x(1, 5);
  Atomic<int> answers{0};
  Latch mine;
  const auto then = [&, &held = own](const Result<std::vector<View>>& result) {
    mine.wait();
    CHECK(f.right(x, result));
    held->close();
    CHECK(held->submit({submitted(x.view())}).code() == Code::unavailable);
    held.reset();
    answers.add_release(1);
  };
  REQUIRE(own->submit({submitted(x.view(), then)}).ok());
  mine.open();
  wait_until([&] { return answers.load_acquire() == 1; });
  wait_until([&] { return outlived.lock()->size() == 1; });
  const Ref<Leader> leader = outlived.lock()->front();
  wait_until([&] { return leader->ended.load_acquire(); });
  leader->thread.join();
}

TEST_CASE("submissions that are not to be joined run alone, in the order they came") {
  CoalescerOptions options = with(1);
  options.alone = true;
  Fixture f(options);
  Letters letters(f);
  Guarded<std::vector<float>, Rank::kHelpers> order;
  f.kernel = [&](const device::Run& run) {
    order.lock()->push_back(Fixture::at(run.inputs[0], 0, 0));
    return Status();
  };
  const auto counts = behind_a_held_lane(f, letters, [&] {
    for (int i = 0; i < 5; ++i) REQUIRE(letters.post(Rows(1, static_cast<float>(i))).ok());
  });
  CHECK(counts.right == 6);
  CHECK(*order.lock() == std::vector<float>{1000, 0, 1, 2, 3, 4});
}

TEST_CASE("submissions and calls from many threads are answered once each, with their own rows or reason") {
  for (const bool asynchronous : {false, true}) {
    runtime::test::TestOptions device_options;
    device_options.asynchronous = asynchronous;
    Fixture f(with(2, 16), true, false, device_options);
    Letters letters(f);
    constexpr int kThreads = 8, kCalls = 150;
    Atomic<int64_t> called{0}, hurried{0}, withdrawn{0};
    run_together(kThreads, [&](int thread) {
      for (int i = 0; i < kCalls; ++i) {
        Ragged x(1 + (thread * 7 + i * 3) % 20, static_cast<float>(thread * 1000 + i));
        if (i % 3 == 0) {
          called.add_relaxed(f.right(x, f.call(x)) ? 1 : 0);
          continue;
        }
        std::stop_source stop;
        const bool hurry = i % 17 == thread, withdraw = i % 13 == thread;
        hurried.add_relaxed(hurry ? 1 : 0);
        withdrawn.add_relaxed(withdraw ? 1 : 0);
        CHECK(letters
                  .post(std::move(x), hurry ? Deadline::in(20us) : Deadline::never(),
                        withdraw ? stop.get_token() : std::stop_token())
                  .ok());
        if (withdraw) stop.request_stop();
      }
    });
    const auto counts = letters.wait();
    CHECK(called.load_relaxed() == kThreads * kCalls / 3);
    CHECK(counts.right + counts.deadline + counts.cancelled == kThreads * kCalls * 2 / 3);
    CHECK(counts.deadline <= hurried.load_relaxed());
    CHECK(counts.cancelled <= withdrawn.load_relaxed());
    CHECK(f.coalescer->stats().parked == 0);
    CHECK(f.coalescer->leaders() <= 3);
  }
}

TEST_CASE("closing while threads submit: what was taken is answered once, the rest is refused at once") {
  for (int round = 0; round < 20; ++round) {
    Fixture f(with(2, 16));
    Letters letters(f);
    Atomic<int64_t> refused{0}, taken{0};
    run_together(5, [&](int thread) {
      if (thread == 0) {
        wait_until([&] { return letters.answered() > round; });
        f.coalescer->close();
        return;
      }
      for (int i = 0; i < 60; ++i) {
        const Status status = letters.post(Rows(1, static_cast<float>(i)), Deadline::in(1h));
        (status.ok() ? taken : refused).add_relaxed(1);
        if (!status.ok()) CHECK(status.code() == Code::unavailable);
      }
    });
    const auto counts = letters.wait();
    CHECK(counts.right + counts.unavailable == taken.load_relaxed());
    CHECK(taken.load_relaxed() + refused.load_relaxed() == 240);
  }
}

void check_a_run_that_never_ends(int64_t max_rows) {
  Fixture f(with(1, max_rows), false, false, {.asynchronous = true});
  Latch stuck;
  f.kernel = [&](const device::Run& run) {
    if (run.inputs[0].extents[0] > 1) stuck.wait();
    return Status();
  };
  Letters letters(f);
  const auto counts = behind_a_held_lane(f, letters, [&] {
    for (int i = 0; i < 4; ++i) REQUIRE(letters.post(Rows(1, 1), Deadline::in(10ms * (i + 1))).ok());
  });
  CHECK(counts.right == 1);
  CHECK(counts.deadline == 4);
  REQUIRE(letters.post(Rows(1, 3)).ok());
  CHECK(letters.wait().right == 2);
  stuck.open();
  CHECK(f.runtime->synchronize().ok());
  wait_until([&] { return f.runtime->governor().stats().in_flight == 0; });
}

TEST_CASE("a run that never ends lets its submissions go at their deadlines, and the coalescer goes on") {
  check_a_run_that_never_ends(64);
}

TEST_CASE("so does one whose batch is full: each of its seats is let go, and no other") {
  check_a_run_that_never_ends(4);
}

TEST_CASE("when the device is lost, each submission gets device_lost once") {
  Fixture f(with(1), false, false, {.asynchronous = true});
  f.kernel = [&](const device::Run& run) {
    return run.inputs[0].extents[0] > 1 ? Status::device_lost("the cable was pulled") : Status();
  };
  Letters letters(f);
  Atomic<int> lost{0};
  const auto counts = behind_a_held_lane(f, letters, [&] {
    for (int i = 0; i < 4; ++i) {
      REQUIRE(letters
                  .post(Rows(1, 1), Deadline::never(), {},
                        [&](Sent& sent) { lost.add_relaxed(sent.code == Code::device_lost ? 1 : 0); })
                  .ok());
    }
  });
  CHECK(counts.right == 1);
  CHECK(counts.other == 4);
  CHECK(lost.load_relaxed() == 4);
}

}  // namespace heddle::batch
