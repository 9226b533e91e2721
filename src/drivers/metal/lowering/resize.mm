// Resize is separable: a gather along an axis whose places each read one element, else a product with the
// matrix of the axis's weights.
#include <cmath>

#include "drivers/metal/lowering/products.h"
#include "ir/resample.h"

namespace heddle::metal {
namespace {

enum ResizeInput : size_t { kImage, kRoi, kScales, kSizes };

Result<const ir::Tensor*> filled(const Lowering& l, size_t input, std::string_view name) {
  if (!l.has(input) || l.elements(input) == 0) return nullptr;
  if (const ir::Tensor* tensor = l.constant(input)) return tensor;
  return Status::unsupported(name, " is known when it runs only; Metal needs it while compiling");
}

Tensor along(const Lowering& l, Tensor x, const ir::ResizeAxis& axis, const ir::AxisTaps& taps) {
  const Emit& e = l.emit;
  if (taps.picks() && taps.outside.empty()) {
    Axes places;
    for (int64_t i = 0; i < axis.out; ++i) places.push_back(taps.picked(i));
    return e.take(x, axis.axis, places);
  }
  ir::Tensor weights = ir::Tensor::zeros(ir::DType::kF32, {axis.in, axis.out});
  ir::Tensor inside = ir::Tensor::zeros(ir::DType::kBool, {axis.out});
  for (int64_t i = 0; i < axis.out; ++i) {
    const bool out = !taps.outside.empty() && taps.outside[static_cast<size_t>(i)] != 0;
    inside.set_i64(i, out ? 0 : 1);
    for (int64_t t = 0; t < taps.count && !out; ++t) {
      const auto tap = static_cast<size_t>(i * taps.count + t);
      const int64_t at = taps.index[tap] * axis.out + i;
      weights.set(at, weights.get(at) + (taps.count == 1 ? 1 : taps.weight[tap]));
    }
  }
  const ir::Extents from = extents_of(x);
  Axes order;
  for (size_t i = 0; i < from.rank(); ++i) order.push_back(static_cast<int64_t>(i));
  std::swap(order[axis.axis], order.back());
  Tensor turned = e.transpose(x, order);
  ir::Extents to = extents_of(turned);
  turned = product(l, e.reshape(turned, {from.elements() / axis.in, axis.in}), e.constant(weights));
  if (!taps.outside.empty())
    turned = e.choose(e.constant(inside), turned, e.like(l.attributes().f64("extrapolation_value"), turned));
  to[to.rank() - 1] = axis.out;
  return e.transpose(e.reshape(turned, to), order);
}

Tensor saturated(const Emit& e, Tensor x, ir::DType dtype) {
  if (ir::is_float(dtype)) return x;
  if (dtype == ir::DType::kBool) return e.greater_equal(x, e.like(0.5, x));
  const double bits = static_cast<double>(8 * ir::size_of(dtype));
  const double high = dtype == ir::DType::kU8 ? 255 : std::exp2(bits - 1) - 1;
  return e.cast(e.clamp(e.round(x), dtype == ir::DType::kU8 ? 0 : -std::exp2(bits - 1), high), dtype);
}

Status lower_resize(Lowering& l) {
  const Emit& e = l.emit;
  HEDDLE_TRY_ASSIGN(const ir::Tensor* roi, filled(l, kRoi, "roi"));
  HEDDLE_TRY_ASSIGN(const ir::Tensor* scales, filled(l, kScales, "scales"));
  HEDDLE_TRY_ASSIGN(const ir::Tensor* sizes, filled(l, kSizes, "sizes"));
  HEDDLE_TRY_ASSIGN(const auto axes, ir::resize_axes(l.node, l.extents(kImage), roi, scales, sizes));
  const bool moves = l.attributes().str("mode", "nearest") == "nearest" &&
                     l.attributes().str("coordinate_transformation_mode") != "tf_crop_and_resize";
  const ir::DType dtype = dtype_of(l.inputs[kImage]);
  Tensor out = moves ? l.inputs[kImage] : e.cast(l.inputs[kImage], ir::DType::kF32);
  for (const ir::ResizeAxis& axis : axes) {
    if (axis.changes(l.node)) out = along(l, out, axis, ir::taps_of(l.node, axis));
  }
  l.outputs[0] = moves ? out : saturated(e, out, dtype);
  return {};
}

}  // namespace

std::span<const PathEntry> resize_paths() {
  static constexpr PathEntry kEntries[] = {
      {"Resize", Path::composed, lower_resize, kWide,
       "axis by axis, by constant places or weights: MPSGraph resizes two axes, in three of ONNX's ways"},
  };
  return kEntries;
}

}  // namespace heddle::metal
