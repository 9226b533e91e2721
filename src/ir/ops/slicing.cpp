// Operators that cut and border: Slice, Pad, Trilu.
#include <algorithm>

#include "ir/ops/rules.h"
#include "ir/ops/tables.h"
#include "ir/ops/walk.h"

namespace heddle::ir {

namespace {

constexpr int64_t kBeyond = kMaxBytes;  // no extent reaches this: files write INT64_MAX for "to the end"

// One end of a slice, brought into [low, high]. Nothing when the sign of a symbolic bound is not known.
std::optional<Dim> clamp_bound(const Dim& bound, const Dim& extent, const Dim& low, const Dim& high) {
  if (bound.is_static() && bound.value() >= kBeyond) return high;
  if (bound.is_static() && bound.value() <= -kBeyond) return low;
  Dim from_front = bound;
  if (!bound.non_negative()) {
    if (!(Dim(-1) - bound).non_negative()) return std::nullopt;
    from_front = bound + extent;
  }
  return Dim::min(Dim::max(from_front, low), high);
}

// The elements of one axis that a slice keeps: count of them, from `start` in steps.
struct Cut {
  Dim start;
  Dim count;
};
Cut cut(const Dim& start, const Dim& end, int64_t step, const Dim& extent) {
  const Dim low = step > 0 ? Dim(0) : Dim(-1);
  const Dim high = step > 0 ? extent : extent - Dim(1);
  const std::optional<Dim> first =
      step > 0 || !extent.is(0) ? clamp_bound(start, extent, Dim(0), high) : Dim(-1);
  const std::optional<Dim> last = clamp_bound(end, extent, low, high);
  if (!first.has_value() || !last.has_value()) return {Dim::unknown(), Dim::unknown()};
  // To the end: extent - start says the same as extent - min(start, extent), and compares better.
  const bool to_the_end = step > 0 && *last == extent && start.non_negative();
  const Dim span = (*last - (to_the_end ? start : *first));
  return {*first, Dim::max(Dim::ceil_div(span, step), 0)};
}

struct SliceArguments {
  std::vector<Dim> starts;
  std::vector<Dim> ends;
  std::vector<size_t> axes;
  std::vector<int64_t> steps;
};

Result<SliceArguments> slice_arguments(Operands in) {
  SliceArguments out;
  HEDDLE_TRY_ASSIGN(Argument starts, shape_argument(*in[1], "starts"));
  HEDDLE_TRY_ASSIGN(Argument ends, shape_argument(*in[2], "ends"));
  out.starts = std::move(starts.dims);
  out.ends = std::move(ends.dims);
  // An unknown bound may be negative, which no Dim says: the whole cut is unknown then.
  if (!starts.known || !ends.known) out.starts.assign(out.starts.size(), Dim::symbol("? - ?"));
  const size_t count = out.starts.size();
  std::vector<int64_t> axes;
  for (size_t i = 0; i < count; ++i) axes.push_back(static_cast<int64_t>(i));
  if (const Value* given = optional_input(in, 3)) {
    HEDDLE_TRY_ASSIGN(axes, number_argument(*given, "axes"));
  }
  out.steps.assign(count, 1);
  if (const Value* given = optional_input(in, 4)) {
    HEDDLE_TRY_ASSIGN(out.steps, number_argument(*given, "steps"));
  }
  if (out.ends.size() != count || axes.size() != count || out.steps.size() != count) {
    return Status::invalid("starts, ends, axes and steps have ", count, ", ", out.ends.size(), ", ",
                           axes.size(), " and ", out.steps.size(), " elements; they have to be equally many");
  }
  HEDDLE_TRY(axes_of(axes, in[0]->type));
  for (int64_t axis : axes) {
    HEDDLE_TRY_ASSIGN(const size_t normal, axis_of(axis, in[0]->type));
    out.axes.push_back(normal);
  }
  for (int64_t step : out.steps) {
    if (step == 0) return Status::invalid("steps holds a 0; a step is positive or negative");
  }
  return out;
}

Status reference_slice(const Node&, DataIn in, DataOut out) {
  HEDDLE_TRY_ASSIGN(const SliceArguments arguments, slice_arguments(KnownOperands(in).operands()));
  const Extents& extents = in[0]->extents();
  Index start{};
  Index step{};
  step.fill(1);
  for (size_t i = 0; i < arguments.axes.size(); ++i) {
    const size_t axis = arguments.axes[i];
    start[axis] =
        cut(arguments.starts[i], arguments.ends[i], arguments.steps[i], extents[axis]).start.value();
    step[axis] = arguments.steps[i];
  }
  const Strides strides(extents);
  walk(out[0].extents(), [&](const Index& index, int64_t flat) {
    Index source{};
    for (size_t axis = 0; axis < extents.rank(); ++axis)
      source[axis] = start[axis] + index[axis] * step[axis];
    copy_element(out[0], flat, *in[0], strides.at(source));
  });
  return {};
}

Inferred infer_slice(const Node& node, Operands in) {
  HEDDLE_TRY_ASSIGN(const SliceArguments arguments, slice_arguments(in));
  Shape shape = in[0]->type.shape;
  for (size_t i = 0; i < arguments.axes.size(); ++i) {
    Dim& dim = shape[arguments.axes[i]];
    dim = cut(arguments.starts[i], arguments.ends[i], arguments.steps[i], dim).count;
  }
  HEDDLE_TRY_ASSIGN(std::vector<Value> out, one(in[0]->type.dtype, std::move(shape)));
  follow_moves(node, in, 1, reference_slice, out);
  return out;
}

struct Padding {
  std::vector<Dim> begin;
  std::vector<Dim> end;
};

Result<Padding> padding(Operands in) {
  const TensorType& type = in[0]->type;
  HEDDLE_TRY_ASSIGN(const Argument pads, shape_argument(*in[1], "pads"));
  std::vector<int64_t> axes;
  for (size_t i = 0; i < type.rank(); ++i) axes.push_back(static_cast<int64_t>(i));
  if (const Value* given = optional_input(in, 3)) {
    HEDDLE_TRY_ASSIGN(axes, number_argument(*given, "axes"));
  }
  HEDDLE_TRY(axes_of(axes, type));
  if (pads.dims.size() != 2 * axes.size()) {
    return Status::invalid("pads has ", pads.dims.size(), " elements; ", axes.size(), " axes of ", type,
                           " take ", 2 * axes.size());
  }
  Padding out{std::vector<Dim>(type.rank()), std::vector<Dim>(type.rank())};
  for (size_t i = 0; i < axes.size(); ++i) {
    HEDDLE_TRY_ASSIGN(const size_t axis, axis_of(axes[i], type));
    out.begin[axis] = pads.dims[i];
    out.end[axis] = pads.dims[axes.size() + i];
  }
  return out;
}

// The place an index outside [0, extent) reads from: the border, its mirror image, or the other end.
int64_t border(int64_t at, int64_t extent, const std::string& mode) {
  if (mode == "edge") return std::clamp<int64_t>(at, 0, extent - 1);
  if (mode == "wrap") return (at % extent + extent) % extent;
  return at < 0 ? -at : at >= extent ? 2 * (extent - 1) - at : at;
}

Status reference_pad(const Node& node, DataIn in, DataOut out) {
  const std::string mode = node.attributes.str("mode", "constant");
  HEDDLE_TRY_ASSIGN(const Padding pads, padding(KnownOperands(in).operands()));
  const Extents& extents = in[0]->extents();
  const Tensor zero = Tensor::zeros(in[0]->dtype(), {});
  const Tensor& fill = optional_input(in, 2) != nullptr ? *in[2] : zero;
  const Strides strides(extents);
  walk(out[0].extents(), [&](const Index& index, int64_t flat) {
    Index source{};
    bool inside = true;
    for (size_t axis = 0; axis < extents.rank(); ++axis) {
      const int64_t at = index[axis] - pads.begin[axis].value();
      inside = inside && at >= 0 && at < extents[axis];
      source[axis] = mode == "constant" ? at : border(at, extents[axis], mode);
    }
    if (inside || mode != "constant") {
      copy_element(out[0], flat, *in[0], strides.at(source));
    } else {
      copy_element(out[0], flat, fill, 0);
    }
  });
  return {};
}

// Reflection needs extent > pad on both sides, the others an element to repeat.
Status check_border(const std::string& mode, const Dim& extent, const Dim& begin, const Dim& end,
                    size_t axis) {
  if (mode == "constant" || !extent.is_static()) return {};
  for (const Dim& pad : {begin, end}) {
    if (!pad.is_static() || pad.value() <= 0) continue;
    if (mode == "reflect" ? pad.value() < extent.value() : extent.value() > 0) continue;
    return Status::invalid("axis ", axis, " of extent ", extent, " is padded by ", pad, " in mode '", mode,
                           "'; it takes at most ",
                           mode == "reflect" ? std::max<int64_t>(extent.value() - 1, 0) : 0);
  }
  return {};
}

Inferred infer_pad(const Node& node, Operands in) {
  const TensorType& type = in[0]->type;
  const std::string mode = node.attributes.str("mode", "constant");
  if (mode != "constant" && mode != "reflect" && mode != "edge" && mode != "wrap") {
    return Status::invalid("attribute 'mode' is '", mode,
                           "'; it has to be 'constant', 'reflect', 'edge' or 'wrap'");
  }
  if (const Value* value = optional_input(in, 2)) {
    HEDDLE_TRY(same_dtype(*in[0], "x", *value, "value"));
    if (value->type.rank() != 0) HEDDLE_TRY(check_shape(*value, "value", {1}));
  }
  HEDDLE_TRY_ASSIGN(const Padding pads, padding(in));
  Shape shape;
  for (size_t axis = 0; axis < type.rank(); ++axis) {
    HEDDLE_TRY(check_border(mode, type.shape[axis], pads.begin[axis], pads.end[axis], axis));
    shape.push_back(type.shape[axis] + pads.begin[axis] + pads.end[axis]);
  }
  HEDDLE_TRY_ASSIGN(std::vector<Value> out, one(type.dtype, std::move(shape)));
  follow_moves(node, in, 0b101, reference_pad, out);
  return out;
}

Status reference_trilu(const Node& node, DataIn in, DataOut out) {
  const bool upper = node.attributes.i64("upper", 1) != 0;
  const int64_t k = optional_input(in, 1) != nullptr ? in[1]->get_i64(0) : 0;
  const size_t rank = in[0]->extents().rank();
  walk(out[0].extents(), [&](const Index& index, int64_t flat) {
    const int64_t diagonal = index[rank - 1] - index[rank - 2];
    if (upper ? diagonal >= k : diagonal <= k) copy_element(out[0], flat, *in[0], flat);
  });
  return {};
}

Inferred infer_trilu(const Node& node, Operands in) {
  HEDDLE_TRY(check_rank(*in[0], "x", 2));
  if (const Value* k = optional_input(in, 1)) {
    HEDDLE_TRY(accept(*k, "k", Accept::kIndex));
    if (k->type.rank() != 0) HEDDLE_TRY(check_shape(*k, "k", {1}));
  }
  HEDDLE_TRY_ASSIGN(std::vector<Value> out, one(in[0]->type.dtype, in[0]->type.shape));
  follow_moves(node, in, 1, reference_trilu, out);
  return out;
}

}  // namespace

std::vector<OpDef> slicing_ops() {
  using enum AttributeKind;
  return {
      {"Slice", 3, 5, 1, 1, {}, infer_slice, reference_slice},
      {"Pad", 2, 4, 1, 1, {{"mode", kString}}, infer_pad, reference_pad},
      {"Trilu", 1, 2, 1, 1, {{"upper", kInt}}, infer_trilu, reference_trilu},
  };
}

}  // namespace heddle::ir
