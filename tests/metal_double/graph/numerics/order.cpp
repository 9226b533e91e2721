#include "tests/metal_double/graph/numerics/order.h"

#include <algorithm>
#include <numeric>

#include "tests/metal_double/graph/numerics/strided.h"

namespace heddle::metal_double::numerics {

Array arg_sort(const Array& x, size_t axis, bool descending) {
  Array out = Array::zeros(MPSDataTypeInt32, x.shape());
  const Lanes lanes(x.shape(), axis);
  std::vector<int32_t> order(static_cast<size_t>(lanes.extent));
  with_numbers(x.type(), [&](auto tag) {
    using C = Computed<decltype(tag)>;
    lanes.each([&](int64_t first) {
      const auto value = [&](int32_t k) {
        return static_cast<C>(x.read<decltype(tag)>()[first + k * lanes.inner]);
      };
      const auto below = [&](int32_t a, int32_t b) {
        const C u = value(a), v = value(b);
        return u < v || (u == u && v != v);
      };
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](int32_t a, int32_t b) { return descending ? below(b, a) : below(a, b); });
      for (int64_t k = 0; k < lanes.extent; ++k)
        out.write<int32_t>()[first + k * lanes.inner] = order[static_cast<size_t>(k)];
    });
  });
  return out;
}

}  // namespace heddle::metal_double::numerics
