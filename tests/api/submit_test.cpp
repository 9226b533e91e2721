// Model::submit and a BatchQueue over a model, on a device whose kernels are the test's.
#include <stop_token>
#include <thread>

#include "on_test_device_fixture.h"

namespace heddle::api_test {

namespace {

using namespace std::chrono_literals;

// Answers, each counted; wait() is over when as many came as were asked for.
struct Answers {
  struct Answer {
    std::vector<Tensor> results;
    ErrorCode code = ErrorCode{};  // 0: results
    std::string what;
    int times = 0;
  };
  explicit Answers(size_t count) : all(count) {}
  Model::Answer take(size_t i) {
    return [this, i](std::vector<Tensor> results, const std::exception_ptr& error) {
      Answer& mine = all[i];
      mine.results = std::move(results);
      try {
        if (error != nullptr) std::rethrow_exception(error);
      } catch (const Error& e) {
        mine.code = e.code();
        mine.what = e.what();
      }
      ++mine.times;
      came.add_release(1);
    };
  }
  void wait(int count) {
    wait_until([&] { return came.load_acquire() >= count; });
  }
  bool right(size_t i, const Tensor& x) const {
    return all[i].times == 1 && all[i].code == ErrorCode{} && is_affine(x, all[i].results.at(0));
  }
  std::vector<Answer> all;
  Atomic<int> came{0};
};

// "affine" that waits, while `shut`, and finds a first element of 13 wrong, in its row.
struct Picky : OnTestDevice {
  explicit Picky(bool asynchronous = false) : OnTestDevice(asynchronous) {
    driver->set_kernel("picky", [this](const device::Run& run) {
      if (shut) door.wait();
      runs.add_relaxed(1);
      const auto* x = reinterpret_cast<const float*>(run.inputs[0].host());
      for (int64_t row = 0; row < run.inputs[0].extents[0]; ++row) {
        if (x[row * 4] != 13) continue;
        const Status wrong = Status::invalid("thirteen is out of range");
        if (run.row_faults == nullptr || run.row_faults->rows() == 0) return wrong;
        run.row_faults->record(row, wrong);
      }
      return affine(run);
    });
  }
  bool shut = false;
  Latch door;
  Atomic<int> runs{0};
};

}  // namespace

TEST_CASE("a submission owns its inputs until it is answered, however many they are") {
  for (const size_t count : {size_t{1}, size_t{2}, size_t{3}, size_t{9}}) {
    CAPTURE(count);
    OnTestDevice on(true);
    Latch door;
    on.driver->set_kernel("sum", [&door](const device::Run& run) {
      door.wait();
      auto* const to = reinterpret_cast<float*>(run.outputs[0].host());
      std::fill_n(to, 4, 0.0F);
      for (const device::View& each : run.inputs) {
        for (int64_t i = 0; i < 4; ++i) to[i] += reinterpret_cast<const float*>(each.host())[i];
      }
      return Status();
    });
    GraphBuilder graph("sum");
    std::vector<GraphBuilder::Value> inputs;
    for (size_t i = 0; i < count; ++i) {
      inputs.push_back(graph.input("x" + std::to_string(i), DType::f32, {"batch", 4}));
    }
    graph.output(graph.add("Max", inputs), "y");
    ModelOptions options;
    options.device = on.device;
    options.coalesce = false;
    const Model model = graph.build(options);
    Answers answers(1);
    std::vector<float> expected(4, 0.0F);
    {
      std::vector<Tensor> xs;
      for (size_t i = 0; i < count; ++i) {
        xs.push_back(rows(1, static_cast<float>(10 * i)));
        for (size_t column = 0; column < 4; ++column) expected[column] += xs[i].values<float>()[column];
      }
      model.submit(xs, {}, answers.take(0));
    }
    const std::vector<Tensor> others(count, rows(1, 1000));  // where the first ones lay, if they went
    door.open();
    answers.wait(1);
    REQUIRE(answers.all[0].code == ErrorCode{});
    const auto values = answers.all[0].results[0].values<float>();
    CHECK(std::vector<float>(values.begin(), values.end()) == expected);
  }
}

TEST_CASE("what is submitted is answered once with its own rows, whatever the model and the device") {
  for (const bool asynchronous : {false, true}) {
    for (const bool coalesce : {false, true}) {
      const OnTestDevice on(asynchronous);
      const Model model = on.model("affine", coalesce);
      Answers answers(60);
      std::vector<Tensor> xs;
      for (size_t i = 0; i < 60; ++i)
        xs.push_back(rows(1 + static_cast<int64_t>(i) % 3, static_cast<float>(i)));
      for (size_t i = 0; i < 60; ++i) model.submit({&xs[i], 1}, {}, answers.take(i));
      answers.wait(60);
      for (size_t i = 0; i < 60; ++i) CHECK(answers.right(i, xs[i]));
    }
  }
}

TEST_CASE("a model whose rows depend on each other is answered, one submission at a time") {
  const OnTestDevice on(false);
  GraphBuilder graph("affine");
  graph.output(graph.add("Softmax", {graph.input("x", DType::f32, {"batch", 4})}, {{"axis", int64_t{0}}}),
               "y");
  ModelOptions options;
  options.device = on.device;
  const Model model = graph.build(options);
  REQUIRE_FALSE(model.batchable());
  Answers answers(20);
  const Tensor x = rows(2, 3);
  for (size_t i = 0; i < 20; ++i) model.submit({&x, 1}, {}, answers.take(i));
  answers.wait(20);
  for (size_t i = 0; i < 20; ++i) CHECK(answers.right(i, x));
}

TEST_CASE("what is wrong with a submission is thrown by submit, by name, and no answer comes") {
  const OnTestDevice on(false);
  const Model model = on.model("affine", true);
  Answers answers(1);
  const Tensor narrow = Tensor::zeros(DType::f32, {1, 3});
  const Tensor whole = Tensor::zeros(DType::i32, {1, 4});
  const Tensor x = rows(1, 1);
  CHECK_THROWS_WITH_AS(model.submit({&narrow, 1}, {}, answers.take(0)),
                       "input 'x' of model 'affine' has shape [1, 3]; it must be [batch, 4]", Error);
  CHECK_THROWS_WITH_AS(model.submit({&whole, 1}, {}, answers.take(0)),
                       "input 'x' of model 'affine' is i32; it must be f32", Error);
  CHECK_THROWS_AS(model.submit({}, {}, answers.take(0)), Error);
  CHECK_THROWS_AS(model.submit({&x, 1}, {}, {}), Error);
  CHECK_THROWS_AS(model.submit({&x, 1}, api_test::on(Stream(on.device)), answers.take(0)), Error);
  model.close();
  try {
    model.submit({&x, 1}, {}, answers.take(0));
    CHECK(false);
  } catch (const Error& e) {
    CHECK(e.code() == ErrorCode::unavailable);
  }
  CHECK(answers.came.load_acquire() == 0);
}

TEST_CASE("an answer that throws is logged, and the next ones come all the same") {
  const OnTestDevice on(false);
  const Model model = on.model("affine", true);
  Atomic<int> logged{0};
  set_log([&](LogLevel level, const std::string& message) {
    if (level == LogLevel::error && message.find("a bad day") != std::string::npos) logged.add_release(1);
  });
  const Tensor x = rows(1, 1);
  Answers answers(1);
  model.submit({&x, 1}, {}, [](const auto&, const auto&) { throw std::runtime_error("a bad day"); });
  wait_until([&] { return logged.load_acquire() == 1; });
  model.submit({&x, 1}, {}, answers.take(0));
  answers.wait(1);
  CHECK(answers.right(0, x));
  set_log({});
}

TEST_CASE("the last handle of a model may go in an answer") {
  for (int i = 0; i < 20; ++i) {
    const OnTestDevice on(false);
    Answers answers(1);
    const Tensor x = rows(1, 1);
    Latch gone;
    {
      std::optional<Model> model = on.model("affine", true);
      model->submit({&x, 1}, {}, [&, own = model](std::vector<Tensor> results, const auto& error) mutable {
        if (i % 2 == 0) gone.wait();  // else its end is in either thread
        own.reset();
        answers.take(0)(std::move(results), error);
      });
      model.reset();
      gone.open();
    }
    answers.wait(1);
    CHECK(answers.right(0, x));
  }
}

TEST_CASE("threads that submit to one model hold it by counts of their own") {
  const OnTestDevice on(false);
  const Model model = on.model("affine", true);
  const auto rep = Internals::rep(model);
  std::vector<std::shared_ptr<batch::Coalescer>> counts = {rep->calls};
  for (const auto& each : rep->calls_apart) {
    CHECK(each == rep->calls);
    for (const auto& other : counts) CHECK((each.owner_before(other) || other.owner_before(each)));
    counts.push_back(each);
  }
}

TEST_CASE("the end of the last handle answers what waits, and waits for what runs") {
  Picky on;
  on.shut = true;
  Answers answers(40);
  std::vector<Tensor> xs;
  for (size_t i = 0; i < 40; ++i) xs.push_back(rows(1, static_cast<float>(100 * i)));
  Thread opener;
  {
    const Model model = on.model("picky", true);
    for (size_t i = 0; i < 40; ++i) model.submit({&xs[i], 1}, {}, answers.take(i));
    opener = Thread("opener", [&] {
      wait_until([&] { return answers.came.load_acquire() >= 1; });
      on.door.open();
    });
  }
  CHECK(answers.came.load_acquire() == 40);
  int right = 0, refused = 0;
  for (size_t i = 0; i < 40; ++i) {
    right += answers.right(i, xs[i]) ? 1 : 0;
    refused += answers.all[i].code == ErrorCode::unavailable ? 1 : 0;
  }
  CHECK(right >= 1);
  CHECK(refused >= 1);
  CHECK(right + refused == 40);
}

TEST_CASE("a bad row fails its own submission, and its own request of a queue over the model, run once") {
  Picky on;
  const Model model = on.model("picky", true);
  Answers answers(24);
  std::vector<Tensor> xs;
  for (size_t i = 0; i < 24; ++i) xs.push_back(rows(1, i % 8 == 5 ? 13.0F : static_cast<float>(100 * i)));
  for (size_t i = 0; i < 24; ++i) model.submit({&xs[i], 1}, {}, answers.take(i));
  answers.wait(24);
  for (size_t i = 0; i < 24; ++i) {
    CHECK((i % 8 == 5 ? answers.all[i].code == ErrorCode::invalid : answers.right(i, xs[i])));
  }

  for (const bool coalesce : {true, false}) {
    Picky held;
    held.shut = true;
    BatchQueue queue(held.model("picky", coalesce));
    const Tensor first = rows(1, 1);
    std::vector<BatchFuture> futures = {queue.submit({first})};
    wait_until([&] { return held.door.arrived() == 1; });
    for (const Tensor& x : xs) futures.push_back(queue.submit({x}));
    held.door.open();
    for (size_t i = 0; i < 24; ++i) {
      futures[i + 1].wait();
      if (i % 8 != 5) {
        CHECK(is_affine(xs[i], futures[i + 1].get()[0]));
        continue;
      }
      CHECK_THROWS_WITH_AS(futures[i + 1].get(), "thirteen is out of range", Error);
    }
    CHECK(held.runs.load_relaxed() == 2);
    queue.drain();
    CHECK(queue.metrics().failed_batches == 0);
  }
}

TEST_CASE("requests that a host's queue has joined run once together, each with its own result or error") {
  Picky on;
  const Model model = on.model("picky", true);
  std::vector<std::vector<Tensor>> requests;
  for (int i = 0; i < 6; ++i)
    requests.push_back({rows(1 + i % 2, i == 4 ? 13.0F : static_cast<float>(100 * i))});
  for (const auto& request : requests) CHECK(model.group(request) == model.group(requests[0]));
  int formed = 0;
  const auto outcomes = model.run_together(requests, [&] { ++formed; });
  REQUIRE(outcomes.size() == 6);
  for (size_t i = 0; i < 6; ++i) {
    CHECK((outcomes[i].error != nullptr) == (i == 4));
    if (i != 4) CHECK(is_affine(requests[i][0], outcomes[i].results.at(0)));
  }
  CHECK(formed == 1);
  CHECK(on.runs.load_relaxed() == 1);
  const std::vector<std::vector<Tensor>> unlike = {{rows(1, 1)}, {Tensor::zeros(DType::f32, {1, 3})}};
  CHECK_THROWS_AS(model.run_together(unlike), Error);
  CHECK(model.run_together({}).empty());
  model.close();
  CHECK_THROWS_AS(model.run_together(requests), Error);
}

TEST_CASE("a queue over a model throws what is wrong with a request's shape or dtype where it is submitted") {
  const OnTestDevice on(false);
  BatchQueue queue(on.model("affine", true));
  CHECK_THROWS_AS(queue.submit({Tensor::zeros(DType::f32, {1, 3})}), Error);
  CHECK_THROWS_AS(queue.submit({Tensor::zeros(DType::i32, {1, 4})}), Error);
  CHECK_THROWS_AS(queue.submit({Tensor::zeros(DType::f32, {0, 4})}), Error);
  const Tensor x = rows(200, 1);  // more than a batch: split and joined
  CHECK(is_affine(x, queue.submit({x}).get()[0]));
}

TEST_CASE("deadline and cancellation answer a submission that waits, once, while another one runs") {
  Picky on;
  on.shut = true;
  const Model model = on.model("picky", true);
  Answers answers(40);
  std::stop_source stop;
  const Tensor x = rows(1, 1);
  const auto owner = std::make_shared<int>(0);
  for (size_t i = 0; i < 40; ++i) {
    CallOptions options;
    if (i >= 20 && i < 30) options.timeout = 1ms;
    if (i >= 30) options.cancel = stop.get_token();
    const auto then = [take = answers.take(i), owner](std::vector<Tensor> y,
                                                      const std::exception_ptr& error) {
      take(std::move(y), error);
    };
    model.submit({&x, 1}, options, then);
  }
  wait_until([&] { return answers.came.load_acquire() >= 10; });
  stop.request_stop();
  wait_until([&] { return answers.came.load_acquire() >= 20; });
  wait_until([&] { return owner.use_count() == 21; });  // the functions of those that left are gone
  on.door.open();
  answers.wait(40);
  for (size_t i = 0; i < 40; ++i) {
    const ErrorCode code = answers.all[i].code;
    CHECK(answers.all[i].times == 1);
    CHECK(code == (i < 20 ? ErrorCode{} : i < 30 ? ErrorCode::deadline : ErrorCode::cancelled));
  }
}

TEST_CASE("threads that submit, call and use a queue of one model get one right answer for each") {
  for (const bool asynchronous : {false, true}) {
    const OnTestDevice on(asynchronous);
    const Model model = on.model("affine", true);
    constexpr size_t kThreads = 6, kEach = 90;
    Answers answers(kThreads * kEach);
    BatchQueueOptions options;
    options.workers = 2;
    BatchQueue queue(model, options);
    std::vector<Tensor> xs;
    for (size_t i = 0; i < kThreads * kEach; ++i) xs.push_back(rows(1, static_cast<float>(i)));
    Atomic<int> right{0};
    run_together(kThreads, [&](int thread) {
      for (size_t i = 0; i < kEach; ++i) {
        const size_t n = static_cast<size_t>(thread) * kEach + i;
        if (i % 3 == 0) model.submit({&xs[n], 1}, {}, answers.take(n));
        if (i % 3 == 1) right.add_relaxed(is_affine(xs[n], model({xs[n]})[0]) ? 1 : 0);
        if (i % 3 == 2) right.add_relaxed(is_affine(xs[n], queue.submit({xs[n]}).get()[0]) ? 1 : 0);
      }
    });
    answers.wait(kThreads * kEach / 3);
    for (size_t n = 0; n < kThreads * kEach; n += 3) right.add_relaxed(answers.right(n, xs[n]) ? 1 : 0);
    CHECK(right.load_relaxed() == kThreads * kEach);
  }
}

}  // namespace heddle::api_test
