// Operators that read or write images at computed places: GridSample, RoiAlign, Col2Im. And Det.
//
// GridSample has an attribute of its own: with places=1 the grid names elements (0 is the first one's
// centre).
#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "ir/ops/rules.h"
#include "ir/ops/tables.h"
#include "ir/ops/walk.h"
#include "ir/sampler.h"

namespace heddle::ir {

namespace {

Inferred infer_grid_sample(const Node& node, Operands in) {
  const TensorType& type = in[0]->type;
  const Shape& grid = in[1]->type.shape;
  HEDDLE_TRY(Sampler::check(node));
  HEDDLE_TRY(check_rank(*in[0], "x", 3));
  HEDDLE_TRY(accept(*in[1], "grid", Accept::kFloat));
  HEDDLE_TRY(check_rank(*in[1], "grid", type.rank(), type.rank()));
  const int64_t spatial = static_cast<int64_t>(type.rank()) - 2;
  if (!Dim::may_equal(grid.back(), spatial) || !Dim::may_equal(grid[0], type.shape[0])) {
    return Status::invalid("grid is ", in[1]->type, "; for ", type, " its first extent has to be ",
                           type.shape[0], " and its last ", spatial);
  }
  Shape shape = {Dim(Dim::clearer(type.shape[0], grid[0])), type.shape[1]};
  shape.insert(shape.end(), grid.begin() + 1, grid.end() - 1);
  return one(type.dtype, std::move(shape));
}

struct PlaneTap {
  int64_t position;  // in one plane
  double weight;
};

// Every tap of one axis with every tap of the others.
std::vector<PlaneTap> taps_of(const Sampler& sampler, const Extents& image, const std::vector<double>& at) {
  std::vector<PlaneTap> all = {{0, 1}};
  for (size_t axis = 0; axis < sampler.axes(); ++axis) {
    const Sampler::AxisTaps here = sampler.along(axis, at[axis]);
    std::vector<PlaneTap> product;
    for (const PlaneTap& before : all) {
      for (size_t i = 0; i < sampler.taps_per_axis(); ++i) {
        product.push_back(
            {before.position * image[2 + axis] + here[i].position, before.weight * here[i].weight});
      }
    }
    all = std::move(product);
  }
  return all;
}

Status reference_grid_sample(const Node& node, DataIn in, DataOut out) {
  const Extents& image = in[0]->extents();
  if (out[0].elements() == 0) return {};
  const Sampler sampler(node, image);
  const int64_t spatial = static_cast<int64_t>(sampler.axes());
  const int64_t channels = image[1];
  int64_t plane = 1, points = 1;
  for (size_t i = 2; i < image.rank(); ++i) plane *= image[i];
  for (size_t i = 2; i < image.rank(); ++i) points *= out[0].extents()[i];
  for (int64_t n = 0; n < out[0].extents()[0]; ++n) {
    for (int64_t p = 0; p < points; ++p) {
      std::vector<double> at;  // the grid names the last axis first
      for (int64_t i = spatial; i-- > 0;) at.push_back(in[1]->get((n * points + p) * spatial + i));
      const std::vector<PlaneTap> taps = taps_of(sampler, image, at);
      for (int64_t c = 0; c < channels; ++c) {
        double sum = 0;
        for (const PlaneTap& tap : taps) {
          // What has no weight is not read: an infinity there would become NaN.
          if (tap.weight != 0) sum += tap.weight * in[0]->get((n * channels + c) * plane + tap.position);
        }
        out[0].set((n * channels + c) * points + p, sum);
      }
    }
  }
  return {};
}

Inferred infer_roi_align(const Node& node, Operands in) {
  const std::string mode = node.attributes.str("mode", "avg");
  const std::string coordinates = node.attributes.str("coordinate_transformation_mode", "half_pixel");
  if (mode != "avg" && mode != "max")
    return Status::invalid("attribute 'mode' is '", mode, "'; it has to be 'avg' or 'max'");
  if (coordinates != "half_pixel" && coordinates != "output_half_pixel") {
    return Status::invalid("attribute 'coordinate_transformation_mode' is '", coordinates,
                           "'; it has to be 'half_pixel' or 'output_half_pixel'");
  }
  HEDDLE_TRY(accept(*in[0], "x", Accept::kFloat));
  HEDDLE_TRY(check_rank(*in[0], "x", 4, 4));
  HEDDLE_TRY(same_dtype(*in[0], "x", *in[1], "rois"));
  HEDDLE_TRY(check_rank(*in[1], "rois", 2, 2));
  HEDDLE_TRY(check_shape(*in[1], "rois", {in[1]->type.shape[0], 4}));
  HEDDLE_TRY(accept(*in[2], "batch_indices", Accept::kIndex));
  HEDDLE_TRY(check_shape(*in[2], "batch_indices", {in[1]->type.shape[0]}));
  const int64_t height = node.attributes.i64("output_height", 1),
                width = node.attributes.i64("output_width", 1);
  if (height < 1 || width < 1)
    return Status::invalid("the output is ", height, " high and ", width, " wide; both have to be 1 or more");
  constexpr int64_t kMostSamples = 4096;  // along an axis of a bin
  const int64_t ratio = node.attributes.i64("sampling_ratio");
  if (ratio > kMostSamples)
    return Status::invalid("attribute 'sampling_ratio' is ", ratio, "; it has to be at most ", kMostSamples);
  return one(in[0]->type.dtype, {in[1]->type.shape[0], in[0]->type.shape[1], height, width});
}

// Four neighbours and their weights; none beyond the border, as the operator's definition has it.
struct Corner {
  int64_t position;
  double weight;
};
std::array<Corner, 4> corners(double y, double x, int64_t height, int64_t width) {
  const bool near = y >= -1 && y <= static_cast<double>(height) && x >= -1 && x <= static_cast<double>(width);
  if (!near) return {};  // nor is NaN near
  const auto split = [](double at, int64_t extent) {
    const double held = std::clamp(at, 0.0, static_cast<double>(extent - 1));
    const int64_t low = static_cast<int64_t>(held);
    return std::tuple(low, std::min(low + 1, extent - 1), held - static_cast<double>(low));
  };
  const auto [top, bottom, down] = split(y, height);
  const auto [left, right, along] = split(x, width);
  return {{{top * width + left, (1 - down) * (1 - along)},
           {top * width + right, (1 - down) * along},
           {bottom * width + left, down * (1 - along)},
           {bottom * width + right, down * along}}};
}

struct Bins {
  double start, size;
  int64_t samples;  // along one axis of one bin
  double at(int64_t bin, int64_t sample) const {
    const double inside = (static_cast<double>(sample) + 0.5) / static_cast<double>(samples);
    return start + (static_cast<double>(bin) + inside) * size;
  }
  // How many samples are before `place`, or one or two fewer.
  int64_t before(double place, int64_t bin) const {
    const double count = static_cast<double>(samples);
    const double many = ((place - start) / size - static_cast<double>(bin)) * count - 1;
    return many > 0 ? static_cast<int64_t>(std::min(many, count)) : 0;
  }
  // Those that may be in an image of that extent, however far the box goes beyond it.
  std::pair<int64_t, int64_t> near(int64_t bin, int64_t extent) const {
    if (extent == 0) return {0, 0};
    if (!(size > 0)) return {0, samples};
    return {before(-1, bin), std::min(samples, before(static_cast<double>(extent), bin) + 3)};
  }
};

int64_t samples_in(double size) {
  return size > 0 ? static_cast<int64_t>(std::ceil(std::min(size, 0x1p60))) : 0;
}

Bins bins_of(const Node& node, double from, double to, int64_t count) {
  const double scale = node.attributes.f64("spatial_scale", 1);
  const bool half = node.attributes.str("coordinate_transformation_mode", "half_pixel") == "half_pixel";
  const double start = from * scale - (half ? 0.5 : 0), end = to * scale - (half ? 0.5 : 0);
  const double length = half ? end - start : std::max(end - start, 1.0);
  const double size = length / static_cast<double>(count);
  const int64_t ratio = node.attributes.i64("sampling_ratio");
  return {start, size, ratio > 0 ? ratio : samples_in(size)};
}

Status reference_roi_align(const Node& node, DataIn in, DataOut out) {
  const Extents& image = in[0]->extents();
  const Extents& to = out[0].extents();
  const bool average = node.attributes.str("mode", "avg") == "avg";
  walk(to, [&](const Index& index, int64_t flat) {
    const int64_t roi = index[0];
    const Bins y = bins_of(node, in[1]->get(roi * 4 + 1), in[1]->get(roi * 4 + 3), to[2]);
    const Bins x = bins_of(node, in[1]->get(roi * 4), in[1]->get(roi * 4 + 2), to[3]);
    const int64_t n = in[2]->get_i64(roi);
    double sum = 0, most = 0;
    const auto [top, bottom] = y.near(index[2], image[2]);
    const auto [left, right] = x.near(index[3], image[3]);
    bool first = bottom - top == y.samples && right - left == x.samples;  // the others are 0
    for (int64_t i = top; n >= 0 && n < image[0] && i < bottom; ++i) {
      for (int64_t k = left; k < right; ++k) {
        for (const Corner& c : corners(y.at(index[2], i), x.at(index[3], k), image[2], image[3])) {
          const double part =
              c.weight * in[0]->get((n * image[1] + index[1]) * image[2] * image[3] + c.position);
          sum += part;
          most = first ? part : std::max(most, part);
          first = false;
        }
      }
    }
    const double count = std::max(static_cast<double>(y.samples) * static_cast<double>(x.samples), 1.0);
    out[0].set(flat, average ? sum / count : most);
  });
  for (int64_t roi = 0; roi < to[0]; ++roi) {
    const int64_t n = in[2]->get_i64(roi);
    if (n < 0 || n >= image[0])
      return Status::invalid("batch_indices holds ", n, "; it has to be 0 to ", image[0] - 1);
  }
  return {};
}

struct Fold {
  std::vector<int64_t> image, block, dilations, pads, strides, blocks;
};

// How many blocks fit along each axis.
Result<Fold> fold_of(const Node& node, const std::vector<int64_t>& image, const std::vector<int64_t>& block) {
  const size_t axes = image.size();
  const std::vector<int64_t> ones(axes, 1), zeros(2 * axes, 0);
  Fold fold{image,
            block,
            node.attributes.ints("dilations", ones),
            node.attributes.ints("pads", zeros),
            node.attributes.ints("strides", ones),
            {}};
  if (block.size() != axes || fold.dilations.size() != axes || fold.strides.size() != axes ||
      fold.pads.size() != 2 * axes) {
    return Status::invalid("image_shape has ", axes, " axes; block_shape has ", block.size(), ", strides ",
                           fold.strides.size(), ", dilations ", fold.dilations.size(), ", pads ",
                           fold.pads.size(), ", which has to be twice as many");
  }
  for (size_t i = 0; i < axes; ++i) {
    constexpr int64_t kMost = int64_t{1} << 30;  // products of two such numbers stay within 64 bits
    const int64_t begin = fold.pads[i], end = fold.pads[axes + i];
    if (begin < 0 || begin > kMost || end < 0 || end > kMost)
      return Status::invalid("pads of axis ", i, " are ", begin, " and ", end, "; they have to be 0 to ",
                             kMost);
    const auto within = [](int64_t number) { return number >= 1 && number <= kMost; };
    const bool whole = within(block[i]) && within(fold.dilations[i]) && within(fold.strides[i]);
    const int64_t reach = whole ? fold.dilations[i] * (block[i] - 1) + 1 : 0;
    const int64_t room = (Dim(image[i]) + begin + end - reach).value();
    if (!whole || room < 0) {
      return Status::invalid("a block of ", block[i], " with stride ", fold.strides[i], " and dilation ",
                             fold.dilations[i], " does not fit axis ", i, " of the image, which has ",
                             image[i]);
    }
    fold.blocks.push_back(room / fold.strides[i] + 1);
  }
  return fold;
}

int64_t product(const std::vector<int64_t>& numbers) {
  Dim all = 1;
  for (int64_t n : numbers) all = all * n;
  return all.value();
}

Inferred infer_col2im(const Node& node, Operands in) {
  HEDDLE_TRY(accept(*in[0], "x", Accept::kNumber));
  HEDDLE_TRY(check_rank(*in[0], "x", 3, 3));
  HEDDLE_TRY_ASSIGN(const Argument image, shape_argument(*in[1], "image_shape"));
  HEDDLE_TRY_ASSIGN(const std::vector<int64_t> block, number_argument(*in[2], "block_shape"));
  const Shape& x = in[0]->type.shape;
  const Dim patch(product(block));
  const std::optional<Dim> channels = patch.is(0) ? std::nullopt : Dim::divide_exact(x[1], patch);
  if (!channels.has_value())
    return Status::invalid("x is ", in[0]->type, "; its axis 1 has to be a multiple of ", patch);
  std::vector<int64_t> numbers;
  for (const Dim& dim : image.dims) {
    if (dim.is_static()) numbers.push_back(dim.value());
  }
  if (numbers.size() == image.dims.size()) {
    HEDDLE_TRY_ASSIGN(const Fold fold, fold_of(node, numbers, block));
    if (!Dim::may_equal(x[2], product(fold.blocks)))
      return Status::invalid("x is ", in[0]->type, "; its last axis has to be ", product(fold.blocks));
  }
  Shape shape = {x[0], *channels};
  shape.insert(shape.end(), image.dims.begin(), image.dims.end());
  return one(in[0]->type.dtype, std::move(shape));
}

Status reference_col2im(const Node& node, DataIn in, DataOut out) {
  HEDDLE_TRY_ASSIGN(const Fold fold, fold_of(node, in[1]->to_i64(), in[2]->to_i64()));
  const size_t axes = fold.image.size();
  const Extents block{std::span<const int64_t>(fold.block)}, blocks{std::span<const int64_t>(fold.blocks)};
  const int64_t patch = product(fold.block), count = product(fold.blocks), plane = product(fold.image);
  std::vector<double> sums(static_cast<size_t>(out[0].elements()), 0);
  const bool real = is_float(out[0].dtype());
  for (int64_t channel = 0; channel < out[0].extents()[0] * out[0].extents()[1]; ++channel) {
    walk(block, [&](const Index& inside, int64_t offset) {
      walk(blocks, [&](const Index& which, int64_t number) {
        int64_t at = 0;
        for (size_t i = 0; i < axes; ++i) {
          const int64_t place = which[i] * fold.strides[i] - fold.pads[i] + inside[i] * fold.dilations[i];
          if (place < 0 || place >= fold.image[i]) return;
          at = at * fold.image[i] + place;
        }
        const int64_t from = (channel * patch + offset) * count + number, to = channel * plane + at;
        if (real) {
          sums[static_cast<size_t>(to)] += in[0]->get(from);
        } else {
          out[0].set_i64(to, wrap_add(out[0].get_i64(to), in[0]->get_i64(from)));
        }
      });
    });
  }
  for (int64_t i = 0; real && i < out[0].elements(); ++i) out[0].set(i, sums[static_cast<size_t>(i)]);
  return {};
}

Inferred infer_det(const Node&, Operands in) {
  HEDDLE_TRY(accept(*in[0], "x", Accept::kFloat));
  HEDDLE_TRY(check_rank(*in[0], "x", 2));
  const Shape& shape = in[0]->type.shape;
  if (!Dim::may_equal(shape[shape.size() - 2], shape.back()))
    return Status::invalid("x is ", in[0]->type, "; its last two extents have to be equal");
  return one(in[0]->type.dtype, {shape.begin(), shape.end() - 2});
}

// Gaussian elimination, the largest element of a column as pivot.
double determinant(std::vector<double> m, size_t n) {
  double det = 1;
  for (size_t column = 0; column < n; ++column) {
    size_t pivot = column;
    for (size_t row = column; row < n; ++row) {
      if (std::fabs(m[row * n + column]) > std::fabs(m[pivot * n + column])) pivot = row;
    }
    if (m[pivot * n + column] == 0) return 0;
    if (pivot != column) {
      std::swap_ranges(m.begin() + static_cast<int64_t>(pivot * n),
                       m.begin() + static_cast<int64_t>((pivot + 1) * n),
                       m.begin() + static_cast<int64_t>(column * n));
      det = -det;
    }
    det *= m[column * n + column];
    for (size_t row = column + 1; row < n; ++row) {
      const double factor = m[row * n + column] / m[column * n + column];
      for (size_t i = column; i < n; ++i) m[row * n + i] -= factor * m[column * n + i];
    }
  }
  return det;
}

Status reference_det(const Node&, DataIn in, DataOut out) {
  const int64_t n = in[0]->extents()[in[0]->extents().rank() - 1];
  for (int64_t i = 0; i < out[0].elements(); ++i) {
    std::vector<double> matrix;
    for (int64_t k = 0; k < n * n; ++k) matrix.push_back(in[0]->get(i * n * n + k));
    out[0].set(i, determinant(std::move(matrix), static_cast<size_t>(n)));
  }
  return {};
}

}  // namespace

std::vector<OpDef> sampling_ops() {
  using enum AttributeKind;
  return {
      {"GridSample",
       2,
       2,
       1,
       1,
       {{"align_corners", kInt}, {"mode", kString}, {"padding_mode", kString}, {"places", kInt}},
       infer_grid_sample,
       reference_grid_sample},
      {"RoiAlign",
       3,
       3,
       1,
       1,
       {{"coordinate_transformation_mode", kString},
        {"mode", kString},
        {"output_height", kInt},
        {"output_width", kInt},
        {"sampling_ratio", kInt},
        {"spatial_scale", kFloat}},
       infer_roi_align,
       reference_roi_align},
      {"Col2Im",
       3,
       3,
       1,
       1,
       {{"dilations", kInts}, {"pads", kInts}, {"strides", kInts}},
       infer_col2im,
       reference_col2im},
      {"Det", 1, 1, 1, 1, {}, infer_det, reference_det},
  };
}

}  // namespace heddle::ir
