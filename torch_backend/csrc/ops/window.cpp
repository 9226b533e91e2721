// window.cpp: convolutions.
#include <algorithm>
#include <string_view>

#include "../table.h"
#include "parts.h"

namespace heddle::torch_backend {
namespace {

struct Windows {
  std::vector<int64_t> stride, dilation;
  std::vector<int64_t> begin, end;  // padding
  bool transposed = false;
  std::vector<int64_t> output_padding;
  int64_t groups = 1;
};

// Whole numbers are convolved in f64, which holds them up to 2^53.
Value convolvable(Call& call, int argument) {
  const Value value = call.tensor(argument);
  if (!present(value)) return value;
  return call.cast(value, is_float(call.dtype(value)) ? wide(call.dtype(value)) : DType::f64);
}

size_t spatial_axes(Call& call) { return static_cast<size_t>(call.rank(call.tensor(1))) - 2; }

Value convolve(Call& call, const Windows& windows) {
  Value x = convolvable(call, 0);
  const Value weight = convolvable(call, 1), bias = convolvable(call, 2);
  const bool batched = call.rank(x) == call.rank(weight);
  if (!batched) x = call.unsqueeze(x, {0});
  std::vector<int64_t> pads = windows.begin;
  pads.insert(pads.end(), windows.end.begin(), windows.end.end());
  AttributeList attributes = {{"strides", windows.stride},
                              {"dilations", windows.dilation},
                              {"pads", pads},
                              {"group", windows.groups}};
  if (windows.transposed) attributes.emplace_back("output_padding", windows.output_padding);
  std::vector<Value> inputs = {x, weight};
  if (present(bias)) inputs.push_back(bias);
  const Value y = call.node(windows.transposed ? "ConvTranspose" : "Conv", inputs, attributes);
  return batched ? y : call.squeeze(y, {0});
}

// What all have: (input, weight, bias, stride, padding, ..). The numbers are the places of the others.
Windows windows_of(Call& call, int dilation, int groups) {
  Windows windows;
  windows.stride = per_axis(call, 3, spatial_axes(call));
  windows.dilation = per_axis(call, dilation, spatial_axes(call));
  windows.groups = call.integer(groups);
  return windows;
}

Windows padded_alike(Call& call, int dilation, int groups) {
  Windows windows = windows_of(call, dilation, groups);
  windows.begin = windows.end = per_axis(call, 4, spatial_axes(call));
  return windows;
}

// (.., dilation, transposed, output_padding, groups)
Results convolution(Call& call) {
  Windows windows = padded_alike(call, 5, 8);
  windows.transposed = call.flag(6);
  windows.output_padding = per_axis(call, 7, spatial_axes(call), {0});
  return convolve(call, windows);
}

// (.., dilation, groups)
Results plain(Call& call) { return convolve(call, padded_alike(call, 5, 6)); }

// The same with padding "valid" or "same", which puts an odd one behind.
Results named_padding(Call& call) {
  Windows windows = windows_of(call, 5, 6);
  for (size_t i = 0; i < spatial_axes(call); ++i) {
    const int64_t taps = call.extent(call.tensor(1), static_cast<int>(2 + i));
    const int64_t total = call.text(4) == "same" ? windows.dilation[i] * (taps - 1) : 0;
    windows.begin.push_back(total / 2);
    windows.end.push_back(total - total / 2);
  }
  return convolve(call, windows);
}

// (.., output_padding, groups, dilation)
Results transposed(Call& call) {
  Windows windows = padded_alike(call, 7, 6);
  windows.transposed = true;
  windows.output_padding = per_axis(call, 5, spatial_axes(call), {0});
  return convolve(call, windows);
}

}  // namespace

std::span<const Entry> window_entries() {
  static constexpr Entry kEntries[] = {
      {"aten::convolution", convolution},
      {"aten::convolution_overrideable", convolution},
      {"aten::_convolution", convolution},
      {"aten::conv1d", plain},
      {"aten::conv2d", plain},
      {"aten::conv3d", plain},
      {"aten::conv1d.padding", named_padding},
      {"aten::conv2d.padding", named_padding},
      {"aten::conv3d.padding", named_padding},
      {"aten::conv_transpose1d", transposed},
      {"aten::conv_transpose2d.input", transposed},
      {"aten::conv_transpose3d.input", transposed},
  };
  return kEntries;
}

}  // namespace heddle::torch_backend
