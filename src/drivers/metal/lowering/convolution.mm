// Conv, ConvTranspose and ConvInteger. One spatial axis runs as two, the first of 1.
#include "ir/ops/convolution.h"
#include "drivers/metal/lowering/convolve.h"
#include "drivers/metal/lowering/products.h"
#include "drivers/metal/lowering/windows.h"
#include "ir/transposed_window.h"

namespace heddle::metal {
namespace {

ir::Extents with_two_axes(const ir::Extents& extents) {
  return extents.rank() == 3 ? ir::Extents{extents[0], extents[1], 1, extents[2]} : extents;
}

Status check_axes(const Lowering& l) {
  const size_t axes = l.extents(0).rank() - 2;
  if (axes <= 3) return {};
  return Status::unsupported("it has ", axes, " spatial axes; MPSGraph convolves over 1 to 3");
}

Result<Geometry> geometry_of(const Lowering& l) {
  HEDDLE_TRY(check_axes(l));
  const ir::Extents x = l.extents(0), w = l.extents(1);
  HEDDLE_TRY_ASSIGN(const ir::Window window,
                    ir::Window::of(l.node, x.rank() - 2, Axes(w.begin() + 2, w.end())));
  Geometry g;
  g.groups = l.attributes().i64("group", 1);
  if (window.axes() == 1) g.add(1, 1, 0, 0);
  for (size_t i = 0; i < window.axes(); ++i) {
    const auto [begin, end] = window.pads(i, x[2 + i]);
    g.add(window.strides[i], window.dilations[i], begin, end);
  }
  return g;
}

// [n] as [1, n, 1, ..] for an output of that rank.
Tensor per_channel(const Emit& e, Tensor x, size_t rank) {
  ir::Extents extents;
  for (size_t i = 0; i < rank; ++i) extents.push_back(i == 1 ? extents_of(x)[0] : 1);
  return e.reshape(x, extents);
}

// activation(conv + b + residual)
Status lower_conv(Lowering& l) {
  const Emit& e = l.emit;
  HEDDLE_TRY_ASSIGN(const ir::Activation activation, ir::activation_of(l.node));
  HEDDLE_TRY_ASSIGN(const Geometry g, geometry_of(l));
  Tensor x = e.reshape(l.inputs[0], with_two_axes(l.extents(0)));
  Tensor w = e.reshape(l.inputs[1], with_two_axes(l.extents(1)));
  HEDDLE_TRY_ASSIGN(Tensor out, convolve(e, x, w, g));
  out = e.reshape(out, l.out_extents());
  if (l.has(2)) out = e.add(out, per_channel(e, l.inputs[2], l.out_extents().rank()));
  if (l.has(3)) out = e.add(out, l.inputs[3]);
  l.outputs[0] = e.activate(out, activation);
  return {};
}

// Everything that the input reaches is computed, then what is wanted is cut out; beyond it lie zeros.
Status lower_transposed(Lowering& l) {
  const Emit& e = l.emit;
  HEDDLE_TRY(check_axes(l));
  HEDDLE_TRY_ASSIGN(const ir::Activation activation, ir::activation_of(l.node));
  const ir::Extents in = with_two_axes(l.extents(0)), w = with_two_axes(l.extents(1)),
                    wanted = with_two_axes(l.out_extents());
  const size_t given = l.extents(0).rank() - 2, added = in.rank() - 2 - given;
  HEDDLE_TRY_ASSIGN(const ir::TransposedWindow window,
                    ir::TransposedWindow::of(l.node, given, Axes(w.begin() + 2 + added, w.end())));
  Geometry g;
  g.groups = l.attributes().i64("group", 1);
  ir::Extents all{wanted[0], wanted[1]};
  Axes from(in.rank(), 0);
  for (size_t i = 0; i + 2 < in.rank(); ++i) {
    const bool real = i >= added;
    const int64_t stride = real ? window.window.strides[i - added] : 1;
    const int64_t dilation = real ? window.window.dilations[i - added] : 1;
    g.add(stride, dilation, 0, 0);
    all.push_back((in[2 + i] - 1) * stride + (w[2 + i] - 1) * dilation + 1);
    from[2 + i] = real ? window.begin(i - added, in[2 + i]) : 0;
  }
  HEDDLE_TRY_ASSIGN(Tensor out,
                    convolve_transposed(e, e.reshape(l.inputs[0], in), e.reshape(l.inputs[1], w), all, g));
  out = e.reshape(cut_out(e, out, from, wanted), l.out_extents());
  if (l.has(2)) out = e.add(out, per_channel(e, l.inputs[2], l.out_extents().rank()));
  l.outputs[0] = e.activate(out, activation);
  return {};
}

// In f32, as many input channels at a time as keep the sums below 2^24, where they are exact.
Status lower_conv_integer(Lowering& l) {
  const Emit& e = l.emit;
  HEDDLE_TRY_ASSIGN(Geometry g, geometry_of(l));
  const ir::Extents wide = with_two_axes(l.extents(1)), image = with_two_axes(l.extents(0));
  int64_t taps = 1;
  for (size_t i = 2; i < wide.rank(); ++i) taps *= wide[i];
  const int64_t channels = (1 << 24) / (255 * 255) / taps;
  if (channels < 1)
    return Status::unsupported("its window has ", taps, " taps; at most 258 can be summed exactly");
  const auto f32 = [&](size_t input) { return e.cast(l.inputs[input], ir::DType::kF32); };
  Tensor x = f32(0), w = f32(1);
  if (l.has(2)) x = e.sub(x, f32(2));
  if (l.has(3)) w = e.sub(w, f32(3));
  x = e.reshape(x, image);
  w = e.reshape(w, wide);
  const int64_t per_group = wide[1], out_channels = wide[0] / g.groups, groups = g.groups;
  g.groups = 1;
  std::vector<Tensor> parts;
  for (int64_t group = 0; group < groups; ++group) {
    Tensor total = nil, weights = e.slice(w, 0, group * out_channels, out_channels);
    for (int64_t begin = 0; begin < per_group; begin += channels) {
      const int64_t count = std::min(channels, per_group - begin);
      HEDDLE_TRY_ASSIGN(Tensor part, convolve(e, e.slice(x, 1, group * per_group + begin, count),
                                              e.slice(weights, 1, begin, count), g));
      part = e.cast(e.round(part), ir::DType::kI32);
      total = total == nil ? part : e.add(total, part);
    }
    parts.push_back(total);
  }
  l.outputs[0] = e.concat(parts, 1);
  return {};
}

}  // namespace

std::span<const PathEntry> convolution_paths() {
  using enum Path;
  static constexpr PathEntry kEntries[] = {
      {"Conv", composed, lower_conv, kWide | kHalves,
       "bias, residual and activation are operators of their own"},
      {"ConvTranspose", composed, lower_transposed, kWide | kHalves,
       "as the gradient of the forward convolution's data, of which any part can be cut out; MPSGraph's own "
       "has "
       "no third spatial axis"},
      {"ConvInteger", composed, lower_conv_integer, kPlain,
       "in f32, few enough channels at a time to be exact: MPSGraph convolves floats only"},
  };
  return kEntries;
}

}  // namespace heddle::metal
