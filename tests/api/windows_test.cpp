// Calls with windows on memory in the place of Tensors (Model::call_windows).
#include <array>
#include <string>
#include <vector>

#include "on_test_device_fixture.h"

namespace heddle::api_test {
namespace {

constexpr std::array<int64_t, 2> kShape{2, 4}, kEverySecond{8, 1}, kRows{4, 1};
constexpr int64_t kRowBytes = 4 * sizeof(float);

std::vector<float> values_of(const Tensor& tensor) {
  const Tensor there = tensor.to_host();
  const auto values = there.values<float>();
  return {values.begin(), values.end()};
}

// Rows first, first + step of eight rows that count from 0, of which "affine" gives 2 x + 1.
std::vector<float> expected(int64_t first, int64_t step) {
  std::vector<float> values;
  for (const int64_t row : {first, first + step}) {
    for (int64_t i = 0; i < 4; ++i) values.push_back(static_cast<float>(2 * (4 * row + i) + 1));
  }
  return values;
}

// In the device's memory, which it knows the end of.
Tensor eight_rows(const OnTestDevice& on_test, const Stream& stream) {
  const Tensor tensor = Tensor::empty(DType::f32, {8, 4}, on_test.device);
  stream.copy(rows(8, 0), tensor);
  return tensor;
}

}  // namespace

TEST_CASE("windows give what views of the same memory give, cold and warm, in order of a stream or without") {
  for (const bool asynchronous : {false, true}) {
    CAPTURE(asynchronous);
    const OnTestDevice f(asynchronous);
    const Model model = f.model("affine");
    const Stream stream(f.device);
    const Tensor memory = eight_rows(f, stream);
    stream.synchronize();
    for (const CallOptions& options : {on(stream), CallOptions()}) {
      for (int64_t row = 0; row < 6; ++row) {
        const Model::Window dense{memory, DType::f32, kShape, kRows, row * kRowBytes};
        const Model::Window strided{memory, DType::f32, kShape, kEverySecond, row * kRowBytes};
        CHECK(values_of(model.call_windows({&dense, 1}, options)[0]) == expected(row, 1));
        if (row < 6) CHECK(values_of(model.call_windows({&strided, 1}, options)[0]) == expected(row, 2));
        const Tensor view = memory.view(DType::f32, {2, 4}, {4, 1}, row * kRowBytes);
        CHECK(values_of(model({view}, options)[0]) == expected(row, 1));
      }
    }
  }
}

TEST_CASE("a window that leaves its memory is refused in words, and nothing runs") {
  for (const bool asynchronous : {false, true}) {
    const OnTestDevice f(asynchronous);
    const Model model = f.model("affine");
    const Stream stream(f.device);
    const Tensor memory = eight_rows(f, stream);
    const Model::Window window{memory, DType::f32, kShape, kRows, 7 * kRowBytes};
    std::string words;
    try {
      static_cast<void>(model.call_windows({&window, 1}, on(stream)));
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::invalid);
      words = error.what();
    }
    CHECK(words.find("leaves its tensor's memory") != std::string::npos);
    CHECK(f.driver->counts().runs.load_acquire() == 0);
  }
}

TEST_CASE("windows go where their results are to be written, also over what they read") {
  const OnTestDevice f(false);
  const Model model = f.model("affine");
  const Stream stream(f.device);
  const Tensor memory = eight_rows(f, stream), target = Tensor::empty(DType::f32, {2, 4}, f.device);
  CallOptions options = on(stream);
  options.outputs = {target};
  for (int64_t row = 0; row < 4; ++row) {
    const Model::Window window{memory, DType::f32, kShape, kRows, row * kRowBytes};
    CHECK(model.call_windows({&window, 1}, options)[0].address() == target.address());
    CHECK(values_of(target) == expected(row, 1));
  }
}

TEST_CASE("a warm call of windows on a stream writes no count of references of their memory") {
  const OnTestDevice f(false);
  std::vector<int64_t> counts;
  f.driver->set_kernel("counting", [&](const device::Run& run) {
    counts.push_back(run.inputs[0].buffer.use_count());
    return affine(run);
  });
  const Model model = f.model("counting");
  const Stream stream(f.device);
  const Tensor memory = eight_rows(f, stream);
  const Model::Window window{memory, DType::f32, kShape, kRows, 0};
  for (int time = 0; time < 3; ++time)
    CHECK(values_of(model.call_windows({&window, 1}, on(stream))[0]) == expected(0, 1));
  REQUIRE(counts.size() == 3);
  CHECK(counts[0] != 0);  // its program was not made
  CHECK(counts[1] == 0);
  CHECK(counts[2] == 0);
}

TEST_CASE("work of an asynchronous device keeps the memory of its windows") {
  const OnTestDevice f(true);
  Latch latch;
  f.driver->set_kernel("late", [&](const device::Run& run) {
    latch.wait();
    return affine(run);
  });
  const Model model = f.model("late");
  const Stream stream(f.device);
  CallOptions options = on(stream);
  options.keep_on_device = true;
  std::vector<Tensor> results;
  {
    const Tensor memory = eight_rows(f, stream);
    const Model::Window window{memory, DType::f32, kShape, kRows, kRowBytes};
    results = model.call_windows({&window, 1}, options);
  }
  const Stream other(f.device);
  const Tensor next = Tensor::empty(DType::f32, {8, 4}, f.device);  // not what is read yet
  other.copy(rows(8, 1000), next);
  other.synchronize();
  latch.open();
  CHECK(values_of(results[0]) == expected(1, 1));
}

}  // namespace heddle::api_test
