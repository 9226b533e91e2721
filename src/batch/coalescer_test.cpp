#include "batch/coalescer.h"

#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "base/thread.h"
#include "runtime/test_device.h"

namespace heddle::batch {

namespace {

using device::View;
using runtime::test::Latch;
using runtime::test::Rows;
using runtime::test::wait_until;

// A model y = 2 * x over f32[batch, 4] or f32[batch, length], whose first run waits until it is let go.
struct Fixture {
  explicit Fixture(CoalescerOptions options = {}, bool ragged = false, bool exact = false,
                   runtime::test::TestOptions device_options = {}) {
    static Atomic<int> next{0};
    device_options.name = text("coalesced", next.add_relaxed(1));
    device = std::make_shared<runtime::test::TestDevice>(device_options);
    device->set_kernel("doubled", [this](const device::Run& run) {
      if (hold_first && first.exchange_acq_rel(0) == 1) latch.wait();
      if (kernel) HEDDLE_TRY(kernel(run));
      const View& x = run.inputs[0];
      sizes.lock()->push_back(x.extents);
      for (int64_t i = 0; i < x.extents[0]; ++i) {
        for (int64_t j = 0; j < x.extents[1]; ++j) at(run.outputs[0], i, j) = 2 * at(x, i, j);
      }
      return Status();
    });
    runtime = *runtime::Runtime::make(device, runtime_options());
    ir::Graph graph = runtime::test::graph_named("doubled");
    if (ragged) {
      for (ir::Value& value : graph.values) value.type.shape[1] = ir::Dim::symbol("length");
    }
    model = *runtime->load(std::move(graph));
    std::vector<RaggedInput> axes;
    if (ragged) axes.push_back({"x0", 1, -7});
    coalescer = std::make_unique<Coalescer>(
        runtime, model, *RowLayout::make(model->inputs(), model->outputs(), axes, exact), options);
  }
  static runtime::Options runtime_options() {
    runtime::Options options;
    options.in_flight = 8;
    return options;
  }
  static float& at(const View& view, int64_t i, int64_t j) {
    return reinterpret_cast<float*>(view.data)[i * view.strides[0] + j * view.strides[1]];
  }

  Result<std::vector<View>> call(Rows& rows, Deadline deadline = Deadline::never(),
                                 const std::stop_token& cancel = {}) {
    const View view = rows.view();
    return coalescer->call({&view, 1}, deadline, cancel);
  }
  bool right(Rows& rows, const Result<std::vector<View>>& result) {
    if (!result.ok() || result->size() != 1 || result->front().extents != rows.extents) return false;
    std::vector<float> expected = rows.values;
    for (float& value : expected) value *= 2;
    return runtime::test::values_of(result->front()) == expected;
  }
  // While one call holds the only lane, `callers` call at once, in order; then the lane is let go.
  // body(i) makes the call and says whether its answer was right.
  int64_t behind_a_busy_lane(int callers, const std::function<bool(int)>& body,
                             const std::function<void()>& meanwhile = {}) {
    hold_first = true;
    Atomic<int64_t> good{0};
    Thread holder("holder", [&] {
      Rows rows(1, 1000);
      good.add_relaxed(right(rows, call(rows)) ? 1 : 0);
    });
    wait_until([&] { return latch.arrived() == 1; });
    std::vector<Thread> threads;
    for (int i = 0; i < callers; ++i) {
      threads.emplace_back("caller", [&, i] { good.add_relaxed(body(i) ? 1 : 0); });
      if (!meanwhile) wait_until([&] { return coalescer->stats().parked >= static_cast<size_t>(i) + 1; });
    }
    if (meanwhile) meanwhile();
    latch.open();
    holder.join();
    for (Thread& thread : threads) thread.join();
    return good.load_relaxed();
  }
  std::vector<ir::Extents> runs() { return *sizes.lock(); }
  // A row costs the same in every batch, and the coalescer has seen that. One lane.
  void learn_that_joining_does_not_pay() {
    kernel = [](const device::Run& run) {
      const Duration until = thread_cpu_time() + std::chrono::microseconds(200) * run.inputs[0].extents[0];
      while (thread_cpu_time() < until) continue;
      return Status();
    };
    for (const int64_t rows : {1, 2, 1, 2, 1, 2}) {
      Rows x(rows, 3);
      REQUIRE(right(x, call(x)));
    }
    REQUIRE(coalescer->stats().rows_max == 1);
    sizes.lock()->clear();
  }

  bool hold_first = false;
  Atomic<int> first{1};
  Latch latch;
  std::function<Status(const device::Run&)> kernel;
  Guarded<std::vector<ir::Extents>, Rank::kHelpers> sizes;
  Ref<runtime::test::TestDevice> device;
  Ref<runtime::Runtime> runtime;
  Ref<runtime::Model> model;
  std::unique_ptr<Coalescer> coalescer;
};

CoalescerOptions with(int lanes, int64_t max_rows = 64, size_t max_parked = 4096) {
  CoalescerOptions options;
  options.lanes = options.lanes_alone = lanes;
  options.max_rows = max_rows;
  options.max_parked = max_parked;
  return options;
}

// Rows whose second extent is `length`.
struct Ragged : Rows {
  Ragged(int64_t length, float start) : Rows(1, start) {
    values.resize(static_cast<size_t>(length));
    for (size_t j = 0; j < values.size(); ++j) values[j] = start + static_cast<float>(j);
    extents = {1, length};
  }
};

}  // namespace

TEST_CASE("a lone caller runs at once, on its own thread, with its own memory") {
  Fixture f;
  Rows x(3, 5);
  const std::byte* seen = nullptr;
  f.kernel = [&](const device::Run& run) { return seen = run.inputs[0].data, Status(); };
  for (int i = 0; i < 10; ++i) {
    CHECK(f.right(x, f.call(x)));
    CHECK(seen == x.view().data);
  }
  const auto stats = f.coalescer->stats();
  CHECK(stats.calls == 10);
  CHECK(stats.batches == 10);
  CHECK(stats.rows[3] == 10);
  CHECK(stats.parked == 0);
}

TEST_CASE("callers who find the lane busy share one run, and each gets its own rows") {
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
    std::vector<Thread> threads;
    for (int64_t i = 0; i < callers; ++i) {
      threads.emplace_back("caller", [&, i] {
        Rows x(1, static_cast<float>(i));
        good.add_relaxed(f.right(x, f.call(x)) ? 1 : 0);
      });
      wait_until([&] { return f.coalescer->stats().parked == static_cast<size_t>(i) + 1; });
    }
    f.latch.open();
    for (Thread& thread : holders) thread.join();
    for (Thread& thread : threads) thread.join();
    CHECK(good.load_relaxed() == lanes + callers);
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

TEST_CASE("who leaves, by its deadline or cancelled, disturbs nobody") {
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

TEST_CASE("closing refuses those who wait and all later calls; what runs ends") {
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

TEST_CASE("where a row costs as much in a batch as alone, calls go alone, in the order they came") {
  constexpr int kCallers = 6;
  Fixture f(with(1));
  f.learn_that_joining_does_not_pay();
  Guarded<std::vector<float>, Rank::kHelpers> order;
  const auto burn = f.kernel;
  f.kernel = [&](const device::Run& run) {
    order.lock()->push_back(Fixture::at(run.inputs[0], 0, 0));
    return burn(run);
  };
  const int64_t good = f.behind_a_busy_lane(kCallers, [&](int i) {
    Rows x(1, static_cast<float>(i));
    return f.right(x, f.call(x));
  });
  CHECK(good == kCallers + 1);
  CHECK(f.runs() == std::vector<ir::Extents>(kCallers + 1, ir::Extents{1, 4}));
  CHECK(*order.lock() == std::vector<float>{1000, 0, 1, 2, 3, 4, 5});
  const auto stats = f.coalescer->stats();
  CHECK(stats.calls == 6 + kCallers + 1);
  CHECK(stats.parked == 0);
}

TEST_CASE("who waits to go alone may leave, and is bounded and refused like those who join") {
  Fixture f(with(1, 64, 4));
  f.learn_that_joining_does_not_pay();
  std::stop_source cancel;
  Atomic<int> expired{0};
  const auto leaves = [&](int i) {
    Rows x(1, static_cast<float>(i));
    if (i == 1) return f.call(x, Deadline::never(), cancel.get_token()).status().code() == Code::cancelled;
    if (i != 2) return f.right(x, f.call(x));
    const auto late = f.call(x, Deadline::at(Clock::real().now() + std::chrono::milliseconds(1)));
    expired.add_release(1);
    return late.status().code() == Code::deadline;
  };
  const int64_t good = f.behind_a_busy_lane(4, leaves, [&] {
    wait_until([&] { return expired.load_acquire() == 1; });
    wait_until([&] { return f.coalescer->stats().parked == 3; });
    cancel.request_stop();
    wait_until([&] { return f.coalescer->stats().parked == 2; });
  });
  CHECK(good == 5);
  CHECK(f.coalescer->stats().left == 2);
  CHECK(f.coalescer->stats().parked == 0);
  CHECK(f.runs() == std::vector<ir::Extents>(3, ir::Extents{1, 4}));

  Fixture full(with(1, 64, 2));
  full.learn_that_joining_does_not_pay();
  Atomic<int> refused{0}, closed{0};
  const auto is_refused = [&](int) {
    Rows x(1, 1);
    const Code code = full.call(x).status().code();
    (code == Code::exhausted ? refused : closed).add_relaxed(code == Code::ok ? 0 : 1);
    return code == Code::exhausted || code == Code::unavailable;
  };
  const int64_t told = full.behind_a_busy_lane(5, is_refused, [&] {
    wait_until([&] { return full.coalescer->stats().refused == 3; });
    full.coalescer->close();
  });
  CHECK(told == 6);  // the holder's call was running, and ended as ever
  CHECK(refused.load_relaxed() == 3);
  CHECK(closed.load_relaxed() == 2);
}

TEST_CASE("calls that go alone use all their lanes, and no more") {
  constexpr int kCallers = 6, kCalls = 100;
  CoalescerOptions options = with(1);
  options.lanes_alone = 3;
  Fixture f(options);
  f.learn_that_joining_does_not_pay();
  Atomic<int> inside{0}, most{0};
  f.kernel = [&](const device::Run& run) {
    const int now = inside.add_acq_rel(1) + 1;
    int seen = most.load_acquire();
    while (seen < now && !most.cas_strong_acq_rel(seen, now)) continue;
    if (run.inputs[0].extents[0] != 1) return Status::internal("a batch");
    inside.add_acq_rel(-1);
    return Status();
  };
  Atomic<int64_t> good{0};
  {
    std::vector<Thread> threads;
    for (int i = 0; i < kCallers; ++i) {
      threads.emplace_back("caller", [&, i] {
        for (int n = 0; n < kCalls; ++n) {
          Rows x(1, static_cast<float>(i * kCalls + n));
          good.add_relaxed(f.right(x, f.call(x)) ? 1 : 0);
        }
      });
    }
    for (Thread& thread : threads) thread.join();
  }
  CHECK(good.load_relaxed() == kCallers * kCalls);
  CHECK(most.load_acquire() <= 3);
}

TEST_CASE("rows that go alone do not pass a batch that waits for a lane") {
  constexpr int kOthers = 4, kLimit = 4000;
  CoalescerOptions options = with(1);
  options.lanes_alone = 2;
  Fixture f(options, true, true);  // exact: another length is another group
  f.learn_that_joining_does_not_pay();
  Atomic<int64_t> wrong{0}, made{0};
  Atomic<bool> over{false};
  int64_t meanwhile = 0;
  {
    std::vector<Thread> others;
    for (int i = 0; i < kOthers; ++i) {
      others.emplace_back("other", [&, i] {
        while (!over.load_acquire() && made.add_relaxed(1) < kLimit) {
          Rows x(1, static_cast<float>(i));
          wrong.add_relaxed(f.right(x, f.call(x)) ? 0 : 1);
        }
      });
    }
    wait_until([&] { return made.load_relaxed() >= 20; });
    const int64_t before = made.load_relaxed();
    Ragged x(8, 1);
    CHECK(f.right(x, f.call(x)));
    meanwhile = made.load_relaxed() - before;
    over.store_release(true);
    for (Thread& thread : others) thread.join();
  }
  CHECK(wrong.load_relaxed() == 0);
  CHECK(meanwhile <= 5 * kOthers);
}

}  // namespace heddle::batch
