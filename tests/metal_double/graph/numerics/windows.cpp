#include "tests/metal_double/graph/numerics/windows.h"

#include <algorithm>
#include <limits>

#include "tests/metal_double/graph/numerics/strided.h"

namespace heddle::metal_double::numerics {
namespace {

size_t u(int64_t n) { return static_cast<size_t>(n); }

// An image's axes, whatever their order in memory; two spatial ones come as three.
enum : size_t { kOuter, kChannel, kZ, kY, kX, kImageAxes };
using Five = std::array<int64_t, kImageAxes>;
struct Image {
  Five extents, strides;
  int64_t at(const Five& place) const {
    int64_t sum = 0;
    for (size_t i = 0; i < kImageAxes; ++i) sum += place[i] * strides[i];
    return sum;
  }
  int64_t pixels() const { return extents[kZ] * extents[kY] * extents[kX]; }
};

Image image_of(const Shape& shape, const Layout& layout) {
  const Strides strides = strides_of(shape);
  Image image{{1, 1, 1, 1, 1}, {}};
  const auto set = [&](size_t as, size_t axis) {
    image.extents[as] = shape[axis];
    image.strides[as] = strides[axis];
  };
  set(kOuter, layout.outer);
  set(kChannel, layout.channel);
  for (size_t i = 0; i < layout.spatial.size(); ++i)
    set(kImageAxes - layout.spatial.size() + i, layout.spatial[i]);
  return image;
}

// A window's numbers, of three spatial axes.
struct Slide {
  int64_t stride = 1, dilation = 1, before = 0;
  int64_t source(int64_t place, int64_t tap) const { return place * stride + tap * dilation - before; }
};
std::array<Slide, 3> slides_of(const Window& window) {
  std::array<Slide, 3> slides;
  for (size_t i = 0; i < window.axes(); ++i)
    slides[3 - window.axes() + i] = {window.strides[i], window.dilations[i], window.before[i]};
  return slides;
}

// A tap of the weights over a row of windows: windows x to x_end see source elements from `source_x` on,
// `step` apart.
struct Row {
  int64_t tap_z, tap_y, tap_x, z, y, x, x_end, source_z, source_y, source_x, step;
};

// The windows of a row whose element under tap_x is inside the source.
void clip(Row& row, const Slide& slide, int64_t windows, int64_t source) {
  row.step = slide.stride;
  row.x = 0, row.x_end = windows;
  while (row.x < row.x_end && slide.source(row.x, row.tap_x) < 0) ++row.x;
  while (row.x_end > row.x && slide.source(row.x_end - 1, row.tap_x) >= source) --row.x_end;
  row.source_x = slide.source(row.x, row.tap_x);
}

// f(row), for all taps and rows that are not all padding.
template <class F>
void each_row(const Window& window, const Five& kernel, const Five& windows, const Five& source, F&& f) {
  const std::array<Slide, 3> slides = slides_of(window);
  Row row{};
  const auto rows = [&] {
    for (row.z = 0; row.z < windows[kZ]; ++row.z) {
      row.source_z = slides[0].source(row.z, row.tap_z);
      if (row.source_z < 0 || row.source_z >= source[kZ]) continue;
      for (row.y = 0; row.y < windows[kY]; ++row.y) {
        row.source_y = slides[1].source(row.y, row.tap_y);
        if (row.source_y >= 0 && row.source_y < source[kY]) f(static_cast<const Row&>(row));
      }
    }
  };
  for (row.tap_z = 0; row.tap_z < kernel[kZ]; ++row.tap_z) {
    for (row.tap_y = 0; row.tap_y < kernel[kY]; ++row.tap_y) {
      for (row.tap_x = 0; row.tap_x < kernel[kX]; ++row.tap_x) {
        clip(row, slides[2], windows[kX], source[kX]);
        rows();
      }
    }
  }
}

void store(const std::vector<float>& plane, const Image& image, int64_t outer, int64_t channel, float* to) {
  const float* from = plane.data();
  for (int64_t z = 0; z < image.extents[kZ]; ++z) {
    for (int64_t y = 0; y < image.extents[kY]; ++y) {
      for (int64_t x = 0; x < image.extents[kX]; ++x) to[image.at({outer, channel, z, y, x})] = *from++;
    }
  }
}

}  // namespace

int64_t Window::count(size_t axis, int64_t extent) const {
  const int64_t room = extent + before[axis] + after[axis] - reach(axis);
  return room < 0 ? 0 : room / strides[axis] + 1;
}

bool Window::pad(MPSGraphPaddingStyle style, const std::vector<int64_t>& extents) {
  if (style == MPSGraphPaddingStyleExplicit) return true;
  if (style == MPSGraphPaddingStyleExplicitOffset) return false;
  before.assign(axes(), 0);
  after.assign(axes(), 0);
  if (style == MPSGraphPaddingStyleTF_VALID) return true;
  for (size_t i = 0; i < axes(); ++i) {
    const int64_t wanted = (extents[i] + strides[i] - 1) / strides[i];
    const int64_t all = std::max<int64_t>((wanted - 1) * strides[i] + reach(i) - extents[i], 0);
    before[i] = after[i] = all / 2;
    (style == MPSGraphPaddingStyleTF_SAME ? after : before)[i] += all % 2;
  }
  return true;
}

std::optional<Layout> Layout::of(MPSGraphTensorNamedDataLayout layout) {
  switch (layout) {
    case MPSGraphTensorNamedDataLayoutNCHW:
    case MPSGraphTensorNamedDataLayoutOIHW:
      return Layout{0, 1, {2, 3}};
    case MPSGraphTensorNamedDataLayoutNHWC:
      return Layout{0, 3, {1, 2}};
    case MPSGraphTensorNamedDataLayoutHWIO:
      return Layout{3, 2, {0, 1}};
    case MPSGraphTensorNamedDataLayoutNCDHW:
    case MPSGraphTensorNamedDataLayoutOIDHW:
      return Layout{0, 1, {2, 3, 4}};
    case MPSGraphTensorNamedDataLayoutNDHWC:
      return Layout{0, 4, {1, 2, 3}};
    case MPSGraphTensorNamedDataLayoutDHWIO:
      return Layout{4, 3, {0, 1, 2}};
    default:
      return std::nullopt;  // an image without batch or channels
  }
}

std::vector<int64_t> Layout::spatial_of(const Shape& shape) const {
  std::vector<int64_t> extents;
  for (const size_t axis : spatial) extents.push_back(shape[axis]);
  return extents;
}

std::optional<Shape> convolved_shape(const Shape& x, const Shape& weights, const Convolution& c) {
  const int64_t made = weights[c.weights.outer];
  if (x[c.data.channel] != weights[c.weights.channel] * c.groups || made % c.groups != 0) return std::nullopt;
  Shape shape = x;
  shape[c.data.channel] = made;
  for (size_t i = 0; i < c.window.axes(); ++i) {
    int64_t& extent = shape[c.data.spatial[i]];
    extent = c.window.count(i, extent);
    if (extent < 1) return std::nullopt;
  }
  return shape;
}

Array convolution(const Array& x, const Array& weights, const Convolution& c) {
  const Shape shape = *convolved_shape(x.shape(), weights.shape(), c);
  const Image in = image_of(x.shape(), c.data), out = image_of(shape, c.data);
  const Image kernel = image_of(weights.shape(), c.weights);
  const std::vector<float> source = floats_of(x), w = floats_of(weights);
  std::vector<float> made(u(elements_of(shape))), plane(u(out.pixels()));
  const int64_t group_out = out.extents[kChannel] / c.groups, group_in = kernel.extents[kChannel];
  for (int64_t n = 0; n < out.extents[kOuter]; ++n) {
    for (int64_t o = 0; o < out.extents[kChannel]; ++o) {
      std::fill(plane.begin(), plane.end(), 0.0F);
      for (int64_t i = 0; i < group_in; ++i) {
        const int64_t channel = o / group_out * group_in + i;
        each_row(c.window, kernel.extents, out.extents, in.extents, [&](const Row& r) {
          const float factor = w[u(kernel.at({o, i, r.tap_z, r.tap_y, r.tap_x}))];
          float* const to = plane.data() + (r.z * out.extents[kY] + r.y) * out.extents[kX];
          const float* const from = source.data() + in.at({n, channel, r.source_z, r.source_y, r.source_x});
          const int64_t step = r.step * in.strides[kX];
          for (int64_t k = 0; k < r.x_end - r.x; ++k) to[r.x + k] += factor * from[k * step];
        });
      }
      store(plane, out, n, o, made.data());
    }
  }
  return of_floats(x.type(), shape, made);
}

Array data_gradient(const Array& gradient, const Array& weights, const Shape& source, const Convolution& c) {
  const Image in = image_of(source, c.data), out = image_of(gradient.shape(), c.data);
  const Image kernel = image_of(weights.shape(), c.weights);
  const std::vector<float> given = floats_of(gradient), w = floats_of(weights);
  std::vector<float> made(u(elements_of(source))), plane(u(in.pixels()));
  const int64_t group_out = out.extents[kChannel] / c.groups, group_in = kernel.extents[kChannel];
  for (int64_t n = 0; n < in.extents[kOuter]; ++n) {
    for (int64_t channel = 0; channel < in.extents[kChannel]; ++channel) {
      std::fill(plane.begin(), plane.end(), 0.0F);
      for (int64_t k = 0; k < group_out; ++k) {
        const int64_t o = channel / group_in * group_out + k, i = channel % group_in;
        each_row(c.window, kernel.extents, out.extents, in.extents, [&](const Row& r) {
          const float factor = w[u(kernel.at({o, i, r.tap_z, r.tap_y, r.tap_x}))];
          float* const to =
              plane.data() + (r.source_z * in.extents[kY] + r.source_y) * in.extents[kX] + r.source_x;
          const float* const from = given.data() + out.at({n, o, r.z, r.y, r.x});
          for (int64_t j = 0; j < r.x_end - r.x; ++j) to[j * r.step] += factor * from[j * out.strides[kX]];
        });
      }
      store(plane, in, n, channel, made.data());
    }
  }
  return of_floats(gradient.type(), source, made);
}

}  // namespace heddle::metal_double::numerics
