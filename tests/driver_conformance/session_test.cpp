// The comparison that all drivers are judged by.
#include <doctest/doctest.h>

#include <limits>

#include "session_fixture.h"

namespace heddle::conformance {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::string difference_of(double got, double wanted) {
  const auto tensor = [](double value) {
    ir::Tensor made = ir::Tensor::zeros(ir::DType::kF32, {2});
    made.set(0, 1);
    made.set(1, value);
    return made;
  };
  return difference(tensor(got), tensor(wanted), {1e-3, 1e-3});
}

}  // namespace

TEST_CASE("a driver's NaN agrees with NaN only, and its infinity with the same infinity only") {
  const double values[] = {kNan, kInf, -kInf, 2.0};
  for (const double got : values) {
    for (const double wanted : values) {
      const bool same = got == wanted || (got != got && wanted != wanted);
      CAPTURE(got);
      CAPTURE(wanted);
      CHECK(difference_of(got, wanted).empty() == same);
    }
  }
}

TEST_CASE("a driver's value may differ by the tolerance, and by no more") {
  CHECK(difference_of(2.0029, 2).empty());
  CHECK(difference_of(2.0031, 2) != "");
  CHECK(difference_of(0.0009, 0).empty());
  CHECK(difference_of(0.0011, 0) != "");
  const ir::Tensor wanted = ir::Tensor::of_i64({1, 2});
  CHECK(difference(ir::Tensor::of_i64({1, 3}), wanted, {1, 1}) == "element 1 is 3, not 2");
  CHECK(difference(ir::Tensor::zeros(ir::DType::kF32, {2}), wanted, {1, 1}) != "");
}

}  // namespace heddle::conformance
