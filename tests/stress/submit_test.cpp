// submit_test.cpp: Model::submit from many threads: every answer is counted and compared with a sequential
// one.
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <semaphore>
#include <thread>
#include <utility>

#include "harness_fixture.h"
#include "tests/child_fixture.h"

namespace stress {
namespace {

using heddle::BatchFuture;
using heddle::BatchQueue;
using heddle::BatchQueueOptions;
using heddle::Error;
using heddle::ErrorCode;
using heddle::Model;

bool is(const std::exception_ptr& error, ErrorCode code) {
  try {
    if (error != nullptr) std::rethrow_exception(error);
  } catch (const Error& e) {
    return e.code() == code;
  }
  return false;
}

// Rows of a table of ten: an index out of range is the data's mistake.
Model lookup() {
  heddle::GraphBuilder graph("lookup");
  std::vector<float> table(10 * 8);
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i);
  const auto rows = graph.constant(Tensor::of<float>({10, 8}, std::span<const float>(table)));
  const auto index = graph.input("index", heddle::DType::i64, {"batch", 4});
  graph.output(graph.add("Gather", {rows, index}, {{"axis", int64_t{0}}}), "y");
  return graph.build();
}
bool is_row(const Tensor& y, int64_t index) {
  const auto values = y.values<float>();
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] != static_cast<float>(index * 8) + static_cast<float>(i % 8)) return false;
  }
  return values.size() == 32;
}

}  // namespace

TEST_CASE("every submission of eight threads, and every call between them, gets its own right answer once") {
  const Case c = mlp();
  constexpr int kCallers = 8, kEach = 60;
  std::vector<std::atomic<int>> answers(kCallers * kEach);
  std::atomic<int> right = 0;
  Tally tally;
  const auto errors = run_threads(kCallers, [&](int thread) {
    for (int i = 0; i < kEach; ++i) {
      const auto n = static_cast<size_t>(thread * kEach + i);
      if (i % 4 == 0) {
        right += c.call(n) ? 1 : 0;
        ++answers[n];
        continue;
      }
      tally.begin();
      c.model.submit(c.inputs[n % c.inputs.size()], {},
                     [&, n](const std::vector<Tensor>& results, const std::exception_ptr& error) {
                       right += error == nullptr && c.matches(n, results) ? 1 : 0;
                       ++answers[n];
                       tally.end();
                     });
    }
  });
  tally.wait();
  CHECK(errors.empty());
  CHECK(right == kCallers * kEach);
  for (const auto& each : answers) CHECK(each == 1);
}

// Of a caller's requests the next one is made when one of eight is answered.
constexpr int kCallers = 64, kOutstanding = 8, kEach = 24;

TEST_CASE("64 callers with eight submissions outstanding each get every answer once and right") {
  const Case c = mlp();
  std::vector<std::atomic<int>> answers(kCallers * kEach);
  std::atomic<int> right = 0;
  const auto errors = run_threads(kCallers, [&](int caller) {
    std::counting_semaphore<kOutstanding> room(kOutstanding);
    Tally mine;
    for (int i = 0; i < kEach; ++i) {
      const auto n = static_cast<size_t>(caller * kEach + i);
      room.acquire();
      mine.begin();
      c.model.submit(c.inputs[n % c.inputs.size()], {},
                     [&, n](const std::vector<Tensor>& results, const std::exception_ptr& error) {
                       right += error == nullptr && c.matches(n, results) ? 1 : 0;
                       ++answers[n];
                       room.release();
                       mine.end();
                     });
    }
    mine.wait();
  });
  CHECK(errors.empty());
  CHECK(right == kCallers * kEach);
  for (const auto& each : answers) CHECK(each == 1);
}

TEST_CASE("64 callers with eight requests of a queue outstanding each get every answer right") {
  const Case c = mlp();
  BatchQueueOptions options;
  options.workers = 2;
  BatchQueue queue(c.model, options);
  std::atomic<int> right = 0;
  const auto errors = run_threads(kCallers, [&](int caller) {
    std::deque<std::pair<size_t, BatchFuture>> outstanding;
    for (int i = 0; i < kEach || !outstanding.empty(); ++i) {
      if (i >= kEach || outstanding.size() == kOutstanding) {
        right += c.matches(outstanding.front().first, outstanding.front().second.get()) ? 1 : 0;
        outstanding.pop_front();
      }
      const auto n = static_cast<size_t>(caller * kEach + i);
      if (i < kEach) outstanding.emplace_back(n, queue.submit(c.inputs[n % c.inputs.size()]));
    }
  });
  CHECK(errors.empty());
  CHECK(right == kCallers * kEach);
  queue.drain();
  const auto metrics = queue.metrics();
  CHECK(metrics.submitted == kCallers * kEach);
  CHECK(metrics.total.count == kCallers * kEach);
}

TEST_CASE("an index out of range fails its own submission and its own request of a queue, none beside it") {
  const Model model = lookup();
  constexpr int64_t kRows = 200;
  const auto index_of = [](int64_t i) { return i % 7 == 3 ? 10 + i : i % 10; };
  const auto input_of = [&](int64_t i) {
    const int64_t n = index_of(i);
    return Tensor::of<int64_t>({1, 4}, {n, n, n, n});
  };
  std::atomic<int> right = 0, refused = 0;
  const auto count = [&](int64_t i, const std::vector<Tensor>& y, const std::exception_ptr& error) {
    if (i % 7 == 3) {
      refused += is(error, ErrorCode::invalid) ? 1 : 0;
    } else {
      right += error == nullptr && is_row(y[0], i % 10) ? 1 : 0;
    }
  };
  constexpr int kWrong = 29;
  Tally tally;
  for (int64_t i = 0; i < kRows; ++i) {
    tally.begin();
    const Tensor x = input_of(i);
    model.submit({&x, 1}, {}, [&, i](const std::vector<Tensor>& y, const std::exception_ptr& error) {
      count(i, y, error);
      tally.end();
    });
  }
  tally.wait();
  CHECK(refused == kWrong);
  CHECK(right == kRows - kWrong);

  BatchQueue queue(model);
  std::vector<BatchFuture> futures;
  for (int64_t i = 0; i < kRows; ++i) futures.push_back(queue.submit({input_of(i)}));
  for (int64_t i = 0; i < kRows; ++i) {
    std::vector<Tensor> y;
    std::exception_ptr error;
    try {
      y = futures[static_cast<size_t>(i)].get();
    } catch (const Error&) {
      error = std::current_exception();
    }
    count(i, y, error);
  }
  CHECK(refused == 2 * kWrong);
  CHECK(right == 2 * (kRows - kWrong));
}

TEST_CASE("scenario: exit while submissions submit again" * doctest::skip()) {
  static const Case& c = *new Case(encoder());
  static std::atomic<int> answered = 0;
  struct Again {
    static void submit(size_t n) {
      try {
        c.model.submit(c.inputs[n % c.inputs.size()], {},
                       [n](const std::vector<Tensor>& results, const std::exception_ptr& error) {
                         if (error == nullptr ? !c.matches(n, results) : !is(error, ErrorCode::unavailable))
                           _exit(3);
                         ++answered;
                         submit(n + 1);
                       });
      } catch (const Error& e) {
        if (e.code() != ErrorCode::unavailable) _exit(4);  // refused once the process is ending
      }
    }
  };
  for (size_t i = 0; i < 16; ++i) Again::submit(i);
  while (answered < 32) std::this_thread::yield();
  std::exit(42);
}

TEST_CASE("the process exits while submissions wait and run, and each is right or refused") {
  for (int i = 0; i < (heddle::test::kSanitized ? 2 : 5); ++i) {
    const auto child = heddle::test::run_child("scenario: exit while submissions submit again",
                                               {"ASAN_OPTIONS=detect_leaks=0"});
    CHECK_FALSE(child.hung);
    CHECK_MESSAGE(child.exit_code == 42, child.said);
  }
}

}  // namespace stress
