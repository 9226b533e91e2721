// What a warm thread does on an asynchronous device while its n-th allocation fails, or each from there on,
// for every n: it is done, refused or thrown out of; what was taken is done right; nothing waits for ever.
#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "device/completing_queue_fixture.h"
#include "runtime/runtime.h"
#include "runtime/test_device_fixture.h"
#include "tests/host_runtime/out_of_memory_fixture.h"

namespace heddle::runtime {
namespace {

using device::View;
using heddle::test::fails_from_there;
using heddle::test::fails_in;
using test::Rows;

struct AsyncFixture {
  explicit AsyncFixture(const Options& options = {})
      : device(std::make_shared<test::TestDevice>(
            test::TestOptions{.asynchronous = true, .unified = false, .runs_together = 4, .name = "poor"})) {
    device->set_kernel("add one", [](const device::Run& run) {
      const auto* const from = reinterpret_cast<const float*>(run.inputs[0].address());
      auto* const to = reinterpret_cast<float*>(run.outputs[0].address());
      for (int64_t i = 0; i < run.outputs[0].extents.elements(); ++i) to[i] = from[i] + 1;
      return Status();
    });
    device->set_kernel("slow", [this](const device::Run& run) {
      latch.wait();
      return test::copy_through(run);
    });
    runtime = *Runtime::make(device, options);
    model = *runtime->load(test::graph_named("add one"));
    slow = *runtime->load(test::graph_named("slow"));
    lease.emplace(*runtime->streams().lease());
    other.emplace(*runtime->streams().lease());
    x = *runtime->allocate(ir::DType::kF32, {1, 4});
    y = *runtime->allocate(ir::DType::kF32, {1, 4});
  }
  Result<std::vector<View>> run(const View& from, Stream* stream, bool wait) {
    return runtime->run(*model, {.inputs = {&from, 1}, .stream = stream, .wait = wait});
  }
  // One value after another thread's, and this one's, work is over.
  float first_of(const View& view) {
    Rows read(1, -1);
    REQUIRE(runtime->copy(**other, view, read.view()).ok());
    return read.values[0];
  }

  Ref<test::TestDevice> device;
  Ref<Runtime> runtime;
  Ref<Model> model, slow;
  test::Latch latch;  // where the slow model's runs wait
  std::optional<StreamLease> lease, other;
  View x, y;
};

// What was taken, and what it holds once it is over.
struct Taken {
  View view;
  float value;
};
using Operation = std::function<Status(AsyncFixture&, std::vector<Taken>&)>;
struct Named {
  std::string name;
  Operation run;
};

Status keep(Result<std::vector<View>> made, float value, std::vector<Taken>& taken) {
  HEDDLE_TRY(made.status());
  taken.push_back({made->front(), value});
  return {};
}

Status chain(AsyncFixture& f, int runs, std::vector<Taken>& taken) {
  View from = f.x;
  for (int i = 1; i <= runs; ++i) {
    HEDDLE_TRY(keep(f.run(from, &**f.lease, false), 5 + static_cast<float>(i), taken));
    from = taken.back().view;
  }
  return {};
}

const std::vector<Named>& operations() {
  static const std::vector<Named> all = {
      {"a call",
       [](AsyncFixture& f, std::vector<Taken>& taken) { return keep(f.run(f.x, nullptr, true), 6, taken); }},
      {"a call on a stream",
       [](AsyncFixture& f, std::vector<Taken>& taken) {
         return keep(f.run(f.x, &**f.lease, true), 6, taken);
       }},
      {"a run that is held back",
       [](AsyncFixture& f, std::vector<Taken>& taken) { return chain(f, 1, taken); }},
      {"runs that share a submission, and more",
       [](AsyncFixture& f, std::vector<Taken>& taken) { return chain(f, 6, taken); }},
      {"a run, and another stream's of its result",
       [](AsyncFixture& f, std::vector<Taken>& taken) -> Status {
         HEDDLE_TRY(chain(f, 1, taken));
         return keep(f.run(taken.back().view, &**f.other, false), 7, taken);
       }},
      {"a run, and an event after it",
       [](AsyncFixture& f, std::vector<Taken>& taken) -> Status {
         HEDDLE_TRY(chain(f, 1, taken));
         return f.runtime->wait(**f.other, (*f.lease)->record(Timed::yes));
       }},
      {"a copy on the device",
       [](AsyncFixture& f, std::vector<Taken>& taken) -> Status {
         HEDDLE_TRY(f.runtime->copy(**f.lease, f.x, f.y));
         taken.push_back({f.y, 5});
         return {};
       }},
      {"a fill",
       [](AsyncFixture& f, std::vector<Taken>& taken) -> Status {
         HEDDLE_TRY(f.runtime->fill(**f.lease, f.y, 3));
         taken.push_back({f.y, 3});
         return {};
       }},
  };
  return all;
}

bool comes_true(const std::function<bool()>& holds) {
  const TimePoint end = Clock::real().now() + std::chrono::seconds(10);
  while (!holds() && Clock::real().now() < end) give_way();
  return holds();
}

// True: the n-th allocation was reached, and failed.
bool fails_at(int64_t n, bool from_there, AsyncFixture& f, const Operation& operation) {
  std::vector<Taken> taken;
  taken.reserve(8);
  std::optional<Status> status;
  fails_from_there = from_there;
  fails_in = n;
  bool failed = false;
  try {
    status = operation(f, taken);
    failed = n > 0 && fails_in <= 0;
    fails_in = 0;
  } catch (const std::bad_alloc&) {
    failed = true;  // which the public API turns into exhausted
    fails_in = 0;
  }
  fails_from_there = false;
  CHECK((failed || status->ok()));
  CHECK((!status.has_value() || status->ok() || status->code() == Code::exhausted));
  REQUIRE(f.runtime->synchronize(Deadline::in(std::chrono::seconds(10))).ok());
  for (const Taken& each : taken) {
    if (each.view.buffer->fault().ok()) CHECK(f.first_of(each.view) == each.value);
  }
  return failed;
}

TEST_CASE(
    "on an asynchronous device nothing that lacks memory is lost, or waited for, for every allocation") {
  for (const Named& each : operations()) {
    for (const bool from_there : {false, true}) {
      CAPTURE(each.name);
      CAPTURE(from_there);
      auto made = std::make_unique<AsyncFixture>();
      AsyncFixture& f = *made.release();  // left alone where a REQUIRE fails: it would wait without end
      REQUIRE(f.runtime->fill(**f.lease, f.x, 5).ok());
      REQUIRE(f.runtime->synchronize().ok());
      const uint64_t bytes = test::bytes_of_tensors(*f.runtime);
      for (int warm = 0; warm < 3; ++warm) CHECK_FALSE(fails_at(0, false, f, each.run));
      int64_t n = 1;
      for (; fails_at(n, from_there, f, each.run); ++n) {
        CAPTURE(n);
        CHECK_FALSE((*f.lease)->failed());
        CHECK_FALSE(fails_at(0, false, f, each.run));
        REQUIRE(comes_true([&] { return f.runtime->stats().governor.in_flight == 0; }));
        REQUIRE(comes_true([&] { return test::bytes_of_tensors(*f.runtime) == bytes; }));
      }
      CHECK(n > 1);
      made.reset(&f);
    }
  }
}

// Its outputs are marked in turn: one may be marked when there is no memory for the next.
TEST_CASE("a submission that lacks memory for its marks is over once what it waits for is, and not before") {
  bool any_marked = false;
  for (int64_t n = 1, failed = 1; failed != 0; ++n) {
    CAPTURE(n);
    AsyncFixture f;
    REQUIRE(f.runtime->fill(**f.lease, f.x, 5).ok());
    const View to = f.y, z = *f.runtime->allocate(ir::DType::kF32, {1, 4});
    REQUIRE(
        f.runtime
            ->run(*f.slow, {.inputs = {&f.x, 1}, .outputs = {&to, 1}, .stream = &**f.lease, .wait = false})
            .ok());
    test::wait_until([&] { return (*f.lease)->query(), f.latch.arrived() == 1; });
    device::CommandList list;
    list.fill(f.y, 1);
    list.fill(z, 2);
    Stream& stream = **f.other;
    std::optional<Result<uint64_t>> done;
    {
      Turn turn = *stream.turn();
      fails_in = n;
      try {
        done.emplace(turn.submit(std::move(list)));
      } catch (const std::bad_alloc&) {
      }
      failed = fails_in <= 0;
      fails_in = 0;
    }
    any_marked = any_marked || (done.has_value() && !done->ok());
    // The kernel that writes y is not over: whoever comes next has to wait for it.
    CHECK_FALSE(f.y.buffer->pending().empty());
    CHECK((!done.has_value() ||
           stream.synchronize(Deadline::in(std::chrono::milliseconds(1))).code() == Code::deadline));
    f.latch.open();
    REQUIRE(f.runtime->synchronize(Deadline::in(std::chrono::seconds(10))).ok());
  }
  CHECK(any_marked);
}

// Its deadline's words may find none.
TEST_CASE("a call that lacks memory when its deadline has passed gives its lane back, for every allocation") {
  for (int64_t n = 1, failed = 1; failed != 0; ++n) {
    CAPTURE(n);
    AsyncFixture f;
    REQUIRE(f.runtime->fill(**f.lease, f.x, 5).ok());
    REQUIRE(f.runtime->synchronize().ok());
    REQUIRE(f.runtime->compile(*f.slow, std::vector<ir::Extents>{{1, 4}}).ok());
    fails_in = n;
    try {
      const auto late = f.runtime->run(
          *f.slow, {.inputs = {&f.x, 1}, .deadline = Deadline::in(std::chrono::milliseconds(20))});
      failed = fails_in <= 0;
      fails_in = 0;
      CHECK((late.status().code() == Code::deadline || failed));
    } catch (const std::bad_alloc&) {
      fails_in = 0;
    }
    f.latch.open();
    REQUIRE(f.runtime->synchronize(Deadline::in(std::chrono::seconds(10))).ok());
    CHECK(comes_true([&] { return f.runtime->stats().governor.in_flight == 0; }));
  }
}

// Whose streams of other libraries are the points that they were given.
class Lending final : public test::TestDevice {
 public:
  using TestDevice::TestDevice;
  Result<device::Point> import_stream(void* stream, NoLocksHeld) override {
    return *static_cast<device::Point*>(stream);
  }
};

TEST_CASE("what another library releases keeps each use of ours, for every allocation that may fail") {
  const auto runtime =
      *Runtime::make(std::make_shared<Lending>(test::TestOptions{.asynchronous = true, .name = "lending"}));
  const device::CompletingQueue writer, reader, other;
  for (int64_t n = 1, failed = 1; failed != 0; ++n) {
    CAPTURE(n);
    const View view = *runtime->allocate(ir::DType::kF32, {1, 4});
    view.buffer->mark_write(writer.point(1));
    view.buffer->mark_read(reader.point(1));
    device::Point given = other.point(1);
    bool released = false;
    fails_in = n;
    try {
      released = runtime->released_by(&given, view).ok();
    } catch (const std::bad_alloc&) {
    }
    failed = fails_in <= 0;
    fails_in = 0;
    CHECK(released == (failed == 0));
    CHECK(view.buffer->pending().size() == (released ? 3 : 2));
  }
}

// The next now() on another thread than its maker's throws std::bad_alloc, once for each be_poor().
class PoorClock final : public Clock {
 public:
  TimePoint now() const override {
    if (&here != maker_ && poor_.exchange_acq_rel(false)) throw std::bad_alloc();
    return Clock::real().now();
  }
  void be_poor() { poor_.store_release(true); }
  bool is_poor() const { return poor_.load_acquire(); }

 private:
  static inline thread_local char here;
  const char* const maker_ = &here;
  mutable Atomic<bool> poor_{false};
};

TEST_CASE("a sweep of the reaper's that finds no memory is done again though nothing rings for it") {
  PoorClock clock;
  Options options;
  options.clock = &clock;
  AsyncFixture f(options);
  REQUIRE(f.runtime->fill(**f.lease, f.x, 5).ok());
  REQUIRE(f.runtime->synchronize().ok());
  for (int round = 0; round < 20; ++round) {
    clock.be_poor();
    const auto made = f.run(f.x, &**f.lease, false);  // held back: the reaper sends it
    REQUIRE(made.ok());
    REQUIRE(comes_true([&] { return !clock.is_poor(); }));
    REQUIRE(comes_true([&] { return made->front().buffer->pending().empty(); }));
    CHECK(f.first_of(made->front()) == 6);
  }
}

// The device names memory of another one as the host's, and that one knows of it by a mark alone.
TEST_CASE("a call without memory to mark the memory of another device's waits until that is written") {
  Atomic<bool> written{false};
  AsyncFixture f;
  f.device->set_kernel("late", [&](const device::Run& run) {
    for (int i = 0; i < 2000; ++i) give_way();
    HEDDLE_TRY(test::copy_through(run));
    written.store_release(true);
    return Status();
  });
  const auto late = *f.runtime->load(test::graph_named("late"));
  const auto other = *Runtime::make(std::make_shared<test::TestDevice>(test::TestOptions{.name = "other"}));
  REQUIRE(f.runtime->fill(**f.lease, f.x, 5).ok());
  int unmarked = 0;
  for (int64_t n = 0, failed = 1; failed != 0; ++n) {
    CAPTURE(n);
    const View to = *other->allocate(ir::DType::kF32, {1, 4});
    written.store_release(false);
    REQUIRE(f.runtime->synchronize().ok());
    fails_in = n;
    std::optional<InFlight> started;
    try {
      auto begun = f.runtime->start(*late, {.inputs = {&f.x, 1}, .outputs = {&to, 1}, .keep = to.buffer});
      failed = n == 0 || fails_in <= 0;
      fails_in = 0;
      if (begun.ok()) started.emplace(*std::move(begun));
    } catch (const std::bad_alloc&) {
      failed = 1;
      fails_in = 0;
    }
    if (!started.has_value()) continue;
    const bool is_marked = to.buffer->writer() != nullptr;
    CHECK((is_marked || written.load_acquire()));
    unmarked += is_marked ? 0 : 1;
    CHECK(f.runtime->finish(*started, Deadline::never()).ok());
  }
  CHECK(unmarked > 0);
}

TEST_CASE("the end of a buffer lists its uses without an allocation") {
  struct Counts final : device::Recycler {
    void recycle(std::unique_ptr<device::Memory>, std::vector<device::Point> uses) noexcept override {
      listed = uses.size();
    }
    size_t listed = 0;
  };
  for (const int uses : {0, 1, 2, 5, 10, 15}) {
    const int reads = uses % 8, beside = uses / 4;  // before, between and after each other
    CAPTURE(uses);
    const std::vector<device::CompletingQueue> queues(16);
    const auto recycler = std::make_shared<Counts>();
    auto buffer = std::make_shared<device::Buffer>(nullptr, 64, recycler);
    buffer->mark_write(queues[0].point(1));
    for (int i = 1; i <= reads || i <= beside; ++i) {
      const auto number = static_cast<size_t>(i);
      if (i <= reads) buffer->mark_read(queues[number].point(1));
      if (i <= beside) buffer->mark_write_beside(queues[8 + number].point(1));
    }
    fails_in = -1;
    buffer = nullptr;
    fails_in = 0;
    CHECK(recycler->listed == static_cast<size_t>(1 + reads + beside));
  }
}

}  // namespace
}  // namespace heddle::runtime
