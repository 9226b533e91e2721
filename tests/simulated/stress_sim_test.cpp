// Streams, events, copies and models from many threads at once, on the simulated device under simulated
// schedules: every operation is counted, and its values are the reference's.
#include "api_world_fixture.h"

namespace heddle::simulated {
namespace {

CallOptions on(const Stream& stream) {
  CallOptions options;
  options.stream = stream;
  return options;
}

struct Stress {
  Simulation& simulation;
  const ApiWorld& world;

  // A call with memory of the host, which may be batched.
  bool call(double first) const {
    const Rows x(1 + static_cast<int64_t>(simulation.random(3)), first);
    return gives(x, world.products({tensor_of(x)}).at(0));
  }
  bool call_lookup(int64_t first) const {
    const std::vector<int64_t> rows = {first % kTableRows, (first + 2) % kTableRows};
    return looked_up(rows, world.lookup({indices(rows)}).at(0));
  }
  // The model twice on two streams, with an event between them; what lies in between is dropped at once.
  bool chain(double first) const {
    const Rows x(2, first);
    const Shape shape = {2, 8};
    const Stream one(world.device), other(world.device);
    std::vector<float> out(x.values.size());
    {
      const Tensor in = Tensor::empty(heddle::DType::f32, shape, world.device);
      one.copy(tensor_of(x), in);
      Tensor middle = world.products({in}, on(one)).at(0);
      other.wait(one.record());
      const Tensor last = world.products({middle}, on(other)).at(0);
      middle = Tensor();
      other.copy(last, Tensor::borrow_mutable(out.data(), heddle::DType::f32, shape));
    }
    other.synchronize();
    return x.gives(out.data(), 2);
  }
  // On this thread's own stream, which it keeps until its end, or gives back.
  bool call_on_lease(double first) const {
    const Rows x(1, first);
    const StreamGuard guard(current_stream(world.device));
    const Tensor result = world.products({tensor_of(x)}).at(0);
    const bool right = gives(x, result);
    if (simulation.random(2) == 0) release_current_thread_slot(world.device);
    return right;
  }
  // Nobody else computes meanwhile; this thread may copy.
  bool alone(double first) const {
    const Rows x(1, first);
    const Exclusive hold(world.device);
    const Stream stream(world.device);
    const Tensor there = Tensor::empty(heddle::DType::f32, {1, 8}, world.device);
    stream.copy(tensor_of(x), there);
    std::vector<float> out(8);
    stream.copy(there, Tensor::borrow_mutable(out.data(), heddle::DType::f32, {1, 8}));
    stream.synchronize();
    return out == x.values;
  }
  // A buffer that another stream still reads is filled again.
  bool overwrite(double first) const {
    const Rows x(1, first), y(1, first + 1);
    const Stream writer(world.device), reader(world.device);
    const Tensor shared = Tensor::empty(heddle::DType::f32, {1, 8}, world.device);
    writer.copy(tensor_of(x), shared);
    const Tensor of_x = world.products({shared}, on(reader)).at(0);
    writer.copy(tensor_of(y), shared);
    const Tensor of_y = world.products({shared}, on(writer)).at(0);
    std::vector<float> x_out(8), y_out(8);
    reader.copy(of_x, Tensor::borrow_mutable(x_out.data(), heddle::DType::f32, {1, 8}));
    writer.copy(of_y, Tensor::borrow_mutable(y_out.data(), heddle::DType::f32, {1, 8}));
    reader.synchronize();
    writer.synchronize();
    return x.gives(x_out.data()) && y.gives(y_out.data());
  }
  bool housekeeping() const {
    if (simulation.random(2) == 0) world.device.empty_cache();
    world.device.synchronize();
    const DeviceStats stats = world.device.stats();
    return stats.memory.allocated <= stats.memory.reserved;
  }
  bool one(int thread, int i) const {
    const double first = thread + 0.1 * i;
    switch (simulation.random(7)) {
      case 0:
        return call(first);
      case 1:
        return call_lookup(thread + i);
      case 2:
        return chain(first);
      case 3:
        return call_on_lease(first);
      case 4:
        return alone(first);
      case 5:
        return overwrite(first);
      default:
        return housekeeping();
    }
  }
};

TEST_CASE(
    "simulated: a mix of streams, events, copies, holds and models keeps its values and loses no operation") {
  constexpr int kThreads = 4, kEach = 4;
  holds_for_seeds(
      300,
      [](Simulation& simulation) {
        const ApiWorld world(simulation);
        const Stress stress{simulation, world};
        Atomic<int> right{0};
        run_together(kThreads, [&](int thread) {
          for (int i = 0; i < kEach; ++i) right.add_relaxed(stress.one(thread, i) ? 1 : 0);
        });
        simulation.expect(right.load_relaxed() == kThreads * kEach,
                          "each operation was done, with its values");
        world.device.synchronize();
        world.expect_no_violation(simulation);
      },
      of_whole_calls());
}

TEST_CASE(
    "simulated: a device that is closed beside its users answers each of them, rightly or with unavailable") {
  constexpr int kThreads = 3, kEach = 3;
  int refused = 0;
  holds_for_seeds(
      200,
      [&](Simulation& simulation) {
        const ApiWorld world(simulation);
        const Stress stress{simulation, world};
        Atomic<int> right{0}, closed{0};
        run_together(kThreads + 1, [&](int thread) {
          if (thread == kThreads) {
            simulation.pause(microseconds(simulation.random(200)));
            world.device.close();
            return;
          }
          for (int i = 0; i < kEach; ++i) {
            bool values = false;
            if (const auto error = error_of([&] { values = stress.one(thread, i); })) {
              simulation.expect(*error == ErrorCode::unavailable, "it says that it is closed");
              closed.add_relaxed(1);
            } else {
              simulation.expect(values, "its values");
              right.add_relaxed(1);
            }
          }
        });
        simulation.expect(right.load_relaxed() + closed.load_relaxed() == kThreads * kEach,
                          "each is answered");
        refused += closed.load_relaxed();
        world.expect_no_violation(simulation);
      },
      of_whole_calls());
  if (!heddle::test::number_in("HEDDLE_SIM_SEED")) CHECK(refused > 0);
}

}  // namespace
}  // namespace heddle::simulated
