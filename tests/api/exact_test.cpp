// What ModelOptions::exact promises, through the public API and on the processor.
#include <doctest/doctest.h>
#include <heddle/heddle.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace heddle::api_test {
namespace {

using Ints = std::vector<int64_t>;

Tensor numbers(const Shape& shape, uint32_t seed) {
  Tensor tensor = Tensor::zeros(DType::f32, shape);
  auto* data = static_cast<float*>(tensor.mutable_data());
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    seed = seed * 1664525 + 1013904223;
    data[i] = static_cast<float>(seed >> 8) / (1 << 24) - 0.5f;
  }
  return tensor;
}

// Their last bits depend on how the work is divided among threads.
Model convolutions(const Device& device) {
  GraphBuilder graph("convolutions");
  const auto x = graph.input("x", DType::f32, {"batch", 64, 160});
  const auto narrowed = graph.add("Conv", {x, graph.constant(numbers({64, 64, 3}, 1))},
                                  {{"dilations", Ints{4}}, {"pads", Ints{8, 0}}});
  const auto widened = graph.add("ConvTranspose", {narrowed, graph.constant(numbers({64, 32, 4}, 2))},
                                 {{"strides", Ints{2}}, {"pads", Ints{1, 1}}});
  graph.output(widened, "y");
  ModelOptions options;
  options.device = device;
  options.exact = true;
  return graph.build(options);
}

TEST_CASE("exact: a row of a batch has the bits of the row alone") {
  for (const int threads : {1, 2, 3, 8}) {
    DeviceOptions options;
    options.threads = threads;
    const Model model = convolutions(Device::open("host", options));
    REQUIRE(model.batchable());
    std::vector<float> rows, alone;
    for (int64_t row = 1; row <= 5; ++row) {
      const Tensor x = numbers({1, 64, 160}, 10 + static_cast<uint32_t>(row)), y = model({x})[0];
      rows.insert(rows.end(), x.values<float>().begin(), x.values<float>().end());
      alone.insert(alone.end(), y.values<float>().begin(), y.values<float>().end());
      const Tensor together = model({Tensor::of<float>({row, 64, 160}, std::span<const float>(rows))})[0];
      CHECK_MESSAGE(std::ranges::equal(together.values<float>(), alone), threads, " threads, ", row, " rows");
    }
  }
}

}  // namespace
}  // namespace heddle::api_test
