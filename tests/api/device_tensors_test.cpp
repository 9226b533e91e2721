// Tensors in memory that the host cannot address: on the simulated device.
#include <heddle/heddle.h>

#include <doctest/doctest.h>

#include <vector>

namespace heddle::api_test {
namespace {

Tensor on_device(const Device& device, const Tensor& values) {
  Tensor there = Tensor::empty(values.dtype(), values.shape(), device);
  default_stream(device).copy(values, there);
  return there;
}

// Two columns of a row-major matrix of three: strided.
Tensor first_columns(const Tensor& matrix) {
  return matrix.view(matrix.dtype(), {matrix.shape()[0], 2}, {3, 1}, 0);
}

// y = 2 x + b
Model doubled(const Device& device, const Tensor& b) {
  GraphBuilder graph("doubled");
  const auto x = graph.input("x", DType::f32, {"batch", 2});
  const auto twice = graph.add("Add", {x, x});
  graph.output(graph.add("Add", {twice, graph.constant(b)}), "y");
  ModelOptions options;
  options.device = device;
  return graph.build(options);
}

}  // namespace

TEST_CASE("a strided tensor of a device becomes contiguous on the host") {
  const Device device("sim");
  const Tensor matrix = on_device(device, Tensor::of<float>({2, 3}, {1, 2, 3, 4, 5, 6}));
  const Tensor dense = first_columns(matrix).contiguous();
  CHECK(dense.on_host());
  const auto values = dense.values<float>();
  CHECK(std::vector<float>(values.begin(), values.end()) == std::vector<float>{1, 2, 4, 5});
}

TEST_CASE("a graph's constant may lie in a device's memory, strided or not") {
  const Device device("sim");
  const Tensor x = Tensor::of<float>({1, 2}, {10, 20});
  const Tensor row = on_device(device, Tensor::of<float>({1, 3}, {1, 2, 3}));
  for (const Tensor& b : {first_columns(row), row.view(DType::f32, {1, 2}, {2, 1}, 0)}) {
    const auto y = doubled(device, b)({x})[0].to_host();
    CHECK(y.values<float>()[0] == 21);
    CHECK(y.values<float>()[1] == 42);
  }
}

TEST_CASE("results lie where their inputs do, and on the device where a call asks for that") {
  const Device device("sim");
  const Model model = doubled(device, Tensor::of<float>({1, 2}, {0, 0}));
  const Tensor x = Tensor::of<float>({1, 2}, {3, 4});
  CHECK(model({x})[0].on_host());
  CHECK_FALSE(model({on_device(device, x)})[0].on_host());
  CallOptions options;
  options.keep_on_device = true;
  const Tensor y = model({x}, options)[0];
  CHECK_FALSE(y.on_host());
  CHECK(y.to_host().values<float>()[1] == 8);
  CHECK_THROWS_WITH_AS(
      model.submit(std::vector{x}, options, [](const std::vector<Tensor>&, const std::exception_ptr&) {}),
      doctest::Contains("results on its device"), Error);
}

TEST_CASE("a queue takes tensors of a device, over a model and over a function") {
  const Device device("sim");
  const Model model = doubled(device, Tensor::of<float>({1, 2}, {0, 0}));
  BatchQueueOptions options;
  options.limits.max_batch = 4;
  options.limits.max_wait = std::chrono::milliseconds(20);
  BatchQueue of_model(model, options);
  BatchQueue of_function(
      [&](std::span<const Tensor> inputs) {
        return std::vector<Tensor>{on_device(device, model(inputs)[0].to_host())};
      },
      options);
  constexpr int kRequests = 12;
  int right = 0;
  for (BatchQueue* queue : {&of_model, &of_function}) {
    std::vector<BatchFuture> futures;
    for (int i = 0; i < kRequests; ++i) {
      const auto value = static_cast<float>(i);
      const Tensor x = on_device(device, Tensor::of<float>({1, 3}, {value, value + 1, 0}));
      futures.push_back(queue->submit({first_columns(x)}));
    }
    for (int i = 0; i < kRequests; ++i) {
      const Tensor y = futures[static_cast<size_t>(i)].get()[0].to_host();
      right += y.values<float>()[0] == 2.F * static_cast<float>(i) &&
               y.values<float>()[1] == 2.F * static_cast<float>(i + 1);
    }
  }
  CHECK(right == 2 * kRequests);
}

TEST_CASE("memory that the host cannot address is not handed out as if it could") {
  const Device device("sim");
  const Tensor x = Tensor::of<float>({1, 2}, {3, 4}), there = Tensor::empty(DType::f32, {1, 2}, device);
  const Stream stream = default_stream(device);
  stream.copy(x, there);
  try {
    static_cast<void>(there.data());
    FAIL("data() gave an address");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::unsupported);
  }
  const Tensor back = Tensor::zeros(DType::f32, {1, 2});
  stream.copy(there, back);
  CHECK(back.values<float>()[1] == 4);
  CHECK(there.to_host().values<float>()[1] == 4);
  const Tensor column = there.view(DType::f32, {1, 1}, {2, 1}, sizeof(float));
  CHECK(column.to_host().values<float>()[0] == 4);
}

TEST_CASE("a tensor knows whose memory it is in, and comes to the host from any device") {
  const Tensor callers = Tensor::of<float>({2}, {5, 6});
  CHECK_FALSE(callers.device().has_value());
  CHECK(callers.to_host().address() == callers.address());
  const Tensor on_host = Tensor::empty(DType::f32, {2}, Device("host"));
  CHECK(on_host.device()->name() == "host");
  CHECK(on_host.to_host().address() == on_host.address());
  Tensor orphan;
  {
    const Device own = Device::open("sim:2", {});
    orphan = Tensor::empty(DType::f32, {2}, own);
    CHECK(orphan.device()->name() == "sim:2");
    CHECK(orphan.to_host().address() != orphan.address());
  }
  CHECK_FALSE(orphan.device().has_value());
  CHECK_THROWS_WITH_AS(static_cast<void>(orphan.to_host()), doctest::Contains("closed or gone"), Error);
}

}  // namespace heddle::api_test
