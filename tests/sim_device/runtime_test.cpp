// The runtime and the coalescer on the simulated device: the values of a sequential reference, whatever the
// seed, and no violation.
#include <algorithm>
#include <cmath>

#include "base/thread.h"
#include "batch/calls/coalescer.h"
#include "rig_fixture.h"
#include "runtime/runtime.h"
#include "tests/sanitized_fixture.h"
#include "two_products_fixture.h"

namespace heddle::sim::test {
namespace {

constexpr uint64_t kSeeds = heddle::test::kSanitized ? 30 : 300;

struct Simulated {
  explicit Simulated(const SimOptions& options) : rig(options) {
    runtime::Options own;
    own.clock = &rig.device->clock();
    runtime = *runtime::Runtime::make(rig.device, own);
    model = *runtime->load(two_products());
  }
  Rig rig;
  Ref<runtime::Runtime> runtime;
  Ref<runtime::Model> model;
};

SimOptions with_sizes(uint64_t seed) {
  SimOptions options;
  options.seed = seed;
  options.offsets = seed % 2 == 0;
  if (seed % 3 == 0) options.row_sizes = {1, 2, 4, 8, 16};
  return options;
}

}  // namespace

TEST_CASE("calls with arrays of the host from several threads give the reference's values") {
  constexpr int kThreads = 4, kCalls = 4;
  Atomic<int> right{0};
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    CAPTURE(seed);
    Simulated s(with_sizes(seed));
    run_together(kThreads, [&](int t) {
      for (int i = 0; i < kCalls; ++i) {
        Rows x(1 + (t + i) % 5, t + 0.1 * i);
        const View in = x.view();
        runtime::Call call;
        call.inputs = {&in, 1};
        const auto result = s.runtime->run(*s.model, call);
        if (result.ok() && x.gives(reinterpret_cast<const float*>(result->front().host())))
          right.add_relaxed(1);
      }
    });
    CHECK(s.rig.found_nothing());
  }
  CHECK(right.load_relaxed() == static_cast<int>(kSeeds) * kThreads * kCalls);
}

namespace {

// The model `steps` times from one buffer to another and back, on two streams in turn.
Status chain(Simulated& s, Rows& x, std::vector<float>& out, int steps) {
  HEDDLE_TRY_ASSIGN(const auto even, s.runtime->streams().lease());
  HEDDLE_TRY_ASSIGN(const auto odd, s.runtime->streams().lease());
  HEDDLE_TRY_ASSIGN(const View first, s.runtime->allocate(DType::kF32, x.extents));
  HEDDLE_TRY_ASSIGN(const View second, s.runtime->allocate(DType::kF32, x.extents));
  const View device[2] = {first, second};
  HEDDLE_TRY(s.runtime->copy(*even.stream(), x.view(), device[0]));
  for (int step = 0; step < steps; ++step) {
    runtime::Call call;
    call.inputs = {&device[step % 2], 1};
    call.outputs = {&device[(step + 1) % 2], 1};
    call.stream = (step % 2 == 0 ? odd : even).stream().get();
    call.wait = false;
    HEDDLE_TRY(s.runtime->run(*s.model, call).status());
  }
  const View to = View::contiguous(reinterpret_cast<std::byte*>(out.data()), DType::kF32, x.extents);
  return s.runtime->copy(*odd.stream(), device[steps % 2], to);
}

// One call of a stream, whose input and output are dropped as soon as it is submitted.
Status call_and_drop(Simulated& s, runtime::Stream& stream, Rows& x, std::vector<float>& out) {
  View last;
  {
    HEDDLE_TRY_ASSIGN(const View in, s.runtime->allocate(DType::kF32, x.extents));
    HEDDLE_TRY(s.runtime->copy(stream, x.view(), in));
    runtime::Call call;
    call.inputs = {&in, 1};
    call.stream = &stream;
    call.wait = false;
    HEDDLE_TRY_ASSIGN(const auto made, s.runtime->run(*s.model, call));
    last = made.front();
  }
  const View to = View::contiguous(reinterpret_cast<std::byte*>(out.data()), DType::kF32, x.extents);
  return s.runtime->copy(stream, last, to);
}

// One stream fills a buffer again and again; others compute with each value it had.
Status fan_out(Simulated& s, int64_t readers, int& right) {
  HEDDLE_TRY_ASSIGN(const auto writer, s.runtime->streams().lease());
  HEDDLE_TRY_ASSIGN(const View x, s.runtime->allocate(DType::kF32, {1, 8}));
  std::vector<runtime::StreamLease> leases;
  std::vector<View> results;
  for (int64_t i = 0; i < readers; ++i) {
    HEDDLE_TRY_ASSIGN(auto lease, s.runtime->streams().lease());
    HEDDLE_TRY(s.runtime->fill(*writer.stream(), x, 0.25 * static_cast<double>(i)));
    runtime::Call call;
    call.inputs = {&x, 1};
    call.stream = lease.stream().get();
    call.wait = false;
    HEDDLE_TRY_ASSIGN(auto made, s.runtime->run(*s.model, call));
    results.push_back(made.front());
    leases.push_back(std::move(lease));
  }
  for (int64_t i = 0; i < readers; ++i) {
    Rows wanted(1, 0);
    std::fill(wanted.values.begin(), wanted.values.end(), 0.25F * static_cast<float>(i));
    std::vector<float> out(8);
    const View to = View::contiguous(reinterpret_cast<std::byte*>(out.data()), DType::kF32, {1, 8});
    const auto at = static_cast<size_t>(i);
    HEDDLE_TRY(s.runtime->copy(*leases[at].stream(), results[at], to));
    right += wanted.gives(out.data()) ? 1 : 0;
  }
  return {};
}

}  // namespace

TEST_CASE("streams that are chained without waiting keep the order of their data") {
  constexpr int kThreads = 3, kSteps = 4;
  Atomic<int> right{0};
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    CAPTURE(seed);
    Simulated s(with_sizes(seed));
    run_together(kThreads, [&](int t) {
      Rows x(3, t);
      std::vector<float> out(x.values.size());
      if (chain(s, x, out, kSteps).ok() && x.gives(out.data(), kSteps)) right.add_relaxed(1);
    });
    CHECK(s.rig.found_nothing());
  }
  CHECK(right.load_relaxed() == static_cast<int>(kSeeds) * kThreads);
}

TEST_CASE("a deadline leaves a foreign output as it was, and who comes back for it gets it whole") {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    CAPTURE(seed);
    Simulated s(with_sizes(seed));
    const auto x = std::make_shared<Rows>(3, 1);
    const View in = x->view(),
               out = View::contiguous(*device::plain_source(*host_device())->allocate(3 * 8 * sizeof(float)),
                                      DType::kF32, {3, 8});
    const auto* const got = reinterpret_cast<const float*>(out.host());
    fill_view(out, 7);
    const auto untouched = [&] { return std::all_of(got, got + 24, [](float each) { return each == 7; }); };
    runtime::Call call{
        .inputs = {&in, 1}, .outputs = {&out, 1}, .deadline = Deadline::in(std::chrono::microseconds(50))};
    call.keep = x;
    s.rig.device->hold();
    CHECK(s.runtime->run(*s.model, call).status().code() == Code::deadline);
    auto started = s.runtime->start(*s.model, call);
    REQUIRE(started.ok());
    CHECK(s.runtime->finish(*started, call.deadline).status().code() == Code::deadline);
    call.keep = nullptr;
    CHECK(x.use_count() > 1);
    CHECK(untouched());
    s.rig.device->release();
    REQUIRE(s.runtime->synchronize().ok());
    while (x.use_count() > 1) give_way();  // the reaper lets go of both
    CHECK(untouched());
    REQUIRE(s.runtime->finish(*started, Deadline::never()).ok());
    CHECK(x->gives(got));
    CHECK(s.rig.found_nothing());
  }
}

TEST_CASE("an event of another library orders streams, and is signalled in a stream's order") {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    CAPTURE(seed);
    Simulated s(with_sizes(seed));
    const auto writer = s.runtime->streams().lease(), reader = s.runtime->streams().lease();
    REQUIRE(writer.ok());
    REQUIRE(reader.ok());
    const auto gate = std::make_shared<SimEvent>(), written = std::make_shared<SimEvent>();
    const View a = *s.runtime->allocate(DType::kF32, {8});
    const runtime::Event begins = *s.runtime->import_event(gate->foreign()),
                         ends = *s.runtime->import_event(written->foreign());
    REQUIRE(s.runtime->wait(*writer->stream(), begins).ok());
    REQUIRE(s.runtime->fill(*writer->stream(), a, 5).ok());
    REQUIRE(s.runtime->signal(*writer->stream(), written->foreign()).ok());
    CHECK_FALSE(begins.query());
    CHECK_FALSE(written->reached());
    CHECK(ends.wait(Deadline::in(std::chrono::microseconds(100))).code() == Code::deadline);
    gate->signal();
    REQUIRE(s.runtime->wait(*reader->stream(), ends).ok());
    float got[8] = {};
    const View to = View::contiguous(reinterpret_cast<std::byte*>(got), DType::kF32, {8});
    REQUIRE(s.runtime->copy(*reader->stream(), a, to).ok());
    for (const float each : got) CHECK(each == 5);
    CHECK(ends.wait(Deadline::never()).ok());
    CHECK(begins.query());
    CHECK(s.rig.found_nothing());
  }
}

TEST_CASE("a buffer that other streams still read is not overwritten") {
  constexpr int kReaders = 5;
  int right = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    CAPTURE(seed);
    Simulated s(with_sizes(seed));
    const Status status = fan_out(s, kReaders, right);
    CHECK_MESSAGE(status.ok(), to_string(status));
    CHECK(s.rig.found_nothing());
  }
  CHECK(right == static_cast<int>(kSeeds) * kReaders);
}

TEST_CASE("buffers that threads drop at once after a submission are not used again too early") {
  constexpr int kThreads = 3, kCalls = 6;
  Atomic<int> right{0};
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    CAPTURE(seed);
    Simulated s(with_sizes(seed));
    run_together(kThreads, [&](int t) {
      const auto lease = s.runtime->streams().lease();
      for (int i = 0; lease.ok() && i < kCalls; ++i) {
        Rows x(2, 7 * t + i);
        std::vector<float> out(x.values.size());
        if (call_and_drop(s, *lease->stream(), x, out).ok() && x.gives(out.data())) right.add_relaxed(1);
      }
    });
    CHECK(s.rig.found_nothing());
  }
  CHECK(right.load_relaxed() == static_cast<int>(kSeeds) * kThreads * kCalls);
}

TEST_CASE("coalesced calls give each caller its own rows") {
  constexpr int kThreads = 6, kCalls = 3;
  Atomic<int> right{0};
  uint64_t calls = 0, batches = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    CAPTURE(seed);
    Simulated s(with_sizes(seed));
    batch::CoalescerOptions options;
    options.max_rows = 16;
    const batch::RowLayout layout = *batch::RowLayout::make(s.model->inputs(), s.model->outputs(), {}, false);
    batch::Coalescer coalescer(s.runtime, s.model, layout, options);
    run_together(kThreads, [&](int t) {
      for (int i = 0; i < kCalls; ++i) {
        Rows x(1 + (t + i) % 3, 5 * t + i);
        const View in = x.view();
        const auto result = coalescer.call({&in, 1}, Deadline::never());
        if (result.ok() && x.gives(reinterpret_cast<const float*>(result->front().host())))
          right.add_relaxed(1);
      }
    });
    calls += coalescer.stats().calls;
    batches += coalescer.stats().batches;
    CHECK(s.rig.found_nothing());
  }
  CHECK(right.load_relaxed() == static_cast<int>(kSeeds) * kThreads * kCalls);
  CHECK(calls == kSeeds * kThreads * kCalls);
  CHECK(batches < calls);
}

namespace {

// Eight calls one after the other; the queue of one of them fails.
struct Failing {
  int failed = 0, answered = 0;
  void play(uint64_t seed) {
    Simulated s(with_sizes(seed));
    s.rig.device->faults().arm(Fault::kQueueFailure, 1 + static_cast<int64_t>(seed % 12));
    for (int i = 0; i < 8; ++i) {
      Rows x(2, i);
      const View in = x.view();
      runtime::Call call;
      call.inputs = {&in, 1};
      const auto result = s.runtime->run(*s.model, call);
      (result.ok() ? answered : failed) += 1;
      if (result.ok()) {
        CHECK(x.gives(reinterpret_cast<const float*>(result->front().host())));
      } else {
        CHECK(result.status().code() == Code::device_lost);
      }
    }
    CHECK(s.rig.found_nothing());
  }
};

}  // namespace

TEST_CASE("a queue that fails gives its calls device_lost, and no wrong value to any") {
  Failing all;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) all.play(seed);
  CHECK(all.failed >= static_cast<int>(kSeeds));
  CHECK(all.failed + all.answered == static_cast<int>(kSeeds) * 8);
}

// A failed call's slot names the failed timeline, which nobody else may have to wait for.
TEST_CASE("calls after a queue has failed are answered") {
  Failing one;
  one.play(1);
  CHECK(one.failed == 1);
}

}  // namespace heddle::sim::test
