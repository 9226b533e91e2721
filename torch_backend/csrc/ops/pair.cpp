// pair.cpp: functions of two tensors, element by element, beyond arithmetic.
#include <cmath>
#include <numbers>

#include "term.h"

namespace heddle::torch_backend {
namespace {

// The angle of (x, y): atan of the lesser over the greater, which never divides by 0 but at the origin.
Term atan2(const Term& y, const Term& x) {
  const Term across = abs(x);
  const Term up = abs(y);
  const Term most = greater(across, up);
  const Term ratio =
      select(most == 0, 0, select(is_infinite(lesser(across, up)), 1, lesser(across, up) / most));
  const Term slope = ratio.apply("Atan");
  const Term octant = select(up > across, std::numbers::pi / 2 - slope, slope);
  return copy_sign(select(sign_bit(x), std::numbers::pi - octant, octant), y);
}

// Without squares that overflow.
Term hypot(const Term& a, const Term& b) {
  const Term most = greater(abs(a), abs(b));
  const Term ratio = lesser(abs(a), abs(b)) / most;
  const Term length = select(most == 0, 0, most * sqrt(1 + ratio * ratio));
  return select(is_infinite(a) | is_infinite(b), INFINITY, length);
}

// x f(y), 0 where x is 0; NaN where y is.
template <Term (*f)(const Term&)>
Term log_product(const Term& x, const Term& y) {
  return select(is_nan(y), NAN, select(x == 0, 0, x * f(y)));
}

// log(exp(a) + exp(b)); equal infinities have no difference.
Term logaddexp(const Term& a, const Term& b) {
  const Term sum = greater(a, b) + softplus(-abs(a - b));
  return select((a == b) & is_infinite(a), a, sum);
}

Term logaddexp2(const Term& a, const Term& b) {
  const Term sum = greater(a, b) + softplus(abs(a - b) * -std::numbers::ln2) * (1 / std::numbers::ln2);
  return select((a == b) & is_infinite(a), a, sum);
}

Term heaviside(const Term& x, const Term& values) {
  if (x.boolean()) return x | values;
  const Term one = values.like(1);
  return select(x == 0, values, select(x > 0, one, one.like(0)));
}

}  // namespace

std::span<const Entry> pair_entries() {
  static constexpr Entry kEntries[] = {
      {"aten::atan2", of_operands<atan2>},
      {"aten::hypot", of_operands<hypot>},
      {"aten::xlogy.Tensor", of_operands<log_product<log>>},
      {"aten::xlogy.Scalar_Other", of_operands<log_product<log>, kRight>},
      {"aten::xlogy.Scalar_Self", of_operands<log_product<log>, kLeft>},
      {"aten::special_xlog1py", of_operands<log_product<log1p>>},
      {"aten::special_xlog1py.other_scalar", of_operands<log_product<log1p>, kRight>},
      {"aten::special_xlog1py.self_scalar", of_operands<log_product<log1p>, kLeft>},
      {"aten::copysign.Tensor", of_operands<copy_sign>},
      {"aten::copysign.Scalar", of_operands<copy_sign, kRight>},
      {"aten::logaddexp", of_operands<logaddexp>},
      {"aten::logaddexp2", of_operands<logaddexp2>},
      {"aten::heaviside", of_operands<heaviside>},
  };
  return kEntries;
}

}  // namespace heddle::torch_backend
