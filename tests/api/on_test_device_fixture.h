// on_test_device_fixture.h: the public API on the runtime's test device, whose kernels are functions of the
// test.
//
//   What       A model is named after its kernel: f32[batch, 4] -> f32[batch, 4]. "affine", there from the
//              start, gives 2 x + 1.
//   Threads    As the API's. Kernels are set before their model is made.
#pragma once

#include <doctest/doctest.h>
#include <heddle/heddle.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/internals.h"
#include "base/thread.h"
#include "runtime/test_device_fixture.h"

namespace heddle::api_test {

using runtime::test::Latch;
using runtime::test::Meeting;
using runtime::test::wait_until;
using runtime::test::Work;

inline Status affine(const device::Run& run) {
  const auto* from = reinterpret_cast<const float*>(run.inputs[0].host());
  auto* to = reinterpret_cast<float*>(run.outputs[0].host());
  for (int64_t i = 0; i < run.outputs[0].extents.elements(); ++i) to[i] = from[i] * 2 + 1;
  return {};
}

struct OnTestDevice {
  explicit OnTestDevice(bool asynchronous, runtime::Options options = {})
      : OnTestDevice(runtime::test::TestOptions{.asynchronous = asynchronous, .lanes = 8}, options) {}
  explicit OnTestDevice(runtime::test::TestOptions test, runtime::Options options = {}) {
    static Atomic<int> next{0};  // a governor is shared by the devices of one name
    const std::string name = text("api-test:", next.add_relaxed(1));
    test.name = name;
    driver = std::make_shared<runtime::test::TestDevice>(test);
    driver->set_kernel("affine", affine);
    device = Internals::make_device(std::make_shared<Internals::DeviceRep>(
        Internals::DeviceRep{name, take(runtime::Runtime::make(driver, options)), 0}));
  }
  Model model(const std::string& kernel, bool coalesce = false) const {
    GraphBuilder graph(kernel);
    graph.output(graph.add("Neg", {graph.input("x", DType::f32, {"batch", 4})}), "y");
    ModelOptions options;
    options.device = device;
    options.coalesce = coalesce;
    return graph.build(options);
  }
  runtime::Runtime& runtime() const { return Internals::runtime(device); }

  Ref<runtime::test::TestDevice> driver;
  Device device = Device();
};

inline CallOptions on(const Stream& stream) {
  CallOptions options;
  options.stream = stream;
  return options;
}

inline Tensor rows(int64_t count, float first) {
  Tensor tensor = Tensor::zeros(DType::f32, {count, 4});
  auto* data = static_cast<float*>(tensor.mutable_data());
  for (int64_t i = 0; i < tensor.elements(); ++i) data[i] = first + static_cast<float>(i);
  return tensor;
}

inline bool is_affine(const Tensor& x, const Tensor& y) {
  const auto a = x.values<float>(), b = y.values<float>();
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float u, float v) { return v == u * 2 + 1; });
}

inline bool holds(const Tensor& tensor, float value) {
  const auto values = tensor.values<float>();
  return std::all_of(values.begin(), values.end(), [&](float v) { return v == value; });
}

// A tensor in memory of the device, every element `value`.
inline Tensor filled(const OnTestDevice& on, const Stream& stream, float value, int64_t count = 1) {
  Tensor tensor = Tensor::empty(DType::f32, {count, 4}, on.device);
  check(on.runtime().fill(Internals::stream(stream), Internals::view(tensor), value));
  return tensor;
}

}  // namespace heddle::api_test
