// The runtime on the simulated device under simulated schedules: the values of a sequential reference,
// whatever the seed, each operation counted, and no rule of the device broken.
#include <algorithm>
#include <vector>

#include "world_fixture.h"

namespace heddle::simulated {
namespace {

TEST_CASE("simulated: calls with arrays of the host from several threads give the reference's values") {
  constexpr int kThreads = 4, kCalls = 3;
  holds_for_seeds(
      250,
      [](Simulation& simulation) {
        const World world(simulation);
        Atomic<int> right{0};
        run_together(kThreads, [&](int thread) {
          for (int i = 0; i < kCalls; ++i) {
            Rows x(1 + (thread + i) % 5, thread + 0.1 * i);
            const View in = x.view();
            runtime::Call call;
            call.inputs = {&in, 1};
            const auto result = world.runtime->run(*world.model, call);
            expect_ok(simulation, result.status());
            if (x.gives(floats(result->front()))) right.add_relaxed(1);
          }
        });
        simulation.expect(right.load_relaxed() == kThreads * kCalls, "each call has its values");
        simulation.expect(world.device->stats().runs == kThreads * kCalls, "each call ran once");
        world.expect_no_violation(simulation);
      },
      of_whole_calls());
}

// The model `steps` times from one buffer to another and back, on two streams in turn.
Status chained(const World& world, Rows& x, std::vector<float>& out, int steps) {
  HEDDLE_TRY_ASSIGN(const auto even, world.runtime->streams().lease());
  HEDDLE_TRY_ASSIGN(const auto odd, world.runtime->streams().lease());
  HEDDLE_TRY_ASSIGN(const View first, world.runtime->allocate(DType::kF32, x.extents));
  HEDDLE_TRY_ASSIGN(const View second, world.runtime->allocate(DType::kF32, x.extents));
  const View on_device[2] = {first, second};
  HEDDLE_TRY(world.runtime->copy(*even.stream(), x.view(), on_device[0]));
  for (int step = 0; step < steps; ++step) {
    runtime::Call call;
    call.inputs = {&on_device[step % 2], 1};
    call.outputs = {&on_device[(step + 1) % 2], 1};
    call.stream = (step % 2 == 0 ? odd : even).stream().get();
    call.wait = false;
    HEDDLE_TRY(world.runtime->run(*world.model, call).status());
  }
  return world.runtime->copy(*odd.stream(), on_device[steps % 2], view_of(out, x.extents));
}

TEST_CASE("simulated: streams that are chained without waiting keep the order of their data") {
  constexpr int kThreads = 3, kSteps = 4;
  holds_for_seeds(
      200,
      [](Simulation& simulation) {
        const World world(simulation);
        Atomic<int> right{0};
        run_together(kThreads, [&](int thread) {
          Rows x(3, thread);
          std::vector<float> out(x.values.size());
          expect_ok(simulation, chained(world, x, out, kSteps));
          if (x.gives(out.data(), kSteps)) right.add_relaxed(1);
        });
        simulation.expect(right.load_relaxed() == kThreads, "each chain has its values");
        simulation.expect(world.device->stats().runs == kThreads * kSteps, "each call ran once");
        world.expect_no_violation(simulation);
      },
      of_whole_calls());
}

// A call on a stream whose input and output are dropped as soon as it is submitted.
Status call_and_forget(const World& world, runtime::Stream& stream, Rows& x, std::vector<float>& out) {
  View last;
  {
    HEDDLE_TRY_ASSIGN(const View in, world.runtime->allocate(DType::kF32, x.extents));
    HEDDLE_TRY(world.runtime->copy(stream, x.view(), in));
    runtime::Call call;
    call.inputs = {&in, 1};
    call.stream = &stream;
    call.wait = false;
    HEDDLE_TRY_ASSIGN(const auto made, world.runtime->run(*world.model, call));
    last = made.front();
  }
  return world.runtime->copy(stream, last, view_of(out, x.extents));
}

TEST_CASE("simulated: buffers that threads drop at once after a submission are not used again too early") {
  constexpr int kThreads = 3, kCalls = 4;
  holds_for_seeds(
      200,
      [](Simulation& simulation) {
        const World world(simulation);
        Atomic<int> right{0};
        run_together(kThreads, [&](int thread) {
          const auto lease = world.runtime->streams().lease();
          expect_ok(simulation, lease.status());
          for (int i = 0; i < kCalls; ++i) {
            Rows x(2, 7 * thread + i);
            std::vector<float> out(x.values.size());
            expect_ok(simulation, call_and_forget(world, *lease->stream(), x, out));
            if (x.gives(out.data())) right.add_relaxed(1);
          }
        });
        simulation.expect(right.load_relaxed() == kThreads * kCalls, "each call has its values");
        world.expect_no_violation(simulation);
      },
      of_whole_calls());
}

// One thread fills a buffer again and again; others compute with each value that it had, on other streams.
TEST_CASE("simulated: a buffer that other threads' streams still read is not overwritten") {
  constexpr int kReaders = 4;
  holds_for_seeds(
      200,
      [](Simulation& simulation) {
        const World world(simulation);
        const View x = *world.runtime->allocate(DType::kF32, {1, 8});
        const auto writer = *world.runtime->streams().lease();
        Guarded<int, Rank::kPool> turn(0);  // readers submit in order, and read the results in none
        Atomic<int> right{0};
        run_together(kReaders, [&](int reader) {
          const auto lease = *world.runtime->streams().lease();
          View result;
          {
            auto held = turn.lock();
            held.wait([&] { return *held == reader; });
          }
          expect_ok(simulation, world.runtime->fill(*writer.stream(), x, 0.25 * reader));
          runtime::Call call;
          call.inputs = {&x, 1};
          call.stream = lease.stream().get();
          call.wait = false;
          const auto made = world.runtime->run(*world.model, call);
          expect_ok(simulation, made.status());
          ++*turn.lock();
          turn.notify_all();
          Rows wanted(1, 0);
          std::fill(wanted.values.begin(), wanted.values.end(), 0.25F * static_cast<float>(reader));
          std::vector<float> out(8);
          expect_ok(simulation, world.runtime->copy(*lease.stream(), made->front(), view_of(out, {1, 8})));
          if (wanted.gives(out.data())) right.add_relaxed(1);
        });
        simulation.expect(right.load_relaxed() == kReaders, "each reader has the value of its turn");
        world.expect_no_violation(simulation);
      },
      of_whole_calls());
}

// A call until `deadline`; on time or late, nothing else.
bool answered_in_time(Simulation& simulation, const World& world, Deadline deadline, double first) {
  Rows x(1, first);
  const View in = x.view();
  runtime::Call call;
  call.inputs = {&in, 1};
  call.deadline = deadline;
  const auto result = world.runtime->run(*world.model, call);
  if (result.ok()) {
    simulation.expect(x.gives(floats(result->front())), "in time, with its values");
    return true;
  }
  simulation.expect(result.status().code() == Code::deadline, to_string(result.status()));
  simulation.expect(deadline.expired(), "late only after the deadline");
  return false;
}

TEST_CASE(
    "simulated: a call that leaves at its deadline disturbs no other, and what it left is not used too "
    "early") {
  constexpr int kThreads = 3, kCalls = 3;
  int late = 0, in_time = 0;
  holds_for_seeds(
      250,
      [&](Simulation& simulation) {
        const World world(simulation);
        Atomic<int> here{0};
        run_together(kThreads, [&](int thread) {
          for (int i = 0; i < kCalls; ++i) {
            const Deadline deadline =
                thread == 0 ? Deadline::in(microseconds(5 + simulation.random(100))) : Deadline::never();
            const bool answered = answered_in_time(simulation, world, deadline, thread + 0.1 * i);
            simulation.expect(answered || thread == 0, "a call without a deadline is answered");
            if (answered) here.add_relaxed(1);
          }
        });
        in_time += here.load_relaxed();
        late += kThreads * kCalls - here.load_relaxed();
        world.expect_no_violation(simulation);
      },
      of_whole_calls());
  if (heddle::test::number_in("HEDDLE_SIM_SEED")) return;
  CHECK(late > 0);
  CHECK(in_time > 2 * 250 * kCalls);
}

TEST_CASE(
    "simulated: a fault of the device reaches calls as its error, never as a wrong value, and later calls "
    "run") {
  constexpr int kThreads = 3, kCalls = 4;
  int failed = 0;
  holds_for_seeds(
      300,  // 273: what a failed queue had hidden from the host was kept from the next call
      [&](Simulation& simulation) {
        const World world(simulation);
        const bool queue = simulation.random(2) == 0;
        const auto when = static_cast<int64_t>(1 + simulation.random(12));
        world.device->faults().arm(queue ? sim::Fault::kQueueFailure : sim::Fault::kAllocation, when);
        Atomic<int> right{0}, wrong{0};
        run_together(kThreads, [&](int thread) {
          for (int i = 0; i < kCalls; ++i) {
            Rows x(2, thread + 0.1 * i);
            const View in = x.view();
            runtime::Call call;
            call.inputs = {&in, 1};
            const auto result = world.runtime->run(*world.model, call);
            if (result.ok()) {
              simulation.expect(x.gives(floats(result->front())), "its values");
              right.add_relaxed(1);
            } else {
              const Code code = result.status().code();
              simulation.expect(code == (queue ? Code::device_lost : Code::exhausted),
                                to_string(result.status()));
              wrong.add_relaxed(1);
            }
          }
        });
        simulation.expect(right.load_relaxed() + wrong.load_relaxed() == kThreads * kCalls,
                          "each is answered");
        simulation.expect(!queue || wrong.load_relaxed() > 0 || world.device->stats().failures == 0,
                          "a failure is told");
        simulation.expect(answered_in_time(simulation, world, Deadline::never(), 3), "a later call runs");
        failed += wrong.load_relaxed();
        world.expect_no_violation(simulation);
      },
      of_whole_calls());
  if (!heddle::test::number_in("HEDDLE_SIM_SEED")) CHECK(failed > 50);
}

TEST_CASE("simulated: a device that is lost answers every call, also those that wait") {
  constexpr int kThreads = 4, kCalls = 2;
  holds_for_seeds(
      150,  // 75: the device was let go by its own thread, which it joins
      [](Simulation& simulation) {
        const World world(simulation);
        world.device->faults().arm(sim::Fault::kDeviceLoss, static_cast<int64_t>(1 + simulation.random(8)));
        Atomic<int> right{0}, lost{0};
        run_together(kThreads, [&](int thread) {
          for (int i = 0; i < kCalls; ++i) {
            Rows x(1, thread + 0.1 * i);
            const View in = x.view();
            runtime::Call call;
            call.inputs = {&in, 1};
            const auto result = world.runtime->run(*world.model, call);
            if (result.ok())
              simulation.expect(x.gives(floats(result->front())), "its values");
            else
              simulation.expect(result.status().code() == Code::device_lost, to_string(result.status()));
            (result.ok() ? right : lost).add_relaxed(1);
          }
        });
        simulation.expect(right.load_relaxed() + lost.load_relaxed() == kThreads * kCalls,
                          "each is answered");
        simulation.expect(lost.load_relaxed() > 0, "it was lost");
        world.expect_no_violation(simulation);
      },
      of_whole_calls());
}

}  // namespace
}  // namespace heddle::simulated
