#include "tests/metal_double/graph/numerics/normalization.h"

#include <algorithm>
#include <limits>

#include "tests/metal_double/graph/numerics/elementwise.h"
#include "tests/metal_double/graph/numerics/strided.h"

namespace heddle::metal_double::numerics {
namespace {

Array wide(const Array& x) { return cast(x, MPSDataTypeFloat32); }

Array wide_mean(const Array& x, const Axes& axes) {
  const Array total = sum(x, axes);
  const auto count = static_cast<double>(x.elements() / total.elements());
  return divide(total, scalar(MPSDataTypeFloat32, count));
}

}  // namespace

Array mean(const Array& x, const Axes& axes) { return cast(wide_mean(wide(x), axes), x.type()); }

Array variance(const Array& x, const Array& mean, const Axes& axes) {
  return cast(wide_mean(square(subtract(wide(x), wide(mean))), axes), x.type());
}

Array normalization(const Array& x, const Array& mean, const Array& variance, const Array& gamma,
                    const Array& beta, float epsilon) {
  const Array root = square_root(add(wide(variance), scalar(MPSDataTypeFloat32, epsilon)));
  Array y = divide(subtract(wide(x), wide(mean)), root);
  if (gamma.elements() > 0) y = multiply(y, wide(gamma));
  if (beta.elements() > 0) y = add(y, wide(beta));
  return cast(y, x.type());
}

Array softmax(const Array& x, size_t axis) {
  std::vector<float> values = floats_of(x);
  const Lanes lanes(x.shape(), axis);
  lanes.each([&](int64_t first) {
    const auto at = [&](int64_t k) -> float& { return values[static_cast<size_t>(first + k * lanes.inner)]; };
    float most = -std::numeric_limits<float>::infinity(), total = 0;
    for (int64_t k = 0; k < lanes.extent; ++k) most = std::max(most, at(k));
    for (int64_t k = 0; k < lanes.extent; ++k) total += at(k) = std::exp(at(k) - most);
    for (int64_t k = 0; k < lanes.extent; ++k) at(k) /= total;
  });
  return of_floats(x.type(), x.shape(), values);
}

}  // namespace heddle::metal_double::numerics
