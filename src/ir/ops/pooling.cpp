// Pooling over windows and over whole planes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/ops/rules.h"
#include "ir/ops/tables.h"
#include "ir/ops/walk.h"
#include "ir/window.h"

namespace heddle::ir {

namespace {

// Padding that covers a whole window would give windows without an element.
Status check_padding(const Window& window) {
  for (size_t i = 0; i < window.axes(); ++i) {
    const int64_t pad = std::max(window.pads_begin[i], window.pads_end[i]);
    if (pad >= window.reach(i)) {
      return Status::invalid("attribute 'pads' holds ", pad, " for a window that spans ", window.reach(i),
                             "; padding has to be smaller");
    }
  }
  return {};
}

Inferred infer_pool(const Node& node, Operands in) {
  const TensorType& x = in[0]->type;
  HEDDLE_TRY(accept(*in[0], "x", node.is("MaxPool") ? Accept::kNumber : Accept::kFloat));
  HEDDLE_TRY(check_rank(*in[0], "x", 3));
  HEDDLE_TRY_ASSIGN(const Window window, Window::of(node, x.rank() - 2, {}));
  HEDDLE_TRY(check_padding(window));
  Shape shape = {x.shape[0], x.shape[1]};
  for (size_t i = 0; i < window.axes(); ++i) {
    HEDDLE_TRY_ASSIGN(Dim extent, window.out(i, x.shape[2 + i]));
    shape.push_back(std::move(extent));
  }
  std::vector<Value> out;
  out.push_back(typed(x.dtype, shape));
  if (node.outputs.size() > 1) out.push_back(typed(DType::kI64, std::move(shape)));
  return out;
}

// Calls f(flat index of x) for each element under the window of one output element; returns the window's size
// with the padding it covers, but not what lies beyond the padding (ceil_mode).
template <class F>
int64_t visit(const Window& window, const Extents& x, const Index& index, F f) {
  const Strides strides(x);
  int64_t covered = 0;
  walk(Extents(window.kernel), [&](const Index& tap, int64_t) {
    Index source{};
    source[0] = index[0];
    source[1] = index[1];
    bool inside = true;
    bool counted = true;
    for (size_t i = 0; i < window.axes(); ++i) {
      const auto [begin, end] = window.pads(i, x[2 + i]);
      const int64_t at = index[2 + i] * window.strides[i] + tap[i] * window.dilations[i] - begin;
      source[2 + i] = at;
      inside = inside && at >= 0 && at < x[2 + i];
      counted = counted && at < x[2 + i] + end;
    }
    if (counted) ++covered;
    if (inside) f(strides.at(source));
  });
  return covered;
}

// The place of an element when its plane is laid out with the first spatial axis innermost.
int64_t by_columns(const Extents& x, int64_t flat) {
  const int64_t plane = Extents(x.span().subspan(2)).elements();
  int64_t rest = flat % plane, place = 0;
  for (size_t axis = x.rank(); axis-- > 2;) {
    place = place * x[axis] + rest % x[axis];
    rest /= x[axis];
  }
  return flat / plane * plane + place;
}

Status reference_max_pool(const Node& node, DataIn in, DataOut out) {
  const Extents& x = in[0]->extents();
  HEDDLE_TRY_ASSIGN(const Window window, Window::of(node, x.rank() - 2, {}));
  const bool floats = is_float(in[0]->dtype());
  const bool columns = node.attributes.i64("storage_order") != 0;
  walk(out[0].extents(), [&](const Index& index, int64_t flat) {
    int64_t best = -1;
    visit(window, x, index, [&](int64_t at) {
      if (best < 0) {
        best = at;
      } else if (floats) {  // NaN wins
        const double value = in[0]->get(at);
        if (std::isnan(value) || value > in[0]->get(best)) best = at;
      } else if (in[0]->get_i64(at) > in[0]->get_i64(best)) {
        best = at;
      }
    });
    if (best >= 0) {
      copy_element(out[0], flat, *in[0], best);
    } else if (floats) {  // dilated taps that all lie in the padding
      out[0].set(flat, -std::numeric_limits<double>::infinity());
    }
    if (out.size() > 1) out[1].set_i64(flat, columns ? by_columns(x, best) : best);
  });
  return {};
}

Status reference_lp_pool(const Node& node, DataIn in, DataOut out) {
  const Extents& x = in[0]->extents();
  HEDDLE_TRY_ASSIGN(const Window window, Window::of(node, x.rank() - 2, {}));
  const auto p = static_cast<double>(node.attributes.i64("p", 2));
  walk(out[0].extents(), [&](const Index& index, int64_t flat) {
    double sum = 0;
    visit(window, x, index, [&](int64_t at) { sum += std::pow(std::fabs(in[0]->get(at)), p); });
    out[0].set(flat, std::pow(sum, 1 / p));
  });
  return {};
}

// The inverse of MaxPool with indices, which are those of the tensor that was pooled; that is [N, C, out..]
// by the window, and fills the first corner of an output_shape that is given.
Result<std::vector<Dim>> unpooled(const Node& node, const Shape& x) {
  HEDDLE_TRY_ASSIGN(const Window window, Window::of(node, x.size() - 2, {}));
  std::vector<Dim> out = {x[0], x[1]};
  for (size_t i = 0; i < window.axes(); ++i) {
    out.push_back((x[2 + i] - Dim(1)) * Dim(window.strides[i]) + Dim(window.kernel[i]) -
                  Dim(window.pads_begin[i] + window.pads_end[i]));
  }
  return out;
}

Inferred infer_unpool(const Node& node, Operands in) {
  const TensorType& x = in[0]->type;
  HEDDLE_TRY(accept(*in[0], "x", Accept::kFloat));
  HEDDLE_TRY(check_rank(*in[0], "x", 3));
  HEDDLE_TRY(check_shape(*in[1], "indices", x.shape));
  if (in[1]->type.dtype != DType::kI64)
    return Status::invalid("indices are ", in[1]->type, "; they have to be of i64");
  HEDDLE_TRY_ASSIGN(Shape shape, unpooled(node, x.shape));
  if (const Value* given = optional_input(in, 2)) {
    HEDDLE_TRY_ASSIGN(const Argument argument, shape_argument(*given, "output_shape"));
    if (argument.dims.size() != x.rank()) {
      return Status::invalid("output_shape has ", argument.dims.size(), " elements; it takes ", x.rank());
    }
    shape = argument.dims;
  }
  return one(x.dtype, std::move(shape));
}

Status reference_unpool(const Node& node, DataIn in, DataOut out) {
  HEDDLE_TRY_ASSIGN(const Shape shape, unpooled(node, to_shape(in[0]->extents())));
  Extents whole;
  for (const Dim& dim : shape) whole.push_back(dim.value());
  const int64_t count = whole.elements();
  const Strides to(out[0].extents());
  for (int64_t i = 0; i < in[0]->elements(); ++i) {
    const int64_t index = in[1]->get_i64(i);
    if (index < 0 || index >= count)
      return Status::invalid("indices hold ", index, "; they have to be 0 to ", count - 1);
    int64_t rest = index, at = 0;
    bool inside = true;
    for (size_t axis = whole.rank(); axis-- > 0;) {
      const int64_t place = rest % whole[axis];
      rest /= whole[axis];
      inside = inside && place < out[0].extents()[axis];
      at += place * to[axis];
    }
    if (inside) copy_element(out[0], at, *in[0], i);
  }
  return {};
}

Status reference_average_pool(const Node& node, DataIn in, DataOut out) {
  const Extents& x = in[0]->extents();
  HEDDLE_TRY_ASSIGN(const Window window, Window::of(node, x.rank() - 2, {}));
  const bool count_padding = node.attributes.i64("count_include_pad") != 0;
  walk(out[0].extents(), [&](const Index& index, int64_t flat) {
    double sum = 0;
    int64_t inside = 0;
    const int64_t covered = visit(window, x, index, [&](int64_t at) {
      sum += in[0]->get(at);
      ++inside;
    });
    out[0].set(flat, sum / static_cast<double>(count_padding ? covered : inside));
  });
  return {};
}

Inferred infer_global(const Node&, Operands in) {
  HEDDLE_TRY(accept(*in[0], "x", Accept::kFloat));
  HEDDLE_TRY(check_rank(*in[0], "x", 3));
  Shape shape = in[0]->type.shape;
  std::fill(shape.begin() + 2, shape.end(), Dim(1));
  return one(in[0]->type.dtype, std::move(shape));
}

template <bool average>
Status reference_global(const Node&, DataIn in, DataOut out) {
  const int64_t planes = out[0].elements();
  const int64_t size = planes == 0 ? 0 : in[0]->elements() / planes;
  for (int64_t plane = 0; plane < planes; ++plane) {
    double result = average ? 0 : -std::numeric_limits<double>::infinity();
    for (int64_t i = 0; i < size; ++i) {
      const double x = in[0]->get(plane * size + i);
      result = average ? result + x : (std::isnan(x) || x > result ? x : result);
    }
    out[0].set(plane, average ? result / static_cast<double>(size) : result);
  }
  return {};
}

}  // namespace

std::vector<OpDef> pooling_ops() {
  using enum AttributeKind;
  const std::vector<AttributeDef> max = {
      {"kernel_shape", kInts, true}, {"strides", kInts},  {"pads", kInts},
      {"dilations", kInts},          {"ceil_mode", kInt}, {"auto_pad", kString}};
  const std::vector<AttributeDef> average = [&] {
    std::vector<AttributeDef> all = max;
    all.push_back({"count_include_pad", kInt});
    return all;
  }();
  const std::vector<AttributeDef> with_order = [&] {
    std::vector<AttributeDef> all = max;
    all.push_back({"storage_order", kInt});
    return all;
  }();
  const std::vector<AttributeDef> power = [&] {
    std::vector<AttributeDef> all = max;
    all.push_back({"p", kInt});
    return all;
  }();
  const std::vector<AttributeDef> unpool = {
      {"kernel_shape", kInts, true}, {"strides", kInts}, {"pads", kInts}};
  return {
      {"LpPool", 1, 1, 1, 1, power, infer_pool, reference_lp_pool},
      {"MaxUnpool", 2, 3, 1, 1, unpool, infer_unpool, reference_unpool},
      {"MaxPool", 1, 1, 1, 2, with_order, infer_pool, reference_max_pool},
      {"AveragePool", 1, 1, 1, 1, average, infer_pool, reference_average_pool},
      {"GlobalAveragePool", 1, 1, 1, 1, {}, infer_global, reference_global<true>},
      {"GlobalMaxPool", 1, 1, 1, 1, {}, infer_global, reference_global<false>},
  };
}

}  // namespace heddle::ir
