// Images read and written at computed places (GridSample, RoiAlign, Col2Im), and Det.
#include <algorithm>

#include "drivers/metal/lowering/graph_work.h"
#include "ir/sampler.h"

namespace heddle::metal {
namespace {

// Elements of planes [n, c, plane] at `places` i32 [n, points], for all channels; [n, c, points].
Tensor read_planes(const Emit& e, Tensor planes, Tensor places) {
  const ir::Extents in = extents_of(planes), at = extents_of(places);
  Tensor spread = e.broadcast(e.reshape(places, {at[0], 1, at[1]}), {in[0], in[1], at[1]});
  return e.gather_elements(planes, spread, 2);
}

// GridSample: the words are those of ir/sampler.h, for a whole tensor of coordinates.
class Sampling {
 public:
  explicit Sampling(Lowering& l)
      : e_(l.emit),
        mode_(l.attributes().str("mode", "linear")),
        padding_(l.attributes().str("padding_mode", "zeros")),
        align_corners_(l.attributes().i64("align_corners") != 0),
        places_(l.attributes().i64("places") != 0) {}

  struct Tap {
    Tensor position;  // i32
    Tensor weight;    // nil: 1
  };
  std::vector<Tap> along(Tensor at, int64_t extent) const {
    Tensor x = source(at, extent);
    if (mode_ == "nearest") return {held(e_.round(x), nil, extent)};
    Tensor left = e_.floor(x), rest = e_.sub(x, left), one = e_.like(1, x);
    if (mode_ == "linear")
      return {held(left, e_.sub(one, rest), extent), held(e_.add(left, one), rest, extent)};
    std::vector<Tap> taps;
    for (int tap = -1; tap <= 2; ++tap)
      taps.push_back(held(e_.add(left, number(tap)), cubic(e_.abs(e_.sub(number(tap), rest))), extent));
    return taps;
  }

 private:
  Tensor number(double value) const { return e_.scalar(value, ir::DType::kF32); }

  Tensor cubic(Tensor x) const {
    constexpr double a = -0.75;
    Tensor near = e_.add(e_.mul(e_.mul(e_.sub(e_.mul(number(a + 2), x), number(a + 3)), x), x), number(1));
    Tensor far = e_.sub(e_.mul(number(a), x), number(5 * a));
    far = e_.sub(e_.mul(e_.add(e_.mul(far, x), number(8 * a)), x), number(4 * a));
    Tensor beyond = e_.choose(e_.less(x, number(2)), far, number(0));
    return e_.choose(e_.less_equal(x, number(1)), near, beyond);
  }

  Tensor mirrored(Tensor x, double low, double high) const {
    const double range = high - low;
    if (range <= 0) return e_.broadcast(number(low), extents_of(x));
    Tensor rest = e_.fmod(e_.abs(e_.sub(x, number(low))), number(2 * range));
    Tensor back = e_.choose(e_.greater(rest, number(range)), e_.sub(number(2 * range), rest), rest);
    return e_.add(number(low), back);
  }

  Tensor source(Tensor at, int64_t extent) const {
    const double length = static_cast<double>(extent), margin = align_corners_ ? 0 : 0.5;
    Tensor x = at;
    if (!places_ && align_corners_) x = e_.mul(e_.add(at, number(1)), number((length - 1) / 2));
    if (!places_ && !align_corners_)
      x = e_.mul(e_.sub(e_.mul(e_.add(at, number(1)), number(length)), number(1)), number(0.5));
    x = e_.clamp(e_.choose(e_.is_nan(x), number(0), x), -1e9, 1e9);
    if (padding_ == "zeros" || (padding_ == "border" && mode_ == "cubic")) return x;
    Tensor inside =
        e_.both(e_.greater_equal(x, number(-margin)), e_.less_equal(x, number(length - 1 + margin)));
    Tensor moved =
        padding_ == "border" ? e_.clamp(x, 0, length - 1) : mirrored(x, -margin, length - 1 + margin);
    return e_.choose(inside, x, moved);
  }

  Tap held(Tensor place, Tensor weight, int64_t extent) const {
    const double last = static_cast<double>(extent - 1), margin = align_corners_ ? 0 : 0.5;
    Tensor outside = e_.either(e_.less(place, number(0)), e_.greater(place, number(last)));
    if (padding_ == "zeros") weight = e_.choose(outside, number(0), weight == nil ? number(1) : weight);
    if (padding_ == "reflection") place = e_.choose(outside, mirrored(place, -margin, last + margin), place);
    return {e_.cast(e_.clamp(place, 0, last), ir::DType::kI32), weight};
  }

  const Emit& e_;
  std::string mode_, padding_;
  bool align_corners_, places_;
};

Status lower_grid_sample(Lowering& l) {
  const Emit& e = l.emit;
  const ir::Extents image = l.extents(0), out = l.out_extents();
  const int64_t spatial = static_cast<int64_t>(image.rank()) - 2;
  int64_t plane = 1, points = 1;
  for (size_t i = 2; i < image.rank(); ++i) plane *= image[i], points *= out[i];
  Tensor planes = e.reshape(l.inputs[0], {image[0], image[1], plane});
  Tensor grid = e.reshape(e.cast(l.inputs[1], ir::DType::kF32), {out[0], points, spatial});
  const Sampling sampling(l);
  std::vector<Sampling::Tap> all = {{nil, nil}};
  for (int64_t axis = 0; axis < spatial; ++axis) {
    // The grid names the last axis first.
    Tensor at = e.reshape(e.slice(grid, 2, spatial - 1 - axis, 1), {out[0], points});
    const int64_t extent = image[2 + static_cast<size_t>(axis)];
    std::vector<Sampling::Tap> product;
    const std::vector<Sampling::Tap> here = sampling.along(at, extent);
    for (const Sampling::Tap& before : all) {
      for (const Sampling::Tap& tap : here) {
        Tensor place = before.position == nil
                           ? tap.position
                           : e.add(e.mul(before.position, e.whole(extent, ir::DType::kI32)), tap.position);
        Tensor weight = before.weight == nil ? tap.weight
                        : tap.weight == nil  ? before.weight
                                             : e.mul(before.weight, tap.weight);
        product.push_back({place, weight});
      }
    }
    all = std::move(product);
  }
  Tensor sum = nil;
  for (const Sampling::Tap& tap : all) {
    Tensor part = read_planes(e, planes, tap.position);
    if (tap.weight != nil) {
      // What has no weight is not read: an infinity there would become NaN.
      Tensor weight = e.broadcast(e.reshape(tap.weight, {out[0], 1, points}), extents_of(part));
      part = e.choose(e.equal(weight, e.like(0, weight)), e.like(0, part), e.mul(weight, part));
    }
    sum = sum == nil ? part : e.add(sum, part);
  }
  l.outputs[0] = sum;
  return {};
}

// The places of all samples along one axis of all regions: low and high neighbour, the weight of the high
// one, and whether the sample is near the image at all; [regions, samples].
struct AxisSamples {
  Tensor low, high, along, near;
};
AxisSamples samples_along(const Lowering& l, int64_t first, int64_t extent, int64_t bins, int64_t samples) {
  const Emit& e = l.emit;
  const bool half = l.attributes().str("coordinate_transformation_mode", "half_pixel") == "half_pixel";
  const auto number = [&](double value) { return e.scalar(value, ir::DType::kF32); };
  const auto edge = [&](int64_t i) {
    Tensor at = e.mul(e.slice(l.inputs[1], 1, i, 1), number(l.attributes().f64("spatial_scale", 1)));
    return half ? e.sub(at, number(0.5)) : at;
  };
  Tensor start = edge(first), length = e.sub(edge(first + 2), start);
  if (!half) length = e.max(length, number(1));
  Tensor size = e.div(length, number(static_cast<double>(bins)));
  ir::Tensor offsets = ir::Tensor::zeros(ir::DType::kF32, {1, bins * samples});
  for (int64_t i = 0; i < bins * samples; ++i) {
    const double inside = (static_cast<double>(i % samples) + 0.5) / static_cast<double>(samples);
    offsets.set(i, static_cast<double>(i / samples) + inside);
  }
  Tensor at = e.add(start, e.mul(size, e.constant(offsets)));
  Tensor near =
      e.both(e.greater_equal(at, number(-1)), e.less_equal(at, number(static_cast<double>(extent))));
  Tensor held = e.clamp(at, 0, static_cast<double>(extent - 1));
  Tensor low = e.floor(held);
  Tensor high = e.min(e.add(low, number(1)), number(static_cast<double>(extent - 1)));
  return {low, high, e.sub(held, low), near};
}

Status lower_roi_align(Lowering& l) {
  const Emit& e = l.emit;
  const ir::Extents image = l.extents(0), out = l.out_extents();
  const int64_t ratio = l.attributes().i64("sampling_ratio");
  if (ratio <= 0)
    return Status::unsupported(
        "without a sampling_ratio its work depends on the data, which Metal cannot plan for");
  Tensor batch = l.inputs[2], zero = e.whole(0, dtype_of(batch));
  Tensor wrong = e.either(e.less(batch, zero), e.greater_equal(batch, e.whole(image[0], dtype_of(batch))));
  l.mistakes.push_back({wrong, 2, text("a batch index is outside [0, ", image[0] - 1, "]")});
  Tensor planes = e.gather(e.reshape(l.inputs[0], {image[0], image[1], image[2] * image[3]}),
                           e.cast(e.choose(wrong, zero, batch), ir::DType::kI32), 0);
  const AxisSamples y = samples_along(l, 1, image[2], out[2], ratio);
  const AxisSamples x = samples_along(l, 0, image[3], out[3], ratio);
  const int64_t regions = out[0], rows = out[2] * ratio, columns = out[3] * ratio;
  const auto down = [&](Tensor t) { return e.reshape(t, {regions, rows, 1}); };
  const auto across = [&](Tensor t) { return e.reshape(t, {regions, 1, columns}); };
  Tensor one = e.scalar(1, ir::DType::kF32), none = e.scalar(0, ir::DType::kF32);
  Tensor near = e.both(down(y.near), across(x.near));
  const bool average = l.attributes().str("mode", "avg") == "avg";
  const ir::Extents bins{regions, image[1], out[2], ratio, out[3], ratio};
  Tensor total = nil;
  for (const bool bottom : {false, true}) {
    for (const bool right : {false, true}) {
      Tensor place = e.add(
          e.mul(down(bottom ? y.high : y.low), e.scalar(static_cast<double>(image[3]), ir::DType::kF32)),
          across(right ? x.high : x.low));
      Tensor weight =
          e.mul(down(bottom ? y.along : e.sub(one, y.along)), across(right ? x.along : e.sub(one, x.along)));
      weight = e.choose(near, weight, none);
      Tensor part =
          read_planes(e, planes, e.reshape(e.cast(place, ir::DType::kI32), {regions, rows * columns}));
      part = e.mul(part, e.reshape(weight, {regions, 1, rows * columns}));
      part = e.reshape(part, bins);
      part = average ? e.sum(part, {3, 5}) : e.greatest(part, {3, 5});
      total = total == nil ? part : average ? e.add(total, part) : e.max(total, part);
    }
  }
  l.outputs[0] =
      average ? e.div(total, e.scalar(static_cast<double>(ratio * ratio), ir::DType::kF32)) : total;
  return {};
}

// A scatter of constant places: what lies in the padding goes to a place of its own.
Status lower_col2im(Lowering& l) {
  const Emit& e = l.emit;
  HEDDLE_TRY_ASSIGN(const Axes image, l.integers(1, "image_shape"));
  HEDDLE_TRY_ASSIGN(const Axes block, l.integers(2, "block_shape"));
  const size_t axes = image.size();
  const Axes ones(axes, 1), zeros(2 * axes, 0);
  const Axes strides = l.attributes().ints("strides", ones),
             dilations = l.attributes().ints("dilations", ones), pads = l.attributes().ints("pads", zeros);
  int64_t patch = 1, count = 1, plane = 1;
  Axes blocks;
  for (size_t i = 0; i < axes; ++i) {
    const int64_t reach = dilations[i] * (block[i] - 1) + 1;
    blocks.push_back((image[i] + pads[i] + pads[axes + i] - reach) / strides[i] + 1);
    patch *= block[i], count *= blocks[i], plane *= image[i];
  }
  Axes targets;
  for (int64_t flat = 0; flat < patch * count; ++flat) {
    int64_t offset = flat / count, number = flat % count, stride = 1, at = 0;
    for (size_t i = axes; i-- > 0;) {
      const int64_t place = number % blocks[i] * strides[i] - pads[i] + offset % block[i] * dilations[i];
      number /= blocks[i], offset /= block[i];
      at = at < 0 || place < 0 || place >= image[i] ? -1 : at + place * stride;
      stride *= image[i];
    }
    targets.push_back(at < 0 ? plane : at);
  }
  const int64_t planes = l.extents(0)[0] * l.extents(0)[1] / patch;
  Tensor x = e.swap_last(e.reshape(l.inputs[0], {planes, patch * count}));
  Tensor sums = e.scatter_nd(e.filled(0, dtype_of(x), {plane + 1, planes}), x,
                             e.reshape(e.positions(targets), {patch * count, 1}), MPSGraphScatterModeAdd);
  l.outputs[0] = e.swap_last(e.slice(sums, 0, 0, plane));
  return {};
}

// Gaussian elimination with the largest element of a column as pivot; what is left shrinks by one each time.
Status lower_det(Lowering& l) {
  constexpr int64_t kLargest = 64;
  const Emit& e = l.emit;
  const ir::Extents extents = l.extents(0);
  const int64_t n = extents[extents.rank() - 1];
  if (n > kLargest)
    return Status::unsupported("its matrices are ", n, " wide; they are eliminated row by row, up to ",
                               kLargest);
  const int64_t count = extents.elements() / (n * n);
  Tensor m = e.reshape(l.inputs[0], {count, n, n}), det = e.filled(1, dtype_of(m), {count, 1, 1});
  Tensor zero = e.like(0, m), one = e.like(1, m), none = e.whole(0, ir::DType::kI32);
  for (int64_t left = n; left > 0; --left) {
    Tensor pivot = e.reshape(e.arg_max(e.abs(e.slice(m, 2, 0, 1)), 1), {count, 1, 1});
    Tensor row = e.gather_elements(m, e.broadcast(pivot, {count, 1, left}), 1);
    Tensor head = e.slice(row, 2, 0, 1);
    det = e.mul(det, e.choose(e.equal(pivot, none), head, e.negate(head)));
    if (left == 1) break;
    Tensor here = e.equal(e.counting(1, {1, left, 1}), pivot);
    Tensor others = e.slice(e.choose(here, e.slice(m, 1, 0, 1), m), 1, 1, left - 1);
    Tensor divisor = e.choose(e.equal(head, zero), one, head);
    Tensor factor = e.div(e.slice(others, 2, 0, 1), divisor);
    m = e.sub(e.slice(others, 2, 1, left - 1), e.mul(factor, e.slice(row, 2, 1, left - 1)));
  }
  l.outputs[0] = det;
  return {};
}

}  // namespace

std::span<const PathEntry> sampling_paths() {
  using enum Path;
  static constexpr PathEntry kEntries[] = {
      {"GridSample", composed, lower_grid_sample, kWide,
       "by gathers and weights: MPSGraph's samples two axes, without cubic weights"},
      {"RoiAlign", composed, lower_roi_align, kWide, "MPSGraph has no such operator"},
      {"Col2Im", composed, lower_col2im, kWide, "a scatter of constant places: MPSGraph's takes two axes"},
      {"Det", composed, lower_det, kWide, "MPSGraph has no such operator"},
  };
  return kEntries;
}

}  // namespace heddle::metal
