// harness_fixture.h: what every threaded test here stands on: threads that start together, a count of
// operations, and comparison with a reference.
//
//   What       run_threads starts `count` threads at a barrier and joins them; an exception in one becomes a
//              failed check with its text. Every operation is counted by the test and compared with what was
//              asked: a runtime that drops work fails.
#pragma once

#include <doctest/doctest.h>
#include <heddle/heddle.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace stress {

using heddle::Tensor;

// Calls body(thread) on `count` threads, all released at once. Returns the messages of the exceptions that
// escaped.
std::vector<std::string> run_threads(int count, const std::function<void(int)>& body);

// The largest |a - b| over the largest finite |b| (at least 1). Infinity where shape or dtype differ, where
// NaN stands against anything but NaN, or an infinity against anything but the same one.
double difference(const Tensor& a, const Tensor& b);
inline constexpr double kClose = 1e-5;

// Waits until as many were answered as were begun.
class Tally {
 public:
  void begin() { ++open_; }
  void end() {
    if (--open_ == 0) open_.notify_all();
  }
  void wait() {
    for (int now = open_; now != 0; now = open_) open_.wait(now);
  }

 private:
  std::atomic<int> open_ = 0;
};

// A device of its own, of the kind that Device() is.
heddle::Device fresh_device(const heddle::DeviceOptions& options = {});

// Options of a call on this stream.
heddle::CallOptions on(const heddle::Stream& stream);

// One model with inputs and the outputs a single thread got for them.
struct Case {
  std::string name;
  heddle::Model model;
  std::vector<std::vector<Tensor>> inputs;
  std::vector<std::vector<Tensor>> expected;

  // Calls with the n-th input (modulo) and compares. True when every output agrees.
  bool call(size_t n, const heddle::CallOptions& options = {}) const;
  bool matches(size_t n, const std::vector<Tensor>& outputs) const;
};

// The width, divided by the environment's HEDDLE_TEST_NARROWER where there is one.
int64_t narrower(int64_t width);

// coalesce: whether calls share batches, which are shapes of their own. The widths below go through
// narrower(); from HEDDLE_TEST_NARROWER=8 on all_models() is without MiniLM.
// 512-1024-1024-512, ReLU
Case mlp(const heddle::Device& device = {}, bool coalesce = true);
Case mlp_with(const heddle::ModelOptions& options);
// 64 x 100, 64->128 k5, 128->128 k5, ReLU, mean, linear 64
Case conv1d(const heddle::Device& device = {}, bool coalesce = true);
// 2 layers, d 256, 4 heads, ff 1024, GELU, 32 tokens
Case encoder(const heddle::Device& device = {}, bool coalesce = true);
Case encoder_with(const heddle::ModelOptions& options);
// y = x * 2 + 1, for tests of everything but arithmetic
Case small(const heddle::Device& device = {}, int64_t width = 8, bool coalesce = true);
// The first three, and all-MiniLM-L6-v2 from its file: there the expected values are ONNX Runtime's.
std::vector<Case> all_models(const heddle::Device& device = {});

Tensor random_tensor(const heddle::Shape& shape, uint32_t seed);

}  // namespace stress
