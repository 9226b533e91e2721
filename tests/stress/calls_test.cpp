// calls_test.cpp: plain calls from many threads: every value compared with the reference, every call counted.
#include "harness_fixture.h"
#include "tests/sanitized_fixture.h"

namespace stress {
namespace {

struct Load {
  int threads;
  int calls;
};

// Each thread walks over models and inputs at its own offset. Returns the number of calls whose values were
// right.
int right_calls(const std::vector<Case>& cases, const Load& load) {
  std::atomic<int> right = 0;
  const auto errors = run_threads(load.threads, [&](int thread) {
    for (int i = 0; i < load.calls; ++i) {
      const auto n = static_cast<size_t>(thread * 7 + i);
      if (cases[n % cases.size()].call(n / cases.size())) ++right;
    }
  });
  for (const std::string& error : errors) FAIL_CHECK(error);
  return right;
}

}  // namespace

TEST_CASE("each model gives the reference's values to one thread, MiniLM those of ONNX Runtime") {
  for (const Case& c : all_models()) {
    for (size_t i = 0; i < c.inputs.size(); ++i) CHECK_MESSAGE(c.call(i), c.name, ", input ", i);
  }
}

TEST_CASE("two threads call one model and both get right values") {
  const Case c = encoder();
  CHECK(right_calls({c}, {2, 5}) == 10);
}

TEST_CASE("eight threads run fifty mixed operations each: none lost, all right") {
  CHECK(right_calls(all_models(), {8, 50}) == 400);
}

TEST_CASE("thirty-one threads run a hundred mixed operations each: none lost, all right") {
  std::vector<Case> cases = {small(), mlp(), conv1d(), encoder(), small({}, 64)};
  const int calls = heddle::test::kSanitized ? 30 : 100;  // one takes ten times as long there
  CHECK(right_calls(cases, {31, calls}) == 31 * calls);
}

TEST_CASE("all models at once, each with four threads of its own") {
  const std::vector<Case> cases = all_models();
  const int count = static_cast<int>(cases.size());
  std::atomic<int> right = 0;
  const auto errors = run_threads(4 * count, [&](int thread) {
    for (size_t i = 0; i < 10; ++i) right += cases[static_cast<size_t>(thread % count)].call(i) ? 1 : 0;
  });
  CHECK(errors.empty());
  CHECK(right == 40 * count);
}

TEST_CASE("the very first call of a model may come from sixteen threads at once") {
  for (auto make : {mlp, conv1d, encoder}) {
    const heddle::Device cold = fresh_device();
    const Case c = make(cold, false);
    const auto before = cold.stats();
    CHECK(right_calls({c}, {16, 1}) == 16);
    const auto first = cold.stats();
    CHECK(first.compiles - before.compiles == c.inputs.size());
    CHECK(right_calls({c}, {16, 10}) == 160);
    CHECK(cold.stats().compiles == first.compiles);  // warm: nothing is compiled again
  }
}

TEST_CASE("sixteen threads with thirty shapes of two models compile each shape once") {
  const heddle::Device device = fresh_device();
  const Case narrow = small(device, 8, false);
  const Case wide = small(device, 24, false);
  const auto before = device.stats().compiles;
  std::atomic<int> right = 0;
  const auto errors = run_threads(16, [&](int thread) {
    for (int i = 0; i < 30; ++i) {
      const int64_t rows = 1 + (thread * 11 + i) % 30;
      for (const auto& [c, width] : {std::pair{&narrow, 8}, std::pair{&wide, 24}}) {
        const Tensor x = random_tensor({rows, width}, static_cast<uint32_t>(thread * 100 + i));
        const Tensor y = c->model({x})[0];
        bool same = y.shape() == x.shape();
        for (size_t k = 0; same && k < y.values<float>().size(); ++k)
          same = y.values<float>()[k] == x.values<float>()[k] * 2 + 1;
        right += same ? 1 : 0;
      }
    }
  });
  CHECK(errors.empty());
  CHECK(right == 16 * 30 * 2);
  CHECK(device.stats().compiles - before == 60);
}

TEST_CASE("five hundred short threads come and go without exhausting anything") {
  const Case c = small();
  const auto shared = heddle::Device().stats().streams_shared;
  std::atomic<int> right = 0;
  for (int wave = 0; wave < 50; ++wave) {
    const auto errors = run_threads(10, [&](int thread) {
      heddle::CallOptions on_own_stream;
      on_own_stream.stream = heddle::current_stream();
      right += c.call(static_cast<size_t>(wave + thread), on_own_stream) ? 1 : 0;
    });
    CHECK(errors.empty());
  }
  CHECK(right == 500);
  CHECK(heddle::Device().stats().streams_leased == 0);
  CHECK(heddle::Device().stats().streams_shared == shared);
}

}  // namespace stress
