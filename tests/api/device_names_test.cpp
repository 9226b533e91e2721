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

}  // namespace heddle::api_test
