// sample.h: elements at places between elements: Resize, GridSample, RoiAlign.
#pragma once

#include "drivers/cuda/kernels/block.h"
#include "drivers/cuda/kernels/flags.h"
#include "drivers/cuda/kernels/scalar.h"
#include "drivers/cuda/kernels/window.h"

namespace heddle::cuda {

// One axis resized: out[o, a, i] = sum_t weights[a, t] * x[o, indices[a, t], i]
struct ResampleParams {
  uint64_t x = 0, out = 0;
  uint64_t indices = 0, weights = 0;  // i64 and f64, [extent, taps]
  uint64_t outside = 0;               // a bool for each place along the axis, 0: all false
  Type x_type = Type::kF32, out_type = Type::kF32;
  int32_t taps = 1;
  int32_t rounds = 0;        // to whole numbers
  double low = 0, high = 0;  // between which they are then held
  double beyond = 0;         // what stands where `outside` says
  int64_t count = 0, extent = 0, from = 0, inner = 1;
};

template <class C>
struct Resample {
  ResampleParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    each_of(block, p.count, [&](int64_t element) {
      const int64_t lane = element / p.inner, i = element - lane * p.inner, a = lane % p.extent;
      const int64_t begin = lane / p.extent * p.from * p.inner + i, taps = a * p.taps;
      C sum = 0;
      for (int64_t t = taps; t < taps + p.taps; ++t) {
        const C x = load<C>(p.x, p.x_type, begin + global<const int64_t>(p.indices)[t] * p.inner);
        // One element is taken as it is.
        sum = p.taps == 1 ? x : sum + C(global<const double>(p.weights)[t]) * x;
      }
      if (p.outside != 0 && global<const uint8_t>(p.outside)[a] != 0) sum = C(p.beyond);
      if (p.rounds != 0) {
        sum = std::rint(sum);
        sum = sum < C(p.low) ? C(p.low) : sum > C(p.high) ? C(p.high) : sum;
      }
      store<C>(p.out, p.out_type, element, sum);
    });
  }
};

enum class SampleMode : int32_t { kNearest, kLinear, kCubic };
enum class SamplePadding : int32_t { kZeros, kBorder, kReflection };

struct GridSampleParams {
  uint64_t x = 0, grid = 0, out = 0;
  Type type = Type::kF32, grid_type = Type::kF32;
  SampleMode mode = SampleMode::kLinear;
  SamplePadding padding = SamplePadding::kZeros;
  int32_t align_corners = 0;
  int32_t places = 0;  // the grid names elements
  int32_t axes = 2;    // spatial ones, at the end of these
  int32_t extents[kPlaneAxes] = {1, 1, 1};
  int64_t count = 0, channels = 1, plane = 1, points = 1;
};

// The places and weights of one axis are those of ir/sampler.h.
template <class C>
struct GridSample {
  GridSampleParams p;

  struct Taps {
    int32_t at[4];
    C weight[4];
  };

  static HEDDLE_DEVICE C held(C x, C low, C high) { return x < low ? low : x > high ? high : x; }
  static HEDDLE_DEVICE C mirrored(C x, C low, C high) {
    const C range = high - low;
    if (range <= 0) return low;
    const C rest = std::fmod(std::fabs(x - low), 2 * range);
    return low + (rest > range ? 2 * range - rest : rest);
  }
  static HEDDLE_DEVICE C cubic(C x) {
    constexpr C a = C(-0.75);
    x = std::fabs(x);
    if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : C(0);
  }

  HEDDLE_DEVICE C source(C at, int32_t extent) const {
    const C length = C(extent), margin = p.align_corners != 0 ? C(0) : C(0.5);
    const C place = p.places != 0          ? at
                    : p.align_corners != 0 ? (at + 1) / 2 * (length - 1)
                                           : ((at + 1) * length - 1) / 2;
    const C x = is_nan(place) ? C(0) : held(place, C(-1e9), C(1e9));  // within the integers
    const bool free = p.padding == SamplePadding::kZeros ||
                      (p.padding == SamplePadding::kBorder && p.mode == SampleMode::kCubic);
    if (free || (x >= -margin && x <= length - 1 + margin)) return x;
    return p.padding == SamplePadding::kBorder ? held(x, C(0), length - 1)
                                               : mirrored(x, -margin, length - 1 + margin);
  }

  HEDDLE_DEVICE void hold(Taps& taps, int i, int32_t at, C weight, int32_t extent) const {
    if (!within(at, extent)) {
      const C margin = p.align_corners != 0 ? C(0) : C(0.5);
      if (p.padding == SamplePadding::kZeros) weight = 0;
      if (p.padding == SamplePadding::kReflection)
        at = static_cast<int32_t>(mirrored(C(at), -margin, C(extent - 1) + margin));
      at = at < 0 ? 0 : at >= extent ? extent - 1 : at;
    }
    taps.at[i] = at;
    taps.weight[i] = weight;
  }

  HEDDLE_DEVICE int32_t along(Taps& taps, C at, int32_t extent) const {
    const C x = source(at, extent), below = std::floor(x), rest = x - below;
    const auto left = static_cast<int32_t>(below);
    if (p.mode == SampleMode::kNearest) {
      hold(taps, 0, static_cast<int32_t>(std::rint(x)), C(1), extent);
      return 1;
    }
    if (p.mode == SampleMode::kLinear) {
      hold(taps, 0, left, 1 - rest, extent);
      hold(taps, 1, left + 1, rest, extent);
      return 2;
    }
    for (int32_t tap = 0; tap < 4; ++tap) hold(taps, tap, left + tap - 1, cubic(C(tap - 1) - rest), extent);
    return 4;
  }

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    each_of(block, p.count, [&](int64_t element) {
      const int64_t image = element / p.points, point = element - image * p.points;
      const int64_t grid = (image / p.channels * p.points + point) * p.axes;
      Taps taps[kPlaneAxes];
      int32_t counts[kPlaneAxes];
      for (int32_t axis = 0; axis < kPlaneAxes; ++axis) {
        const int32_t from_end = kPlaneAxes - 1 - axis;  // the grid names the last axis first
        counts[axis] = 1;
        taps[axis].at[0] = 0;
        taps[axis].weight[0] = 1;
        if (from_end < p.axes) {
          const C at = load<C>(p.grid, p.grid_type, grid + from_end);
          counts[axis] = along(taps[axis], at, p.extents[axis]);
        }
      }
      C sum = 0;
      for (int32_t z = 0; z < counts[0]; ++z) {
        for (int32_t y = 0; y < counts[1]; ++y) {
          const int64_t row = int64_t{taps[0].at[z]} * p.extents[1] + taps[1].at[y];
          for (int32_t x = 0; x < counts[2]; ++x) {
            const C weight = taps[0].weight[z] * taps[1].weight[y] * taps[2].weight[x];
            // What has no weight is not read: an infinity there would become NaN.
            if (weight == 0) continue;
            sum += weight * load<C>(p.x, p.type, image * p.plane + row * p.extents[2] + taps[2].at[x]);
          }
        }
      }
      store<C>(p.out, p.type, element, sum);
    });
  }
};

struct RoiAlignParams {
  uint64_t x = 0, rois = 0, images = 0, out = 0;
  Type type = Type::kF32, image_type = Type::kI64;
  int32_t average = 1;
  int32_t half_pixel = 1;
  int32_t height = 1, width = 1, out_height = 1, out_width = 1;
  int64_t samples = 0;  // along one axis of one bin; 0: as many as it has elements
  double scale = 1;
  int64_t count = 0, channels = 1, batch = 0;
  Flags flags;
};

template <class C>
struct RoiAlign {
  RoiAlignParams p;

  struct Bins {
    double start, size;
    int64_t samples;
    HEDDLE_DEVICE C at(int64_t bin, int64_t sample) const {
      return C(start + (double(bin) + (double(sample) + 0.5) / double(samples)) * size);
    }
    // How many samples are before `place`, or one or two fewer.
    HEDDLE_DEVICE int64_t before(double place, int64_t bin) const {
      const double many = ((place - start) / size - double(bin)) * double(samples) - 1;
      return many > 0 ? many < double(samples) ? to_i64(many) : samples : 0;
    }
    // Those that may be in an image of that extent, however far the box goes beyond it.
    HEDDLE_DEVICE int64_t begin(int64_t bin) const { return size > 0 ? before(-1, bin) : 0; }
    HEDDLE_DEVICE int64_t end(int64_t bin, int32_t extent) const {
      const int64_t behind = size > 0 ? before(double(extent), bin) + 3 : samples;
      return behind < samples ? behind : samples;
    }
  };
  HEDDLE_DEVICE Bins bins_of(int64_t corner, int32_t count) const {
    const double shift = p.half_pixel != 0 ? 0.5 : 0;
    const double start = load<double>(p.rois, p.type, corner) * p.scale - shift;
    const double length = load<double>(p.rois, p.type, corner + 2) * p.scale - shift - start;
    const double size = (p.half_pixel != 0 || !(length <= 1) ? length : 1) / double(count);
    if (p.samples > 0) return {start, size, p.samples};
    return {start, size, size > 0 ? to_i64(std::ceil(size < 0x1p60 ? size : 0x1p60)) : 0};
  }

  struct Split {  // between two elements
    int32_t low, high;
    C rest;
  };
  static HEDDLE_DEVICE Split split(C at, int32_t extent) {
    const C most = C(extent - 1), x = at < 0 ? C(0) : at > most ? most : at;
    const auto low = static_cast<int32_t>(x);
    return {low, low + 1 < extent ? low + 1 : extent - 1, x - C(low)};
  }

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    each_of(block, p.count, [&](int64_t element) {
      const int64_t column = element % p.out_width, row = element / p.out_width % p.out_height;
      const int64_t plane = element / p.out_width / p.out_height, roi = plane / p.channels;
      const int64_t image = load<int64_t>(p.images, p.image_type, roi);
      if (image < 0 || image >= p.batch) return mark_wrong(p.flags, roi);
      const int64_t x = (image * p.channels + plane % p.channels) * p.height * p.width;
      const Bins across = bins_of(roi * 4, p.out_width), down = bins_of(roi * 4 + 1, p.out_height);
      C sum = 0, most = 0;
      const int64_t first_row = down.begin(row), rows = down.end(row, p.height) - first_row;
      const int64_t first_column = across.begin(column), columns = across.end(column, p.width) - first_column;
      bool first = rows == down.samples && columns == across.samples;  // the others are 0
      const auto take = [&](C weight, int64_t at) {
        const C part = weight * load<C>(p.x, p.type, x + at);
        sum += part;
        most = first || most < part ? part : most;
        first = false;
      };
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t k = 0; k < columns; ++k) {
          const C v = down.at(row, first_row + i), h = across.at(column, first_column + k);
          // Beyond the border a sample is nothing; nor is NaN within.
          const bool near = v >= -1 && v <= C(p.height) && h >= -1 && h <= C(p.width);
          if (!near || p.height == 0 || p.width == 0) {
            most = first || most < 0 ? C(0) : most;
            first = false;
            continue;
          }
          const Split y = split(v, p.height), z = split(h, p.width);
          const int64_t top = int64_t{y.low} * p.width, bottom = int64_t{y.high} * p.width;
          take((1 - y.rest) * (1 - z.rest), top + z.low);
          take((1 - y.rest) * z.rest, top + z.high);
          take(y.rest * (1 - z.rest), bottom + z.low);
          take(y.rest * z.rest, bottom + z.high);
        }
      }
      const double samples = double(down.samples) * double(across.samples);
      store<C>(p.out, p.type, element, p.average == 0 ? most : sum / C(samples > 1 ? samples : 1));
    });
  }
};

}  // namespace heddle::cuda
