// What streams, events and tensors say of work that is under way.
#include "on_test_device_fixture.h"

namespace heddle::api_test {

TEST_CASE("threads that ask for slices of time wait for each other's, and no others do") {
  constexpr int kThreads = 4, kCalls = 50;
  const auto waits = [](bool in_slices) {
    DeviceOptions opened;
    opened.threads = 1;
    const Device device = Device::open("host", opened);
    GraphBuilder graph("negation");
    graph.output(graph.add("Neg", {graph.input("x", DType::f32, {"n"})}), "y");
    ModelOptions loaded;
    loaded.device = device;
    const Model model = graph.build(loaded);
    Atomic<int> right{0};
    run_together(kThreads, [&](int thread) {
      CallOptions options;
      options.stream = current_stream(device);
      options.in_slices = in_slices;
      for (int i = 0; i < kCalls; ++i) {
        const auto value = static_cast<float>(thread * kCalls + i);
        const Tensor y = model({Tensor::of<float>({1}, {value})}, options).at(0);
        right.add_relaxed(y.values<float>()[0] == -value ? 1 : 0);
      }
    });
    CHECK(right.load_relaxed() == kThreads * kCalls);
    return Internals::runtime(device).stats().slices.waits;
  };
  CHECK(waits(true) >= kThreads - 1);  // the only slice is some thread's from its first call on
  CHECK(waits(false) == 0);
}

TEST_CASE("stream, event and tensor say that work is not over while it runs, and that it is afterwards") {
  const OnTestDevice f(true);
  Latch latch;
  f.driver->set_kernel("held", [&](const device::Run& run) {
    latch.wait();
    return affine(run);
  });
  const Model held = f.model("held");
  const Stream a(f.device), b(f.device);
  const Tensor x = filled(f, a, 1);
  a.synchronize();
  CHECK(a.query());
  const Event before = a.record();
  const Tensor y = held({x}, on(a))[0];
  const Event after = a.record();
  b.wait(after);
  CHECK(before.query());
  CHECK_FALSE(after.query());
  CHECK_FALSE(a.query());
  CHECK_FALSE(b.query());  // it waits for a
  CHECK_FALSE(y.ready());
  CHECK_THROWS_AS((void)before.elapsed_ms(after), Error);
  CHECK_THROWS_AS(a.synchronize(Duration(0)), Error);
  CHECK_THROWS_AS(after.wait(Duration(0)), Error);
  CHECK_THROWS_AS(f.device.synchronize(Duration(0)), Error);
  CHECK_THROWS_AS(y.wait(Duration(0)), Error);
  latch.open();
  after.wait();
  CHECK(after.query());
  CHECK(a.query());
  CHECK(y.ready());
  b.synchronize();
  CHECK(b.query());
  CHECK(before.elapsed_ms(after) >= 0);
  CHECK(is_affine(x, y));
}

TEST_CASE("a stream and an event whose work failed are over, and a wait tells the cause") {
  const OnTestDevice f(true);
  f.driver->set_kernel("lost", [](const device::Run&) { return Status::device_lost("it gave way"); });
  const Model lost = f.model("lost");
  const Stream stream(f.device);
  const Tensor x = filled(f, stream, 1);
  const Tensor y = lost({x}, on(stream))[0];
  const Event event = stream.record();
  CHECK_THROWS_WITH_AS(event.wait(), doctest::Contains("it gave way"), Error);
  CHECK(event.query());
  CHECK(stream.query());
  CHECK_THROWS_WITH_AS(stream.synchronize(), doctest::Contains("it gave way"), Error);
  CHECK_THROWS_WITH_AS(y.wait(), doctest::Contains("it gave way"), Error);
}

TEST_CASE("a device that orders no streams of other libraries refuses one, and says which device it is") {
  const OnTestDevice f(true);
  for (const Device& device : {f.device, Device("host")}) {
    int theirs = 0;
    try {
      Stream::from_native(&theirs, device);
      FAIL("it was taken");
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::unsupported);
      CHECK(std::string(error.what()).find("'" + device.name() + "' waits for no streams") !=
            std::string::npos);
    }
  }
}

}  // namespace heddle::api_test
