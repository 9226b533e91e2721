// batch_queue_test.cpp: BatchQueue from many threads: every answer compared with the sequential one, every
// request counted.
#include <algorithm>
#include <condition_variable>
#include <set>
#include <thread>

#include "harness_fixture.h"

namespace stress {
namespace {

using namespace std::chrono_literals;
using heddle::BatchFuture;
using heddle::BatchQueue;
using heddle::BatchQueueOptions;
using heddle::Error;
using heddle::ErrorCode;

Tensor row(float value) { return Tensor::of<float>({1, 3}, {value, value + 1, value + 2}); }
float first_of(const BatchFuture& answer) { return answer.get()[0].values<float>()[0]; }
std::vector<Tensor> same(std::span<const Tensor> x) { return {x.begin(), x.end()}; }

ErrorCode code_of(const BatchFuture& answer) {
  try {
    answer.get();
  } catch (const Error& e) {
    return e.code();
  }
  return ErrorCode{};
}

// A function that notes its batches' rows and, while shut, holds its worker.
class Gate {
 public:
  std::vector<Tensor> operator()(std::span<const Tensor> x) {
    std::unique_lock lock(mutex_);
    rows_.push_back(x[0].shape()[0]);
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
    return same(x);
  }
  heddle::BatchFunction function() {
    return [this](std::span<const Tensor> x) { return (*this)(x); };
  }
  void set_open(bool open) {
    const std::lock_guard lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }
  void await_batches(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return rows_.size() >= count; });
  }
  std::vector<int64_t> rows() {
    const std::lock_guard lock(mutex_);
    return rows_;
  }
  // Keeps the worker inside a first request, so that what follows waits.
  BatchFuture hold(BatchQueue& queue) {
    set_open(false);
    BatchFuture first = queue.submit({row(-1)});
    await_batches(1);
    return first;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int64_t> rows_;
  bool open_ = true;
};

}  // namespace

TEST_CASE("sixteen callers of a batch queue over a model get their own rows, two workers") {
  const Case c = mlp();
  BatchQueueOptions options;
  options.workers = 2;
  options.limits.max_batch = 32;
  BatchQueue queue(c.model, options);
  std::atomic<int> right = 0;
  const auto errors = run_threads(16, [&](int thread) {
    for (size_t i = 0; i < 20; ++i) {
      const size_t n = static_cast<size_t>(thread) + i;
      right += c.matches(n, queue.submit(c.inputs[n % c.inputs.size()]).get()) ? 1 : 0;
    }
  });
  CHECK(errors.empty());
  CHECK(right == 320);
  queue.drain();
  const auto metrics = queue.metrics();
  CHECK(metrics.submitted == metrics.total.count);
  CHECK(metrics.depth == 0);
}

TEST_CASE("eight callers in a loop over a function come back into shared batches, each with its own rows") {
  constexpr int kCalls = 200;
  BatchQueue queue([](std::span<const Tensor> x) {
    const auto end = std::chrono::steady_clock::now() + 200us;
    while (std::chrono::steady_clock::now() < end) {
    }
    return same(x);
  });
  std::atomic<int> right = 0;
  const auto errors = run_threads(8, [&](int thread) {
    for (int i = 0; i < kCalls; ++i) {
      const auto value = static_cast<float>(thread * kCalls + i);
      right += first_of(queue.submit({row(value)})) == value ? 1 : 0;
    }
  });
  CHECK(errors.empty());
  CHECK(right == 8 * kCalls);
  queue.drain();
  const auto metrics = queue.metrics();
  CHECK(metrics.rows == 8 * kCalls);
  CHECK(metrics.total.count == 8 * kCalls);
  CHECK(metrics.batches <= 8 * kCalls / 2);
}

TEST_CASE("a queue over a model gives requests of no length what the model gives them alone") {
  heddle::GraphBuilder graph("longest");
  const auto x = graph.input("x", heddle::DType::f32, {"batch", "length"});
  const auto axes = graph.constant(Tensor::of<int64_t>({1}, {1}));
  graph.output(graph.add("ReduceMax", {x, axes}, {{"keepdims", int64_t{0}}}), "max");
  heddle::ModelOptions model_options;
  model_options.ragged = std::vector<heddle::RaggedInput>{{"x", 1, -1000}};  // below all that is sent
  const heddle::Model model = graph.build(model_options);
  std::vector<Tensor> inputs;
  for (const int64_t length : {3, 0, 5, 0, 0, 8, 1}) inputs.push_back(random_tensor({1, length}, 7));
  inputs.push_back(random_tensor({2, 0}, 7));
  BatchQueueOptions options;
  options.workers = 1;
  BatchQueue queue(model, options);
  int right = 0;
  for (int round = 0; round < 20; ++round) {
    std::vector<BatchFuture> answers;
    for (const Tensor& each : inputs) answers.push_back(queue.submit({each}));
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Tensor got = answers[i].get()[0], alone = model({inputs[i]})[0];
      right += got.shape() == alone.shape() && std::ranges::equal(got.values<float>(), alone.values<float>())
                   ? 1
                   : 0;
    }
  }
  CHECK(right == 160);
  // Lengths of one bucket share a batch, no length is none of them.
  CHECK(model.group(std::span(&inputs[0], 1)) == model.group(std::span(&inputs[2], 1)));
  CHECK(model.group(std::span(&inputs[0], 1)) != model.group(std::span(&inputs[1], 1)));
}

TEST_CASE("batches keep to max_batch, and a request of more rows is split and joined") {
  Gate gate;
  BatchQueueOptions options;
  options.limits.max_batch = 4;
  BatchQueue queue(gate.function(), options);
  const BatchFuture first = gate.hold(queue);
  const Tensor many = random_tensor({11, 3}, 5);
  const BatchFuture split = queue.submit({many});
  std::vector<BatchFuture> more;
  for (int i = 0; i < 5; ++i) more.push_back(queue.submit({row(static_cast<float>(i))}));
  gate.set_open(true);
  CHECK(difference(split.get()[0], many) == 0);
  for (int i = 0; i < 5; ++i) CHECK(first_of(more[static_cast<size_t>(i)]) == static_cast<float>(i));
  CHECK(first_of(first) == -1);
  for (const int64_t rows : gate.rows()) CHECK(rows <= 4);
}

TEST_CASE("results that cannot be joined are their own request's failure, and the queue goes on") {
  BatchQueueOptions options;
  options.limits.max_batch = 4;
  BatchQueue queue(
      [](std::span<const Tensor> x) {
        const int64_t rows = x[0].shape()[0];
        return std::vector<Tensor>{random_tensor({rows, rows}, 3)};
      },
      options);
  CHECK_THROWS_WITH_AS(queue.submit({random_tensor({7, 3}, 5)}).get(),
                       "the function gave results of unequal shapes or types for the parts of one request, "
                       "which has more rows than max_batch: they cannot be joined",
                       Error);
  CHECK(queue.submit({random_tensor({8, 3}, 5)}).get()[0].shape() == heddle::Shape{8, 4});
}

TEST_CASE(
    "one bad request fails alone where its batch may be repeated, and never after the device was lost") {
  const auto run = [](ErrorCode thrown, bool retry) {
    Gate gate;
    int calls = 0;
    BatchQueueOptions options;
    options.retry = retry;
    BatchQueue queue(
        [&](std::span<const Tensor> x) {
          ++calls;
          auto y = gate(x);
          for (const float v : x[0].values<float>()) {
            if (v == 13) throw Error(thrown, "thirteen");
          }
          return y;
        },
        options);
    gate.hold(queue);
    std::vector<BatchFuture> answers;
    for (int i = 0; i < 8; ++i) answers.push_back(queue.submit({row(static_cast<float>(i * 10 + 3))}));
    gate.set_open(true);
    int failed = 0;
    for (const BatchFuture& answer : answers) failed += code_of(answer) == thrown ? 1 : 0;
    return std::pair(failed, calls);
  };
  CHECK(run(ErrorCode::invalid, true).first == 1);
  CHECK(run(ErrorCode::invalid, false).first == 8);
  CHECK(run(ErrorCode::device_lost, true) == std::pair(8, 2));
}

TEST_CASE("an exception of the user's own kind comes out of get as it was thrown") {
  BatchQueue queue([](std::span<const Tensor>) -> std::vector<Tensor> { throw std::out_of_range("mine"); });
  const BatchFuture answer = queue.submit({row(1)});
  CHECK_THROWS_AS(answer.get(), std::out_of_range);
  CHECK_THROWS_AS(answer.get(), std::out_of_range);  // again
}

TEST_CASE("results that are not one per row, and requests without rows, are named") {
  BatchQueue queue([](std::span<const Tensor>) { return std::vector<Tensor>{row(1)}; });
  CHECK(code_of(queue.submit({random_tensor({2, 3}, 1)})) == ErrorCode::invalid);
  CHECK_THROWS_WITH_AS(queue.submit({Tensor::of<float>({}, {1})}),
                       "input 0 is a single value and has no rows: axis 0 must count rows", Error);
  CHECK_THROWS_AS(queue.submit({}), Error);
  CHECK_THROWS_AS(queue.submit({row(1), random_tensor({2, 3}, 1)}), Error);
}

TEST_CASE("ragged requests are padded to their bucket and cut back") {
  Gate gate;
  BatchQueueOptions options;
  options.pad = -1;
  options.buckets = {4, 8};
  options.cut = true;
  BatchQueue queue(gate.function(), options);
  const BatchFuture first = queue.submit({random_tensor({1, 2}, 1)});
  CHECK(first.get()[0].shape() == heddle::Shape{1, 2});
  std::vector<Tensor> inputs;
  std::vector<BatchFuture> answers;
  for (int64_t n : {3, 7, 4, 5}) {
    inputs.push_back(random_tensor({2, n}, static_cast<uint32_t>(n)));
    answers.push_back(queue.submit({inputs.back()}));
  }
  for (size_t i = 0; i < 4; ++i) CHECK(difference(answers[i].get()[0], inputs[i]) == 0);
  CHECK_THROWS_AS(queue.submit({random_tensor({1, 9}, 1)}), Error);
}

TEST_CASE(
    "cancel is free before dispatch and harmless during it; a deadline is kept while the worker is busy") {
  Gate gate;
  BatchQueue queue(gate.function());
  const BatchFuture first = gate.hold(queue);
  const BatchFuture withdrawn = queue.submit({row(1)});
  const BatchFuture hurried = queue.submit({row(2)}, 2ms);
  CHECK(withdrawn.cancel());
  CHECK_FALSE(withdrawn.cancel());
  CHECK_FALSE(first.cancel());
  CHECK(code_of(withdrawn) == ErrorCode::cancelled);
  CHECK(code_of(hurried) == ErrorCode::deadline);
  CHECK_FALSE(first.wait_for(0ns));
  gate.set_open(true);
  CHECK(first_of(first) == -1);
  CHECK(gate.rows() == std::vector<int64_t>{1});
}

TEST_CASE("a full queue throws exhausted at its bound, and at once on its own worker") {
  Gate gate;
  BatchQueueOptions options;
  options.limits.capacity = 1;
  options.full_wait = 1ms;
  BatchQueue queue(gate.function(), options);
  const BatchFuture first = gate.hold(queue);
  std::atomic<int> refused_on_worker = 0;
  first.then([&](const BatchFuture&) {
    for (int i = 0; i < 2; ++i) {
      try {
        queue.submit({row(3)});
      } catch (const Error& e) {
        refused_on_worker += e.code() == ErrorCode::exhausted ? 1 : 0;
      }
    }
  });
  const BatchFuture second = queue.submit({row(1)});
  CHECK_THROWS_AS(queue.submit({row(2)}), Error);
  gate.set_open(true);
  CHECK(first_of(second) == 1);
  CHECK(refused_on_worker == 2);
}

TEST_CASE("close answers what waits with unavailable, lets the running batch end, and takes nothing more") {
  Gate gate;
  BatchQueue queue(gate.function());
  const BatchFuture running = gate.hold(queue);
  const BatchFuture waiting = queue.submit({row(1)});
  std::jthread closer([&] { queue.close(); });
  CHECK(code_of(waiting) == ErrorCode::unavailable);  // while the other one still runs
  CHECK_FALSE(running.wait_for(0ns));
  gate.set_open(true);
  closer.join();
  CHECK(first_of(running) == -1);
  CHECK_THROWS_AS(queue.submit({row(2)}), Error);
  CHECK(gate.rows() == std::vector<int64_t>{1});
}

TEST_CASE("close answers what waits and runs what runs; submits from many threads meanwhile are answered") {
  for (int round = 0; round < 20; ++round) {
    BatchQueue queue(same);
    std::atomic<int> answered = 0, asked = 0;
    const auto errors = run_threads(5, [&](int thread) {
      if (thread == 4) {
        queue.close();
        return;
      }
      try {
        for (int i = 0; i < 100; ++i) {
          const BatchFuture answer = queue.submit({row(static_cast<float>(i))});
          ++asked;
          const bool right =
              code_of(answer) == ErrorCode::unavailable || first_of(answer) == static_cast<float>(i);
          answered += right ? 1 : 0;
        }
      } catch (const Error& e) {
        if (e.code() != ErrorCode::unavailable) throw;
      }
    });
    for (const std::string& error : errors) FAIL_CHECK(error);
    CHECK(answered == asked);
  }
}

TEST_CASE("a hung strict owner is noticed and not replaced unless asked; its batch is answered once") {
  for (const bool replace : {false, true}) {
    Gate gate;
    BatchQueueOptions options;
    options.hang_after = 5ms;
    options.replace_hung = replace;
    BatchQueue queue(gate.function(), options);
    const BatchFuture hung = gate.hold(queue);
    CHECK(code_of(hung) == ErrorCode::unavailable);
    if (replace) {
      gate.set_open(true);
      CHECK(first_of(queue.submit({row(2)})) == 2);
      CHECK(queue.health().restarts == 1);
    } else {
      while (queue.health().state != heddle::BatchHealth::State::unavailable) std::this_thread::yield();
      gate.set_open(true);
      while (queue.health().state != heddle::BatchHealth::State::ok) std::this_thread::yield();
      for (;;) {  // health is told before the queue accepts again
        try {
          CHECK(first_of(queue.submit({row(3)})) == 3);
          break;
        } catch (const Error&) {
          std::this_thread::yield();
        }
      }
    }
    CHECK(code_of(hung) == ErrorCode::unavailable);
  }
}

TEST_CASE("each worker sets itself up and warms every size and bucket before its first request") {
  std::mutex mutex;
  std::vector<heddle::Shape> shapes;
  std::set<std::thread::id> threads;
  BatchQueueOptions options;
  options.limits.max_batch = 8;
  options.limits.preferred = {2};
  options.pad = 0;
  options.buckets = {4, 16};
  options.warm_up = {random_tensor({1, 3}, 1)};
  options.setup = [&] {
    return [&](std::span<const Tensor> x) {
      const std::lock_guard lock(mutex);
      shapes.push_back(x[0].shape());
      threads.insert(std::this_thread::get_id());
      return same(x);
    };
  };
  BatchQueue queue(heddle::BatchFunction{}, options);
  queue.submit({random_tensor({1, 9}, 1)}).wait();
  const std::lock_guard lock(mutex);
  REQUIRE(shapes.size() == 7);
  CHECK(std::set<heddle::Shape>(shapes.begin(), shapes.begin() + 6) ==
        std::set<heddle::Shape>{{1, 4}, {2, 4}, {8, 4}, {1, 16}, {2, 16}, {8, 16}});
  CHECK(shapes[6] == heddle::Shape{1, 16});
  CHECK(threads.size() == 1);
}

TEST_CASE("ten thousand futures at once, each answered with its own value") {
  BatchQueue queue(same);
  std::vector<BatchFuture> answers;
  std::atomic<int> told = 0;
  for (int i = 0; i < 10'000; ++i) {
    answers.push_back(queue.submit({row(static_cast<float>(i))}));
    answers.back().then([&](const BatchFuture&) { ++told; });
  }
  int right = 0;
  for (int i = 0; i < 10'000; ++i)
    right += first_of(answers[static_cast<size_t>(i)]) == static_cast<float>(i) ? 1 : 0;
  CHECK(right == 10'000);
  queue.close();
  CHECK(told == 10'000);
  CHECK(queue.metrics().prometheus("q").find("heddle_batch_rows_sum{queue=\"q\"} 10000\n") !=
        std::string::npos);
}

}  // namespace stress
