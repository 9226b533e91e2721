#include "ir/sampler.h"

#include <algorithm>
#include <cmath>

namespace heddle::ir {

namespace {

constexpr double kCubic = -0.75;

double cubic(double x) {
  x = std::fabs(x);
  if (x <= 1) return ((kCubic + 2) * x - (kCubic + 3)) * x * x + 1;
  if (x < 2) return ((kCubic * x - 5 * kCubic) * x + 8 * kCubic) * x - 4 * kCubic;
  return 0;
}

// Mirrored at both borders until it lies between them.
double mirrored(double x, double low, double high) {
  const double range = high - low;
  if (range <= 0) return low;
  const double turns = std::fabs(x - low);
  const double rest = std::fmod(turns, 2 * range);
  return low + (rest > range ? 2 * range - rest : rest);
}

}  // namespace

Status Sampler::check(const Node& node) {
  const std::string mode = node.attributes.str("mode", "linear");
  const std::string padding = node.attributes.str("padding_mode", "zeros");
  if (mode != "linear" && mode != "nearest" && mode != "cubic")
    return Status::invalid("attribute 'mode' is '", mode, "'; it has to be linear, nearest or cubic");
  if (padding == "zeros" || padding == "border" || padding == "reflection") return {};
  return Status::invalid("attribute 'padding_mode' is '", padding,
                         "'; it has to be zeros, border or reflection");
}

Sampler::Sampler(const Node& node, const Extents& image)
    : extents_(image.begin() + 2, image.end()),
      mode_(node.attributes.str("mode", "linear") == "nearest" ? Mode::kNearest
            : node.attributes.str("mode", "linear") == "cubic" ? Mode::kCubic
                                                               : Mode::kLinear),
      padding_(node.attributes.str("padding_mode", "zeros") == "border" ? Padding::kBorder
               : node.attributes.str("padding_mode") == "reflection"    ? Padding::kReflection
                                                                        : Padding::kZeros),
      align_corners_(node.attributes.i64("align_corners") != 0),
      places_(node.attributes.i64("places") != 0) {}

// Where `at` lies among the elements, moved back into the image as the padding says.
double Sampler::source(double at, int64_t extent) const {
  const double length = static_cast<double>(extent);
  const double place = places_          ? at
                       : align_corners_ ? (at + 1) / 2 * (length - 1)
                                        : ((at + 1) * length - 1) / 2;
  // Far outside all points are alike; the bound keeps them integers.
  const double x = std::isnan(place) ? 0 : std::clamp(place, -1e9, 1e9);
  const double margin = align_corners_ ? 0 : 0.5;
  // Of the cubic form only the elements are held within the border, as in PyTorch and ONNX Runtime.
  const bool free = padding_ == Padding::kZeros || (padding_ == Padding::kBorder && mode_ == Mode::kCubic);
  if (free || (x >= -margin && x <= length - 1 + margin)) return x;
  return padding_ == Padding::kBorder ? std::clamp(x, 0.0, length - 1)
                                      : mirrored(x, -margin, length - 1 + margin);
}

Sampler::Tap Sampler::held(int64_t position, double weight, int64_t extent) const {
  const bool outside = position < 0 || position >= extent;
  if (outside && padding_ == Padding::kZeros) weight = 0;
  if (outside && padding_ == Padding::kReflection) {
    const double margin = align_corners_ ? 0 : 0.5;
    position = static_cast<int64_t>(
        mirrored(static_cast<double>(position), -margin, static_cast<double>(extent - 1) + margin));
  }
  return {std::clamp<int64_t>(position, 0, extent - 1), weight};
}

Sampler::AxisTaps Sampler::along(size_t axis, double at) const {
  const int64_t extent = extents_[axis];
  const double x = source(at, extent);
  const int64_t left = static_cast<int64_t>(std::floor(x));
  const double rest = x - std::floor(x);
  AxisTaps taps;
  if (mode_ == Mode::kNearest) {
    taps[0] = held(static_cast<int64_t>(std::nearbyint(x)), 1, extent);
  } else if (mode_ == Mode::kLinear) {
    taps[0] = held(left, 1 - rest, extent);
    taps[1] = held(left + 1, rest, extent);
  } else {
    for (int64_t tap = -1; tap <= 2; ++tap) {
      taps[static_cast<size_t>(tap + 1)] = held(left + tap, cubic(static_cast<double>(tap) - rest), extent);
    }
  }
  return taps;
}

}  // namespace heddle::ir
