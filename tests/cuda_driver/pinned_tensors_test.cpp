// Tensor::pinned() of heddle.h: CUDA copies from it and to it without memory between, while the host goes on.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "base/yield.h"
#include "tests/cuda_double/device_memory.h"
#include "tests/cuda_driver/api_device_fixture.h"

namespace heddle::cuda {
namespace {

using cuda_double::Call, cuda_double::calls_of;

constexpr int64_t kMany = 256 * 1024;  // floats: more than a kernel copies
constexpr uint64_t kBytes = kMany * sizeof(float);

Tensor pinned_of(const heddle::Device& device, float value, int64_t count = kMany) {
  Tensor tensor = Tensor::pinned(DType::f32, {count}, device);
  std::fill_n(static_cast<float*>(tensor.mutable_data()), count, value);
  return tensor;
}

bool holds(const heddle::Device& device, const Tensor& tensor, float value) {
  const Tensor seen = tensor.on_host() ? tensor : Tensor::zeros(DType::f32, tensor.shape());
  if (!tensor.on_host()) default_stream(device).copy(tensor, seen);
  const auto values = seen.values<float>();
  return std::all_of(values.begin(), values.end(), [&](float each) { return each == value; });
}

// A stream that does nothing until let_go().
class HeldStream {
 public:
  explicit HeldStream(const heddle::Device& device) : stream(device) {
    const auto event = Internals::runtime(device).import_event({gate_, 0, nullptr});
    check(event.status());
    check(Internals::runtime(device).wait(Internals::stream(stream), *event));
  }
  ~HeldStream() { let_go(); }
  HeldStream(const HeldStream&) = delete;
  HeldStream& operator=(const HeldStream&) = delete;
  void let_go() {
    if (!std::exchange(goes_, true)) cuda_double::reach(gate_);
  }

 private:
  const EventHandle gate_ = cuda_double::make_held_event();
  bool goes_ = false;

 public:
  const heddle::Stream stream;
};

TEST_CASE("a copy between pinned memory and the GPU is one call of CUDA's, with no memory between") {
  const heddle::Device device = device_on_the_double();
  const heddle::Stream stream(device);
  const Tensor there = Tensor::empty(DType::f32, {kMany}, device);
  const Tensor pinned = pinned_of(device, 3), back = pinned_of(device, 0);
  for (const Tensor& each : {pinned, back})
    REQUIRE(cuda_double::block_at(reinterpret_cast<Address>(each.address())).device == cuda_double::kPinned);
  const uint64_t staging = device.stats().memory.staging;
  const int copies = calls_of(Call::kCopy), pins = calls_of(Call::kPin);
  stream.copy(pinned, there);
  stream.copy(there, back);
  CHECK(holds(device, back, 3));
  CHECK(calls_of(Call::kCopy) == copies + 2);
  CHECK(calls_of(Call::kPin) == pins);
  CHECK(device.stats().memory.staging == staging);

  const Tensor ordinary = Tensor::zeros(DType::f32, {kMany});
  stream.copy(ordinary, there);
  CHECK(device.stats().memory.staging >= staging + kBytes);
}

TEST_CASE("pinned memory that is dropped is used again once the copies from and to it are over") {
  const heddle::Device device = device_on_the_double();
  const auto memory = [&] { return Internals::runtime(device).stats().memory; };
  const auto in_use = [&] { return memory().staging.allocated + memory().staging.pending; };
  const uint64_t before = in_use();
  const Tensor there = Tensor::empty(DType::f32, {kMany}, device);
  for (const bool to_device : {true, false}) {
    CAPTURE(to_device);
    const heddle::Stream other(device);
    other.copy(pinned_of(device, 5), there);
    other.synchronize();
    HeldStream held(device);
    Tensor pinned = pinned_of(device, 7);
    const void* const at = pinned.address();
    to_device ? held.stream.copy(pinned, there) : held.stream.copy(there, pinned);
    CHECK_FALSE((to_device ? there : pinned).ready());
    pinned = Tensor();
    const Tensor second = pinned_of(device, 9);
    CHECK(second.address() != at);
    held.let_go();
    CHECK(holds(device, there, to_device ? 7 : 5));
    CHECK(holds(device, second, 9));
    held.stream.synchronize();
    const Deadline end = Deadline::in(std::chrono::seconds(20));
    while (in_use() > before + kBytes && !end.expired()) give_way();  // until the second is all
    std::vector<Tensor> some;  // of all that wait to be used again, in any thread's place, it may be any
    bool again = false;
    for (const uint64_t misses = memory().misses; !again && memory().misses == misses;) {
      some.push_back(Tensor::pinned(DType::f32, {kMany}, device));
      again = some.back().address() == at;
    }
    CHECK(again);
  }
}

TEST_CASE("the address of pinned memory is given out to write to when nothing reads or writes it any more") {
  const heddle::Device device = device_on_the_double();
  const Tensor there = Tensor::empty(DType::f32, {kMany}, device);
  Tensor pinned = pinned_of(device, 1);
  for (float value = 2; value < 10; ++value) {
    const heddle::Stream stream(device);
    stream.copy(pinned, there);
    std::fill_n(static_cast<float*>(pinned.mutable_data()), kMany, value);
    CHECK(holds(device, there, value - 1));
  }
}

Model sums(const heddle::Device& device) {
  GraphBuilder graph("sums");
  const auto x = graph.input("x", DType::f32, {"batch", kMany});
  graph.output(graph.add("ReduceSum", {x, graph.constant(Tensor::of<int64_t>({1}, {1}))}), "y");
  ModelOptions options;
  options.device = device;
  options.coalesce = false;
  return graph.build(options);
}

TEST_CASE("a call reads pinned memory where it lies, when it is the call's turn") {
  const heddle::Device device = device_on_the_double();
  const Model model = sums(device);
  Tensor pinned = pinned_of(device, 1);
  const Tensor row = pinned.view(DType::f32, {1, kMany}, {kMany, 1}, 0);
  CHECK(holds(device, model({row})[0], kMany));
  auto* const data = static_cast<float*>(pinned.mutable_data());
  HeldStream held(device);
  CallOptions options;
  options.stream = held.stream;
  const Tensor y = model({row}, options)[0];
  CHECK_FALSE(y.ready());
  std::fill_n(data, kMany, 2.0f);  // which is to be left alone: what reads it then sees the change
  held.let_go();
  CHECK(holds(device, y, 2 * kMany));
}

Model picks(const heddle::Device& device) {
  GraphBuilder graph("picks");
  const auto rows = graph.constant(Tensor::of<float>({2, 1}, {10, 20}));
  graph.output(graph.add("Gather", {rows, graph.input("i", DType::i64, {"batch"})}), "y");
  ModelOptions options;
  options.device = device;
  options.coalesce = false;
  return graph.build(options);
}

TEST_CASE("a mistake that a copy brought to pinned memory is told there, until the host writes it anew") {
  const heddle::Device device = device_on_the_double();
  const heddle::Stream stream(device);
  CallOptions options;
  options.stream = stream;
  options.keep_on_device = true;
  const Tensor bad = picks(device)({Tensor::of<int64_t>({2}, {0, 7})}, options)[0];
  Tensor pinned = Tensor::pinned(DType::f32, {2, 1}, device);
  const Tensor there = Tensor::empty(DType::f32, {2, 1}, device);
  stream.copy(bad, pinned);
  CHECK_THROWS_WITH_AS(pinned.wait(), doctest::Contains("outside"), Error);
  std::fill_n(static_cast<float*>(pinned.mutable_data()), 2, 4.0f);
  stream.copy(pinned, there);
  CHECK(holds(device, there, 4));
}

TEST_CASE("memory that CUDA pins no more of is refused in words") {
  const heddle::Device device = device_on_the_double();
  cuda_double::refuse(Call::kPin, kOutOfMemory, 0, 100);
  try {
    static_cast<void>(Tensor::pinned(DType::f32, {kMany}, device));
    FAIL("it was given");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::exhausted);
    CHECK(std::string(error.what()).find("pins no") != std::string::npos);
  }
  cuda_double::forget_faults();
  CHECK(Tensor::pinned(DType::f32, {kMany}, device).on_host());
}

}  // namespace
}  // namespace heddle::cuda
