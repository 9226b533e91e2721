// rates.cpp: how fast a device is at its best, found out by running models on it.
#include <heddle/heddle.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <string>
#include <vector>

#include "base/clock.h"

namespace heddle {
namespace {

// Of one call, the fastest of several: others that use the machine only make calls slower.
double fastest_s(const Model& model, const Tensor& input) {
  constexpr int kCalls = 7;
  constexpr double kSeconds = 0.05;  // so that short calls have a quiet moment among them
  double fastest = std::numeric_limits<double>::max(), total = 0;
  for (int i = 0; i < kCalls || total < kSeconds; ++i) {
    const auto begin = Clock::real().now();
    model({input})[0].wait();
    const std::chrono::duration<double> took = Clock::real().now() - begin;
    fastest = std::min(fastest, took.count());
    total += took.count();
  }
  return fastest;
}

// The operators one after another, each over the result of the one before.
Model chain(const std::string& op, int count, int64_t width, const ModelOptions& options) {
  GraphBuilder graph("rates");
  GraphBuilder::Value x = graph.input("x", DType::f32, {"n", width});
  for (int i = 0; i < count; ++i) x = graph.add(op, {x});
  graph.output(x, "y");
  return graph.build(options);
}

double flops_per_s(const ModelOptions& options) {
  constexpr int64_t kSize = 1024;
  GraphBuilder graph("rates");
  const auto x = graph.input("x", DType::f32, {kSize, kSize});
  const auto weight = graph.constant(Tensor::zeros(DType::f32, {kSize, kSize}));
  graph.output(graph.add("MatMul", {x, weight}), "y");
  const double flops = 2.0 * kSize * kSize * kSize;
  return flops / fastest_s(graph.build(options), Tensor::zeros(DType::f32, {kSize, kSize}));
}

// Read and written together.
double bytes_per_s(const ModelOptions& options, double bytes) {
  constexpr int64_t kWidth = 1024;
  const auto rows = static_cast<int64_t>(bytes / (2 * kWidth * sizeof(float)));
  return bytes / fastest_s(chain("Relu", 1, kWidth, options), Tensor::zeros(DType::f32, {rows, kWidth}));
}

// Softmax does not fuse with itself, so every one is a step.
double step_s(const ModelOptions& options) {
  constexpr int kSteps = 64;
  const Tensor small = Tensor::zeros(DType::f32, {1, 8});
  const double one = fastest_s(chain("Softmax", 1, 8, options), small);
  return std::max(0.0, fastest_s(chain("Softmax", 1 + kSteps, 8, options), small) - one) / kSteps;
}

}  // namespace

Rates measure_rates(const ModelOptions& options) {
  constexpr double kCached = 4 << 20, kMemory = 256 << 20, kBoundary = 32 << 20;
  return {flops_per_s(options), bytes_per_s(options, kCached), bytes_per_s(options, kMemory), kBoundary,
          step_s(options)};
}

}  // namespace heddle
