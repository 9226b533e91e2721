#include "tests/metal_double/graph/numerics/products.h"

#include "tests/metal_double/graph/numerics/strided.h"

namespace heddle::metal_double::numerics {
namespace {

Shape in_front(const Shape& shape) { return {shape.begin(), shape.end() - 2}; }

}  // namespace

std::optional<Shape> product_shape(const Shape& x, const Shape& y) {
  if (x.size() < 2 || y.size() < 2 || x.back() != y[y.size() - 2]) return std::nullopt;
  std::optional<Shape> shape = broadcast_shape(in_front(x), in_front(y));
  if (shape) {
    shape->push_back(x[x.size() - 2]);
    shape->push_back(y.back());
  }
  return shape;
}

Array matrix_product(const Array& x, const Array& y) {
  const Shape shape = *product_shape(x.shape(), y.shape());
  const int64_t m = shape[shape.size() - 2], n = shape.back(), k = x.shape().back();
  const std::vector<float> left = floats_of(x), right = floats_of(y);
  std::vector<float> out(static_cast<size_t>(elements_of(shape)), 0.0F);
  // An axis of 1 in front stands for a lone matrix's missing one.
  Shape batch = in_front(shape);
  batch.insert(batch.begin(), 1);
  float* row = out.data();
  each_run<2>(batch,
              {broadcast_strides(in_front(x.shape()), batch), broadcast_strides(in_front(y.shape()), batch)},
              {}, [&](const auto& at, int64_t count, const auto& step) {
                for (int64_t i = 0; i < count * m; ++i, row += n) {
                  const float* const a = left.data() + ((at[0] + i / m * step[0]) * m + i % m) * k;
                  const float* b = right.data() + (at[1] + i / m * step[1]) * k * n;
                  for (int64_t inner = 0; inner < k; ++inner, b += n) {
                    const float factor = a[inner];
                    for (int64_t j = 0; j < n; ++j) row[j] += factor * b[j];
                  }
                }
              });
  return of_floats(x.type(), shape, out);
}

}  // namespace heddle::metal_double::numerics
