#include "ir/resample.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string_view>

#include "ir/tensor_type.h"

namespace heddle::ir {

namespace {

constexpr double kDefaultCubic = -0.75;

std::string mode_of(const Node& node) { return node.attributes.str("mode", "nearest"); }
std::string coordinates_of(const Node& node) {
  return node.attributes.str("coordinate_transformation_mode", "half_pixel");
}

Status check_choice(const Node& node, std::string_view name, std::string_view otherwise,
                    std::initializer_list<std::string_view> allowed) {
  const std::string given = node.attributes.str(name, otherwise);
  if (std::find(allowed.begin(), allowed.end(), given) != allowed.end()) return {};
  std::string names;
  for (std::string_view one : allowed) names += text(names.empty() ? "" : ", ", one);
  return Status::invalid("attribute '", name, "' is '", given, "'; it has to be one of ", names);
}

double cubic(double x, double a) {
  x = std::fabs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

// Where a position of the output lies among the elements of the operand.
double source_of(const std::string& mode, const ResizeAxis& axis, int64_t position) {
  const double x = static_cast<double>(position);
  const double in = static_cast<double>(axis.in);
  const double length = axis.scale * in;  // of the output before it was cut to a whole number
  if (mode == "align_corners") return length == 1 ? 0 : x * (in - 1) / (length - 1);
  if (mode == "asymmetric") return x / axis.scale;
  if (mode == "tf_half_pixel_for_nn") return (x + 0.5) / axis.scale;
  if (mode == "tf_crop_and_resize") {
    const double part = (axis.roi_end - axis.roi_begin) * (in - 1);
    return axis.roi_begin * (in - 1) + (length == 1 ? part / 2 : x * part / (length - 1));
  }
  if (mode == "pytorch_half_pixel" && length == 1) return -0.5;
  const double half = (x + 0.5) / axis.scale - 0.5;
  if (mode != "half_pixel_symmetric") return half;
  return in / 2 * (1 - static_cast<double>(axis.out) / length) + half;
}

// A crop far outside the operand has places beyond 64 bits, or nowhere at all. From here on, all are alike.
double within_reach(double x) { return std::isnan(x) ? 0 : std::clamp(x, -0x1p62, 0x1p62); }

int64_t nearest_to(const std::string& mode, double x) {
  const double below = std::floor(x);
  const double rest = x - below;
  const bool up = mode == "ceil"                ? rest > 0
                  : mode == "floor"             ? false
                  : mode == "round_prefer_ceil" ? rest >= 0.5
                                                : rest > 0.5;
  return static_cast<int64_t>(below) + (up ? 1 : 0);
}

struct Kernel {
  int64_t first = 0;  // of the taps, from the element at or left of the position
  std::vector<double> weights;
};

// `rest` in [0, 1): how far the position lies right of the element at its left.
Kernel kernel_at(const Node& node, double rest, double scale) {
  const bool is_cubic = mode_of(node) == "cubic";
  const double a = node.attributes.f64("cubic_coeff_a", kDefaultCubic);
  // Antialiasing widens the kernel when elements become fewer.
  const bool widened = node.attributes.i64("antialias") != 0 && scale < 1;
  const double shrink = widened ? scale : 1;
  const int64_t reach = is_cubic ? 2 : 1;
  Kernel kernel;
  kernel.first = static_cast<int64_t>(std::floor(static_cast<double>(-reach) / shrink)) + 1;
  for (int64_t tap = kernel.first; tap <= 1 - kernel.first; ++tap) {
    const double distance = (static_cast<double>(tap) - rest) * shrink;
    kernel.weights.push_back(is_cubic ? cubic(distance, a) : std::clamp(1 - std::fabs(distance), 0.0, 1.0));
  }
  if (!widened) return kernel;
  const double sum = std::accumulate(kernel.weights.begin(), kernel.weights.end(), 0.0);
  for (double& weight : kernel.weights) weight /= sum;
  return kernel;
}

void exclude_outside(Kernel& kernel, int64_t left, int64_t extent) {
  double sum = 0;
  for (size_t i = 0; i < kernel.weights.size(); ++i) {
    const int64_t at = left + kernel.first + static_cast<int64_t>(i);
    if (at < 0 || at >= extent) kernel.weights[i] = 0;
    sum += kernel.weights[i];
  }
  for (double& weight : kernel.weights) weight /= sum == 0 ? 1 : sum;
}

int64_t extent_of(double length) {
  return length < 0x1p62 ? static_cast<int64_t>(std::floor(length)) : Dim::kHuge;
}

Status check_count(const Tensor& given, std::string_view argument, size_t axes) {
  if (given.elements() == static_cast<int64_t>(axes)) return {};
  return Status::invalid(argument, " has ", given.elements(), " elements; ", axes, " axes take ", axes);
}

// One scale for all axes, so that nothing is distorted.
void keep_aspect(const std::string& policy, std::vector<ResizeAxis>& axes) {
  if (policy == "stretch" || axes.empty()) return;
  double scale = axes[0].scale;
  for (const ResizeAxis& axis : axes) {
    scale = policy == "not_larger" ? std::min(scale, axis.scale) : std::max(scale, axis.scale);
  }
  for (ResizeAxis& axis : axes) {
    axis.scale = scale;
    axis.out = extent_of(scale * static_cast<double>(axis.in) + 0.5);
  }
}

}  // namespace

bool ResizeAxis::changes(const Node& node) const {
  const bool whole = roi_begin == 0 && roi_end == 1;
  return in != out || scale != 1 || (coordinates_of(node) == "tf_crop_and_resize" && !whole);
}

bool AxisTaps::picks() const { return count == 1 && outside.empty(); }
int64_t AxisTaps::picked(int64_t position) const { return index[static_cast<size_t>(position)]; }

Status check_resize(const Node& node) {
  HEDDLE_TRY(check_choice(node, "mode", "nearest", {"nearest", "linear", "cubic"}));
  HEDDLE_TRY(check_choice(node, "coordinate_transformation_mode", "half_pixel",
                          {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
                           "asymmetric", "tf_crop_and_resize", "tf_half_pixel_for_nn"}));
  HEDDLE_TRY(check_choice(node, "nearest_mode", "round_prefer_floor",
                          {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}));
  HEDDLE_TRY(
      check_choice(node, "keep_aspect_ratio_policy", "stretch", {"stretch", "not_larger", "not_smaller"}));
  if (mode_of(node) == "nearest" && node.attributes.i64("antialias") != 0)
    return Status::invalid("attribute 'antialias' is set for mode 'nearest'; it needs linear or cubic");
  return {};
}

Result<std::vector<size_t>> resized_axes(const Node& node, size_t rank) {
  std::vector<size_t> axes;
  if (!node.attributes.has("axes")) {
    for (size_t axis = 0; axis < rank; ++axis) axes.push_back(axis);
    return axes;
  }
  for (int64_t axis : node.attributes.ints("axes")) {
    HEDDLE_TRY_ASSIGN(const size_t normal, normalize_axis(axis, rank));
    if (std::find(axes.begin(), axes.end(), normal) != axes.end())
      return Status::invalid("attribute 'axes' names axis ", axis, " twice");
    axes.push_back(normal);
  }
  return axes;
}

Result<std::vector<ResizeAxis>> resize_axes(const Node& node, const Extents& in, const Tensor* roi,
                                            const Tensor* scales, const Tensor* sizes) {
  HEDDLE_TRY_ASSIGN(const std::vector<size_t> named, resized_axes(node, in.rank()));
  if (scales != nullptr) HEDDLE_TRY(check_count(*scales, "scales", named.size()));
  if (sizes != nullptr) HEDDLE_TRY(check_count(*sizes, "sizes", named.size()));
  const bool cropped = roi != nullptr && coordinates_of(node) == "tf_crop_and_resize";
  if (cropped) HEDDLE_TRY(check_count(*roi, "roi", 2 * named.size()));
  std::vector<ResizeAxis> axes;
  for (size_t i = 0; i < named.size(); ++i) {
    const int64_t at = static_cast<int64_t>(i);
    ResizeAxis axis{named[i], in[named[i]], 0, 1, 0, 1};
    if (scales != nullptr) {
      axis.scale = scales->get(at);
      if (!(axis.scale > 0)) return Status::invalid("scales holds ", axis.scale, "; it has to be above 0");
      axis.out = extent_of(axis.scale * static_cast<double>(axis.in));
    } else {
      axis.out = sizes->get_i64(at);
      if (axis.out < 0) return Status::invalid("sizes holds ", axis.out, "; it has to be 0 or more");
      axis.scale = axis.in == 0 ? 1 : static_cast<double>(axis.out) / static_cast<double>(axis.in);
    }
    if (cropped) {
      axis.roi_begin = roi->get(at);
      axis.roi_end = roi->get(at + static_cast<int64_t>(named.size()));
    }
    axes.push_back(axis);
  }
  if (sizes != nullptr) keep_aspect(node.attributes.str("keep_aspect_ratio_policy", "stretch"), axes);
  for (const ResizeAxis& axis : axes) {
    if (axis.in > 0 || axis.out == 0) continue;
    return Status::invalid("axis ", axis.axis, " is empty and cannot become ", axis.out, " long");
  }
  return axes;
}

uint64_t taps_max(const Node& node, const ResizeAxis& axis) {
  const auto in = static_cast<uint64_t>(axis.in), out = static_cast<uint64_t>(axis.out);
  const std::string mode = mode_of(node);
  if (mode == "nearest") return out;
  const uint64_t one_position = mode == "cubic" ? 4 : 2;
  const bool widened = node.attributes.i64("antialias") != 0 && axis.scale < 1;
  return one_position * (widened ? in + 2 * out : out);
}

AxisTaps taps_of(const Node& node, const ResizeAxis& axis) {
  const std::string mode = coordinates_of(node);
  const std::string nearest = node.attributes.str("nearest_mode", "round_prefer_floor");
  const auto held = [&](int64_t at) { return std::clamp<int64_t>(at, 0, axis.in - 1); };
  AxisTaps taps;
  for (int64_t position = 0; position < axis.out; ++position) {
    const double x = within_reach(source_of(mode, axis, position));
    if (mode == "tf_crop_and_resize" && (x < 0 || x > static_cast<double>(axis.in - 1))) {
      taps.outside.resize(static_cast<size_t>(axis.out), 0);
      taps.outside[static_cast<size_t>(position)] = 1;
    }
    if (mode_of(node) == "nearest") {
      taps.index.push_back(held(nearest_to(nearest, x)));
      taps.weight.push_back(1);
      continue;
    }
    const int64_t left = static_cast<int64_t>(std::floor(x));
    Kernel kernel = kernel_at(node, x - std::floor(x), axis.scale);
    if (node.attributes.i64("exclude_outside") != 0) exclude_outside(kernel, left, axis.in);
    taps.count = static_cast<int64_t>(kernel.weights.size());
    for (size_t i = 0; i < kernel.weights.size(); ++i) {
      taps.index.push_back(held(left + kernel.first + static_cast<int64_t>(i)));
      taps.weight.push_back(kernel.weights[i]);
    }
  }
  return taps;
}

}  // namespace heddle::ir
