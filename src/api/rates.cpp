// rates.cpp: how fast a device is at its best, found out by running models on it.
#include <heddle/heddle.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "base/clock.h"

namespace heddle {
namespace {

// In memory of the device's own, so that a call moves nothing there.
Tensor zeros_on(const Device& device, const Shape& shape) {
  const Tensor zeros = Tensor::zeros(DType::f32, shape);
  if (device.unified_memory()) return zeros;
  Tensor there = Tensor::empty(DType::f32, shape, device);
  default_stream(device).copy(zeros, there);
  there.wait();
  return there;
}

double seconds_of(const Model& model, const Tensor& input, const CallOptions& options, int calls) {
  const auto begin = Clock::real().now();
  Tensor last;
  for (int i = 0; i < calls; ++i) last = model({input}, options)[0];
  last.wait();
  const std::chrono::duration<double> took = Clock::real().now() - begin;
  return took.count();
}

// How many calls are under way before the last one is awaited. Where the device has memory of its own, a
// wait would be timed with each short call; results of so many calls fit any such device.
int burst_of(const Device& device, const Tensor& input, double seconds_of_one) {
  constexpr double kMost = 32, kBytes = 512 << 20, kSeconds = 0.002;
  if (device.unified_memory()) return 1;
  const double bytes = static_cast<double>(input.elements()) * sizeof(float);
  return static_cast<int>(std::clamp(std::min(kBytes / bytes, kSeconds / seconds_of_one), 1.0, kMost));
}

// Of one call, the fastest of several bursts: others that use the machine only make calls slower.
double fastest_s(const Model& model, const Shape& shape) {
  constexpr int kCalls = 7;
  constexpr double kSeconds = 0.05;  // so that short calls have a quiet moment among them
  const Device device = model.device();
  const Tensor input = zeros_on(device, shape);
  CallOptions options;
  if (!device.unified_memory()) options.stream.emplace(device);
  seconds_of(model, input, options, 1);  // compiles
  double fastest = seconds_of(model, input, options, 1), total = 0;
  const int burst = burst_of(device, input, fastest);
  for (int calls = 2; calls < kCalls || total < kSeconds; calls += burst) {
    const double took = seconds_of(model, input, options, burst);
    fastest = std::min(fastest, took / burst);
    total += took;
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
  return flops / fastest_s(graph.build(options), {kSize, kSize});
}

// Read and written together.
double bytes_per_s(const ModelOptions& options, double bytes) {
  constexpr int64_t kWidth = 1024;
  const auto rows = static_cast<int64_t>(bytes / (2 * kWidth * sizeof(float)));
  return bytes / fastest_s(chain("Relu", 1, kWidth, options), {rows, kWidth});
}

// Softmax does not fuse with itself, so every one is a step.
double step_s(const ModelOptions& options) {
  constexpr int kSteps = 64;
  const Shape small = {1, 8};
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
