// resampling.cpp: images of another size, and images read at computed places.
#include <algorithm>
#include <cmath>
#include <string>

#include "../table.h"
#include "parts.h"

namespace heddle::torch_backend {
namespace {

// Scales that PyTorch was given beside the size; it reads the source with them, not with the ratio of sizes.
struct Target {
  std::vector<int64_t> size;
  std::vector<std::optional<double>> scale;
};

// (self, output_size, ..., scale of each axis from `first` on)
Target separate(const Call& call, size_t axes, int first) {
  Target target{per_axis(call, 1, axes), {}};
  for (size_t i = 0; i < axes; ++i) {
    const int at = first + static_cast<int>(i);
    target.scale.push_back(call.has(at) ? std::optional(call.real(at)) : std::nullopt);
  }
  return target;
}

// The .vec overloads: a size or one scale an axis.
Target listed(const Call& call, size_t axes, int scales) {
  Target target{{}, std::vector<std::optional<double>>(axes)};
  for (size_t i = 0; i < axes; ++i) {
    const std::optional<int64_t> extent = call.result_shape().at(2 + i);
    if (!extent) call.unsupported("an image of a size that is not fixed");
    target.size.push_back(*extent);
    if (call.has(scales)) target.scale[i] = call.reals(scales).at(i);
  }
  return target;
}

// ---- nearest

// In f32, as PyTorch has it: the places of some sizes depend on it.
std::vector<int64_t> nearest_places(int64_t extent, int64_t count, std::optional<double> scale, bool exact) {
  const float step = scale && *scale > 0 ? static_cast<float>(1.0 / *scale)
                                         : static_cast<float>(extent) / static_cast<float>(count);
  std::vector<int64_t> places;
  for (int64_t i = 0; i < count; ++i) {
    const float at = exact ? (static_cast<float>(i) + 0.5F) * step : static_cast<float>(i) * step;
    places.push_back(std::min(static_cast<int64_t>(std::floor(at)), extent - 1));
  }
  return places;
}

Value nearest(Call& call, const Target& target, bool exact) {
  Value x = call.tensor(0);
  for (size_t i = 0; i < target.size.size(); ++i) {
    const int axis = static_cast<int>(2 + i);
    const int64_t extent = call.extent(x, axis);
    const std::vector<int64_t> places = nearest_places(extent, target.size[i], target.scale[i], exact);
    if (target.size[i] == extent && std::ranges::is_sorted(places) && places.back() == extent - 1 &&
        places.front() == 0 && std::ranges::adjacent_find(places) == places.end())
      continue;
    x = call.node("Gather", {x, call.vector(places)}, {{"axis", static_cast<int64_t>(axis)}});
  }
  return identity(call, x);
}

template <size_t axes, bool exact>
Results upsample_nearest(Call& call) {
  return nearest(call, separate(call, axes, 2), exact);
}
template <size_t axes, bool exact>
Results upsample_nearest_listed(Call& call) {
  return nearest(call, listed(call, axes, 2), exact);
}

// ---- linear and cubic

struct Interpolation {
  std::string mode;
  bool align_corners = false;
  bool antialias = false;
};

// Of f64: in f32 a scale of 0.7 makes 6 of 10 elements.
Value interpolate(Call& call, const Target& target, const Interpolation& how) {
  const Value x = widened(call, 0);
  const size_t axes = target.size.size();
  std::vector<int64_t> named;
  std::vector<double> scales;
  bool by_scale = !how.align_corners;
  for (size_t i = 0; i < axes; ++i) {
    const auto extent = static_cast<double>(call.extent(x, static_cast<int>(2 + i)));
    named.push_back(static_cast<int64_t>(2 + i));
    scales.push_back(target.scale[i].value_or(static_cast<double>(target.size[i]) / extent));
    by_scale =
        by_scale && target.scale[i] && std::floor(scales[i] * extent) == static_cast<double>(target.size[i]);
  }
  AttributeList attributes = {
      {"axes", named},
      {"mode", how.mode},
      {"coordinate_transformation_mode", std::string(how.align_corners ? "align_corners" : "half_pixel")},
      {"cubic_coeff_a", how.antialias ? -0.5 : -0.75}};
  if (how.antialias) {
    attributes.emplace_back("antialias", int64_t{1});
    attributes.emplace_back("exclude_outside", int64_t{1});
  }
  if (!by_scale) return call.node("Resize", {x, kAbsent, kAbsent, call.vector(target.size)}, attributes);
  const Value factors =
      call.constant(Tensor::of<double>({static_cast<int64_t>(axes)}, std::span<const double>(scales)));
  return call.node("Resize", {x, kAbsent, factors}, attributes);
}

template <size_t axes>
Results upsample_linear(Call& call) {
  return interpolate(call, separate(call, axes, 3), {"linear", call.flag(2)});
}
template <size_t axes>
Results upsample_linear_listed(Call& call) {
  return interpolate(call, listed(call, axes, 3), {"linear", call.flag(2)});
}
Results upsample_bicubic(Call& call) {
  return interpolate(call, separate(call, 2, 3), {"cubic", call.flag(2)});
}
Results upsample_bicubic_listed(Call& call) {
  return interpolate(call, listed(call, 2, 3), {"cubic", call.flag(2)});
}
Results antialiased_linear(Call& call) {
  return interpolate(call, separate(call, 2, 3), {"linear", call.flag(2), true});
}
Results antialiased_cubic(Call& call) {
  return interpolate(call, separate(call, 2, 3), {"cubic", call.flag(2), true});
}

// ---- at computed places

Results grid_sample(Call& call) {
  static constexpr const char* kModes[] = {"linear", "nearest", "cubic"};
  static constexpr const char* kPaddings[] = {"zeros", "border", "reflection"};
  return call.node("GridSample", {widened(call, 0), widened(call, 1)},
                   {{"mode", std::string(kModes[call.integer(2)])},
                    {"padding_mode", std::string(kPaddings[call.integer(3)])},
                    {"align_corners", int64_t{call.flag(4)}}});
}

constexpr Entry kEntries[] = {
    {"aten::upsample_nearest1d", upsample_nearest<1, false>},
    {"aten::upsample_nearest2d", upsample_nearest<2, false>},
    {"aten::upsample_nearest3d", upsample_nearest<3, false>},
    {"aten::_upsample_nearest_exact1d", upsample_nearest<1, true>},
    {"aten::_upsample_nearest_exact2d", upsample_nearest<2, true>},
    {"aten::_upsample_nearest_exact3d", upsample_nearest<3, true>},
    {"aten::upsample_nearest1d.vec", upsample_nearest_listed<1, false>},
    {"aten::upsample_nearest2d.vec", upsample_nearest_listed<2, false>},
    {"aten::upsample_nearest3d.vec", upsample_nearest_listed<3, false>},
    {"aten::_upsample_nearest_exact1d.vec", upsample_nearest_listed<1, true>},
    {"aten::_upsample_nearest_exact2d.vec", upsample_nearest_listed<2, true>},
    {"aten::_upsample_nearest_exact3d.vec", upsample_nearest_listed<3, true>},
    {"aten::upsample_linear1d", upsample_linear<1>},
    {"aten::upsample_bilinear2d", upsample_linear<2>},
    {"aten::upsample_trilinear3d", upsample_linear<3>},
    {"aten::upsample_linear1d.vec", upsample_linear_listed<1>},
    {"aten::upsample_bilinear2d.vec", upsample_linear_listed<2>},
    {"aten::upsample_trilinear3d.vec", upsample_linear_listed<3>},
    {"aten::upsample_bicubic2d", upsample_bicubic},
    {"aten::upsample_bicubic2d.vec", upsample_bicubic_listed},
    {"aten::_upsample_bilinear2d_aa", antialiased_linear},
    {"aten::_upsample_bicubic2d_aa", antialiased_cubic},
    {"aten::grid_sampler_2d", grid_sample},
    {"aten::grid_sampler_3d", grid_sample},
    {"aten::grid_sampler", grid_sample},
};

}  // namespace

std::span<const Entry> resampling_entries() { return kEntries; }

}  // namespace heddle::torch_backend
