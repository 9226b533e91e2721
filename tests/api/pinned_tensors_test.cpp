// Tensor::pinned() where the host addresses all memory, and where it does not.
#include <doctest/doctest.h>
#include <heddle/heddle.h>

#include <cstring>

namespace heddle::api_test {

TEST_CASE("pinned memory is the host's on every device, and copies from and to it keep the values") {
  for (const char* name : {"host", "sim"}) {
    CAPTURE(name);
    const Device device(name);
    Tensor from = Tensor::pinned(DType::f32, {2, 3}, device), to = Tensor::pinned(DType::f32, {2, 3}, device);
    CHECK(from.on_host());
    CHECK(from.device()->name() == name);
    CHECK(from.data() == from.mutable_data());
    const float values[] = {1, 2, 3, 4, 5, 6};
    std::memcpy(from.mutable_data(), values, sizeof values);
    const Tensor there = Tensor::empty(DType::f32, {2, 3}, device);
    const Stream stream = default_stream(device);
    stream.copy(from, there);
    stream.copy(there, to);
    CHECK(std::memcmp(to.data(), values, sizeof values) == 0);
    CHECK(there.to_host().values<float>()[5] == 6);
  }
}

TEST_CASE("pinned memory of no elements is memory, and of too many it is refused") {
  const Device device("sim");
  CHECK(Tensor::pinned(DType::f32, {0}, device).elements() == 0);
  CHECK_THROWS_AS(static_cast<void>(Tensor::pinned(DType::f32, {-1}, device)), Error);
  CHECK_THROWS_AS(static_cast<void>(Tensor::pinned(DType::f32, {int64_t{1} << 62}, device)), Error);
}

TEST_CASE("a device that is closed gives no pinned memory, and what it gave can be dropped") {
  const Device device = Device::open("sim:3", {});
  const Tensor kept = Tensor::pinned(DType::f32, {4}, device);
  device.close();
  try {
    static_cast<void>(Tensor::pinned(DType::f32, {4}, device));
    FAIL("it was given");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::unavailable);
  }
}

}  // namespace heddle::api_test
