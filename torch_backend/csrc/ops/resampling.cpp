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

// PyTorch's kernel for two axes copies and doubles without asking the scale.
bool overrides_scale(const Target& target, size_t i, int64_t extent, bool exact) {
  return target.size.size() == 2 && !exact && (target.size[i] == extent || target.size[i] == 2 * extent);
}

Value nearest(Call& call, const Target& target, bool exact) {
  Value x = call.tensor(0);
  for (size_t i = 0; i < target.size.size(); ++i) {
    const int axis = static_cast<int>(2 + i);
    const int64_t extent = call.extent(x, axis);
    const std::optional<double> scale =
        overrides_scale(target, i, extent, exact) ? std::nullopt : target.scale[i];
    const std::vector<int64_t> places = nearest_places(extent, target.size[i], scale, exact);
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
  bool cubic = false;
  bool align_corners = false;
  bool antialias = false;
};

// The distance of two neighbours of the result, in elements of the source. This and the weights have the
// precision of the image (Real), as in PyTorch's kernels.
template <class Real>
Real step_of(int64_t extent, int64_t count, std::optional<double> scale, const Interpolation& how) {
  if (how.align_corners) return count > 1 ? static_cast<Real>(extent - 1) / static_cast<Real>(count - 1) : 0;
  if (scale && *scale > 0) return static_cast<Real>(1 / *scale);
  return static_cast<Real>(extent) / static_cast<Real>(count);
}

template <class Real>
Real kernel(Real distance, const Interpolation& how) {
  const Real x = std::fabs(distance), a = how.antialias ? Real{-0.5} : Real{-0.75};
  if (!how.cubic) return std::max<Real>(1 - x, 0);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

template <class Real>
struct Weights {  // [count, extent]: how much of each element of the source is in each of the result
  int64_t extent;
  std::vector<Real> all;
  void add(int64_t i, int64_t at, Real weight) {
    all[static_cast<size_t>(i * extent + std::clamp<int64_t>(at, 0, extent - 1))] += weight;
  }
};

template <class Real>
void interpolated(Weights<Real>& weights, int64_t i, Real step, const Interpolation& how) {
  const Real index = static_cast<Real>(i), half{0.5};
  const Real centre = how.align_corners ? step * index : step * (index + half) - half;
  const auto left = static_cast<int64_t>(std::floor(centre));
  const int64_t reach = how.cubic ? 2 : 1;
  for (int64_t at = left - reach + 1; at <= left + reach; ++at)
    weights.add(i, at, kernel(static_cast<Real>(at) - centre, how));
}

// The kernel is as wide as the step, and weighs 1 within the border; corners are aligned by the step alone.
template <class Real>
void antialiased(Weights<Real>& weights, int64_t i, Real step, const Interpolation& how) {
  const Real width = std::max<Real>(step, 1), reach = (how.cubic ? 2 : 1) * width, half{0.5};
  const Real centre = step * (static_cast<Real>(i) + half);
  const int64_t first = std::max<int64_t>(static_cast<int64_t>(centre - reach + half), 0);
  const int64_t last = std::min<int64_t>(static_cast<int64_t>(centre + reach + half), weights.extent);
  std::vector<Real> row;
  Real sum = 0;
  for (int64_t at = first; at < last; ++at) {
    row.push_back(kernel((static_cast<Real>(at) - centre + half) * (1 / width), how));
    sum += row.back();
  }
  for (int64_t at = first; at < last; ++at)
    weights.add(i, at, row[static_cast<size_t>(at - first)] / (sum == 0 ? 1 : sum));
}

template <class Real>
Value weights_of(Call& call, int64_t extent, int64_t count, std::optional<double> scale,
                 const Interpolation& how) {
  const Real step = step_of<Real>(extent, count, scale, how);
  Weights<Real> weights{extent, std::vector<Real>(static_cast<size_t>(count * extent))};
  for (int64_t i = 0; i < count; ++i)
    (how.antialias ? antialiased<Real> : interpolated<Real>)(weights, i, step, how);
  return call.constant(Tensor::of<Real>({count, extent}, std::span<const Real>(weights.all)));
}

Value weigh(Call& call, Value x, int axis, int64_t count, std::optional<double> scale,
            const Interpolation& how) {
  const auto make = call.dtype(x) == DType::f64 ? weights_of<double> : weights_of<float>;
  const Value constant = call.cast(make(call, call.extent(x, axis), count, scale, how), call.dtype(x));
  const int last = call.rank(x) - 1;
  if (axis == last - 1) return call.node("MatMul", {constant, x});
  const Value moved = axis == last ? x : call.swap_axes(x, axis, last);
  const Value y = call.node("MatMul", {moved, call.swap_axes(constant, 0, 1)});
  return axis == last ? y : call.swap_axes(y, axis, last);
}

// Resize reads the source by the ratio of sizes; other steps and antialiasing are products with weights.
Value interpolate(Call& call, const Target& target, const Interpolation& how) {
  Value x = widened(call, 0);
  if (call.dtype(x) == DType::u8) call.unsupported("uint8 images, which PyTorch computes in fixed point");
  std::vector<int64_t> named;
  bool by_ratio = !how.antialias, same = !how.cubic || how.antialias;
  for (size_t i = 0; i < target.size.size(); ++i) {
    const auto axis = static_cast<int>(2 + i);
    const int64_t extent = call.extent(x, axis), count = target.size[i];
    const auto ratio = step_of<float>(extent, count, std::nullopt, how);
    named.push_back(axis);
    same = same && extent == count;
    const auto step = step_of<float>(extent, count, target.scale[i], how);
    by_ratio = by_ratio && std::fabs(step - ratio) <= 1e-6F * ratio;
  }
  if (same) return identity(call, x);  // whatever the scales
  if (by_ratio || how.align_corners > how.antialias) {
    const std::string coordinates = how.align_corners ? "align_corners" : "half_pixel";
    return call.node("Resize", {x, kAbsent, kAbsent, call.vector(target.size)},
                     {{"axes", named},
                      {"mode", std::string(how.cubic ? "cubic" : "linear")},
                      {"coordinate_transformation_mode", coordinates},
                      {"cubic_coeff_a", -0.75}});
  }
  for (size_t i = 0; i < target.size.size(); ++i) {
    x = weigh(call, x, static_cast<int>(2 + i), target.size[i], target.scale[i], how);
  }
  return x;
}

template <size_t axes>
Results upsample_linear(Call& call) {
  return interpolate(call, separate(call, axes, 3), {false, call.flag(2)});
}
template <size_t axes>
Results upsample_linear_listed(Call& call) {
  return interpolate(call, listed(call, axes, 3), {false, call.flag(2)});
}
Results upsample_bicubic(Call& call) { return interpolate(call, separate(call, 2, 3), {true, call.flag(2)}); }
Results upsample_bicubic_listed(Call& call) {
  return interpolate(call, listed(call, 2, 3), {true, call.flag(2)});
}
Results antialiased_linear(Call& call) {
  return interpolate(call, separate(call, 2, 3), {false, call.flag(2), true});
}
Results antialiased_cubic(Call& call) {
  return interpolate(call, separate(call, 2, 3), {true, call.flag(2), true});
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

}  // namespace

std::span<const Entry> resampling_entries() {
  static constexpr Entry kEntries[] = {
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
  return kEntries;
}

}  // namespace heddle::torch_backend
