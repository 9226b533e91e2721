// Callers whose rows share a batch on the GPU: what crosses the bus, and when.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "base/thread.h"
#include "tests/cuda_double/touches.h"
#include "tests/cuda_driver/api_device_fixture.h"

namespace heddle::cuda {
namespace {

constexpr int64_t kWide = 16;

// Three products, each by twice the unit matrix: a row's answer is eight times the row.
Model eightfold(const heddle::Device& device) {
  std::vector<float> twice(kWide * kWide);
  for (size_t i = 0; i < twice.size(); i += kWide + 1) twice[i] = 2;
  GraphBuilder graph("eightfold");
  GraphBuilder::Value x = graph.input("x", heddle::DType::f32, {"batch", kWide});
  for (int i = 0; i < 3; ++i) {
    const auto w = graph.constant(Tensor::of<float>({kWide, kWide}, std::span<const float>(twice)));
    x = graph.add("Relu", {graph.add("MatMul", {x, w})});
  }
  graph.output(x, "y");
  ModelOptions options;
  options.device = device;
  return graph.build(options);
}

bool is_right(const Tensor& y, float value) {
  const auto values = y.values<float>();
  return values.size() == kWide &&
         std::all_of(values.begin(), values.end(), [&](float each) { return each == 8 * value; });
}

// Of a batch each of a product's blocks reads all rows: from the host's memory the bus would carry them as
// often as there are blocks.
TEST_CASE("of a batch's kernels only copies touch the host's memory, as graphs and step by step") {
  constexpr int kCallers = 8, kRounds = 40;
  const heddle::Device device = device_on_the_double();
  const Model model = eightfold(device);
  cuda_double::take_kernels_at_the_host();
  const int graphs = cuda_double::calls_of(cuda_double::Call::kGraphLaunch);
  Atomic<int> right{0};
  run_together(kCallers, [&](int caller) {
    for (int round = 0; round < kRounds; ++round) {
      const auto value = static_cast<float>(1 + caller * kRounds + round);
      const std::vector<float> row(kWide, value);
      const Tensor x = Tensor::of<float>({1, kWide}, std::span<const float>(row));
      right.add_relaxed(is_right(model({x})[0], value) ? 1 : 0);
    }
  });
  CHECK(right.load_relaxed() == kCallers * kRounds);
  CHECK(cuda_double::calls_of(cuda_double::Call::kGraphLaunch) > graphs);
  const auto kernels = cuda_double::take_kernels_at_the_host();
  CHECK(kernels.contains("heddle_copy_and_tell"));
  for (const std::string_view kernel : kernels) {
    CAPTURE(std::string(kernel));
    CHECK((kernel == "heddle_copy_and_tell" || kernel.starts_with("heddle_move_")));
  }
}

}  // namespace
}  // namespace heddle::cuda
