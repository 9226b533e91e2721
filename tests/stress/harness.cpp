#include "harness_fixture.h"

#include <barrier>
#include <cmath>
#include <limits>
#include <random>
#include <thread>

namespace stress {

std::vector<std::string> run_threads(int count, const std::function<void(int)>& body) {
  std::barrier start(count);
  std::mutex mutex;
  std::vector<std::string> errors;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < count; ++i) {
      threads.emplace_back([&, i] {
        start.arrive_and_wait();
        try {
          body(i);
        } catch (const std::exception& e) {
          const std::lock_guard lock(mutex);
          errors.push_back("thread " + std::to_string(i) + ": " + e.what());
        }
      });
    }
  }
  return errors;
}

double difference(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return std::numeric_limits<double>::infinity();
  const auto x = a.values<float>();
  const auto y = b.values<float>();
  double largest = 0;
  double scale = 1;
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i] && std::isinf(y[i])) continue;
    if (std::isnan(x[i]) && std::isnan(y[i])) continue;
    if (!std::isfinite(x[i]) || !std::isfinite(y[i])) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, std::abs(double{x[i]} - double{y[i]}));
    scale = std::max(scale, std::abs(double{y[i]}));
  }
  return largest / scale;
}

heddle::Device fresh_device(const heddle::DeviceOptions& options) {
  return heddle::Device::open("", options);
}

heddle::CallOptions on(const heddle::Stream& stream) {
  heddle::CallOptions options;
  options.stream = stream;
  return options;
}

bool Case::call(size_t n, const heddle::CallOptions& options) const {
  return matches(n, model(inputs[n % inputs.size()], options));
}

bool Case::matches(size_t n, const std::vector<Tensor>& outputs) const {
  const std::vector<Tensor>& want = expected[n % expected.size()];
  if (outputs.size() != want.size()) return false;
  for (size_t i = 0; i < want.size(); ++i) {
    if (!(difference(outputs[i], want[i]) <= kClose)) return false;
  }
  return true;
}

Tensor random_tensor(const heddle::Shape& shape, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Tensor t = Tensor::zeros(heddle::DType::f32, shape);
  auto* data = static_cast<float*>(t.mutable_data());
  for (int64_t i = 0; i < t.elements(); ++i) data[i] = normal(random);
  return t;
}

}  // namespace stress
