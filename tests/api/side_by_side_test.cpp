// No lock is shared, shown without a clock: the driver holds a thread until a second one is inside, too.
//
// A lock around the calls, submissions or compilations of several callers keeps the second thread out: the
// meeting is missed, and the test fails.
#include "on_test_device_fixture.h"

namespace heddle::api_test {
namespace {

constexpr uint64_t kTimes = 20;

// Two threads work kTimes each and meet every time at `where`.
void meet_every_time(const OnTestDevice& f, Work where,
                     const std::function<bool(int thread, int time)>& work) {
  Meeting meeting(kTimes);
  f.driver->meet_at(where, &meeting);
  Atomic<uint64_t> right{0};
  run_together(2, [&](int thread) {
    for (uint64_t i = 0; i < kTimes; ++i) right.add_relaxed(work(thread, static_cast<int>(i)) ? 1 : 0);
  });
  f.device.synchronize();
  f.driver->meet_at(where, nullptr);
  CHECK(right.load_acquire() == 2 * kTimes);
  CHECK(meeting.met() == kTimes);
  CHECK(meeting.missed() == 0);
}

bool right_call(const Model& model, int thread, int time, const CallOptions& options = {}) {
  const Tensor x = rows(3, static_cast<float>(100 * thread + time));
  return is_affine(x, model({x}, options)[0]);
}

template <class Body>
void on_both_kinds(Body&& body) {
  for (const bool asynchronous : {false, true}) {
    CAPTURE(asynchronous);
    body(asynchronous);
  }
}

}  // namespace

TEST_CASE("two callers of one model run at once, joined in batches or not") {
  on_both_kinds([](bool asynchronous) {
    for (const bool coalesce : {false, true}) {
      CAPTURE(coalesce);
      const OnTestDevice f(asynchronous);
      const Model model = f.model("affine", coalesce);
      meet_every_time(f, Work::kRun, [&](int thread, int time) { return right_call(model, thread, time); });
    }
  });
}

TEST_CASE("callers of two models run at once") {
  on_both_kinds([](bool asynchronous) {
    const OnTestDevice f(asynchronous);
    const Model models[] = {f.model("affine"), f.model("affine")};
    meet_every_time(f, Work::kRun,
                    [&](int thread, int time) { return right_call(models[thread], thread, time); });
  });
}

TEST_CASE("calls on two streams are submitted at once") {
  on_both_kinds([](bool asynchronous) {
    const OnTestDevice f(asynchronous);
    const Model model = f.model("affine");
    const Stream streams[] = {Stream(f.device), Stream(f.device)};
    meet_every_time(f, Work::kSubmit, [&](int thread, int time) {
      return right_call(model, thread, time, on(streams[thread]));
    });
  });
}

TEST_CASE("calls on two streams run at once") {
  on_both_kinds([](bool asynchronous) {
    const OnTestDevice f(asynchronous);
    const Model model = f.model("affine");
    const Stream streams[] = {Stream(f.device), Stream(f.device)};
    meet_every_time(f, Work::kRun, [&](int thread, int time) {
      return right_call(model, thread, time, on(streams[thread]));
    });
  });
}

TEST_CASE("two shapes of one model, and one of two models, compile at once") {
  const OnTestDevice f(false);
  const Model models[] = {f.model("affine"), f.model("affine")};
  meet_every_time(f, Work::kCompile, [&](int thread, int time) {
    models[0].compile(std::vector<Shape>{{1 + 2 * time + thread, 4}});
    return true;
  });
  meet_every_time(f, Work::kCompile, [&](int thread, int time) {
    models[thread].compile(std::vector<Shape>{{100 + time, 4}});
    return true;
  });
}

TEST_CASE("two models are loaded at once") {
  const OnTestDevice f(false);
  meet_every_time(f, Work::kLoad,
                  [&](int thread, int time) { return right_call(f.model("affine"), thread, time); });
}

TEST_CASE("copies on two streams, and fills, run at once") {
  on_both_kinds([](bool asynchronous) {
    const OnTestDevice f(asynchronous);
    const Stream streams[] = {Stream(f.device), Stream(f.device)};
    meet_every_time(f, Work::kCopy, [&](int thread, int time) {
      const Tensor from = rows(2, static_cast<float>(time)), to = Tensor::zeros(DType::f32, {2, 4});
      streams[thread].copy(from, to);
      return std::ranges::equal(from.values<float>(), to.values<float>());
    });
    meet_every_time(f, Work::kFill, [&](int thread, int time) {
      return holds(filled(f, streams[thread], static_cast<float>(time)), static_cast<float>(time));
    });
  });
}

TEST_CASE("two threads lease their first streams at once") {
  on_both_kinds([](bool asynchronous) {
    const OnTestDevice f(asynchronous);
    Meeting meeting(15);
    f.driver->meet_at(Work::kMakeQueue, &meeting);
    std::vector<Stream> held[2];
    run_together(2, [&](int thread) {
      for (int i = 0; i < 15; ++i) held[thread].emplace_back(f.device);
    });
    f.driver->meet_at(Work::kMakeQueue, nullptr);
    CHECK(meeting.met() == 15);
    CHECK(f.device.stats().streams_leased == 30);
    CHECK(f.device.stats().streams_shared == 0);
  });
}

TEST_CASE("two threads ask the driver for memory at once") {
  const OnTestDevice f(false);
  std::vector<Tensor> held[2];
  meet_every_time(f, Work::kAllocate, [&](int thread, int) {
    held[thread].push_back(Tensor::empty(DType::f32, {3, 4}, f.device));
    return true;
  });
}

TEST_CASE("two threads are in their memory-pressure callbacks at once") {
  runtime::Options options;
  options.memory_fraction = 0.001;
  const OnTestDevice f(false, options);
  Meeting meeting(1);
  f.device.on_memory_pressure([&](uint64_t) { meeting.arrive(); });
  Atomic<int> refused{0};
  run_together(2, [&](int) {
    try {
      static_cast<void>(Tensor::empty(DType::u8, {int64_t{1} << 24}, f.device));
    } catch (const Error& error) {
      refused.add_relaxed(error.code() == ErrorCode::exhausted ? 1 : 0);
    }
  });
  CHECK(refused.load_acquire() == 2);
  CHECK(meeting.met() == 1);
}

TEST_CASE("two workers of a batch queue, over a function and over a model, run at once") {
  on_both_kinds([](bool asynchronous) {
    const OnTestDevice f(asynchronous);
    BatchQueueOptions options;
    options.workers = 2;
    options.limits.max_batch = 3;
    Meeting meeting(kTimes);
    f.driver->set_kernel("identity", runtime::test::copy_through);
    BatchQueue of_function(
        [&](std::span<const Tensor> x) {
          meeting.arrive();
          return std::vector<Tensor>(x.begin(), x.end());
        },
        options);
    BatchQueue of_model(f.model("affine"), options);
    Atomic<uint64_t> right{0};
    run_together(2, [&](int thread) {
      for (uint64_t i = 0; i < kTimes; ++i) {
        const Tensor x = rows(3, static_cast<float>(100 * static_cast<uint64_t>(thread) + i));
        const Tensor y = of_function.submit({x}).get()[0];
        right.add_relaxed(std::ranges::equal(x.values<float>(), y.values<float>()) ? 1 : 0);
      }
    });
    CHECK(right.load_acquire() == 2 * kTimes);
    CHECK(meeting.met() == kTimes);
    meet_every_time(f, Work::kRun, [&](int thread, int time) {
      const Tensor x = rows(3, static_cast<float>(100 * thread + time));
      return is_affine(x, of_model.submit({x}).get()[0]);
    });
  });
}

}  // namespace heddle::api_test
