// Operators that read images at places between elements.
#include "drivers/cuda/kernels/sample.h"

#include <algorithm>
#include <cmath>

#include "drivers/cuda/kernels/index.h"
#include "drivers/cuda/lowering/lowering.h"
#include "ir/op.h"
#include "ir/resample.h"

namespace heddle::cuda {
namespace {

// Of sums; integers have more digits than f32.
std::string_view sampled_in(ir::DType dtype) {
  return ir::is_float(dtype) && dtype != ir::DType::kF64 ? "_f32" : "_f64";
}

Result<const ir::Tensor*> filled(const Lowering& l, size_t input, std::string_view what) {
  if (!l.has(input) || l.inputs[input].elements() == 0) return nullptr;
  if (const ir::Tensor* known = l.constant(input)) return known;
  return Status::unsupported(what, " has to be known while compiling");
}

int64_t behind_axis(const ir::Extents& extents, size_t axis) {
  int64_t inner = 1;
  for (size_t i = axis + 1; i < extents.rank(); ++i) inner *= extents[i];
  return inner;
}

// One axis where every place is one element: in any type.
Status pick_along(Lowering& l, const Operand& from, const Operand& to, size_t axis,
                  const ir::AxisTaps& taps) {
  HEDDLE_TRY_ASSIGN(const Operand indices, l.emit.table(ir::Tensor::of_i64(taps.index)));
  GatherParams params;
  params.count = to.elements();
  params.indices_count = to.extents[axis];
  params.extent = from.extents[axis];
  params.inner = behind_axis(from.extents, axis);
  return l.launch(text("gather", by_bytes(to.element_bytes())), params,
                  {names(params.x, from), names(params.indices, indices), names(params.out, to)},
                  l.grid(params.count));
}

// What sums are held between before they become elements of an integer type.
void round_to(ResampleParams& params, ir::DType dtype) {
  params.rounds = ir::is_float(dtype) ? 0 : 1;
  const double bits = static_cast<double>(8 * ir::size_of(dtype));
  params.low = ir::is_unsigned(dtype) ? 0 : -std::exp2(bits - 1);
  params.high = std::exp2(ir::is_unsigned(dtype) ? bits : bits - 1) - 1;
  // The greatest that a double has below 2^63 or 2^64.
  if (bits == 64) params.high = std::nextafter(params.high, 0.0);
  if (dtype == ir::DType::kBool) {
    params.low = 0;
    params.high = 1;
  }
}

Status resample_along(Lowering& l, const Operand& from, const Operand& to, size_t axis,
                      const ir::AxisTaps& taps) {
  HEDDLE_TRY_ASSIGN(const Operand indices, l.emit.table(ir::Tensor::of_i64(taps.index)));
  ir::Tensor numbers = ir::Tensor::zeros(ir::DType::kF64, {static_cast<int64_t>(taps.weight.size())});
  std::copy(taps.weight.begin(), taps.weight.end(), static_cast<double*>(numbers.mutable_data()));
  HEDDLE_TRY_ASSIGN(const Operand weights, l.emit.table(numbers));
  Operand outside;
  if (!taps.outside.empty()) {
    ir::Tensor marks = ir::Tensor::zeros(ir::DType::kBool, {static_cast<int64_t>(taps.outside.size())});
    std::copy(taps.outside.begin(), taps.outside.end(), static_cast<char*>(marks.mutable_data()));
    HEDDLE_TRY_ASSIGN(outside, l.emit.table(marks));
  }
  ResampleParams params;
  params.x_type = type_of(from.dtype);
  params.out_type = type_of(to.dtype);
  params.taps = static_cast<int32_t>(taps.count);
  params.beyond = l.attributes().f64("extrapolation_value");
  params.count = to.elements();
  params.extent = to.extents[axis];
  params.from = from.extents[axis];
  params.inner = behind_axis(from.extents, axis);
  round_to(params, to.dtype);
  return l.launch(text("resample", sampled_in(l.inputs[0].dtype)), params,
                  {names(params.x, from), names(params.out, to), names(params.indices, indices),
                   names(params.weights, weights), names(params.outside, outside)},
                  l.grid(params.count));
}

// Axis by axis; between two axes sums are kept in the type that they are made in.
Status lower_resize(Lowering& l) {
  const Operand &in = l.inputs[0], &out = l.outputs[0];
  HEDDLE_TRY_ASSIGN(const ir::Tensor* roi, filled(l, 1, "roi"));
  HEDDLE_TRY_ASSIGN(const ir::Tensor* scales, filled(l, 2, "scales"));
  HEDDLE_TRY_ASSIGN(const ir::Tensor* sizes, filled(l, 3, "sizes"));
  HEDDLE_TRY_ASSIGN(std::vector<ir::ResizeAxis> axes,
                    ir::resize_axes(l.node, in.extents, roi, scales, sizes));
  std::erase_if(axes, [&](const ir::ResizeAxis& axis) { return !axis.changes(l.node); });
  if (axes.empty()) return l.cast(in, out);
  const bool picks = l.attributes().str("mode", "nearest") == "nearest" &&
                     l.attributes().str("coordinate_transformation_mode") != "tf_crop_and_resize";
  const ir::DType between = picks                            ? in.dtype
                            : sampled_in(in.dtype) == "_f32" ? ir::DType::kF32
                                                             : ir::DType::kF64;
  Operand from = in;
  for (size_t i = 0; i < axes.size(); ++i) {
    ir::Extents extents = from.extents;
    extents[axes[i].axis] = axes[i].out;
    const Operand to = i + 1 == axes.size() ? out : l.emit.scratch(between, extents);
    const ir::AxisTaps taps = ir::taps_of(l.node, axes[i]);
    HEDDLE_TRY(picks ? pick_along(l, from, to, axes[i].axis, taps)
                     : resample_along(l, from, to, axes[i].axis, taps));
    from = to;
  }
  return {};
}

Status check_places(int64_t places) {
  constexpr int64_t kMost = int64_t{1} << 30;
  if (places <= kMost) return {};
  return Status::unsupported("an axis has ", places, " places; the CUDA driver counts up to ", kMost);
}

Status lower_grid_sample(Lowering& l) {
  const Operand &x = l.inputs[0], &grid = l.inputs[1], &out = l.outputs[0];
  const size_t rank = x.extents.rank() - 2;
  if (rank > kPlaneAxes) {
    return Status::unsupported("its planes have ", rank, " axes; the CUDA driver takes up to ", kPlaneAxes);
  }
  const std::string mode = l.attributes().str("mode", "linear"),
                    padding = l.attributes().str("padding_mode", "zeros");
  GridSampleParams params;
  params.type = type_of(x.dtype);
  params.grid_type = type_of(grid.dtype);
  params.mode = mode == "nearest" ? SampleMode::kNearest
                : mode == "cubic" ? SampleMode::kCubic
                                  : SampleMode::kLinear;
  params.padding = padding == "border"       ? SamplePadding::kBorder
                   : padding == "reflection" ? SamplePadding::kReflection
                                             : SamplePadding::kZeros;
  params.align_corners = l.attributes().i64("align_corners") != 0 ? 1 : 0;
  params.places = l.attributes().i64("places") != 0 ? 1 : 0;
  params.axes = static_cast<int32_t>(rank);
  for (size_t i = 0; i < rank; ++i) {
    HEDDLE_TRY(check_places(x.extents[2 + i]));
    params.extents[kPlaneAxes - rank + i] = static_cast<int32_t>(x.extents[2 + i]);
    params.points *= out.extents[2 + i];
  }
  params.count = out.elements();
  params.channels = x.extents[1];
  params.plane = behind_axis(x.extents, 1);
  return l.launch(text("grid_sample", sampled_in(x.dtype)), params,
                  {names(params.x, x), names(params.grid, grid), names(params.out, out)},
                  l.grid(params.count));
}

Status lower_roi_align(Lowering& l) {
  const Operand &x = l.inputs[0], &rois = l.inputs[1], &images = l.inputs[2], &out = l.outputs[0];
  RoiAlignParams params;
  for (const Operand* operand : {&x, &out}) {
    for (const size_t axis : {2, 3}) HEDDLE_TRY(check_places(operand->extents[axis]));
  }
  params.type = type_of(x.dtype);
  params.image_type = type_of(images.dtype);
  params.average = l.attributes().str("mode", "avg") == "avg" ? 1 : 0;
  params.half_pixel =
      l.attributes().str("coordinate_transformation_mode", "half_pixel") == "half_pixel" ? 1 : 0;
  params.height = static_cast<int32_t>(x.extents[2]);
  params.width = static_cast<int32_t>(x.extents[3]);
  params.out_height = static_cast<int32_t>(out.extents[2]);
  params.out_width = static_cast<int32_t>(out.extents[3]);
  params.samples = l.attributes().i64("sampling_ratio");
  params.scale = l.attributes().f64("spatial_scale", 1);
  params.count = out.elements();
  params.channels = x.extents[1];
  params.batch = x.extents[0];
  params.flags = l.flags(2, text("batch_indices names an image outside [0, ", params.batch - 1, "]"));
  return l.launch(
      text("roi_align", computed_in(x.dtype)), params,
      {names(params.x, x), names(params.rois, rois), names(params.images, images), names(params.out, out)},
      params.flags, l.grid(params.count));
}

}  // namespace

std::span<const LoweringEntry> sampling_lowerings() {
  static constexpr LoweringEntry kEntries[] = {
      {"Resize", lower_resize},
      {"GridSample", lower_grid_sample},
      {"RoiAlign", lower_roi_align},
  };
  return kEntries;
}

}  // namespace heddle::cuda
