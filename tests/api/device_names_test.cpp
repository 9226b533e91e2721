// Devices of one kind, told apart by a number.
#include <heddle/heddle.h>

#include <doctest/doctest.h>

#include <vector>

namespace heddle::api_test {
namespace {

Model identity(const Device& device) {
  GraphBuilder graph("identity");
  const auto x = graph.input("x", DType::f32, {"batch", 2});
  graph.output(graph.add("Abs", {x}), "y");
  ModelOptions options;
  options.device = device;
  return graph.build(options);
}

ErrorCode refusal(const char* name) {
  try {
    const Device device(name);
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::internal;
}

}  // namespace

TEST_CASE("an ordinal of 0 is the device without one, and another ordinal is a device of its own") {
  const Device first("sim"), same("sim:0"), second("sim:1");
  CHECK(first.name() == "sim");
  CHECK(same.name() == "sim");
  CHECK(second.name() == "sim:1");
  const Model on_first = identity(first), on_second = identity(second);
  const Tensor x = Tensor::of<float>({1, 2}, {3, 4});
  const uint64_t calls = same.stats().calls;
  CHECK(on_first({x})[0].values<float>()[1] == 4);
  CHECK(same.stats().calls == calls + 1);
  {
    const Exclusive held(same);  // its governor's alone
    CHECK(on_second({x})[0].values<float>()[0] == 3);
    CHECK_THROWS_AS(on_first({x}), Error);  // the holder's own thread
  }
  CHECK(on_first({x})[0].values<float>()[0] == 3);
}

TEST_CASE("a number that no device has, and what is no number, are refused by name") {
  CHECK(refusal("host:1") == ErrorCode::unsupported);
  CHECK(refusal("sim:8") == ErrorCode::unsupported);
  CHECK(refusal("none:0") == ErrorCode::unsupported);
  for (const char* name : {"sim:", "sim:x", "sim:-1", "sim:1x"}) {
    CAPTURE(name);
    CHECK(refusal(name) == ErrorCode::invalid);
  }
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
