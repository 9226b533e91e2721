// Runs that nobody waits for, which share submissions (stream.h, Held back).
#include <doctest/doctest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/thread.h"
#include "runtime/runtime.h"
#include "runtime/test_device_fixture.h"

namespace heddle::runtime {

namespace {

using device::View;
using test::Rows;
using test::TestDevice;

constexpr int kTogether = 8;

// Time stands still: nothing is sent because it is old, unless a test lets time pass.
struct HeldBackFixture {
  explicit HeldBackFixture(int in_flight = 4, int together = kTogether,
                           uint64_t memory_bytes = uint64_t{1} << 30, bool shows_native = true) {
    static Atomic<int> next{0};
    device = std::make_shared<TestDevice>(test::TestOptions{.asynchronous = true,
                                                            .runs_together = together,
                                                            .shows_native = shows_native,
                                                            .memory_bytes = memory_bytes,
                                                            .name = text("held-back", next.add_relaxed(1))});
    device->set_kernel("add one", [](const device::Run& run) {
      const auto* const from = reinterpret_cast<const float*>(run.inputs[0].host());
      auto* const to = reinterpret_cast<float*>(run.outputs[0].host());
      for (int64_t i = 0; i < run.outputs[0].extents.elements(); ++i) to[i] = from[i] + 1;
      return Status();
    });
    device->set_kernel("no sevens", [](const device::Run& run) {
      if (*reinterpret_cast<const float*>(run.inputs[0].host()) == 7) return Status::invalid("it is seven");
      return test::copy_through(run);
    });
    device->set_submit(
        [this] { return refuse.exchange_acq_rel(false) ? Status::exhausted("no room for it") : Status(); });
    runtime = *Runtime::make(device, {.in_flight = in_flight, .clock = &clock});
    add_one = *runtime->load(test::graph_named("add one"));
    no_sevens = *runtime->load(test::graph_named("no sevens"));
    a.emplace(*runtime->streams().lease());
    b.emplace(*runtime->streams().lease());
  }
  Stream& on_a() { return **a; }
  Stream& on_b() { return **b; }
  View filled(double value) {
    const View view = *runtime->allocate(ir::DType::kF32, {1, 4});
    REQUIRE(runtime->fill(on_b(), view, value).ok());
    REQUIRE(on_b().synchronize(Deadline::never()).ok());
    return view;
  }
  View run(Stream& stream, const View& x, bool wait = false) { return run(stream, *add_one, x, wait); }
  View run(Stream& stream, Model& model, const View& x, bool wait = false) {
    auto outputs = runtime->run(model, {.inputs = {&x, 1}, .stream = &stream, .wait = wait});
    REQUIRE(outputs.ok());
    return outputs->front();
  }
  float first_of(Stream& stream, const View& x) {
    Rows read(x.extents[0], -1);
    REQUIRE(runtime->copy(stream, x, read.view()).ok());
    return read.values[0];
  }
  uint64_t entered() const { return runtime->governor().stats().entered; }

  ManualClock clock;
  Atomic<bool> refuse{false};
  Ref<TestDevice> device;
  Ref<Runtime> runtime;
  Ref<Model> add_one, no_sevens;
  std::optional<StreamLease> a, b;
};

Submission that_joins() {
  Submission extras;
  extras.joins = true;
  return extras;
}

struct Asker {
  std::string name;
  // `point`: of the run that is held back on stream a, which made `y` of `x`.
  std::function<void(HeldBackFixture&, const View& x, const View& y, const device::Point& point)> ask;
};

std::vector<Asker> askers() {
  using F = HeldBackFixture;
  using P = device::Point;
  return {
      {"record", [](F& f, const View&, const View&, const P&) { CHECK(f.on_a().record().recorded()); }},
      {"query", [](F& f, const View&, const View&, const P&) { f.on_a().query(); }},
      {"native", [](F& f, const View&, const View&, const P&) { CHECK(f.on_a().native() != nullptr); }},
      {"synchronize",
       [](F& f, const View&, const View&, const P&) { CHECK(f.on_a().synchronize(Deadline::never()).ok()); }},
      {"await", [](F& f, const View&, const View&,
                   const P& point) { CHECK(f.on_a().await(point.value, Deadline::never()).ok()); }},
      {"synchronize all streams",
       [](F& f, const View&, const View&, const P&) { CHECK(f.runtime->synchronize().ok()); }},
      {"an event's wait", [](F&, const View&, const View&,
                             const P& point) { CHECK(Event(point).wait(Deadline::never()).ok()); }},
      {"an event's query", [](F&, const View&, const View&, const P& point) { Event(point).query(); }},
      {"another stream that reads the result",
       [](F& f, const View&, const View& y, const P&) { CHECK(f.first_of(f.on_b(), y) == 6); }},
      {"another stream's run of the result",
       [](F& f, const View&, const View& y, const P&) {
         CHECK(f.first_of(f.on_b(), f.run(f.on_b(), y)) == 7);
       }},
      {"another stream that writes what is read",
       [](F& f, const View& x, const View& y, const P&) {
         REQUIRE(f.runtime->fill(f.on_b(), x, 50).ok());
         CHECK(f.first_of(f.on_b(), y) == 6);
       }},
      {"another stream that waits for an event",
       [](F& f, const View&, const View&, const P& point) {
         CHECK(f.runtime->wait(f.on_b(), Event(point)).ok());
         CHECK(f.on_b().synchronize(Deadline::never()).ok());
       }},
      {"a fill",
       [](F& f, const View& x, const View&, const P&) { CHECK(f.runtime->fill(f.on_a(), x, 1).ok()); }},
      {"a copy", [](F& f, const View&, const View& y, const P&) { CHECK(f.first_of(f.on_a(), y) == 6); }},
      {"a run that is waited for",
       [](F& f, const View&, const View& y, const P&) {
         CHECK(test::values_of(f.run(f.on_a(), y, true))[0] == 7);
       }},
      {"an exclusive hold", [](F& f, const View&, const View&,
                               const P&) { CHECK(f.runtime->governor().exclusive(Deadline::never()).ok()); }},
      {"the end of the lease", [](F& f, const View&, const View&, const P&) { f.a.reset(); }},
      {"the end of the runtime", [](F& f, const View&, const View&, const P&) { f.runtime->close(); }},
  };
}

}  // namespace

TEST_CASE("runs that nobody waits for share submissions and permits, in order and with their values") {
  constexpr int kRuns = 20;
  HeldBackFixture f;
  View x = f.filled(5);
  for (int i = 0; i < kRuns; ++i) x = f.run(f.on_a(), x);
  CHECK(f.on_a().last_submitted() == (kRuns + kTogether - 1) / kTogether);
  CHECK(f.entered() == (kRuns + kTogether - 1) / kTogether);
  CHECK(f.device->counts().runs.load_relaxed() <= kRuns / kTogether * kTogether);  // the rest is held back
  CHECK(f.first_of(f.on_a(), x) == 5 + kRuns);
  CHECK(f.device->counts().runs.load_relaxed() == kRuns);
}

TEST_CASE("each who needs what a stream holds back has it sent") {
  for (const Asker& asker : askers()) {
    CAPTURE(asker.name);
    HeldBackFixture f;
    const View x = f.filled(5), y = f.run(f.on_a(), x);
    const Ref<Stream> stream = f.on_a().shared_from_this();
    const device::Point point{stream->timeline(), stream->last_submitted()};
    REQUIRE(stream->timeline()->holds_back());
    asker.ask(f, x, y, point);
    REQUIRE_FALSE(stream->timeline()->holds_back());
    test::wait_until([&] { return point.done(); });
    CHECK(test::values_of(y)[0] == 6);
  }
}

TEST_CASE("a stream that ends sends what it holds back") {
  HeldBackFixture f;
  Roster roster(f.device, f.clock);
  const auto program = [&] {
    const ir::Extents extents{1, 4};
    return *f.add_one->module().compile({&extents, 1}, NoLocksHeld{});
  }();
  const View x = f.filled(5), y = f.filled(0);
  device::CommandList list;
  list.run(program, *f.runtime->allocate(64), {x}, {y}, std::make_shared<device::RowFaults>(0));
  {
    const Ref<Stream> stream = *roster.make(1);
    REQUIRE(stream->turn()->submit(std::move(list), that_joins()).ok());
    REQUIRE(stream->timeline()->holds_back());
  }
  CHECK(test::values_of(y)[0] == 6);
}

TEST_CASE("what a stream holds back and nobody joins is sent by the reaper, and its permit comes back") {
  HeldBackFixture f;
  const View x = f.filled(5), y = f.run(f.on_a(), x);
  REQUIRE(f.on_a().timeline()->holds_back());
  CHECK(f.runtime->governor().stats().in_flight == 1);
  f.clock.advance(Stream::kPatience);
  test::wait_until([&] { return f.runtime->governor().stats().in_flight == 0; });
  CHECK(test::values_of(y)[0] == 6);
}

TEST_CASE("a call that waits for the only permit gets it from a stream that holds something back") {
  HeldBackFixture f(1);
  const View x = f.filled(5), y = f.run(f.on_a(), x);
  REQUIRE(f.on_a().timeline()->holds_back());
  CHECK(test::values_of(f.run(f.on_b(), x, true))[0] == 6);
  CHECK(f.first_of(f.on_b(), y) == 6);
  const View again = f.run(f.on_a(), y);
  REQUIRE(f.on_a().timeline()->holds_back());
  CHECK(test::values_of(f.run(f.on_a(), again, true))[0] == 8);  // from its own
}

TEST_CASE("memory that a stream holds back is there for who needs it") {
  constexpr uint64_t kBytes = uint64_t{1} << 20;
  HeldBackFixture f(4, kTogether, 5 * kBytes);
  View x = *f.runtime->allocate(ir::DType::kF32, {int64_t{kBytes} / 16, 4});
  REQUIRE(f.runtime->fill(f.on_a(), x, 1).ok());
  for (int i = 0; i < kTogether - 1; ++i) x = f.run(f.on_a(), x);  // nobody else has what came before
  CHECK(f.first_of(f.on_a(), x) == kTogether);
}

TEST_CASE("memory that a single run holds back is there, too, where two share a submission") {
  constexpr uint64_t kBytes = uint64_t{1} << 20;
  HeldBackFixture f(4, 2, 5 * kBytes / 2);
  View x = *f.runtime->allocate(ir::DType::kF32, {int64_t{kBytes} / 16, 4});
  REQUIRE(f.runtime->fill(f.on_a(), x, 1).ok());
  x = f.run(f.on_a(), x);
  REQUIRE(f.on_a().timeline()->holds_back());
  CHECK(f.runtime->allocate(ir::DType::kF32, {int64_t{kBytes} / 16, 4}).ok());
  CHECK(f.first_of(f.on_a(), x) == 2);
}

TEST_CASE("what is asked for while a thread has the Turn is sent at the end of that Turn") {
  HeldBackFixture f;
  const View x = f.filled(5), y = f.run(f.on_a(), x);
  {
    const Turn turn = *f.on_a().turn();
    f.on_a().send();
    CHECK(f.on_a().timeline()->holds_back());
  }
  CHECK_FALSE(f.on_a().timeline()->holds_back());
  CHECK(f.first_of(f.on_b(), y) == 6);
}

TEST_CASE("a run that waits for another stream is submitted by itself") {
  HeldBackFixture f;
  const View x = f.filled(5), mine = f.run(f.on_a(), x), others = f.run(f.on_b(), x);
  const View both = f.run(f.on_a(), others);  // a circle, were it to join what b may already wait for
  CHECK_FALSE(f.on_a().timeline()->holds_back());
  CHECK(f.on_a().last_submitted() == 2);
  CHECK(f.first_of(f.on_b(), f.run(f.on_b(), both)) == 8);
  CHECK(f.first_of(f.on_a(), mine) == 6);
}

TEST_CASE("a stream that shows no native one goes on to hold runs back after it was asked for that") {
  HeldBackFixture f(4, kTogether, uint64_t{1} << 30, false);
  const View x = f.filled(5);
  CHECK(f.on_a().native() == nullptr);
  const View y = f.run(f.on_a(), x);
  CHECK(f.on_a().timeline()->holds_back());
  CHECK(f.first_of(f.on_b(), y) == 6);
}

TEST_CASE("a stream whose native one is known holds nothing back") {
  HeldBackFixture f;
  const View x = f.filled(5);
  f.run(f.on_a(), x);
  REQUIRE(f.on_a().native() != nullptr);
  f.run(f.on_a(), x);
  f.run(f.on_a(), x);
  CHECK_FALSE(f.on_a().timeline()->holds_back());
  CHECK(f.on_a().last_submitted() == 3);
}

TEST_CASE("a mistake in the data of one run is reported for it and what reads it, and for no other") {
  HeldBackFixture f;
  const View seven = f.filled(7), five = f.filled(5);
  const View before = f.run(f.on_a(), *f.no_sevens, five), wrong = f.run(f.on_a(), *f.no_sevens, seven);
  const View reads_it = f.run(f.on_a(), wrong), after = f.run(f.on_a(), five);
  REQUIRE(f.on_a().last_submitted() == 1);
  CHECK(f.first_of(f.on_a(), before) == 5);
  CHECK(f.first_of(f.on_a(), after) == 6);
  CHECK(wrong.buffer->fault().code() == Code::invalid);
  CHECK(reads_it.buffer->fault().code() == Code::invalid);
}

TEST_CASE("a submission that is refused is reported for each of its runs, and for no later one") {
  HeldBackFixture f;
  const View x = f.filled(5), one = f.run(f.on_a(), x), two = f.run(f.on_a(), one);
  f.refuse.store_release(true);
  CHECK(f.on_a().synchronize(Deadline::never()).ok());  // refused, but not the stream
  CHECK(one.buffer->fault().code() == Code::exhausted);
  CHECK(two.buffer->fault().code() == Code::exhausted);
  CHECK(f.first_of(f.on_a(), f.run(f.on_a(), x)) == 6);
  Rows read(1, -1);
  CHECK(f.runtime->copy(f.on_b(), f.run(f.on_b(), two), read.view()).code() == Code::exhausted);
}

TEST_CASE("a call that is refused by itself leaves what it was to write as it was, and can be made again") {
  HeldBackFixture f;
  const View x = f.filled(5), y = f.filled(7);
  const auto call = [&] {
    return f.runtime->run(*f.add_one,
                          {.inputs = {&x, 1}, .outputs = {&y, 1}, .stream = &f.on_a(), .wait = true});
  };
  f.refuse.store_release(true);
  CHECK(call().status().code() == Code::exhausted);
  CHECK(y.buffer->fault().ok());
  CHECK(f.first_of(f.on_b(), y) == 7);
  CHECK(call().ok());
  CHECK(f.first_of(f.on_b(), y) == 6);
}

TEST_CASE("a run whose operands are wrong is refused alone, and its caller told") {
  HeldBackFixture f;
  const View x = f.filled(5), y = f.run(f.on_a(), x), wrong = *f.runtime->allocate(ir::DType::kF32, {3, 4});
  const ir::Extents extents{1, 4};
  device::CommandList list;
  list.run(*f.add_one->module().compile({&extents, 1}, NoLocksHeld{}), *f.runtime->allocate(64), {wrong}, {x},
           std::make_shared<device::RowFaults>(0));
  Submission extras = that_joins();
  {
    Turn turn = *f.on_a().turn();
    CHECK_FALSE(turn.try_join(list, extras).has_value());
    CHECK(turn.submit(std::move(list), std::move(extras)).ok());
  }
  CHECK(f.first_of(f.on_b(), y) == 6);
}

TEST_CASE("threads that share a stream, and others that read from it, get their values") {
  constexpr int kThreads = 4, kRounds = 50, kSteps = 10;
  HeldBackFixture f;
  const View start = f.filled(100);
  Atomic<int> right{0};
  run_together(kThreads, [&](int thread) {
    for (int round = 0; round < kRounds; ++round) {
      View x = start;
      for (int step = 0; step < kSteps; ++step)
        x = f.run((thread + step / 4) % 2 == 0 ? f.on_a() : f.on_b(), x);
      if (f.first_of(thread % 2 == 0 ? f.on_a() : f.on_b(), x) == 100 + kSteps) right.add_relaxed(1);
    }
  });
  CHECK(right.load_relaxed() == kThreads * kRounds);
  CHECK(f.device->counts().runs.load_relaxed() == uint64_t{kThreads} * kRounds * kSteps);
  CHECK(f.runtime->synchronize().ok());
  test::wait_until([&] { return f.runtime->governor().stats().in_flight == 0; });
}

}  // namespace heddle::runtime
