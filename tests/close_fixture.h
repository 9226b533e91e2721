// close_fixture.h: whether a computed number agrees with a reference, the same for all tests.
//
//   What       NaN agrees with NaN only, an infinity with the same infinity only. Finite numbers agree when
//              they differ by at most absolute + relative * |wanted|.
#pragma once

#include <cmath>

namespace heddle::test {

struct Tolerance {
  double relative;
  double absolute;
};

// Without the first two lines an infinity would agree with everything: its tolerance is infinite as well.
inline bool is_close(double got, double wanted, Tolerance tolerance) {
  if (std::isnan(got) || std::isnan(wanted)) return std::isnan(got) && std::isnan(wanted);
  if (std::isinf(got) || std::isinf(wanted)) return got == wanted;
  return std::fabs(got - wanted) <= tolerance.absolute + tolerance.relative * std::fabs(wanted);
}

}  // namespace heddle::test
