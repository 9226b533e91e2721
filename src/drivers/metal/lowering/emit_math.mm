// What takes several operators of MPSGraph and several lowerings need.
#include <cmath>
#include <numbers>

#include "drivers/metal/lowering/emit.h"

namespace heddle::metal {

using ir::ActivationKind;

Tensor Emit::clamp(Tensor x, double low, double high) const {
  return min(max(x, like(low, x)), like(high, x));
}

Tensor Emit::gelu(Tensor x, bool by_tanh) const {
  Tensor inner;
  if (by_tanh) {
    Tensor cube = mul(mul(x, x), x);
    inner = tanh(mul(like(std::sqrt(2 / std::numbers::pi), x), add(x, mul(like(0.044715, x), cube))));
  } else {
    inner = erf(mul(x, like(1 / std::numbers::sqrt2, x)));
  }
  return mul(mul(like(0.5, x), x), add(like(1, x), inner));
}

Tensor Emit::activate(Tensor x, const ir::Activation& activation) const {
  switch (activation.kind) {
    case ActivationKind::kNone:
      return x;
    case ActivationKind::kRelu:
      return max(x, like(0, x));
    case ActivationKind::kGelu:
      return gelu(x, false);
    case ActivationKind::kGeluTanh:
      return gelu(x, true);
    case ActivationKind::kTanh:
      return tanh(x);
    case ActivationKind::kSigmoid:
      return sigmoid(x);
    case ActivationKind::kSilu:
      return mul(x, sigmoid(x));
    case ActivationKind::kLeakyRelu:
      return choose(less(x, like(0, x)), mul(like(activation.alpha, x), x), x);
    case ActivationKind::kHardSigmoid:
      return clamp(add(mul(like(activation.alpha, x), x), like(activation.beta, x)), 0, 1);
    case ActivationKind::kHardSwish:
      return mul(x, clamp(add(mul(x, like(1.0 / 6, x)), like(0.5, x)), 0, 1));
    case ActivationKind::kClip:
      return clamp(x, activation.alpha, activation.beta);
  }
  return x;
}

// MPSGraph may divide integers in f32. Here that is an estimate only: what is left is divided again, and the
// last step is by comparison. Both are made negative, since the least integer has no opposite.
Tensor Emit::exact_quotient(Tensor x, Tensor y, ir::DType type, int steps) const {
  x = cast(x, type), y = cast(y, type);
  Tensor zero = whole(0, type), one = whole(1, type);
  const auto below_zero = [&](Tensor t) { return choose(less(t, zero), t, negate(t)); };
  const auto estimate = [&](Tensor t, Tensor by) {
    const double most = type == ir::DType::kI32 ? 0x1.fffffep30 : 0x1.fffffep62;
    Tensor f = div(cast(t, ir::DType::kF32), cast(by, ir::DType::kF32));
    return cast(clamp(f, -most, most), type);
  };
  Tensor left = below_zero(x), by = below_zero(y), times = estimate(left, by);
  left = sub(left, mul(times, by));
  for (int step = 1; step < steps; ++step) {
    Tensor more = estimate(left, by);
    times = add(times, more);
    left = sub(left, mul(more, by));
  }
  Tensor over = greater(left, zero);
  times = choose(over, sub(times, one), times);
  left = choose(over, add(left, by), left);
  times = choose(less_equal(left, by), add(times, one), times);
  return choose(differ(less(x, zero), less(y, zero)), negate(times), times);
}

Tensor Emit::quotient(Tensor x, Tensor y) const {
  const ir::DType dtype = dtype_of(x);
  if (limits_.exact_division) return div(x, y);
  const bool wide = dtype == ir::DType::kI64;
  // Each step gives 21 bits and more: f32 has 24, and its division is not rounded correctly.
  return cast(exact_quotient(x, y, wide ? dtype : ir::DType::kI32, wide ? 3 : 2), dtype);
}

Tensor Emit::divide_whole(Tensor x, Tensor y) const {
  Tensor zero = equal(y, like(0, y));
  return choose(zero, like(0, x), quotient(x, choose(zero, like(1, y), y)));
}

Tensor Emit::remainder_whole(Tensor x, Tensor y) const {
  Tensor zero = equal(y, like(0, y));
  Tensor divisor = choose(zero, like(1, y), y);
  return choose(zero, like(0, x), sub(x, mul(quotient(x, divisor), divisor)));
}

// MPSGraph multiplies matrices of floats only.
Tensor Emit::product_of_integers(Tensor x, Tensor y) const {
  const auto with_axis = [&](Tensor t, size_t before_last) {
    const ir::Extents from = extents_of(t);
    ir::Extents to;
    for (size_t i = 0; i < from.rank(); ++i) {
      if (i + before_last == from.rank()) to.push_back(1);
      to.push_back(from[i]);
    }
    if (before_last == 0) to.push_back(1);
    return reshape(t, to);
  };
  Tensor terms = mul(with_axis(x, 0), with_axis(y, 2));  // [.., m, k, 1] * [.., 1, k, n]
  const ir::Extents all = extents_of(terms);
  const int64_t inner = static_cast<int64_t>(all.rank()) - 2;
  Tensor total = sum(terms, {inner});
  ir::Extents out;
  for (size_t i = 0; i < all.rank(); ++i) {
    if (static_cast<int64_t>(i) != inner) out.push_back(all[i]);
  }
  return reshape(total, out);
}

}  // namespace heddle::metal
