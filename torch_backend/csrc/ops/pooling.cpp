// pooling.cpp: the greatest and the mean of windows, of given extents or of as many as the result has.
#include <algorithm>
#include <string_view>

#include "../table.h"
#include "parts.h"

namespace heddle::torch_backend {
namespace {

// [batch, channels, spatial axes..]; PyTorch leaves the batch out, or calls it what it likes.
struct Image {
  Value value;
  bool batched;
};

Image image(Call& call, Value x, size_t axes) {
  const bool batched = static_cast<size_t>(call.rank(x)) == axes + 2;
  return {batched ? x : call.unsqueeze(x, {0}), batched};
}
Value given_back(Call& call, Value y, bool batched) { return batched ? y : call.squeeze(y, {0}); }

// ---- the greatest

Int plane_size(Call& call, Value x, size_t axes) {
  Int size = 1;
  for (size_t i = 0; i < axes; ++i) size = times(call, size, call.size_of(x, static_cast<int>(2 + i)));
  return size;
}

// (self, kernel, stride, padding, dilation, ceil). Indices count within a plane; the graph's over the tensor.
template <size_t axes, bool indices>
Results max_pool(Call& call) {
  const auto [x, batched] = image(call, widened(call, 0), axes);
  const std::vector<int64_t> kernel = per_axis(call, 1, axes);
  std::vector<int64_t> pads = per_axis(call, 3, axes);
  pads.insert(pads.end(), pads.begin(), pads.begin() + axes);
  const AttributeList attributes = {{"kernel_shape", kernel},
                                    {"strides", per_axis(call, 2, axes, kernel)},
                                    {"pads", pads},
                                    {"dilations", per_axis(call, 4, axes)},
                                    {"ceil_mode", int64_t{call.flag(5)}}};
  if (!indices) return given_back(call, call.node("MaxPool", {x}, attributes), batched);
  const std::vector<Value> both = call.nodes("MaxPool", {x}, 2, attributes);
  const Value places = call.node("Mod", {both[1], call.rank0(plane_size(call, x, axes))});
  return {given_back(call, both[0], batched), given_back(call, places, batched)};
}

// ---- the mean

struct Averaging {
  std::vector<int64_t> kernel, stride, padding;
  bool ceil, count_padding;
};

Value average(Call& call, Value x, const Averaging& how) {
  std::vector<int64_t> pads = how.padding;
  pads.insert(pads.end(), how.padding.begin(), how.padding.end());
  return call.node("AveragePool", {x},
                   {{"kernel_shape", how.kernel},
                    {"strides", how.stride},
                    {"pads", pads},
                    {"ceil_mode", int64_t{how.ceil}},
                    {"count_include_pad", int64_t{how.count_padding}}});
}

// Sums of windows over a divisor: the padding is written out, so that every window is whole.
Value divided(Call& call, Value x, Averaging how, int64_t divisor) {
  const size_t axes = how.kernel.size();
  std::vector<int64_t> pads(2 * axes + 4, 0);
  int64_t size = 1;
  for (size_t i = 0; i < axes; ++i) {
    const int64_t k = how.kernel[i], stride = how.stride[i], pad = how.padding[i];
    pads[2 + i] = pads[axes + 4 + i] = pad;
    size *= k;
    if (!how.ceil) continue;
    const int64_t extent = call.extent(x, static_cast<int>(2 + i)), room = extent + 2 * pad - k;
    int64_t count = (room + stride - 1) / stride + 1;
    if ((count - 1) * stride >= extent + pad) --count;
    pads[axes + 4 + i] += std::max<int64_t>((count - 1) * stride - room, 0);
  }
  const DType dtype = call.dtype(x);
  const Value padded =
      call.node("Pad", {x, call.vector(pads), call.literal(0, dtype)}, {{"mode", std::string("constant")}});
  how.ceil = false;
  how.padding.assign(axes, 0);
  const Value mean = average(call, padded, how);
  return call.node("Mul",
                   {mean, call.literal(static_cast<double>(size) / static_cast<double>(divisor), dtype)});
}

// Means of whole numbers are in f64, cut by the cast back.
Value averageable(Call& call) {
  const Value x = call.tensor(0);
  return call.cast(x, is_float(call.dtype(x)) ? wide(call.dtype(x)) : DType::f64);
}

// (self, kernel, stride, padding, ceil, count_include_pad, divisor)
template <size_t axes>
Results avg_pool(Call& call) {
  const auto [x, batched] = image(call, averageable(call), axes);
  const std::vector<int64_t> kernel = per_axis(call, 1, axes);
  const Averaging how{kernel, per_axis(call, 2, axes, kernel), per_axis(call, 3, axes), call.flag(4),
                      call.flag(5)};
  const bool divides = axes > 1 && call.has(6);
  return given_back(call, divides ? divided(call, x, how, call.integer(6)) : average(call, x, how), batched);
}

// ---- as many windows as the result has: of n over e elements the i-th is [i e / n, ceil((i + 1) e / n))

struct Span {
  int64_t begin, end;
};

Span window(int64_t i, int64_t extent, int64_t count) {
  return {i * extent / count, ((i + 1) * extent + count - 1) / count};
}

Value averaged_axis(Call& call, Value x, int axis, int64_t count) {
  if (count == 1) return reduce(call, "ReduceMean", x, {axis}, true);
  const int64_t extent = call.extent(x, axis);
  if (extent == count) return x;
  std::vector<Value> means;
  for (int64_t i = 0; i < count; ++i) {
    const Span span = window(i, extent, count);
    means.push_back(reduce(call, "ReduceMean", call.slice(x, axis, span.begin, span.end), {axis}, true));
  }
  return call.node("Concat", means, {{"axis", static_cast<int64_t>(axis)}});
}

// The extents where each is a multiple of the count that replaces it.
std::optional<std::vector<int64_t>> even_windows(Call& call, Value x, const std::vector<int64_t>& counts) {
  std::vector<int64_t> kernel;
  for (size_t i = 0; i < counts.size(); ++i) {
    const std::optional<int64_t> extent = call.shape(x)[2 + i];
    if (!extent || *extent == 0 || counts[i] == 0 || *extent % counts[i] != 0) return std::nullopt;
    kernel.push_back(*extent / counts[i]);
  }
  return kernel;
}

template <size_t axes>
Results adaptive_avg_pool(Call& call) {
  const auto [x, batched] = image(call, averageable(call), axes);
  const std::vector<int64_t> counts = per_axis(call, 1, axes);
  const std::vector<int64_t> ones(axes, 1), none(axes, 0);
  if (counts == ones) return given_back(call, call.node("GlobalAveragePool", {x}), batched);
  if (const auto kernel = even_windows(call, x, counts))
    return given_back(call, average(call, x, {*kernel, *kernel, none, false, false}), batched);
  Value y = x;
  for (size_t i = 0; i < axes; ++i) y = averaged_axis(call, y, static_cast<int>(2 + i), counts[i]);
  return given_back(call, y, batched);
}

// Each window as long as the longest, its last element repeated: that changes no maximum. [.., count, taps]
struct Taps {
  int64_t count, taps;
  std::vector<int64_t> places;
};

Taps taps_of(int64_t extent, int64_t count) {
  Taps taps{count, 0, {}};
  for (int64_t i = 0; i < count; ++i) {
    const Span span = window(i, extent, count);
    taps.taps = std::max(taps.taps, span.end - span.begin);
  }
  for (int64_t i = 0; i < count; ++i) {
    const Span span = window(i, extent, count);
    for (int64_t tap = 0; tap < taps.taps; ++tap)
      taps.places.push_back(std::min(span.begin + tap, span.end - 1));
  }
  return taps;
}

// For each window and each of its elements, its place in the plane.
std::vector<int64_t> plane_places(const std::vector<Taps>& all, const std::vector<int64_t>& extents) {
  std::vector<int64_t> places = {0};  // [counts.., taps..] of the axes so far
  int64_t counts = 1, taps = 1;
  for (size_t axis = 0; axis < all.size(); ++axis) {
    const Taps& own = all[axis];
    std::vector<int64_t> next;
    for (int64_t c = 0; c < counts * own.count; ++c) {
      for (int64_t t = 0; t < taps * own.taps; ++t) {
        const int64_t before = places[static_cast<size_t>(c / own.count * taps + t / own.taps)];
        next.push_back(before * extents[axis] +
                       own.places[static_cast<size_t>(c % own.count * own.taps + t % own.taps)]);
      }
    }
    places = std::move(next);
    counts *= own.count;
    taps *= own.taps;
  }
  return places;
}

template <size_t axes>
Results adaptive_max_pool(Call& call) {
  const auto [x, batched] = image(call, widened(call, 0), axes);
  const std::vector<int64_t> counts = per_axis(call, 1, axes);
  std::vector<int64_t> extents;
  std::vector<Taps> all;
  int64_t windows = 1, size = 1;
  for (size_t i = 0; i < axes; ++i) {
    extents.push_back(call.extent(x, static_cast<int>(2 + i)));
    all.push_back(taps_of(extents[i], counts[i]));
    windows *= counts[i];
    size *= all[i].taps;
  }
  const Int batch = call.size_of(x, 0), channels = call.size_of(x, 1);
  const Value places = constant_i64(call, {windows, size}, plane_places(all, extents));
  const Value planes = call.reshape(x, {batch, channels, -1});
  const Value elements = call.node("Gather", {planes, places}, {{"axis", int64_t{2}}});
  const Value best = call.node("ArgMax", {elements}, {{"axis", int64_t{3}}, {"keepdims", int64_t{1}}});
  const Value wide_places = call.expand(places, {batch, channels, windows, size});
  std::vector<Int> shape = {batch, channels};
  for (const int64_t count : counts) shape.push_back(count);
  std::vector<Value> both;
  for (const Value from : {elements, wide_places}) {
    const Value picked = call.node("GatherElements", {from, best}, {{"axis", int64_t{3}}});
    both.push_back(given_back(call, call.reshape(picked, shape), batched));
  }
  return Results(both);
}

}  // namespace

std::span<const Entry> pooling_entries() {
  static constexpr Entry kEntries[] = {
      {"aten::max_pool1d", max_pool<1, false>},
      {"aten::max_pool2d", max_pool<2, false>},
      {"aten::max_pool3d", max_pool<3, false>},
      {"aten::max_pool1d_with_indices", max_pool<1, true>},
      {"aten::max_pool2d_with_indices", max_pool<2, true>},
      {"aten::max_pool3d_with_indices", max_pool<3, true>},
      {"aten::avg_pool1d", avg_pool<1>},
      {"aten::avg_pool2d", avg_pool<2>},
      {"aten::avg_pool3d", avg_pool<3>},
      {"aten::adaptive_avg_pool1d", adaptive_avg_pool<1>},
      {"aten::adaptive_avg_pool2d", adaptive_avg_pool<2>},
      {"aten::adaptive_avg_pool3d", adaptive_avg_pool<3>},
      {"aten::_adaptive_avg_pool2d", adaptive_avg_pool<2>},
      {"aten::_adaptive_avg_pool3d", adaptive_avg_pool<3>},
      {"aten::adaptive_max_pool1d", adaptive_max_pool<1>},
      {"aten::adaptive_max_pool2d", adaptive_max_pool<2>},
      {"aten::adaptive_max_pool3d", adaptive_max_pool<3>},
  };
  return kEntries;
}

}  // namespace heddle::torch_backend
