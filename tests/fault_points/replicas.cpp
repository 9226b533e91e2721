// replicas.cpp: the public operations of models on two devices that meet each fault of one of them.
#include "trial_fixture.h"

namespace heddle::simulated {
namespace {

// More threads than devices, so that each device has a call under way.
void replica_calls(Trial& trial) {
  run_together(3, [&](int thread) {
    const Rows x(1 + thread, 1.5 + thread);
    for (int i = 0; i < 2; ++i) {
      trial.step("a call on one of two devices",
                 [&] { return gives(x, trial.world.products({tensor_of(x)}, trial.options()).at(0)); });
    }
  });
}

constexpr size_t kSubmissions = 4;

// How many of them were taken.
int hand_in_all(Trial& trial, Arrivals& arrivals) {
  int taken = 0;
  for (size_t which = 0; which < kSubmissions; ++which) {
    const Rows x(1, 3.5 + static_cast<double>(which));
    const Tensor in[] = {tensor_of(x)};
    const bool accepted = trial.step("handing in a submission to one of two devices", [&] {
      trial.world.products.submit(
          in, trial.options(),
          [&trial, &arrivals, which, x](std::vector<Tensor> results, const std::exception_ptr& error) {
            const auto code = error_in(error);
            trial.note("a submission", code, !code && gives(x, results.at(0)));
            arrivals.add(trial.simulation, which);
          });
      return true;
    });
    if (!accepted) continue;
    ++taken;
    trial.expect_answer();
  }
  return taken;
}

void replica_submissions(Trial& trial) {
  Arrivals arrivals(kSubmissions);
  arrivals.wait(hand_in_all(trial, arrivals));
}

// The stream names the device, and then a tensor in its memory does.
void replicas_by_name(Trial& trial) {
  const ApiWorld& world = trial.world;
  for (size_t i = 0; i < world.devices.size(); ++i) {
    const Rows x(2, 5.5 + static_cast<double>(i));
    std::vector<float> out(x.values.size());
    trial.step_on(
        i, "calls on a named device",
        [&] {
          const Stream stream(world.devices[i]);
          const Tensor in = Tensor::empty(heddle::DType::f32, {2, 8}, world.devices[i]);
          stream.copy(tensor_of(x), in);
          const Tensor middle = world.products({in}, trial.on(stream)).at(0);
          CallOptions stays = trial.options();
          stays.keep_on_device = true;
          const Tensor last = world.products({middle}, stays).at(0);
          stream.copy(last, Tensor::borrow_mutable(out.data(), heddle::DType::f32, {2, 8}));
          stream.synchronize(kTimeout);
          return world.products.device_of({&in, 1}).name() == world.devices[i].name() &&
                 x.gives(out.data(), 2);
        },
        false);
  }
}

// From the memory of the one to the memory of the other.
void between_replicas(Trial& trial) {
  const ApiWorld& world = trial.world;
  const Rows x(2, 7.5);
  std::vector<float> out(x.values.size());
  trial.step(
      "a result of one device, given to the other",
      [&] {
        const Stream one(world.devices[0]), other(world.devices[1]);
        const Tensor made = world.products({tensor_of(x)}, trial.on(one)).at(0);
        const Tensor last = world.products({made.to_host()}, trial.on(other)).at(0);
        other.copy(last, Tensor::borrow_mutable(out.data(), heddle::DType::f32, {2, 8}));
        other.synchronize(kTimeout);
        return x.gives(out.data(), 2);
      },
      false);
}

// Two workers, so that two batches are under way.
void replica_queue(Trial& trial) {
  const Rows x(1, 8.5);
  BatchQueueOptions options;
  options.workers = 2;
  options.limits.max_batch = 2;
  options.limits.max_wait = microseconds(50);
  options.hang_after = seconds(10);
  std::vector<BatchFuture> futures;
  {
    BatchQueue requests(trial.world.products, options);
    for (int i = 0; i < 4; ++i) {
      trial.step("handing in a request", [&] {
        futures.push_back(requests.submit({tensor_of(x)}, kTimeout));
        return true;
      });
    }
    for (const BatchFuture& future : futures)
      trial.step("a request", [&] { return gives(x, future.get().at(0)); });
  }
  for (const BatchFuture& future : futures)
    trial.simulation.expect(future.ready(), "a queue that is gone has answered");
}

void replica_load(Trial& trial) {
  trial.step("loading a model on two devices and calling it", [&] {
    GraphBuilder graph("double");
    const auto x = graph.input("x", heddle::DType::f32, {"batch", 2});
    const auto two = graph.constant(Tensor::of<float>({2}, {2, 2}));
    graph.output(graph.add("Mul", {x, two}), "y");
    ModelOptions options;
    options.devices = trial.world.devices;
    const Model model = graph.build(options);
    const Tensor y = model({Tensor::of<float>({1, 2}, {1, 3})}, trial.options()).at(0);
    return y.values<float>()[0] == 2 && y.values<float>()[1] == 6;
  });
}

void replica_close_model(Trial& trial) {
  Arrivals arrivals(kSubmissions);
  const int taken = hand_in_all(trial, arrivals);
  trial.step(
      "closing a model on two devices",
      [&] {
        trial.world.products.close();
        return trial.world.products.closed();
      },
      false);
  arrivals.wait(taken);
}

// The first; the calls go on with the other.
void close_one_replica(Trial& trial) {
  const Rows x(2, 16.5);
  trial.step("closing one of two devices", [&] {
    trial.world.devices[0].close(kTimeout);
    return true;
  });
  trial.step("a call after one of two devices was closed",
             [&] { return gives(x, trial.world.products({tensor_of(x)}, trial.options()).at(0)); });
}

constexpr Operation kReplicaOperations[] = {
    {"replicas: calls", replica_calls, Closes::nothing, false, 2},
    {"replicas: submit", replica_submissions, Closes::nothing, false, 2},
    {"replicas: on each", replicas_by_name, Closes::nothing, false, 2},
    {"replicas: between", between_replicas, Closes::nothing, false, 2},
    {"replicas: queue", replica_queue, Closes::nothing, true, 2},
    {"replicas: run_together", together, Closes::nothing, false, 2},
    {"replicas: compile", compile, Closes::nothing, false, 2},
    {"replicas: load", replica_load, Closes::nothing, false, 2},
    {"replicas: close a model", replica_close_model, Closes::model, false, 2},
    {"replicas: close a device", close_one_replica, Closes::device, false, 2},
};

}  // namespace

std::span<const Operation> replica_operations() { return kReplicaOperations; }

}  // namespace heddle::simulated
