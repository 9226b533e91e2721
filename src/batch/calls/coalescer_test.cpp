#include <doctest/doctest.h>

#include <string>

#include "batch/calls/absent_fixture.h"

namespace heddle::batch {

TEST_CASE("a batch forms in its slot on a discrete device, and members get rows that the host can read") {
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{}, std::vector<int64_t>{1, 4, 8}}) {
    Fixture f(with(1), false, false,
              {.asynchronous = true, .binds_caller_memory = false, .unified = false, .row_sizes = sizes});
    const int64_t right = f.behind_a_busy_lane(6, [&](int i) {
      Rows rows(1, static_cast<float>(10 * i));
      return f.right(rows, f.call(rows));
    });
    CHECK(right == 7);
    const auto runs = f.runs();
    REQUIRE(runs.size() == 2);
    CHECK(runs[1][0] == (sizes.empty() ? 6 : 8));  // else the next number of rows worth a program
  }
}

TEST_CASE("a lone caller runs at once, on its own thread, with its own memory") {
  Fixture f;
  Rows x(3, 5);
  const std::byte* seen = nullptr;
  f.kernel = [&](const device::Run& run) { return seen = run.inputs[0].host(), Status(); };
  for (int i = 0; i < 10; ++i) {
    CHECK(f.right(x, f.call(x)));
    CHECK(seen == x.view().host());
  }
  const auto stats = f.coalescer->stats();
  CHECK(stats.calls == 10);
  CHECK(stats.batches == 10);
  CHECK(stats.rows[3] == 10);
  CHECK(stats.parked == 0);
}

TEST_CASE("runs are counted by their rows, and all that are larger than a batch together, door or not") {
  for (const bool door : {false, true}) {
    CAPTURE(door);
    CoalescerOptions options = with(1, 4);
    options.door = door;
    Fixture f(options);
    for (const int64_t rows : {1, 3, 3, 4, 5, 9}) {
      Rows x(rows, 7);
      CHECK(f.right(x, f.call(x)));
    }
    CHECK(f.coalescer->stats().rows == std::vector<uint64_t>{0, 1, 0, 2, 3});
    CHECK(f.coalescer->stats().batches == 6);
  }
}

TEST_CASE("callers that find the lane busy share one run, and each gets its own rows") {
  Fixture f(with(1));
  std::vector<Rows> xs;
  for (int i = 0; i < 9; ++i) xs.emplace_back(1 + i % 3, static_cast<float>(100 * i));
  const auto good = f.behind_a_busy_lane(9, [&](int i) {
    Rows& x = xs[static_cast<size_t>(i)];
    return f.right(x, f.call(x));
  });
  CHECK(good == 10);
  CHECK(f.runs() == std::vector<ir::Extents>{{1, 4}, {18, 4}});
  CHECK(f.coalescer->stats().calls == 10);
  CHECK(f.coalescer->stats().parked == 0);
}

TEST_CASE("a batch takes the lane's share of the callers, and never more than its limit") {
  for (const auto& [lanes, limit, callers, largest] :
       std::vector<std::array<int64_t, 4>>{{1, 64, 12, 13}, {1, 5, 12, 5}, {4, 64, 12, 4}}) {
    Fixture f(with(static_cast<int>(lanes), limit));
    Atomic<int64_t> good{0};
    std::vector<Thread> holders;
    f.kernel = [&](const device::Run&) { return f.latch.wait(), Status(); };
    for (int64_t i = 0; i < lanes; ++i) {
      holders.emplace_back("holder", [&] {
        Rows x(1, 7);
        good.add_relaxed(f.right(x, f.call(x)) ? 1 : 0);
      });
    }
    wait_until([&] { return f.latch.arrived() == lanes; });
    // One after the other: while who fills a share takes the batch off, another could take one seat more.
    Letters letters(f);
    for (int64_t i = 0; i < callers; ++i) REQUIRE(letters.post(Rows(1, static_cast<float>(i))).ok());
    CHECK(f.coalescer->stats().parked == static_cast<size_t>(callers));
    f.latch.open();
    for (Thread& thread : holders) thread.join();
    CHECK(letters.wait().right == callers);
    CHECK(good.load_relaxed() == lanes);
    int64_t rows = 0;
    for (const ir::Extents& run : f.runs()) {
      CHECK(run[0] <= largest);
      rows += run[0];
    }
    CHECK(rows == lanes + callers);
  }
}

TEST_CASE("rows of other shapes, and rows that disagree, do not share a batch") {
  Fixture f(with(1));
  Rows narrow(1, 3);
  narrow.extents = {1, 2};
  const View bad = narrow.view();
  CHECK(f.coalescer->call({&bad, 1}, Deadline::never()).status().code() == Code::invalid);
  CHECK(f.runs().empty());

  Fixture lengths(with(1), true, true);  // exact: only rows of one length share a run
  const auto good = lengths.behind_a_busy_lane(6, [&](int i) {
    Ragged x(3 + i % 2, static_cast<float>(10 * i));
    return lengths.right(x, lengths.call(x));
  });
  CHECK(good == 7);
  REQUIRE(lengths.runs().size() == 3);
  for (const ir::Extents& run : lengths.runs()) CHECK(run[0] <= 3);
}

TEST_CASE("ragged rows are padded to the longest of the batch and cut back") {
  Fixture f(with(1), true);
  Atomic<int64_t> padded{0};
  f.kernel = [&](const device::Run& run) {
    const View& x = run.inputs[0];
    for (int64_t i = 0; i < x.extents[0]; ++i) {
      for (int64_t j = 0; j < x.extents[1]; ++j) padded.add_relaxed(Fixture::at(x, i, j) == -7 ? 1 : 0);
    }
    return Status();
  };
  const std::vector<int64_t> lengths = {3, 7, 5, 6};
  const auto good = f.behind_a_busy_lane(4, [&](int i) {
    Ragged x(lengths[static_cast<size_t>(i)], static_cast<float>(10 * i));
    return f.right(x, f.call(x));
  });
  CHECK(good == 5);
  CHECK(f.runs() == std::vector<ir::Extents>{{1, 4}, {4, 7}});
  CHECK(padded.load_relaxed() == 4 + 0 + 2 + 1);
}

TEST_CASE("when only the padded whole goes beyond what the model takes, each row runs alone") {
  Fixture f(with(1), true);
  f.kernel = [&](const device::Run& run) {
    return run.inputs[0].extents[1] > 6 ? Status::invalid("a table of 6 positions") : Status();
  };
  const auto good = f.behind_a_busy_lane(4, [&](int i) {
    Ragged x(i == 1 ? 7 : 5, static_cast<float>(10 * i));
    const auto result = f.call(x);
    return i == 1 ? result.status().code() == Code::invalid : f.right(x, result);
  });
  CHECK(good == 5);
}

TEST_CASE("a fault of the data reaches its own caller only, and nothing runs twice") {
  Fixture f(with(1));
  f.kernel = [&](const device::Run& run) {
    for (int64_t i = 0; run.row_faults != nullptr && i < run.inputs[0].extents[0]; ++i) {
      if (Fixture::at(run.inputs[0], i, 0) == 200)
        run.row_faults->record(i, Status::invalid("index ", 200, " is out of range"));
    }
    return Status();
  };
  const auto good = f.behind_a_busy_lane(5, [&](int i) {
    Rows x(2, static_cast<float>(100 * i));
    const auto result = f.call(x);
    return i == 2 ? result.status().code() == Code::invalid &&
                        result.status().message().find("200") != std::string::npos
                  : f.right(x, result);
  });
  CHECK(good == 6);
  CHECK(f.runs().size() == 2);
}

TEST_CASE("a failure of the run reaches all of its batch, and the next call works") {
  Fixture f(with(1));
  f.kernel = [&](const device::Run& run) {
    return run.inputs[0].extents[0] == 4 ? Status::exhausted("no memory for four") : Status();
  };
  const auto good = f.behind_a_busy_lane(4, [&](int i) {
    Rows x(1, static_cast<float>(i));
    return f.call(x).status().code() == Code::exhausted;
  });
  CHECK(good == 5);
  Rows x(1, 1);
  CHECK(f.right(x, f.call(x)));
}

// The thread sanitizer judges what it looks at.
TEST_CASE("a caller that left does not look at the failure of the run that goes on without it") {
  Fixture f(with(1));
  std::stop_source stop;
  Atomic<bool> left{false};
  f.kernel = [&](const device::Run& run) {
    if (run.inputs[0].extents[0] == 1) return Status();
    stop.request_stop();
    wait_until([&] { return left.load_relaxed(); });
    return Status::invalid("this run fails");
  };
  const int64_t good = f.behind_a_busy_lane(2, [&](int i) {
    Rows x(1, static_cast<float>(i));
    if (i == 0) return f.call(x).status().code() == Code::invalid;  // it leads
    const Code code = f.call(x, Deadline::never(), stop.get_token()).status().code();
    left.store_relaxed(true);
    return code == Code::cancelled;
  });
  CHECK(good == 3);
  CHECK(f.coalescer->stats().left == 1);
}

TEST_CASE("a caller that leaves, by its deadline or cancelled, does not disturb the others") {
  Fixture f(with(1));
  std::stop_source stop;
  const auto good = f.behind_a_busy_lane(
      6,
      [&](int i) {
        Rows x(1, static_cast<float>(i));
        if (i == 0)
          return f.call(x, Deadline::in(std::chrono::milliseconds(1))).status().code() == Code::deadline;
        if (i == 3) return f.call(x, Deadline::never(), stop.get_token()).status().code() == Code::cancelled;
        return f.right(x, f.call(x));
      },
      [&] {
        wait_until([&] { return f.coalescer->stats().left + f.coalescer->stats().parked == 6; });
        stop.request_stop();
        wait_until([&] { return f.coalescer->stats().left == 2; });
      });
  CHECK(good == 7);
  CHECK(f.coalescer->stats().left == 2);
  CHECK(f.coalescer->stats().parked == 0);
}

TEST_CASE("when all have left, their batch is never run") {
  Fixture f(with(1));
  std::stop_source stop;
  const auto good = f.behind_a_busy_lane(
      3,
      [&](int i) {
        Rows x(1, static_cast<float>(i));
        return f.call(x, Deadline::never(), stop.get_token()).status().code() == Code::cancelled;
      },
      [&] {
        wait_until([&] { return f.coalescer->stats().parked == 3; });
        stop.request_stop();
        wait_until([&] { return f.coalescer->stats().left == 3; });
      });
  CHECK(good == 4);
  CHECK(f.runs().size() == 1);
  Rows x(1, 1);
  CHECK(f.right(x, f.call(x)));
}

TEST_CASE("no more callers wait than may") {
  Fixture f(with(1, 64, 2));
  Atomic<int> refused{0};
  const auto good = f.behind_a_busy_lane(
      5,
      [&](int i) {
        Rows x(1, static_cast<float>(i));
        const auto result = f.call(x);
        if (result.status().code() != Code::exhausted) return f.right(x, result);
        refused.add_relaxed(1);
        return true;
      },
      [&] { wait_until([&] { return f.coalescer->stats().refused == 3; }); });
  CHECK(good == 6);
  CHECK(refused.load_relaxed() == 3);
}

TEST_CASE("closing refuses waiting and later calls; running ones end") {
  Fixture f(with(1));
  const auto good = f.behind_a_busy_lane(
      4,
      [&](int i) {
        Rows x(1, static_cast<float>(i));
        return f.call(x).status().code() == Code::unavailable;
      },
      [&] {
        wait_until([&] { return f.coalescer->stats().parked == 4; });
        f.coalescer->close();
      });
  CHECK(good == 5);
  Rows x(1, 1);
  CHECK(f.call(x).status().code() == Code::unavailable);
}

// Some callers still write their seats when the batch is refused: those told read nothing of them.
TEST_CASE("closing while threads take seats: each call is answered once, with its rows or as refused") {
  constexpr int kThreads = 6, kCalls = 40;
  for (int round = 0; round < 300; ++round) {
    Fixture f(with(1, 16));
    Atomic<int64_t> right{0}, refused{0}, wrong{0};
    run_together(kThreads + 1, [&](int thread) {
      if (thread == kThreads) {
        wait_until([&] { return right.load_relaxed() > round % 50; });
        return f.coalescer->close();
      }
      for (int i = 0; i < kCalls; ++i) {
        Rows x(1, static_cast<float>(thread * 1000 + i));
        const auto result = f.call(x);
        const bool closed = result.status().code() == Code::unavailable;
        (f.right(x, result) ? right : closed ? refused : wrong).add_relaxed(1);
      }
    });
    CHECK(wrong.load_relaxed() == 0);
    CHECK(right.load_relaxed() + refused.load_relaxed() == kThreads * kCalls);
    CHECK(f.coalescer->stats().parked == 0);
  }
}

TEST_CASE("the spare batch goes when nobody is there any more, also where the stock was dropped before") {
  Fixture f(with(1), false, false, {.asynchronous = true});
  const auto good = f.behind_a_busy_lane(
      3,
      [&](int i) {
        Rows x(1, static_cast<float>(i));
        return f.right(x, f.call(x));
      },
      [&] {
        wait_until([&] { return f.coalescer->stats().parked == 3; });
        f.coalescer->give_up_idle();
      });
  CHECK(good == 4);
  CHECK(f.runtime->stats().slot_bytes > 0);
  f.coalescer->give_up_idle();
  f.runtime->allocator().empty_cache();
  CHECK(f.runtime->stats().slot_bytes == 0);
}

TEST_CASE("many threads on few lanes: every call is answered once with its own rows") {
  for (const bool asynchronous : {false, true}) {
    runtime::test::TestOptions device_options;
    device_options.asynchronous = asynchronous;
    Fixture f(with(2, 16), true, false, device_options);
    constexpr int kThreads = 12, kCalls = 200;
    Atomic<int64_t> right{0}, late{0}, wrong{0};
    run_together(kThreads, [&](int thread) {
      for (int i = 0; i < kCalls; ++i) {
        Ragged x(1 + (thread * 7 + i * 3) % 20, static_cast<float>(thread * 1000 + i));
        const bool hurried = i % 17 == thread;
        const auto result =
            f.call(x, hurried ? Deadline::in(std::chrono::microseconds(50)) : Deadline::never());
        if (f.right(x, result)) {
          right.add_relaxed(1);
        } else if (hurried && result.status().code() == Code::deadline) {
          late.add_relaxed(1);
        } else {
          wrong.add_relaxed(1);
        }
      }
    });
    CHECK(wrong.load_relaxed() == 0);
    CHECK(right.load_relaxed() + late.load_relaxed() == kThreads * kCalls);
    CHECK(f.coalescer->stats().parked == 0);
  }
}

}  // namespace heddle::batch
