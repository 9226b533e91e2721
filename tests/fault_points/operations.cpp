// operations.cpp: the public operations that meet each fault.
#include "trial_fixture.h"

namespace heddle::simulated {
namespace {

const Shape kTwoRows = {2, 8};

Tensor result_on_host(std::vector<float>& out, const Shape& shape) {
  return Tensor::borrow_mutable(out.data(), heddle::DType::f32, shape);
}

void call(Trial& trial) {
  const Rows x(3, 1.5);
  trial.step("a call", [&] { return gives(x, trial.world.products({tensor_of(x)}, trial.options()).at(0)); });
}

void call_of_a_new_shape(Trial& trial) {
  const Rows x(11, 1.5);
  trial.step("a call of a new shape",
             [&] { return gives(x, trial.world.products({tensor_of(x)}, trial.options()).at(0)); });
}

// From the device's memory to the device's memory, in the order of a stream.
void call_on_stream(Trial& trial) {
  const Rows x(2, 2.5);
  const ApiWorld& world = trial.world;
  std::vector<float> out(x.values.size());
  trial.step(
      "calls on a stream",
      [&] {
        const Stream stream(world.device);
        const Tensor in = Tensor::empty(heddle::DType::f32, kTwoRows, world.device);
        stream.copy(tensor_of(x), in);
        const Tensor middle = world.products({in}, trial.on(stream)).at(0);
        const Tensor last = world.products({middle}, trial.on(stream)).at(0);
        stream.copy(last, result_on_host(out, kTwoRows));
        stream.synchronize(kTimeout);
        return x.gives(out.data(), 2);
      },
      false);
}

void submit(Trial& trial) {
  const Rows x(2, 3.5);
  Arrivals arrivals(2);
  int taken = 0;
  for (size_t which = 0; which < 2; ++which) {
    const Tensor in[] = {tensor_of(x)};
    const bool accepted = trial.step("handing in a submission", [&] {
      trial.world.products.submit(in, trial.options(),
                                  [&, which](std::vector<Tensor> results, const std::exception_ptr& error) {
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
  arrivals.wait(taken);
}

BatchQueueOptions small_queue() {
  BatchQueueOptions options;
  options.limits.max_batch = 4;
  options.limits.max_wait = microseconds(50);
  return options;
}

void request(Trial& trial, BatchQueue& queue, const Rows& x, std::vector<BatchFuture>& futures) {
  trial.step("handing in a request", [&] {
    futures.push_back(queue.submit({tensor_of(x)}, kTimeout));
    return true;
  });
}

// A queue's requests have no deadline of their results: a batch that hangs is answered by hang_after.
void queue_push(Trial& trial) {
  const Rows x(1, 4.5);
  BatchQueueOptions options = small_queue();
  options.hang_after = seconds(10);
  BatchQueue queue(trial.world.products, options);
  std::vector<BatchFuture> futures;
  for (int i = 0; i < 3; ++i) request(trial, queue, x, futures);
  for (const BatchFuture& future : futures)
    trial.step("a request", [&] { return gives(x, future.get().at(0)); });
  trial.step(
      "closing a queue",
      [&] {
        queue.close();
        return true;
      },
      false);
}

void queue_cancel(Trial& trial) {
  const Rows x(1, 5.5);
  std::vector<BatchFuture> futures;
  {
    BatchQueue queue(trial.world.products, small_queue());
    for (int i = 0; i < 3; ++i) request(trial, queue, x, futures);
    for (size_t i = 0; i < futures.size(); ++i) {
      const bool cancelled = i > 0 && futures[i].cancel();
      std::optional<ErrorCode> error;
      trial.step(
          "a request, perhaps cancelled",
          [&] {
            bool right = false;
            error = error_of([&] { right = gives(x, futures[i].get().at(0)); });
            if (!error) return !cancelled && right;
            if (*error == ErrorCode::cancelled) return cancelled;
            throw Error(*error, "a request");
          },
          false);
    }
  }
  for (const BatchFuture& future : futures)
    trial.simulation.expect(future.ready(), "a queue that is gone has answered");
}

void lease(Trial& trial) {
  const Rows x(1, 6.5);
  trial.step("a call on the thread's stream", [&] {
    const StreamGuard guard(current_stream(trial.world.device));
    const Tensor result = trial.world.products({tensor_of(x)}, trial.options()).at(0);
    result.wait(kTimeout);
    return gives(x, result);
  });
  trial.step("giving the thread's stream back", [&] {
    release_current_thread_slot(trial.world.device);
    return true;
  });
}

// The thread ends with it.
void lease_kept(Trial& trial) {
  const Rows x(1, 17.5);
  std::vector<float> out(x.values.size());
  trial.step(
      "calls on a stream that the thread keeps",
      [&] {
        const Stream mine = current_stream(trial.world.device);
        const Tensor result = trial.world.products({tensor_of(x)}, trial.on(mine)).at(0);
        mine.copy(result, result_on_host(out, {1, 8}));
        return x.gives(out.data());
      },
      false);
}

// The callback that is asked to free memory calls a model.
void pressure(Trial& trial) {
  const Rows x(2, 18.5);
  const ApiWorld& world = trial.world;
  world.device.on_memory_pressure([&trial](uint64_t) {
    const std::vector<int64_t> rows = {1, 3};
    trial.step("a look-up under pressure",
               [&] { return looked_up(rows, trial.world.lookup({indices(rows)}, trial.options()).at(0)); });
  });
  trial.step("a call of a large shape", [&] {
    const Rows many(64, 19.5);
    return gives(many, world.products({tensor_of(many)}, trial.options()).at(0));
  });
  call(trial);
}

void pool(Trial& trial) {
  const StreamPool streams(trial.world.device);
  const Rows x(2, 7.5);
  trial.step("a call on a stream of the pool", [&] {
    const Stream stream = streams.acquire(kTimeout);
    const Tensor result = trial.world.products({tensor_of(x)}, trial.on(stream)).at(0);
    result.wait(kTimeout);
    return gives(x, result);
  });
}

void event(Trial& trial) {
  const Rows x(2, 8.5);
  const ApiWorld& world = trial.world;
  std::vector<float> out(x.values.size());
  trial.step(
      "streams in step by an event",
      [&] {
        const Stream one(world.device), other(world.device);
        const Tensor in = Tensor::empty(heddle::DType::f32, kTwoRows, world.device);
        one.copy(tensor_of(x), in);
        const Tensor made = world.products({in}, trial.on(one)).at(0);
        const Event event = one.record();
        other.wait(event);
        const Tensor last = world.products({made}, trial.on(other)).at(0);
        const Event after = other.record();
        other.copy(last, result_on_host(out, kTwoRows));
        event.wait(kTimeout);
        after.wait(kTimeout);
        return event.query() && after.query() && x.gives(out.data(), 2);
      },
      false);
}

void exclusive(Trial& trial) {
  const Rows x(2, 9.5);
  const ApiWorld& world = trial.world;
  std::vector<float> out(x.values.size());
  trial.step(
      "an exclusive hold",
      [&] {
        const Exclusive hold(world.device, kTimeout);
        const Stream stream(world.device);
        const Tensor there = Tensor::empty(heddle::DType::f32, kTwoRows, world.device);
        stream.copy(tensor_of(x), there);
        stream.copy(there, result_on_host(out, kTwoRows));
        stream.synchronize(kTimeout);
        return out == x.values;
      },
      false);
}

void load(Trial& trial) {
  trial.step("loading a model and calling it", [&] {
    GraphBuilder graph("double");
    const auto x = graph.input("x", heddle::DType::f32, {"batch", 2});
    const auto two = graph.constant(Tensor::of<float>({2}, {2, 2}));
    graph.output(graph.add("Mul", {x, two}), "y");
    ModelOptions options;
    options.device = trial.world.device;
    const Model model = graph.build(options);
    const Tensor y = model({Tensor::of<float>({1, 2}, {1, 3})}, trial.options()).at(0);
    return y.values<float>()[0] == 2 && y.values<float>()[1] == 6;
  });
}

void empty_cache(Trial& trial) {
  trial.step("emptying the cache", [&] {
    trial.world.device.empty_cache();
    return true;
  });
  call(trial);
}

void synchronize(Trial& trial) {
  const Rows x(2, 10.5);
  std::vector<float> out(x.values.size());
  std::optional<Tensor> result;
  trial.step("a call that is not awaited", [&] {
    const Stream stream(trial.world.device);
    CallOptions options = trial.on(stream);
    options.keep_on_device = true;
    result = trial.world.products({tensor_of(x)}, options).at(0);
    return true;
  });
  trial.step("synchronizing", [&] {
    trial.world.device.synchronize(kTimeout);
    return true;
  });
  if (!result) return;
  trial.step(
      "bringing a result to the host",
      [&] {
        const Stream stream(trial.world.device);
        stream.copy(*result, result_on_host(out, kTwoRows));
        return x.gives(out.data());
      },
      false);
}

// A tensor that another stream reads, for all that Heddle knows, is dropped at once.
void record_stream(Trial& trial) {
  const Rows x(2, 11.5);
  const ApiWorld& world = trial.world;
  std::vector<float> out(x.values.size());
  trial.step(
      "a tensor that is recorded and dropped",
      [&] {
        const Stream one(world.device), other(world.device);
        Tensor in = Tensor::empty(heddle::DType::f32, kTwoRows, world.device);
        one.copy(tensor_of(x), in);
        const Tensor last = world.products({in}, trial.on(one)).at(0);
        in.record_stream(other);
        in = Tensor();
        one.copy(last, result_on_host(out, kTwoRows));
        return x.gives(out.data());
      },
      false);
}

void pinned(Trial& trial) {
  const Rows x(2, 12.5);
  const ApiWorld& world = trial.world;
  trial.step(
      "a call with pinned memory",
      [&] {
        Tensor in = Tensor::pinned(heddle::DType::f32, kTwoRows, world.device);
        std::copy(x.values.begin(), x.values.end(), static_cast<float*>(in.mutable_data()));
        return gives(x, world.products({in}, trial.options()).at(0).to_host());
      },
      false);
}

void close_model(Trial& trial) {
  const Rows x(2, 15.5);
  trial.step("a call before a close",
             [&] { return gives(x, trial.world.products({tensor_of(x)}, trial.options()).at(0)); });
  trial.step(
      "closing a model",
      [&] {
        trial.world.products.close();
        return trial.world.products.closed();
      },
      false);
}

void close_device(Trial& trial) {
  const Rows x(2, 16.5);
  trial.step("a call before a close", [&] {
    const Stream stream(trial.world.device);
    CallOptions options = trial.on(stream);
    options.keep_on_device = true;
    return trial.world.products({tensor_of(x)}, options).at(0).shape() == kTwoRows;
  });
  trial.step("closing a device", [&] {
    trial.world.device.close(kTimeout);
    return true;
  });
}

}  // namespace

void compile(Trial& trial) {
  const std::vector<Shape> shapes = {{13, 8}};
  trial.step("compiling a shape", [&] {
    trial.world.products.compile(shapes);
    return true;
  });
}

void together(Trial& trial) {
  const Rows x(1, 13.5), y(2, 14.5);
  trial.step(
      "requests that run together",
      [&] {
        const std::vector<std::vector<Tensor>> requests = {{tensor_of(x)}, {tensor_of(y)}};
        const auto outcomes = trial.world.products.run_together(requests);
        for (const auto& outcome : outcomes) {
          if (outcome.error != nullptr) std::rethrow_exception(outcome.error);
        }
        return outcomes.size() == 2 && gives(x, outcomes[0].results.at(0)) &&
               gives(y, outcomes[1].results.at(0));
      },
      false);
}

namespace {

constexpr Operation kOperations[] = {
    {"call", call},
    {"call of a new shape", call_of_a_new_shape},
    {"calls on a stream", call_on_stream},
    {"submit", submit},
    {"queue", queue_push, Closes::nothing, true},
    {"queue, cancelled", queue_cancel},
    {"lease", lease},
    {"lease, kept", lease_kept},
    {"pressure", pressure},
    {"pool", pool},
    {"event", event},
    {"exclusive", exclusive},
    {"load", load},
    {"compile", compile},
    {"empty_cache", empty_cache},
    {"synchronize", synchronize},
    {"record_stream", record_stream},
    {"pinned", pinned},
    {"run_together", together},
    {"close a model", close_model, Closes::model},
    {"close a device", close_device, Closes::device},
};

}  // namespace

std::span<const Operation> operations() {
  static const std::vector<Operation> all = [] {
    std::vector<Operation> made(std::begin(kOperations), std::end(kOperations));
    const auto more = replica_operations();
    made.insert(made.end(), more.begin(), more.end());
    return made;
  }();
  return all;
}

const Operation& operation_named(std::string_view name) {
  for (const Operation& each : operations()) {
    if (each.name == name) return each;
  }
  return operations()[0];
}

}  // namespace heddle::simulated
