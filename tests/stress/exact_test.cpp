// exact_test.cpp: what ModelOptions::exact promises, under load. The bits of a row are compared with those of
// the row alone on an idle device, whatever is called beside it, through a queue or not, in whatever batches.
// The Metal driver is not told of it.
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "harness_fixture.h"
#include "tests/sanitized_fixture.h"

namespace stress {
namespace {

constexpr size_t kExactRows = 24;
constexpr int kExactCallers = 64, kExactCalls = heddle::test::kSanitized ? 2 : 6;

// `count` of them, one after another; behind the last comes the first.
Tensor joined(const std::vector<Tensor>& rows, size_t first, size_t count) {
  std::vector<float> values;
  for (size_t i = 0; i < count; ++i) {
    const auto row = rows[(first + i) % rows.size()].values<float>();
    values.insert(values.end(), row.begin(), row.end());
  }
  heddle::Shape shape = rows.front().shape();
  shape[0] = static_cast<int64_t>(count);
  return Tensor::of<float>(shape, std::span<const float>(values));
}

bool same_bits(const Tensor& a, const Tensor& b) {
  const auto x = a.values<float>(), y = b.values<float>();
  return a.shape() == b.shape() && std::memcmp(x.data(), y.data(), x.size_bytes()) == 0;
}

bool runs_on_metal() {
  const char* const device = std::getenv("HEDDLE_DEVICE");
  return device != nullptr && std::string_view(device).starts_with("metal");
}

struct Alone {
  explicit Alone(const Case& of) : model(of.model) {
    for (uint32_t seed = 1; seed <= kExactRows; ++seed) {
      rows.push_back(random_tensor(of.inputs[0][0].shape(), seed));
      answers.push_back(model({rows.back()})[0]);
    }
  }
  template <class Ask>
  bool has_the_bits(size_t first, size_t count, Ask ask) const {
    return same_bits(ask(joined(rows, first, count)), joined(answers, first, count));
  }

  const heddle::Model model;
  std::vector<Tensor> rows, answers;  // of each row alone
};

}  // namespace

TEST_CASE("exact: rows of 64 callers, of a queue and of large batches have the bits of the row alone" *
          doctest::skip(runs_on_metal())) {
  for (auto make : {mlp_with, encoder_with}) {
    heddle::ModelOptions options;
    options.exact = true;
    const Case c = make(options);
    CAPTURE(c.name);
    REQUIRE(c.model.batchable());
    for (size_t i = 0; i < c.inputs.size(); ++i) CHECK(c.call(i));
    const Alone alone(c);
    const auto call = [&](const Tensor& x) { return c.model({x})[0]; };

    heddle::BatchQueue queue(c.model);
    std::atomic<int> right = 0;
    const uint64_t before = c.model.coalescing_stats()->calls, runs = c.model.coalescing_stats()->batches;
    const auto errors = run_threads(kExactCallers, [&](int thread) {
      for (int i = 0; i < kExactCalls; ++i) {
        const auto first = static_cast<size_t>(5 * thread + i), count = 1 + first % 3;
        const auto queued = [&](const Tensor& x) { return queue.submit({x}).get()[0]; };
        right +=
            (i % 2 == 0 ? alone.has_the_bits(first, count, call) : alone.has_the_bits(first, count, queued))
                ? 1
                : 0;
      }
    });
    for (const std::string& error : errors) FAIL_CHECK(error);
    CHECK(right == kExactCallers * kExactCalls);
    const heddle::CoalescingStats stats = *c.model.coalescing_stats();
    CHECK(stats.calls - before == kExactCallers * kExactCalls);
    CHECK(stats.batches - runs < kExactCallers * kExactCalls);  // or no row had a neighbour of another call

    for (const size_t count : {2, 7, 16, 33, 64, 97, 130}) {
      CAPTURE(count);
      CHECK(alone.has_the_bits(count, count, call));
    }
  }
}

}  // namespace stress
