#include "tests/metal_double/graph/numerics/reductions.h"

#include <algorithm>
#include <limits>

#include "tests/metal_double/graph/numerics/strided.h"

namespace heddle::metal_double::numerics {
namespace {

template <class T>
using Total = std::conditional_t<std::is_floating_point_v<T>, float, uint64_t>;  // integers wrap

template <class T>
struct Sum {
  static constexpr T kFirst = 0;
  static T next(T total, T x) {
    return static_cast<T>(static_cast<Total<T>>(total) + static_cast<Total<T>>(x));
  }
};
template <class T>
struct Product {
  static constexpr T kFirst = 1;
  static T next(T total, T x) {
    return static_cast<T>(static_cast<Total<T>>(total) * static_cast<Total<T>>(x));
  }
};
template <class T>
struct Greatest {
  static constexpr T kFirst =
      std::is_floating_point_v<T> ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
  static T next(T total, T x) { return x > total ? x : total; }
};
template <class T>
struct Least {
  static constexpr T kFirst =
      std::is_floating_point_v<T> ? std::numeric_limits<T>::infinity() : std::numeric_limits<T>::max();
  static T next(T total, T x) { return x < total ? x : total; }
};
template <class T>
struct GreatestWithNaN : Greatest<T> {
  static T next(T total, T x) { return x > total || x != x ? x : total; }
};
template <class T>
struct LeastWithNaN : Least<T> {
  static T next(T total, T x) { return x < total || x != x ? x : total; }
};

template <template <class> class Step>
Array reduced(const Array& x, const Axes& axes) {
  const Shape shape = reduced_shape(x.shape(), axes);
  return with_numbers(x.type(), [&](auto tag) {
    using T = decltype(tag);
    using C = Computed<T>;
    std::vector<C> totals(static_cast<size_t>(elements_of(shape)), Step<C>::kFirst);
    const T* const from = x.read<T>();
    each_run<2>(x.shape(), {strides_of(x.shape()), broadcast_strides(shape, x.shape())}, {},
                [&](const auto& at, int64_t count, const auto& step) {
                  C* const to = totals.data() + at[1];
                  if (step[1] != 0) {
                    for (int64_t i = 0; i < count; ++i)
                      to[i] = Step<C>::next(to[i], static_cast<C>(from[at[0] + i]));
                    return;
                  }
                  C row = Step<C>::kFirst;
                  for (int64_t i = 0; i < count; ++i)
                    row = Step<C>::next(row, static_cast<C>(from[at[0] + i]));
                  *to = Step<C>::next(*to, row);
                });
    Array out = Array::zeros(x.type(), shape);
    std::transform(totals.begin(), totals.end(), out.write<T>(),
                   [](C total) { return static_cast<T>(total); });
    return out;
  });
}

template <template <class> class Step>
Array running(const Array& x, size_t axis, bool exclusive, bool reverse) {
  Array out = Array::zeros(x.type(), x.shape());
  const Lanes lanes(x.shape(), axis);
  with_numbers(x.type(), [&](auto tag) {
    using T = decltype(tag);
    using C = Computed<T>;
    lanes.each([&](int64_t first) {
      C total = Step<C>::kFirst;
      for (int64_t k = 0; k < lanes.extent; ++k) {
        const int64_t at = first + (reverse ? lanes.extent - 1 - k : k) * lanes.inner;
        const C next = Step<C>::next(total, static_cast<C>(x.read<T>()[at]));
        out.write<T>()[at] = static_cast<T>(exclusive ? total : next);
        total = next;
      }
    });
  });
  return out;
}

}  // namespace

Shape reduced_shape(const Shape& shape, const Axes& axes) {
  Shape out = shape;
  for (const size_t axis : axes) out[axis] = 1;
  return out;
}

Array sum(const Array& x, const Axes& axes) { return reduced<Sum>(x, axes); }
Array product(const Array& x, const Axes& axes) { return reduced<Product>(x, axes); }
Array greatest(const Array& x, const Axes& axes) { return reduced<Greatest>(x, axes); }
Array least(const Array& x, const Axes& axes) { return reduced<Least>(x, axes); }
Array greatest_with_nan(const Array& x, const Axes& axes) { return reduced<GreatestWithNaN>(x, axes); }
Array least_with_nan(const Array& x, const Axes& axes) { return reduced<LeastWithNaN>(x, axes); }

Array arg_maximum(const Array& x, size_t axis) {
  Array out = Array::zeros(MPSDataTypeInt32, reduced_shape(x.shape(), {axis}));
  const Lanes lanes(x.shape(), axis);
  with_numbers(x.type(), [&](auto tag) {
    using C = Computed<decltype(tag)>;
    int32_t* to = out.write<int32_t>();
    lanes.each([&](int64_t first) {
      C best = Greatest<C>::kFirst;
      for (int64_t k = 0; k < lanes.extent; ++k) {
        const C value = static_cast<C>(x.read<decltype(tag)>()[first + k * lanes.inner]);
        if (!(value >= best)) continue;
        best = value;
        *to = static_cast<int32_t>(k);
      }
      ++to;
    });
  });
  return out;
}

Array cumulative_sum(const Array& x, size_t axis, bool exclusive, bool reverse) {
  return running<Sum>(x, axis, exclusive, reverse);
}
Array cumulative_product(const Array& x, size_t axis, bool exclusive, bool reverse) {
  return running<Product>(x, axis, exclusive, reverse);
}

}  // namespace heddle::metal_double::numerics
