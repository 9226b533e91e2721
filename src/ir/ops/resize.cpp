// Resize: elements interpolated along each axis in turn.
#include <algorithm>
#include <cmath>

#include "ir/ops/rules.h"
#include "ir/ops/tables.h"
#include "ir/ops/walk.h"
#include "ir/resample.h"

namespace heddle::ir {

namespace {

enum : size_t { kRoi = 1, kScales = 2, kSizes = 3 };

// An extent times a scale, rounded down, where symbols allow it: scales are fractions with small divisors.
Dim scaled(const Dim& extent, double scale) {
  constexpr int64_t kDivisorMax = 64;
  for (int64_t divisor = 1; divisor <= kDivisorMax; divisor *= 2) {
    const double times = scale * static_cast<double>(divisor);
    if (times != std::floor(times) || times > 1e6) continue;
    return Dim::floor_div(extent * Dim(static_cast<int64_t>(times)), divisor);
  }
  return Dim::symbol(text("floor(", extent, " * ", scale, ")"));  // equal where extent and scale are
}

// Extents that symbols hide are left open; those of a specialised graph are exact.
Result<Shape> scaled_shape(Operands in, const std::vector<size_t>& axes) {
  const Value& scales = *in[kScales];
  Shape shape = in[0]->type.shape;
  if (scales.constant.has_value() && scales.constant->elements() != static_cast<int64_t>(axes.size()))
    return Status::invalid("scales is ", scales.type, "; ", axes.size(), " axes take ", axes.size());
  for (size_t i = 0; i < axes.size(); ++i) {
    Dim& extent = shape[axes[i]];
    if (!scales.constant.has_value()) {
      extent = Dim::unknown();
      continue;
    }
    const double scale = scales.constant->get(static_cast<int64_t>(i));
    if (!(scale > 0)) return Status::invalid("scales holds ", scale, "; it has to be above 0");
    if (!extent.is_static()) {
      extent = scaled(extent, scale);
    } else {
      const double length = std::floor(scale * static_cast<double>(extent.value()));  // NaN: 0 times infinity
      extent = Dim(length < static_cast<double>(kMaxBytes) ? static_cast<int64_t>(length) : kMaxBytes);
    }
  }
  return shape;
}

Result<Shape> sized_shape(const Node& node, Operands in, const std::vector<size_t>& axes) {
  HEDDLE_TRY_ASSIGN(const Argument sizes, shape_argument(*in[kSizes], "sizes"));
  if (sizes.dims.size() != axes.size()) {
    return Status::invalid("sizes has ", sizes.dims.size(), " elements; ", axes.size(), " axes of ",
                           in[0]->type, " take ", axes.size());
  }
  Shape shape = in[0]->type.shape;
  if (node.attributes.str("keep_aspect_ratio_policy", "stretch") == "stretch") {
    for (size_t i = 0; i < axes.size(); ++i) shape[axes[i]] = sizes.dims[i];
    return shape;
  }
  std::vector<int64_t> numbers;
  for (const Dim& dim : sizes.dims) {
    if (dim.is_static()) numbers.push_back(dim.value());
  }
  const auto extents = in[0]->type.extents();
  if (!extents.has_value() || numbers.size() != axes.size() || !sizes.known) {
    for (size_t axis : axes) shape[axis] = Dim::unknown();
    return shape;
  }
  const Tensor tensor = Tensor::of_i64(numbers);
  HEDDLE_TRY_ASSIGN(const auto planned, resize_axes(node, *extents, nullptr, nullptr, &tensor));
  for (const ResizeAxis& axis : planned) shape[axis.axis] = axis.out;
  return shape;
}

bool given(const Value* value) {
  return value != nullptr && !(value->type.rank() == 1 && value->type.shape[0].is(0));
}

Inferred infer_resize(const Node& node, Operands in) {
  HEDDLE_TRY(check_resize(node));
  HEDDLE_TRY_ASSIGN(const std::vector<size_t> axes, resized_axes(node, in[0]->type.rank()));
  const bool by_scale = given(optional_input(in, kScales));
  const bool by_size = given(optional_input(in, kSizes));
  if (by_scale == by_size) {
    return Status::invalid(by_scale ? "scales and sizes are both given" : "neither scales nor sizes is given",
                           "; it takes one of them");
  }
  if (by_scale) HEDDLE_TRY(accept(*in[kScales], "scales", Accept::kFloat));
  HEDDLE_TRY_ASSIGN(Shape shape, by_scale ? scaled_shape(in, axes) : sized_shape(node, in, axes));
  return one(in[0]->type.dtype, std::move(shape));
}

const Tensor* filled(DataIn in, size_t i) {
  const Tensor* tensor = optional_input(in, i);
  return tensor != nullptr && tensor->elements() > 0 ? tensor : nullptr;
}

struct Plane {
  Extents extents;
  std::vector<double> values;
};

Plane resample(const Plane& from, const ResizeAxis& axis, const AxisTaps& taps, double extrapolation) {
  Plane to{from.extents, {}};
  to.extents[axis.axis] = axis.out;
  const Lanes source(from.extents, axis.axis);
  const Lanes target(to.extents, axis.axis);
  to.values.resize(static_cast<size_t>(to.extents.elements()));
  for (int64_t o = 0; o < target.outer; ++o) {
    for (int64_t a = 0; a < target.extent; ++a) {
      for (int64_t i = 0; i < target.inner; ++i) {
        double sum = 0;
        for (int64_t t = 0; t < taps.count; ++t) {
          const size_t tap = static_cast<size_t>(a * taps.count + t);
          const double x = from.values[static_cast<size_t>(source.at(o, taps.index[tap], i))];
          // A nearest element is taken as it is: an infinity keeps its neighbours' zeros out.
          sum = taps.count == 1 ? x : sum + taps.weight[tap] * x;
        }
        const bool outside = !taps.outside.empty() && taps.outside[static_cast<size_t>(a)] != 0;
        to.values[static_cast<size_t>(target.at(o, a, i))] = outside ? extrapolation : sum;
      }
    }
  }
  return to;
}

// Integers beyond 2^53 are only moved, never summed.
Status pick_elements(const Node& node, const std::vector<ResizeAxis>& axes, DataIn in, Tensor& out) {
  std::vector<AxisTaps> taps(in[0]->extents().rank());
  for (const ResizeAxis& axis : axes) taps[axis.axis] = taps_of(node, axis);
  const Strides strides(in[0]->extents());
  walk(out.extents(), [&](const Index& index, int64_t flat) {
    Index source = index;
    for (const ResizeAxis& axis : axes) source[axis.axis] = taps[axis.axis].picked(index[axis.axis]);
    copy_element(out, flat, *in[0], strides.at(source));
  });
  return {};
}

double saturated(double x, DType dtype) {
  if (is_float(dtype)) return x;
  if (dtype == DType::kBool) return x >= 0.5 ? 1 : 0;
  const double bits = static_cast<double>(8 * size_of(dtype));
  const double high = std::exp2(is_unsigned(dtype) ? bits : bits - 1) - 1;
  const double low = is_unsigned(dtype) ? 0 : -std::exp2(bits - 1);
  return std::clamp(std::nearbyint(x), low, high);
}

Status reference_resize(const Node& node, DataIn in, DataOut out) {
  HEDDLE_TRY_ASSIGN(const auto planned, resize_axes(node, in[0]->extents(), filled(in, kRoi),
                                                    filled(in, kScales), filled(in, kSizes)));
  std::vector<ResizeAxis> axes;
  for (const ResizeAxis& axis : planned) {
    if (axis.changes(node)) axes.push_back(axis);
  }
  if (out[0].elements() == 0) return {};
  const bool crops = node.attributes.str("coordinate_transformation_mode") == "tf_crop_and_resize";
  if (node.attributes.str("mode", "nearest") == "nearest" && !crops)
    return pick_elements(node, axes, in, out[0]);
  Plane plane{in[0]->extents(), doubles(*in[0])};
  const double extrapolation = node.attributes.f64("extrapolation_value");
  for (const ResizeAxis& axis : axes) plane = resample(plane, axis, taps_of(node, axis), extrapolation);
  for (int64_t i = 0; i < out[0].elements(); ++i) {
    out[0].set(i, saturated(plane.values[static_cast<size_t>(i)], out[0].dtype()));
  }
  return {};
}

}  // namespace

std::vector<OpDef> resize_ops() {
  using enum AttributeKind;
  return {{"Resize",
           1,
           4,
           1,
           1,
           {{"antialias", kInt},
            {"axes", kInts},
            {"coordinate_transformation_mode", kString},
            {"cubic_coeff_a", kFloat},
            {"exclude_outside", kInt},
            {"extrapolation_value", kFloat},
            {"keep_aspect_ratio_policy", kString},
            {"mode", kString},
            {"nearest_mode", kString}},
           infer_resize,
           reference_resize}};
}

}  // namespace heddle::ir
