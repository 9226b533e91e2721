#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "base/thread.h"
#include "runtime/registry.h"
#include "runtime/runtime.h"
#include "runtime/test_device_fixture.h"
#include "tests/child_fixture.h"

// Calls on streams of the user's, whole-device waits, failures and forks.
namespace heddle::runtime {

namespace {

using device::View;
using test::Rows;
using test::TestDevice;

struct RuntimeStreamFixture {
  explicit RuntimeStreamFixture(bool asynchronous, int in_flight = 4) {
    static Atomic<int> next{0};
    device = std::make_shared<TestDevice>(
        test::TestOptions{.asynchronous = asynchronous, .name = text("stream-test", next.add_relaxed(1))});
    device->set_kernel("add one", [](const device::Run& run) {
      for (int64_t i = 0; i < run.outputs[0].extents.elements(); ++i) {
        reinterpret_cast<float*>(run.outputs[0].host())[i] =
            reinterpret_cast<const float*>(run.inputs[0].host())[i] + 1;
      }
      return Status();
    });
    device->set_kernel("lost", [this](const device::Run& run) {
      return lose.exchange_acq_rel(false) ? Status::device_lost("gone") : test::copy_through(run);
    });
    device->set_kernel("slow", [this](const device::Run& run) {
      latch.wait();
      return test::copy_through(run);
    });
    device->set_kernel("no negatives", [](const device::Run& run) {
      if (*reinterpret_cast<const float*>(run.inputs[0].host()) < 0) return Status::invalid("it is negative");
      return test::copy_through(run);
    });
    Options options;
    options.in_flight = in_flight;
    runtime = *Runtime::make(device, options);
    add_one = *runtime->load(test::graph_named("add one"));
    lost = *runtime->load(test::graph_named("lost"));
    slow = *runtime->load(test::graph_named("slow"));
  }
  Result<View> run(Model& model, const View& x, Stream* stream, bool wait = false) {
    HEDDLE_TRY_ASSIGN(auto outputs, runtime->run(model, {.inputs = {&x, 1}, .stream = stream, .wait = wait}));
    return outputs[0];
  }
  View upload(Stream& stream, Rows& rows) {
    View to = *runtime->allocate(ir::DType::kF32, rows.extents);
    REQUIRE(runtime->copy(stream, rows.view(), to).ok());
    return to;
  }

  test::Latch latch;
  Atomic<bool> lose{true};
  Ref<TestDevice> device;
  Ref<Runtime> runtime;
  Ref<Model> add_one, lost, slow;
};

}  // namespace

TEST_CASE("calls chained over streams without waiting give the value of the chain") {
  for (const bool asynchronous : {false, true}) {
    RuntimeStreamFixture f(asynchronous);
    run_together(4, [&](int thread) {
      const auto a = *f.runtime->streams().lease(), b = *f.runtime->streams().lease();
      Rows start(2, static_cast<float>(thread * 100));
      View x = f.upload(*a, start);
      for (int i = 0; i < 200; ++i) x = *f.run(*f.add_one, x, &*(i % 2 == 0 ? a : b));
      Rows end(2);
      REQUIRE(f.runtime->copy(*a, x, end.view()).ok());
      for (size_t i = 0; i < end.values.size(); ++i) CHECK(end.values[i] == start.values[i] + 200);
    });
    CHECK(f.device->counts().runs.load_relaxed() == 800);
    CHECK(f.runtime->synchronize().ok());
    test::wait_until([&] { return f.runtime->governor().stats().in_flight == 0; });
    test::wait_until([&] { return test::bytes_of_tensors(*f.runtime) == 0; });
  }
}

TEST_CASE("a call without a stream sees what streams have been told to write before") {
  RuntimeStreamFixture f(true);
  const auto lease = *f.runtime->streams().lease();
  Rows start(1, 5);
  const View x = f.upload(*lease, start);
  const View slow = *f.run(*f.slow, x, &*lease);
  const Thread opener("opener", [&] {
    test::wait_until([&] { return f.latch.arrived() == 1; });
    f.latch.open();
  });
  const View y = *f.run(*f.add_one, slow, nullptr, true);
  CHECK(test::values_of(y)[0] == 6);
}

TEST_CASE("the call that cannot wait longer leaves its work in flight and its memory safe") {
  RuntimeStreamFixture f(true);
  const auto lease = *f.runtime->streams().lease();
  Rows start(1, 5);
  const View x = f.upload(*lease, start);
  const auto late = f.runtime->run(
      *f.slow,
      {.inputs = {&x, 1}, .stream = &*lease, .deadline = Deadline::in(std::chrono::milliseconds(1))});
  CHECK(late.status().code() == Code::deadline);
  CHECK(f.runtime->stats().in_flight == 1);
  f.latch.open();
  CHECK(lease->synchronize(Deadline::never()).ok());
  test::wait_until([&] { return f.runtime->governor().stats().in_flight == 0; });
}

TEST_CASE("the lanes of a full device are handed on as soon as work is over, by no thread of the callers") {
  RuntimeStreamFixture f(true, 2);
  const auto a = *f.runtime->streams().lease(), b = *f.runtime->streams().lease();
  Rows start(1, 1);
  const View x = f.upload(*a, start);
  REQUIRE(f.run(*f.slow, x, &*a).ok());
  REQUIRE(f.run(*f.slow, x, &*b).ok());
  Atomic<int> done{0};
  std::vector<Thread> callers;
  for (int i = 0; i < 6; ++i) {
    callers.emplace_back("caller", [&] {
      if (f.run(*f.add_one, x, nullptr, true).ok()) done.add_relaxed(1);
    });
  }
  test::wait_until([&] { return f.runtime->governor().stats().waiting == 6; });
  f.latch.open();
  callers.clear();
  CHECK(done.load_relaxed() == 6);
}

TEST_CASE("a caller that waits for its results returns its lane itself: the reaper is not woken") {
  constexpr int kThreads = 2, kCalls = 200;
  RuntimeStreamFixture f(true, 1);
  const auto lease = *f.runtime->streams().lease();
  Atomic<int> right{0};
  run_together(kThreads, [&](int thread) {
    for (int i = 0; i < kCalls; ++i) {
      Rows x(1, static_cast<float>(1000 * thread + i)), copied(1);
      const View view = x.view();
      const auto y = f.run(*f.add_one, view, i % 2 == 0 ? nullptr : &*lease, true);
      if (!y.ok() || !f.runtime->copy(*lease, *y, copied.view()).ok()) continue;
      right.add_relaxed(copied.values[0] == x.values[0] + 1 ? 1 : 0);
    }
  });
  CHECK(right.load_relaxed() == kThreads * kCalls);
  const auto stats = f.runtime->stats();
  CHECK(stats.governor.entered == kThreads * kCalls);
  CHECK(stats.governor.in_flight == 0);  // when the last call returned
  CHECK(stats.memory.allocated == stats.slot_bytes);
  CHECK(stats.reaper_rings == 0);
}

TEST_CASE("a caller that does not wait, or not to the end, leaves its lane and its memory to the reaper") {
  for (const bool wait : {false, true}) {
    RuntimeStreamFixture f(true, 1);
    const auto lease = *f.runtime->streams().lease();
    View x = *f.runtime->allocate(ir::DType::kF32, {1, 4});
    REQUIRE(f.runtime->fill(*lease, x, 5).ok());
    REQUIRE(lease->synchronize(Deadline::never()).ok());
    const auto y = f.runtime->run(
        *f.slow, {.inputs = {&x, 1}, .stream = &*lease, .deadline = Deadline::at(TimePoint()), .wait = wait});
    CHECK(y.ok() == !wait);
    x = {};
    const Thread next("next", [&] {
      Rows mine(1, 7);
      const View view = mine.view();
      CHECK(test::values_of(*f.run(*f.add_one, view, nullptr, true))[0] == 8);  // needs that lane
    });
    test::wait_until([&] { return f.runtime->governor().stats().waiting == 1; });
    f.latch.open();
  }
}

TEST_CASE("the holder of the device may use a stream whose caller waits for the device") {
  for (const bool asynchronous : {false, true}) {
    for (const bool parked_first : {false, true}) {
      CAPTURE(asynchronous);
      CAPTURE(parked_first);
      RuntimeStreamFixture f(asynchronous, 1);
      const auto lease = *f.runtime->streams().lease();
      Rows start(1, 5), read(1);
      const View x = f.upload(*lease, start), filled = *f.runtime->allocate(ir::DType::kF32, {1, 4});
      const auto parked = [&](int callers) {
        test::wait_until([&] { return f.runtime->governor().stats().waiting == callers; });
      };
      std::optional<Thread> runner, caller;
      const auto call = [&] {
        caller.emplace("caller",
                       [&] { CHECK(test::values_of(*f.run(*f.add_one, x, &*lease, true))[0] == 6); });
      };
      if (parked_first) {  // the only lane is in use: the caller parks before the hold begins
        runner.emplace("runner", [&] { CHECK(f.run(*f.slow, x, nullptr, true).ok()); });
        test::wait_until([&] { return f.latch.arrived() == 1; });
        call();
        parked(1);
      }
      Atomic<bool> used{false};
      const Thread holder("holder", [&] {
        const auto hold = f.runtime->governor().exclusive(Deadline::never());
        REQUIRE(hold.ok());
        if (!parked_first) call();
        parked(1);
        const Deadline soon = Deadline::in(std::chrono::seconds(10));
        CHECK(f.runtime->copy(*lease, x, filled, soon).ok());
        CHECK(f.runtime->fill(*lease, filled, 3, soon).ok());
        CHECK(f.runtime->copy(*lease, filled, read.view(), soon).ok());
        used.store_release(true);
      });
      if (parked_first) {
        parked(2);
        f.latch.open();
      }
      test::wait_until([&] { return used.load_acquire(); });
      caller.reset();
      CHECK(read.values == std::vector<float>(4, 3));
      test::wait_until([&] { return f.runtime->governor().stats().in_flight == 0; });
    }
  }
}

TEST_CASE("calls on shared streams and calls without, holders and their copies: all end, with right values") {
  constexpr int kCalls = 60, kCallers = 8, kHolders = 2;
  for (const bool asynchronous : {false, true}) {
    RuntimeStreamFixture f(asynchronous, 2);
    const auto a = *f.runtime->streams().lease(), b = *f.runtime->streams().lease();
    Atomic<int> right{0}, copied{0};
    run_together(kCallers + kHolders, [&](int thread) {
      Stream& stream = *(thread % 2 == 0 ? a : b);
      Rows start(1, static_cast<float>(100 * thread)), read(1);
      const View input = start.view();
      for (int i = 0; i < kCalls; ++i) {
        if (thread >= kCallers) {
          const auto hold = f.runtime->governor().exclusive(Deadline::never());
          const View x = f.upload(stream, start);
          if (!f.runtime->copy(stream, x, read.view()).ok()) continue;
          copied.add_relaxed(read.values == start.values ? 1 : 0);
          continue;
        }
        const auto y = f.run(*f.add_one, input, thread < 2 ? nullptr : &stream, true);
        right.add_relaxed(y.ok() && test::values_of(*y)[0] == start.values[0] + 1 ? 1 : 0);
      }
    });
    CHECK(right.load_relaxed() == kCallers * kCalls);
    CHECK(copied.load_relaxed() == kHolders * kCalls);
    CHECK(f.device->counts().runs.load_relaxed() == kCallers * kCalls);
    CHECK(f.device->counts().most_running.load_relaxed() <= 2);
    const auto stats = f.runtime->governor().stats();
    CHECK(stats.entered == kCallers * kCalls);
    CHECK(stats.exclusives == kHolders * kCalls);
    CHECK(stats.waiting == 0);
    test::wait_until([&] { return f.runtime->governor().stats().in_flight == 0; });
  }
}

TEST_CASE("synchronize(all) is right while 8 threads work") {
  RuntimeStreamFixture f(true);
  Atomic<int> working{8};
  Atomic<uint64_t> wrong{0}, calls{0};
  run_together(10, [&](int thread) {
    if (thread >= 8) {
      while (working.load_acquire() > 0) CHECK(f.runtime->synchronize().ok());
      return;
    }
    const auto lease = *f.runtime->streams().lease();
    Rows start(1, static_cast<float>(thread));
    View x = f.upload(*lease, start);
    for (int i = 0; i < 100; ++i) {
      x = *f.run(*f.add_one, x, &*lease);
      calls.add_relaxed(1);
      if (i % 10 != 9) continue;
      if (!f.runtime->synchronize().ok()) wrong.add_relaxed(1);
      if (test::values_of(x)[0] != static_cast<float>(thread + i + 1)) wrong.add_relaxed(1);
    }
    working.sub_acq_rel(1);
  });
  CHECK(wrong.load_relaxed() == 0);
  CHECK(calls.load_relaxed() == 800);
  CHECK(f.device->counts().runs.load_relaxed() == 800);
}

TEST_CASE("a lane whose stream failed gets a new one, and its caller the cause") {
  for (const bool asynchronous : {false, true}) {
    RuntimeStreamFixture f(asynchronous, 1);
    Rows x(1, 4);
    const View view = x.view();
    const Status status = f.run(*f.lost, view, nullptr, true).status();
    CHECK(status.code() == Code::device_lost);
    const auto next = f.run(*f.lost, view, nullptr, true);
    REQUIRE(next.ok());
    CHECK(test::values_of(*next) == x.values);
    CHECK(f.runtime->governor().stats().in_flight <= 1);
  }
}

TEST_CASE("a lane's failed stream that was replaced is not synchronized any more") {
  RuntimeStreamFixture f(true, 1);
  Rows x(1, 4);
  const View view = x.view();
  InFlight failed = *f.runtime->start(*f.lost, {.inputs = {&view, 1}});
  CHECK(f.runtime->finish(failed, Deadline::never()).status().code() == Code::device_lost);
  CHECK(f.runtime->synchronize().code() == Code::device_lost);
  REQUIRE(f.run(*f.lost, view, nullptr, true).ok());
  CHECK(f.runtime->synchronize().ok());  // `failed` still keeps the failed stream
}

TEST_CASE("a failed stream of a user's does not disturb the others") {
  RuntimeStreamFixture f(true);
  std::optional<StreamLease> broken = *f.runtime->streams().lease();
  const auto good = *f.runtime->streams().lease();
  Rows start(1, 4);
  const View x = f.upload(*good, start);
  REQUIRE(f.run(*f.lost, x, &**broken).ok());
  CHECK((*broken)->synchronize(Deadline::never()).code() == Code::device_lost);
  CHECK(f.run(*f.add_one, x, &**broken).status().code() == Code::device_lost);
  CHECK(f.runtime->wait(*good, (*broken)->record()).code() == Code::device_lost);
  CHECK(test::values_of(*f.run(*f.add_one, x, &*good, true))[0] == 5);
  CHECK(f.runtime->synchronize().code() == Code::device_lost);
  // As the reaper does while it looks at every stream.
  const Ref<Stream> held = broken->stream();
  broken.reset();
  CHECK(f.runtime->synchronize().ok());
}

TEST_CASE("a failed stream that is gone takes no other out of what is synchronized") {
  RuntimeStreamFixture f(true);
  std::optional<StreamLease> first = *f.runtime->streams().lease();
  const auto second = *f.runtime->streams().lease();
  Rows start(1, 4);
  const View x = f.upload(*second, start);
  const auto lose = [&](const StreamLease& lease) {
    f.lose.store_release(true);
    REQUIRE(f.run(*f.lost, x, &*lease).ok());
    CHECK(lease->synchronize(Deadline::never()).code() == Code::device_lost);
  };
  lose(*first);
  first.reset();
  CHECK(f.runtime->synchronize().ok());
  lose(second);
  CHECK(f.runtime->synchronize().code() == Code::device_lost);
}

TEST_CASE("copies refuse what does not fit, and fills fill") {
  RuntimeStreamFixture f(true);
  const auto lease = *f.runtime->streams().lease();
  Rows small(1), large(2);
  const Status status = f.runtime->copy(*lease, small.view(), large.view());
  CHECK(status.code() == Code::invalid);
  CHECK(status.message().find("[1, 4]") != std::string::npos);
  REQUIRE(f.runtime->fill(*lease, large.view(), 3).ok());
  CHECK(large.values == std::vector<float>(8, 3));
}

TEST_CASE("the runtime may die while work it was given is in flight") {
  std::optional<RuntimeStreamFixture> f(std::in_place, true);
  const auto counts = f->device->shared_counts();
  {
    const auto lease = *f->runtime->streams().lease();
    Rows start(1, 4);
    View x = f->upload(*lease, start);
    for (int i = 0; i < 50; ++i) x = *f->run(*f->add_one, x, &*lease);
  }
  f.reset();
  CHECK(counts->runs.load_relaxed() == 50);
  CHECK(counts->nothing_lives());
}

// Runs `child` in a forked process; its result is the exit code.
template <class Child>
int in_fork(Child&& child) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(20);  // a child that hangs dies, and fails the test
    _exit(child());
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST_CASE("a forked child is refused at once, may drop what it inherited, and the parent goes on" *
          doctest::skip(!heddle::test::kForksWithThreads)) {
  for (const bool asynchronous : {false, true}) {
    std::optional<RuntimeStreamFixture> f(std::in_place, asynchronous);
    std::optional<StreamLease> lease = *f->runtime->streams().lease();
    Rows x(1, 4);
    const View view = x.view();
    std::optional<View> kept = *f->run(*f->add_one, view, &**lease, true);
    Atomic<bool> stop{false};
    Atomic<uint64_t> wrong{0};
    std::vector<Thread> busy;
    for (int i = 0; i < 4; ++i) {
      busy.emplace_back("busy", [&] {
        Rows mine(1, 9);
        const View input = mine.view();
        while (!stop.load_acquire()) {
          const auto y = f->run(*f->add_one, input, nullptr, true);
          if (!y.ok() || test::values_of(*y)[0] != 10) wrong.add_relaxed(1);
        }
      });
    }
    for (int i = 0; i < 5; ++i) {
      const int code = in_fork([&] {
        const auto refused = f->run(*f->add_one, view, nullptr, true);
        if (refused.status().code() != Code::unavailable) return 1;
        if (refused.status().message().find("spawn") == std::string::npos) return 2;
        if (f->runtime->allocate(10).status().code() != Code::unavailable) return 3;
        if (f->runtime->synchronize().code() != Code::unavailable) return 4;
        if (f->runtime->load(test::graph_named("x")).status().code() != Code::unavailable) return 5;
        if (registry::governor("another", 1).status().code() != Code::unavailable) return 6;
        if (f->runtime->streams().lease().status().code() != Code::unavailable) return 7;
        if (f->runtime->streams().default_stream().status().code() != Code::unavailable) return 8;
        if (f->runtime->governor().exclusive(Deadline::never()).status().code() != Code::unavailable)
          return 9;
        if (f->add_one->close(Deadline::never()).code() != Code::unavailable) return 10;
        kept.reset();
        lease.reset();
        f->add_one.reset();
        f->runtime.reset();
        return 42;
      });
      CHECK(code == 42);
    }
    for (int i = 0; i < 100; ++i) CHECK(f->run(*f->add_one, view, &**lease, true).ok());
    stop.store_release(true);
    busy.clear();
    CHECK(wrong.load_relaxed() == 0);
  }
}

TEST_CASE("a mistake found after submission reaches the caller that takes the values, and no other") {
  RuntimeStreamFixture f(true);
  const auto model = *f.runtime->load(test::graph_named("no negatives"));
  const auto a = *f.runtime->streams().lease(), b = *f.runtime->streams().lease();
  Rows good(2, 1), bad(2, -1), out(2);
  for (int round = 0; round < 20; ++round) {
    const View wrong = *f.run(*model, f.upload(*a, bad), &*a);
    const View derived = *f.run(*f.add_one, wrong, &*b), right = *f.run(*f.add_one, f.upload(*a, good), &*a);
    const View copied = *f.runtime->allocate(ir::DType::kF32, good.extents);
    REQUIRE(f.runtime->copy(*b, wrong, copied).ok());
    for (const View& view : {wrong, derived, copied}) {
      const Status told = f.runtime->copy(*b, view, out.view());
      CHECK(told.code() == Code::invalid);
      CHECK(told.message() == "it is negative");
    }
    CHECK(f.runtime->copy(*b, right, out.view()).ok());
    CHECK(out.values[0] == 2);
    const View input = bad.view();
    CHECK(f.runtime->run(*model, {.inputs = {&input, 1}}).status().message() == "it is negative");
  }
  CHECK(f.runtime->synchronize().ok());
  CHECK_FALSE(a->failed());
}

}  // namespace heddle::runtime
