// work.cpp: the steps.
#include <algorithm>
#include <cstdio>

#include "api/internals.h"
#include "api/process_devices.h"
#include "base/thread.h"
#include "drivers/host/host_device.h"
#include "work_fixture.h"

namespace heddle::process_points {

Tensor rows(int64_t count, float first) {
  Tensor tensor = Tensor::zeros(DType::f32, {count, 4});
  auto* data = static_cast<float*>(tensor.mutable_data());
  for (int64_t i = 0; i < tensor.elements(); ++i) data[i] = first + static_cast<float>(i);
  return tensor;
}

bool is_affine(const Tensor& x, const Tensor& y) {
  const auto a = x.values<float>(), b = y.values<float>();
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float u, float v) { return v == u * 2 + 1; });
}

Model affine(const Device& device) {
  GraphBuilder graph("affine");
  const auto x = graph.input("x", DType::f32, {"batch", 4});
  const auto doubled = graph.add("Mul", {x, graph.constant(Tensor::of<float>({4}, {2, 2, 2, 2}))});
  graph.output(graph.add("Add", {doubled, graph.constant(Tensor::of<float>({4}, {1, 1, 1, 1}))}), "y");
  ModelOptions options;
  options.device = device;
  return graph.build(options);
}

Opened open_sim(const std::string& name, uint64_t seed, std::function<void()> inside_call) {
  sim::SimOptions options;
  options.name = name;
  options.seed = seed;
  options.longest = std::chrono::microseconds(20);
  options.inside_call = std::move(inside_call);
  const auto driver = take(sim::make_sim_device(take(host::make_host_device({.threads = 1})), options));
  return {driver, process_devices::adopt(name, driver, {})};
}

std::unique_ptr<Things> make_things(const Device& device, const Model& model) {
  const Tensor x = rows(1, 1);
  const Stream stream(device);
  CallOptions options;
  options.stream = stream;
  const Tensor result = model({x}, options)[0];
  auto things = std::make_unique<Things>(
      Things{device, model, stream, result, stream.record(), std::make_unique<BatchQueue>(model), {}});
  things->future = things->queue->submit({x});
  return things;
}

Trouble trouble_from(const sim::FaultLine& line, int64_t call) {
  return {{line.fault, 1, line.error != Code::ok && line.error != Code::deadline}, call};
}

// At the first such call that finds the device made.
void Work::plan_trouble(int64_t call) {
  sim::SimDevice* const driver = driver_.load_acquire();
  if (!trouble_ || call < trouble_->from || driver == nullptr) return;
  int planned = 0;
  if (is_planned_.cas_strong_acq_rel(planned, 1)) trouble_->fault.arm(driver->faults());
}

bool Work::may_fail_with(ErrorCode code) const {
  if (is_planned_.load_acquire() != 0 && static_cast<Code>(code) == trouble_->error()) return true;
  return code == ErrorCode::unavailable && ends_ && came();
}

void Work::enter_call() {
  const int64_t call = book_.calls.add_acq_rel(1) + 1;
  plan_trouble(call);
  if (call != point_) return;
  state_.store_release(kCame);
  state_.notify_all();
  for (int seen = kCame; seen == kCame; seen = state_.load_acquire()) state_.wait(seen);
}

bool Work::await_point() {
  for (int seen = state_.load_acquire(); seen == kRuns; seen = state_.load_acquire()) state_.wait(seen);
  return state_.load_acquire() != kOver;
}

void Work::let_go() {
  state_.store_release(kGoesOn);
  state_.notify_all();
}

void Work::finish() {
  int seen = kRuns;
  static_cast<void>(state_.cas_strong_acq_rel(seen, kOver));
  state_.notify_all();
  ended_.store_release(1);
  ended_.notify_all();
}

void Work::await_end() {
  while (ended_.load_acquire() == 0) ended_.wait(0);
}

bool Work::step(const char* name, const std::function<bool()>& right) {
  book_.at.store_release(name);
  const auto wrong = [name](const char* what) {
    std::fprintf(stderr, "step '%s': %s\n", name, what);
    _exit(kWrong);
  };
  try {
    if (!right()) wrong("a wrong value");
    book_.right.add_relaxed(1);
    return true;
  } catch (const Error& error) {
    if (!may_fail_with(error.code())) wrong(error.what());
    (error.code() == ErrorCode::unavailable ? book_.refused : book_.failed).add_relaxed(1);
    return false;
  }
}

// Calls, submissions and compilations.
void Work::calls(const Things& all) {
  for (int64_t count = 1; count <= 2; ++count) {
    step("a call", [&] {
      const Tensor x = rows(count, 1);
      return is_affine(x, all.model({x})[0]);
    });
  }
  for (int i = 0; i < 2; ++i) {
    step("a submission", [&] {
      const Tensor x = rows(1, 2);
      all.model.submit({&x, 1}, {},
                       [this, x](const std::vector<Tensor>& results, const std::exception_ptr& e) {
                         step("an answer", [&] {
                           if (e != nullptr) std::rethrow_exception(e);
                           return is_affine(x, results.at(0));
                         });
                         book_.answered.add_release(1);
                         book_.answered.notify_all();
                       });
      book_.taken.add_relaxed(1);
      return true;
    });
  }
  step("a compilation", [&] {
    const std::vector<Shape> shapes = {{5, 4}};
    all.model.compile(shapes);
    return true;
  });
  step("a model of its own", [&] {
    const Tensor x = rows(1, 3);
    return is_affine(x, affine(all.device)({x})[0]);
  });
  const int64_t taken = book_.taken.load_acquire();
  for (int64_t seen = book_.answered.load_acquire(); seen < taken; seen = book_.answered.load_acquire())
    book_.answered.wait(seen);
}

// Streams, events, copies and holds.
void Work::streams(const Things& all) {
  step("calls on a stream", [&] {
    const Stream one(all.device), other(all.device);
    const Tensor x = rows(2, 4);
    const Tensor in = Tensor::empty(DType::f32, {2, 4}, all.device);
    one.copy(x, in);
    CallOptions options;
    options.stream = one;
    const Tensor y = all.model({in}, options)[0];
    const Event event = one.record();
    other.wait(event);
    const Tensor out = Tensor::zeros(DType::f32, {2, 4});
    other.copy(y, out);
    other.synchronize();
    event.wait();
    return is_affine(x, out);
  });
  step("the thread's stream", [&] {
    const StreamGuard guard(current_stream(all.device));
    const Tensor x = rows(1, 5);
    return is_affine(x, all.model({x})[0].to_host());
  });
  step("giving it back", [&] { return release_current_thread_slot(all.device), true; });
  step("an exclusive hold", [&] {
    const Exclusive hold(all.device);
    const Stream stream(all.device);
    const Tensor x = rows(1, 6), there = Tensor::empty(DType::f32, {1, 4}, all.device);
    const Tensor back = Tensor::zeros(DType::f32, {1, 4});
    stream.copy(x, there);
    stream.copy(there, back);
    stream.synchronize();
    return x.values<float>()[3] == back.values<float>()[3];
  });
}

// Requests that are batched, pinned memory and what a device is asked for.
void Work::queues(const Things& all) {
  for (int i = 0; i < 2; ++i) {
    step("a request", [&] {
      const Tensor x = rows(1, 7);
      return is_affine(x, all.queue->submit({x}).get().at(0));
    });
  }
  step("requests that run together", [&] {
    const std::vector<std::vector<Tensor>> requests = {{rows(1, 8)}, {rows(2, 9)}};
    const auto outcomes = all.model.run_together(requests);
    for (size_t i = 0; i < 2; ++i) {
      if (outcomes[i].error != nullptr) std::rethrow_exception(outcomes[i].error);
      if (!is_affine(requests[i][0], outcomes[i].results.at(0))) return false;
    }
    return true;
  });
  step("pinned memory", [&] {
    Tensor in = Tensor::pinned(DType::f32, {2, 4}, all.device);
    const Tensor x = rows(2, 10);
    std::ranges::copy(x.values<float>(), static_cast<float*>(in.mutable_data()));
    return is_affine(x, all.model({in})[0].to_host());
  });
  step("synchronizing", [&] { return all.device.synchronize(), true; });
  step("emptying the cache", [&] { return all.device.empty_cache(), true; });
}

void Work::run() {
  std::optional<Opened> opened;
  const bool made = step("opening a device", [&] {
    opened = open_sim("sim", static_cast<uint64_t>(point_), [this] { enter_call(); });
    driver_.store_release(opened->driver.get());
    return true;
  });
  const bool loaded = made && step("loading a model", [&] {
                        const Device& device = opened->device;
                        things_.store_release(make_things(device, affine(device)).release());
                        return true;
                      });
  if (loaded) {
    const Things& all = *things_.load_acquire();
    const auto in_thread = [this, &all](void (Work::*body)(const Things&)) {
      // Never joined: exit() finds it where it is.
      static_cast<void>(new Thread("worker", [this, &all, body] {
        (this->*body)(all);
        if (missing_.sub_acq_rel(1) == 1) missing_.notify_all();
      }));
    };
    in_thread(&Work::streams);
    in_thread(&Work::queues);
    calls(all);
    missing_.sub_acq_rel(1);
    for (int left = missing_.load_acquire(); left != 0; left = missing_.load_acquire()) missing_.wait(left);
    step("closing a queue", [&] { return all.queue->close(), true; });
  }
  finish();
}

}  // namespace heddle::process_points
