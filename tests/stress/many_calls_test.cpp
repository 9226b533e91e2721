// many_calls_test.cpp: more calls in flight than a word has bits, through heddle.h. How many a process's
// device takes is decided once in a process, so each scenario is a process of its own.
#include <doctest/doctest.h>
#include <heddle/heddle.h>

#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

#include "tests/child_fixture.h"

namespace stress {
namespace {

constexpr int kInFlight = 128, kManyThreads = kInFlight + 2, kManyTimes = 20;

// y = 2 x + 1
heddle::Model affine_model(const heddle::Device& device, bool coalesce) {
  heddle::GraphBuilder graph("affine");
  const auto x = graph.input("x", heddle::DType::f32, {"batch", 8});
  const auto constant = [&](float value) {
    heddle::Tensor tensor = heddle::Tensor::zeros(heddle::DType::f32, {1});
    *static_cast<float*>(tensor.mutable_data()) = value;
    return graph.constant(tensor);
  };
  graph.output(graph.add("Add", {graph.add("Mul", {x, constant(2)}), constant(1)}), "y");
  heddle::ModelOptions options;
  options.device = device;
  options.coalesce = coalesce;
  return graph.build(options);
}

bool affine_is_right(const heddle::Model& model, int64_t rows, float first) {
  heddle::Tensor x = heddle::Tensor::zeros(heddle::DType::f32, {rows, 8});
  auto* data = static_cast<float*>(x.mutable_data());
  for (int64_t i = 0; i < x.elements(); ++i) data[i] = first + static_cast<float>(i);
  const heddle::Tensor y = model({x}).at(0);
  const auto values = y.values<float>();
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] != 2 * (first + static_cast<float>(i)) + 1) return false;
  }
  return values.size() == static_cast<size_t>(x.elements());
}

}  // namespace

TEST_CASE("scenario: 128 calls in flight" * doctest::skip()) {
  heddle::DeviceOptions options;
  options.in_flight = kInFlight;
  const heddle::Device device = heddle::Device::open("host", options);
  CHECK(device.in_flight() == kInFlight);
  CHECK(device.streams() == kInFlight + 1);
  for (const bool coalesce : {false, true}) {
    const heddle::Model model = affine_model(device, coalesce);
    std::atomic<int> right{0};
    const uint64_t before = device.stats().calls;
    {
      std::vector<std::jthread> threads;
      for (int who = 0; who < kManyThreads; ++who) {
        threads.emplace_back([&, who] {
          for (int i = 0; i < kManyTimes; ++i)
            right += affine_is_right(model, 1 + who % 3, static_cast<float>(100 * who + i)) ? 1 : 0;
        });
      }
    }
    CHECK(right == kManyThreads * kManyTimes);
    const uint64_t runs = device.stats().calls - before;
    constexpr uint64_t kCalls = kManyThreads * kManyTimes;
    CHECK((coalesce ? runs <= kCalls : runs == kCalls));
  }
}

TEST_CASE("130 threads call a model on a device that takes 128 calls at once, each answered right") {
  const heddle::test::Child child = heddle::test::run_child("scenario: 128 calls in flight");
  CHECK_MESSAGE(child.exit_code == 0, child.said);
}

}  // namespace stress
