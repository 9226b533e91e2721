// Windows on a tensor's memory, and on a caller's.
#include <heddle/heddle.h>

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>

namespace heddle::api_test {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();

// The words with which a call is refused as invalid; empty: it was not.
std::string refusal(const std::function<Tensor()>& make) {
  try {
    (void)make();
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::invalid);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE(
    "a window is refused where its strides or its offset leave memory, also by more than 64 bits count") {
  const Tensor whole = Tensor::empty(DType::f32, {16}, Device("host"));
  CHECK(refusal([&] { return whole.view(DType::f32, {4, 4}, {4, 1}, 0); }).empty());
  CHECK(refusal([&] { return whole.view(DType::f32, {16}, {-1}, 60); }).empty());
  struct Window {
    Shape shape, strides;
    int64_t offset;
  };
  // (5 - 1) * 2^62 is 0 in 64 bits, and so is the sum of two reaches of 2^63.
  for (const Window& w :
       {Window{{5}, {int64_t{1} << 62}, 0}, Window{{3, 3}, {int64_t{1} << 62, int64_t{1} << 62}, 0},
        Window{{2}, {kMost}, 0}, Window{{2}, {kLeast}, 0}, Window{{4}, {1}, kMost}, Window{{4}, {1}, kLeast},
        Window{{4}, {1}, kMost - 15}, Window{{4}, {-1}, 0}}) {
    CAPTURE(w.strides[0]);
    CAPTURE(w.offset);
    CHECK(refusal([&] { return whole.view(DType::f32, w.shape, w.strides, w.offset); }) != "");
  }
}

TEST_CASE("a copy of a Tensor that is none, or to one, is refused in words") {
  const Stream stream{Device("host")};
  const Tensor whole = Tensor::zeros(DType::f32, {2});
  for (const auto& [from, to] : {std::pair(whole, Tensor()), std::pair(Tensor(), whole)}) {
    const auto words = refusal([&] {
      stream.copy(from, to);
      return whole;
    });
    CHECK(words.find("empty") != std::string::npos);
  }
}

TEST_CASE("borrowed memory with strides that reach further than memory does is refused in words") {
  static std::array<float, 4> memory{};
  const auto borrowed = [&](const Shape& shape, const Shape& strides) {
    return refusal([&] { return Tensor::borrow(memory.data(), DType::f32, shape, strides); });
  };
  CHECK(borrowed({2, 2}, {1, 2}).empty());
  CHECK(borrowed({2, 1}, {1, kMost}).empty());  // the stride of one element is never used
  CHECK(borrowed({5}, {int64_t{1} << 62}).find("strides") != std::string::npos);
  CHECK(borrowed({2}, {kLeast}).find("strides") != std::string::npos);
}

}  // namespace heddle::api_test
