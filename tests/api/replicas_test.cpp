// A model on several devices: where its calls go, and that none is lost.
#include "on_test_device_fixture.h"

namespace heddle::api_test {

namespace {

// Two devices of a kind, and how many rows ran on each; runs wait while `shut`.
struct Pair {
  struct One : OnTestDevice {
    explicit One(Pair& pair) : OnTestDevice(false) {
      driver->set_kernel("counted", [this, &pair](const device::Run& run) {
        began.add_release(1);
        if (pair.shut) pair.door.wait();
        rows.add_relaxed(static_cast<int>(run.inputs[0].extents[0]));
        return affine(run);
      });
    }
    Atomic<int> began{0}, rows{0};
  };

  Model model(bool coalesce = false, std::vector<Device> devices = {}) {
    GraphBuilder graph("counted");
    graph.output(graph.add("Neg", {graph.input("x", DType::f32, {"batch", 4})}), "y");
    ModelOptions options;
    options.devices = devices.empty() ? std::vector<Device>{first.device, second.device} : devices;
    options.coalesce = coalesce;
    return graph.build(options);
  }

  bool shut = false;
  Latch door;
  One first{*this}, second{*this};
};

struct Caller {
  Caller(const Model& model, int64_t rows_asked)
      : x(rows(rows_asked, 3)), thread("caller", [this, &model] { right = is_affine(x, model({x})[0]); }) {}

  const Tensor x;
  bool right = false;
  Thread thread;
};

std::string refusal_of(Pair& pair, const std::vector<Device>& devices) {
  try {
    pair.model(false, devices);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::invalid);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a call goes to the device with the fewest rows under way, the first of equals") {
  Pair pair;
  pair.shut = true;
  const Model model = pair.model();
  std::vector<std::unique_ptr<Caller>> callers;
  struct Row {
    int64_t rows;
    int on_first, on_second;  // runs that have begun
  };
  for (const Row& row : {Row{4, 1, 0}, {1, 1, 1}, {2, 1, 2}, {2, 1, 3}, {1, 2, 3}}) {
    callers.push_back(std::make_unique<Caller>(model, row.rows));
    wait_until([&] {
      return pair.first.began.load_acquire() + pair.second.began.load_acquire() ==
             row.on_first + row.on_second;
    });
    CHECK(pair.first.began.load_acquire() == row.on_first);
  }
  pair.door.open();
  for (const auto& caller : callers) {
    caller->thread.join();
    CHECK(caller->right);
  }
  CHECK(pair.first.rows.load_relaxed() == 5);
  CHECK(pair.second.rows.load_relaxed() == 5);
  pair.shut = false;
  const Tensor x = rows(1, 2);
  for (int i = 0; i < 3; ++i) CHECK(is_affine(x, model({x})[0]));  // all is over: the first of equals
  CHECK(pair.first.rows.load_relaxed() == 8);
}

TEST_CASE("calls and submissions on several devices are each answered with their own rows") {
  for (const bool coalesce : {false, true}) {
    Pair pair;
    const Model model = pair.model(coalesce);
    constexpr int kThreads = 8, kCalls = 50;
    Atomic<int> right{0}, answered{0};
    {
      std::vector<std::unique_ptr<Thread>> threads;
      for (int t = 0; t < kThreads; ++t) {
        threads.push_back(std::make_unique<Thread>("caller", [&, t] {
          for (int i = 0; i < kCalls; ++i) {
            const Tensor x = rows(1 + i % 3, static_cast<float>(t * kCalls + i));
            if (i % 2 == 0) {
              right.add_relaxed(is_affine(x, model({x})[0]) ? 1 : 0);
              answered.add_release(1);
              continue;
            }
            model.submit({&x, 1}, {}, [&, x](const std::vector<Tensor>& results, const std::exception_ptr&) {
              right.add_relaxed(!results.empty() && is_affine(x, results[0]) ? 1 : 0);
              answered.add_release(1);
            });
          }
        }));
      }
      for (const auto& thread : threads) thread->join();
    }
    wait_until([&] { return answered.load_acquire() == kThreads * kCalls; });
    CHECK(right.load_relaxed() == kThreads * kCalls);
    CHECK(pair.first.rows.load_relaxed() > 0);
    CHECK(pair.second.rows.load_relaxed() > 0);
    if (coalesce) CHECK(model.coalescing_stats()->calls == kThreads * kCalls);
  }
}

TEST_CASE("at the end of the last handle what was submitted has its answer, on whichever device") {
  Pair pair;
  std::optional<Model> model = pair.model();
  constexpr int kCalls = 400;
  Atomic<int> answered{0}, wrong{0};
  const Stream stream(pair.second.device);
  for (int i = 0; i < kCalls; ++i) {  // all on the second device
    const Tensor x = filled(pair.second, stream, static_cast<float>(i));
    model->submit({&x, 1}, {}, [&, i](const std::vector<Tensor>& results, const std::exception_ptr& error) {
      if (error == nullptr && !holds(results.at(0), static_cast<float>(i * 2 + 1))) wrong.add_relaxed(1);
      answered.add_release(1);  // its rows, or that the model is closed
    });
  }
  model.reset();
  CHECK(answered.load_acquire() == kCalls);
  CHECK(wrong.load_relaxed() == 0);
  CHECK(pair.first.rows.load_relaxed() == 0);
}

TEST_CASE("no call goes to a device that is lost, while another is not") {
  Pair pair;
  const Model model = pair.model();
  const Tensor x = rows(1, 2);
  pair.first.driver->lose();
  for (int i = 0; i < 4; ++i) CHECK(is_affine(x, model({x})[0]));
  CHECK(pair.second.rows.load_relaxed() == 4);
  pair.second.driver->lose();
  try {
    model({x});
    FAIL("both devices are lost");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::device_lost);
  }
}

TEST_CASE("no call goes to a device that is closed, while another is not") {
  Pair pair;
  const Model model = pair.model();
  const Tensor x = rows(1, 2);
  pair.first.device.close();
  for (int i = 0; i < 4; ++i) CHECK(is_affine(x, model({x})[0]));
  CHECK(pair.second.rows.load_relaxed() == 4);
  pair.second.device.close();
  try {
    model({x});
    FAIL("both devices are closed");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::unavailable);
  }
}

TEST_CASE("a stream and tensors of a device decide where a call goes") {
  Pair pair;
  const Model model = pair.model();
  const Tensor x = rows(1, 2);
  const Stream stream(pair.second.device);
  CallOptions options;
  options.stream = stream;
  const Tensor y = model({x}, options)[0];
  stream.synchronize();
  CHECK(is_affine(x, y));
  CHECK(pair.second.rows.load_relaxed() == 1);
  {
    const StreamGuard guard(stream);
    CHECK(is_affine(x, model({x})[0]));
  }
  CHECK(pair.second.rows.load_relaxed() == 2);
  CHECK(holds(model({filled(pair.second, stream, 2)})[0], 5));
  CHECK(pair.second.rows.load_relaxed() == 3);
  const OnTestDevice stranger(false);
  options.stream = Stream(stranger.device);
  CHECK_THROWS_WITH_AS(model({x}, options), "the call's stream belongs to another device than the model",
                       Error);
  CHECK(pair.first.rows.load_relaxed() == 0);
}

TEST_CASE("a batch queue over a model on several devices runs on all of them") {
  Pair pair;
  const Model model = pair.model(true);
  BatchQueueOptions options;
  options.workers = 4;
  options.limits.max_batch = 4;
  BatchQueue queue(model, options);
  std::vector<Tensor> xs;
  std::vector<BatchFuture> futures;
  for (int i = 0; i < 200; ++i) {
    xs.push_back(rows(1, static_cast<float>(i)));
    futures.push_back(queue.submit({xs.back()}));
  }
  int right = 0;
  for (size_t i = 0; i < futures.size(); ++i) right += is_affine(xs[i], futures[i].get()[0]) ? 1 : 0;
  CHECK(right == 200);
  CHECK(pair.first.rows.load_relaxed() + pair.second.rows.load_relaxed() == 200);
}

TEST_CASE("a model on several devices is compiled and closed on each, and says what it is on") {
  Pair pair;
  const Model model = pair.model(true);
  CHECK(model.devices().size() == 2);
  CHECK(model.device().name() == pair.first.device.name());
  CHECK(model.explain_coalescing().find("on each of 2 devices") != std::string::npos);
  model.compile(std::vector<Shape>{{3, 4}});
  CHECK(pair.first.device.stats().compiles == 1);
  CHECK(pair.second.device.stats().compiles == 1);
  model.close();
  const Tensor x = rows(1, 2);
  for (int i = 0; i < 2; ++i) CHECK_THROWS_AS(model({x}), Error);
}

TEST_CASE("devices that a model cannot be on together are refused by name") {
  Pair pair;
  const OnTestDevice& first = pair.first;
  CHECK(refusal_of(pair, {first.device, first.device}).find("twice") != std::string::npos);
  CHECK(refusal_of(pair, {first.device, Device("host")}).find("'host' is no 'api-test'") !=
        std::string::npos);
  ModelOptions both;
  both.device = first.device;
  both.devices = {first.device};
  GraphBuilder graph("affine");
  graph.output(graph.add("Neg", {graph.input("x", DType::f32, {"batch", 4})}), "y");
  CHECK_THROWS_WITH_AS(graph.build(both), "a model is loaded on `device` or on `devices`, not on both",
                       Error);
  CHECK(Device::all("host").size() == 1);
  CHECK_THROWS_AS(Device::all("none"), Error);
}

}  // namespace heddle::api_test
