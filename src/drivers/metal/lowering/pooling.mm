// Pools. MPSGraph's own slide over four axes; what they cannot do is done tap by tap.
#include <algorithm>
#include <cmath>
#include <limits>

#include "drivers/metal/lowering/indexing.h"
#include "drivers/metal/lowering/windows.h"

namespace heddle::metal {
namespace {

constexpr int64_t kMostTaps = 1024;

Result<ir::Window> window_of(const Lowering& l) {
  return ir::Window::of(l.node, l.extents(0).rank() - 2, {});
}

// A constant of an output's spatial extents, as [1, 1, ..].
template <class F>  // (place along each spatial axis) -> value
ir::Tensor over_space(ir::DType dtype, const ir::Extents& out, F&& f) {
  ir::Extents extents{1, 1};
  for (size_t i = 2; i < out.rank(); ++i) extents.push_back(out[i]);
  ir::Tensor tensor = ir::Tensor::zeros(dtype, extents);
  Axes index(out.rank() - 2, 0);
  for (int64_t flat = 0; flat < tensor.elements(); ++flat) {
    tensor.set_i64(flat, f(index));
    for (size_t i = index.size(); i-- > 0;) {
      if (++index[i] < out[2 + i]) break;
      index[i] = 0;
    }
  }
  return tensor;
}

// As [n, a, b, c]: the axes that do not slide together, then up to three that do.
struct Sliding {
  ir::Extents in, out;
  MPSGraphPooling4DOpDescriptor* descriptor;
};
Sliding sliding(const Lowering& l, const ir::Window& window) {
  const ir::Extents x = l.extents(0), out = l.out_extents();
  Sliding s{{x[0] * x[1]}, {x[0] * x[1]}, nil};
  Axes kernel{1}, strides{1}, dilations{1}, pads{0, 0};
  for (size_t i = window.axes(); i < 3; ++i) {
    s.in.push_back(1), s.out.push_back(1);
    kernel.push_back(1), strides.push_back(1), dilations.push_back(1), pads.push_back(0), pads.push_back(0);
  }
  for (size_t i = 0; i < window.axes(); ++i) {
    s.in.push_back(x[2 + i]), s.out.push_back(out[2 + i]);
    kernel.push_back(window.kernel[i]), strides.push_back(window.strides[i]);
    dilations.push_back(window.dilations[i]);
    const int64_t begin = window.pads(i, x[2 + i]).first;
    const int64_t reached = (out[2 + i] - 1) * window.strides[i] + window.reach(i);
    pads.push_back(begin), pads.push_back(std::max<int64_t>(reached - begin - x[2 + i], 0));
  }
  s.descriptor = [MPSGraphPooling4DOpDescriptor descriptorWithKernelSizes:numbers(kernel)
                                                                  strides:numbers(strides)
                                                            dilationRates:numbers(dilations)
                                                            paddingValues:numbers(pads)
                                                             paddingStyle:MPSGraphPaddingStyleExplicit];
  [s.descriptor setIncludeZeroPadToAverage:YES];
  return s;
}

// With more padding than the window leaves for what is inside, the extents do not fit MPSGraph's rule.
bool slides(const Lowering& l, const ir::Window& window) {
  bool fits = window.axes() <= 3;
  for (size_t i = 0; i < window.axes(); ++i) {
    const int64_t reached = (l.out_extents()[2 + i] - 1) * window.strides[i] + window.reach(i);
    fits = fits &&
           reached - window.pads(i, l.extents(0)[2 + i]).first - l.extents(0)[2 + i] > -window.strides[i];
  }
  return fits;
}

Status check_taps(const ir::Window& window) {
  const int64_t count = ir::Extents(window.kernel).elements();
  if (count <= kMostTaps) return {};
  return Status::unsupported("its window has ", count, " taps, which are taken one by one; at most ",
                             kMostTaps);
}

double lowest(ir::DType dtype) {
  if (ir::is_float(dtype)) return -std::numeric_limits<double>::infinity();
  return dtype == ir::DType::kU8 ? 0 : -std::ldexp(1.0, static_cast<int>(8 * ir::size_of(dtype)) - 1);
}

int64_t by_columns(const Axes& place, const ir::Extents& in, bool columns) {
  int64_t at = 0;
  for (size_t i = 0; i < place.size(); ++i) {
    const size_t axis = columns ? place.size() - 1 - i : i;
    at = at * in[2 + axis] + place[axis];
  }
  return at;
}

// Tap by tap: the first of the greatest, NaN wins; and where it was found.
Status max_with_places(Lowering& l, const ir::Window& window) {
  const Emit& e = l.emit;
  HEDDLE_TRY(check_taps(window));
  const ir::Extents in = l.extents(0), out = l.out_extents();
  const bool columns = l.attributes().i64("storage_order") != 0;
  const ir::DType dtype = dtype_of(l.inputs[0]);
  Tensor best = nil, found = nil;
  for (const Tap& tap : taps(e, l.inputs[0], window, out, lowest(dtype))) {
    const auto place = [&](const Axes& index) {
      Axes at;
      for (size_t i = 0; i < index.size(); ++i) at.push_back(tap.position[i][static_cast<size_t>(index[i])]);
      return std::find(at.begin(), at.end(), -1) != at.end() ? -1 : by_columns(at, in, columns);
    };
    Tensor here = e.broadcast(e.constant(over_space(ir::DType::kI64, out, place)), out);
    if (best == nil) {
      best = tap.value, found = here;
      continue;
    }
    Tensor none = e.whole(0, ir::DType::kI64);
    Tensor better = e.either(e.greater(tap.value, best), e.less(found, none));
    if (ir::is_float(dtype)) better = e.either(better, e.is_nan(tap.value));
    better = e.both(better, e.greater_equal(here, none));
    best = e.choose(better, tap.value, best);
    found = e.choose(better, here, found);
  }
  l.outputs[0] = best;
  if (l.outputs.size() < 2) return {};
  int64_t plane = 1;
  for (size_t i = 2; i < in.rank(); ++i) plane *= in[i];
  ir::Extents planes{in[0], in[1]};
  for (size_t i = 2; i < in.rank(); ++i) planes.push_back(1);
  Axes starts;
  for (int64_t i = 0; i < in[0] * in[1]; ++i) starts.push_back(i * plane);
  l.outputs[1] = e.add(found, e.reshape(e.positions(starts, ir::DType::kI64), planes));
  return {};
}

// A maximum of Metal loses NaN, so a second pool says where one is.
Tensor max_or_nan(const Emit& e, Tensor x, MPSGraphPooling4DOpDescriptor* descriptor) {
  const auto pool = [&](Tensor t) {
    return [e.graph() maxPooling4DWithSourceTensor:t descriptor:descriptor name:nil];
  };
  Tensor lost = e.greater(pool(e.cast(e.is_nan(x), ir::DType::kF32)), e.like(0, x));
  return e.choose(lost, e.like(std::numeric_limits<double>::quiet_NaN(), x), pool(x));
}

Status lower_max_pool(Lowering& l) {
  HEDDLE_TRY_ASSIGN(const ir::Window window, window_of(l));
  const ir::DType dtype = dtype_of(l.inputs[0]);
  const bool exact = ir::is_float(dtype) || ir::size_of(dtype) <= 2;  // in f32
  if (l.outputs.size() > 1 || !exact || !slides(l, window)) return max_with_places(l, window);
  const Sliding s = sliding(l, window);
  Tensor x = l.emit.cast(l.emit.reshape(l.inputs[0], s.in), ir::DType::kF32);
  if (ir::is_float(dtype)) {
    x = max_or_nan(l.emit, x, s.descriptor);
  } else {
    x = [l.emit.graph() maxPooling4DWithSourceTensor:x descriptor:s.descriptor name:nil];
  }
  l.outputs[0] = l.emit.cast(x, dtype);
  return {};
}

// MPSGraph divides by the whole window: what ONNX divides by is a constant of each place.
Tensor divisors(const Lowering& l, const ir::Window& window) {
  const ir::Extents x = l.extents(0), out = l.out_extents();
  const bool padding_counts = l.attributes().i64("count_include_pad") != 0;
  const auto count = [&](const Axes& index) {
    int64_t all = 1;
    for (size_t i = 0; i < index.size(); ++i) {
      const auto [begin, end] = window.pads(i, x[2 + i]);
      int64_t here = 0;
      for (int64_t tap = 0; tap < window.kernel[i]; ++tap) {
        const int64_t at = index[i] * window.strides[i] + tap * window.dilations[i] - begin;
        here += padding_counts ? at < x[2 + i] + end : at >= 0 && at < x[2 + i];
      }
      all *= here;
    }
    return all;
  };
  return l.emit.constant(over_space(ir::DType::kF32, out, count));
}

Status lower_average_pool(Lowering& l) {
  const Emit& e = l.emit;
  HEDDLE_TRY_ASSIGN(const ir::Window window, window_of(l));
  Tensor total = nil;
  if (slides(l, window)) {
    const Sliding s = sliding(l, window);
    total = [e.graph() avgPooling4DWithSourceTensor:e.reshape(l.inputs[0], s.in)
                                         descriptor:s.descriptor
                                               name:nil];
    total = e.mul(total, e.like(static_cast<double>(ir::Extents(window.kernel).elements()), total));
    total = e.reshape(total, l.out_extents());
  } else {
    HEDDLE_TRY(check_taps(window));
    for (const Tap& tap : taps(e, l.inputs[0], window, l.out_extents(), 0))
      total = total == nil ? tap.value : e.add(total, tap.value);
  }
  l.outputs[0] = e.div(total, divisors(l, window));
  return {};
}

Status lower_lp_pool(Lowering& l) {
  const Emit& e = l.emit;
  HEDDLE_TRY_ASSIGN(const ir::Window window, window_of(l));
  HEDDLE_TRY(check_taps(window));
  const auto p = static_cast<double>(l.attributes().i64("p", 2));
  Tensor x = l.inputs[0], total = nil;
  x = p == 2 ? e.square(x) : e.power(e.abs(x), e.like(p, x));
  for (const Tap& tap : taps(e, x, window, l.out_extents(), 0))
    total = total == nil ? tap.value : e.add(total, tap.value);
  l.outputs[0] = p == 2 ? e.sqrt(total) : e.power(total, e.like(1 / p, total));
  return {};
}

// The windows of the pool that was undone give the tensor that the indices are places of; it fills the first
// corner of the output, or the output is its corner.
Status lower_unpool(Lowering& l) {
  const Emit& e = l.emit;
  HEDDLE_TRY_ASSIGN(const ir::Window window, window_of(l));
  const ir::Extents x = l.extents(0);
  ir::Extents whole{x[0], x[1]};
  for (size_t i = 0; i < window.axes(); ++i) {
    whole.push_back((x[2 + i] - 1) * window.strides[i] + window.kernel[i] - window.pads_begin[i] -
                    window.pads_end[i]);
  }
  const int64_t count = whole.elements();
  Tensor indices = l.inputs[1], zero = e.whole(0, dtype_of(indices));
  Tensor wrong = e.either(e.less(indices, zero), e.greater_equal(indices, e.whole(count, dtype_of(indices))));
  l.mistakes.push_back({wrong, 1, text("an index is outside [0, ", count - 1, "]")});
  indices = e.cast(e.choose(wrong, zero, indices), ir::DType::kI32);
  Tensor out = put_last(e, e.filled(0, dtype_of(l.inputs[0]), {count, 1}),
                        e.reshape(l.inputs[0], {x.elements(), 1}), e.reshape(indices, {x.elements()}));
  l.outputs[0] = cut_out(e, e.reshape(out, whole), Axes(whole.rank(), 0), l.out_extents());
  return {};
}

Axes spatial_axes(const Lowering& l) {
  Axes axes;
  for (size_t i = 2; i < l.extents(0).rank(); ++i) axes.push_back(static_cast<int64_t>(i));
  return axes;
}
Status lower_global_average(Lowering& l) {
  l.outputs[0] = l.emit.mean(l.inputs[0], spatial_axes(l));
  return {};
}
Status lower_global_max(Lowering& l) {
  l.outputs[0] = l.emit.greatest(l.inputs[0], spatial_axes(l));
  return {};
}

}  // namespace

std::span<const PathEntry> pooling_paths() {
  using enum Path;
  static constexpr PathEntry kEntries[] = {
      {"MaxPool", composed, lower_max_pool, kWide,
       "over four axes, with a second pool for NaN, which MPSGraph's may lose; indices, and integers beyond "
       "16 bits, tap by tap: MPSGraph's indices have another order"},
      {"AveragePool", composed, lower_average_pool, kWide,
       "MPSGraph's divides by the whole window: the divisor of each place is a constant"},
      {"LpPool", composed, lower_lp_pool, kWide, "tap by tap: MPSGraph has p = 2 only"},
      {"MaxUnpool", composed, lower_unpool, kWide, "as a scatter: MPSGraph has it as a gradient only"},
      {"GlobalAveragePool", graph, lower_global_average, kWide, "the mean over the spatial axes"},
      {"GlobalMaxPool", graph, lower_global_max, kWide, "the maximum over the spatial axes"},
  };
  return kEntries;
}

}  // namespace heddle::metal
