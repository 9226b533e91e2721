#include <limits>

#include "drivers/host/kernels/kernel_check_fixture.h"

namespace heddle::host {
namespace {

using ir::Attributes;
using ir::DType;
using ir::Extents;
using ir::Tensor;
using Ints = std::vector<int64_t>;

// Small whole numbers, so that windows hold equal elements; here and there a NaN or an infinity.
Tensor with_equals_and_nan(DType dtype, const Extents& extents) {
  Tensor tensor = random_tensor(dtype, extents, -3, 3);
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    tensor.set(i, std::nearbyint(tensor.get(i)));
    if (i % 11 == 5) tensor.set(i, std::numeric_limits<double>::quiet_NaN());
    if (i % 13 == 7) tensor.set(i, -std::numeric_limits<double>::infinity());
  }
  return tensor;
}

TEST_CASE("a maximum over windows keeps NaN, and its index is that of the reference") {
  const std::vector<std::pair<Extents, Attributes>> cases = {
      {{2, 3, 17}, {{"kernel_shape", Ints{3}}, {"strides", Ints{2}}}},
      {{2, 3, 9, 8}, {{"kernel_shape", Ints{3, 2}}, {"strides", Ints{2, 2}}, {"pads", Ints{1, 0, 1, 1}}}},
      {{1, 5, 9, 9}, {{"kernel_shape", Ints{2, 2}}, {"dilations", Ints{2, 3}}}},
      {{1, 1, 9, 9}, {{"kernel_shape", Ints{2, 3}}, {"ceil_mode", int64_t{1}}, {"strides", Ints{2, 2}}}},
      {{1, 4, 5, 6, 7}, {{"kernel_shape", Ints{2, 3, 2}}, {"strides", Ints{1, 2, 2}}}},
      {{1, 2, 2, 2}, {{"kernel_shape", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}, {"dilations", Ints{3, 3}}}},
      {{1, 3, 7, 5}, {{"kernel_shape", Ints{2, 2}}, {"storage_order", int64_t{1}}}},
      {{1, 3, 7, 5}, {{"kernel_shape", Ints{3, 3}}, {"auto_pad", std::string("SAME_LOWER")}}},
      {{1, 2, 3, 4, 3, 3}, {{"kernel_shape", Ints{2, 2, 2, 1}}}},
      {{2, 64, 28, 28}, {{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}}},
  };
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const auto& [extents, attributes] : cases) {
      for (const size_t outputs : {size_t{1}, size_t{2}}) {
        Check check;
        check.outputs = outputs;
        check_node("MaxPool", {with_equals_and_nan(dtype, extents)}, attributes, check);
      }
    }
    check_node("GlobalMaxPool", {with_equals_and_nan(dtype, {2, 5, 9, 8})});
    check_node("GlobalMaxPool", {random_tensor(dtype, {2, 33, 9, 8})});
  }
}

}  // namespace
}  // namespace heddle::host
