// harness_test.cpp: the comparison that the other tests stand on tells what differs.
#include "harness_fixture.h"

#include <limits>

namespace stress {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Tensor of(float first, float second) { return Tensor::of<float>({2}, {first, second}); }

}  // namespace

TEST_CASE("NaN is close to NaN only, and an infinity to the same infinity only") {
  const float values[] = {kNan, kInf, -kInf, 1.0F};
  for (const float a : values) {
    for (const float b : values) {
      CAPTURE(a);
      CAPTURE(b);
      const bool same = a == b || (a != a && b != b);
      CHECK((difference(of(a, 1), of(b, 1)) <= kClose) == same);
      CHECK((difference(of(1, a), of(1, b)) <= kClose) == same);
    }
  }
}

TEST_CASE("a difference is measured against the largest finite value, whatever else is not finite") {
  CHECK(difference(of(100, 1), of(100, 2)) == doctest::Approx(0.01));
  CHECK(difference(of(kInf, 1), of(kInf, 2)) == doctest::Approx(0.5));
  CHECK(difference(of(kNan, 1), of(kNan, 2)) == doctest::Approx(0.5));
  CHECK(difference(of(0, 0), of(1e-3F, 0)) == doctest::Approx(1e-3));
  CHECK(difference(of(0, 0), Tensor::of<float>({1, 2}, {0, 0})) == kInf);
  CHECK(difference(of(0, 0), Tensor::of<int32_t>({2}, {0, 0})) == kInf);
}

TEST_CASE("a case that got another value, or another number of outputs, does not match") {
  const Case c = small();
  std::vector<Tensor> got = c.model(c.inputs[0]);
  CHECK(c.matches(0, got));
  CHECK_FALSE(c.matches(1, got));
  got.push_back(got[0]);
  CHECK_FALSE(c.matches(0, got));
  static_cast<float*>(got[0].mutable_data())[7] += 0.01F;
  got.pop_back();
  CHECK_FALSE(c.matches(0, got));
}

}  // namespace stress
