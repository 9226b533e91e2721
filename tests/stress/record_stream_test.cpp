// record_stream_test.cpp: memory that work on another stream still needs is not reused, whoever frees it and
// when.
#include <thread>

#include "harness.h"

namespace stress {
namespace {

bool is_affine(const Tensor& x, const Tensor& y) {
  const auto a = x.values<float>();
  const auto b = y.values<float>();
  bool same = a.size() == b.size();
  for (size_t i = 0; same && i < a.size(); ++i) same = b[i] == a[i] * 2 + 1;
  return same;
}

}  // namespace

TEST_CASE("a recorded tensor keeps its values after its owner let go") {
  const Case c = small();
  const heddle::Stream stream;
  const Tensor x = random_tensor({4, 8}, 1);
  Tensor y = c.model({x}, on(stream))[0];
  y.record_stream(heddle::default_stream());
  const Tensor kept = y;
  y = Tensor();
  CHECK(is_affine(x, kept));
}

TEST_CASE("a tensor recorded on five streams is read right on each") {
  const Case c = small();
  const heddle::Stream producer;
  const Tensor x = random_tensor({4, 8}, 2);
  const Tensor y = c.model({x}, on(producer))[0];
  for (int i = 0; i < 5; ++i) {
    const heddle::Stream reader;
    y.record_stream(reader);
    CHECK(is_affine(y, c.model({y}, on(reader))[0]));
  }
}

TEST_CASE("another thread computes with a recorded tensor and gets the reference's values") {
  const Case c = mlp();
  const Tensor x = c.inputs[0][0];
  const heddle::Stream producer;
  x.record_stream(producer);
  bool right = false;
  std::jthread([&] {
    const heddle::Stream reader;
    x.record_stream(reader);
    right = c.matches(0, c.model({x}, on(reader)));
  }).join();
  CHECK(right);
}

TEST_CASE("recording a tensor of caller memory is allowed and changes nothing") {
  const float values[] = {1, 2, 3, 4, 5, 6, 7, 8};
  const Tensor x = Tensor::borrow(values, heddle::DType::f32, {1, 8});
  const heddle::Stream stream;
  x.record_stream(stream);
  CHECK(is_affine(x, small().model({x}, on(stream))[0]));
}

TEST_CASE("memory freed again and again while recorded comes back without damage") {
  const Case c = small({}, 1024);
  const heddle::Stream a;
  const heddle::Stream b;
  int right = 0;
  for (uint32_t i = 0; i < 100; ++i) {
    const Tensor x = random_tensor({4, 1024}, i);
    Tensor y = c.model({x}, on(a))[0];
    y.record_stream(b);
    const Tensor z = c.model({y}, on(b))[0];
    const Tensor copy = Tensor::of<float>({4, 1024}, y.values<float>());
    y = Tensor();
    right += is_affine(x, copy) && is_affine(copy, z) ? 1 : 0;
  }
  CHECK(right == 100);
}

TEST_CASE("eight threads record and free their own tensors twenty times each") {
  const Case c = small({}, 1024);
  std::atomic<int> right = 0;
  const auto errors = run_threads(8, [&](int thread) {
    const heddle::Stream a;
    const heddle::Stream b;
    for (uint32_t i = 0; i < 20; ++i) {
      const Tensor x = random_tensor({4, 1024}, static_cast<uint32_t>(thread) * 100 + i);
      Tensor y = c.model({x}, on(a))[0];
      y.record_stream(b);
      const Tensor z = c.model({y}, on(b))[0];
      right += is_affine(x, y) && is_affine(y, z) ? 1 : 0;
    }
  });
  for (const std::string& error : errors) FAIL_CHECK(error);
  CHECK(right == 160);
}

}  // namespace stress
