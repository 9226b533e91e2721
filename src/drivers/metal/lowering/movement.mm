// The same elements elsewhere. Shapes, starts, pads and the like are known while compiling.
#include <algorithm>
#include <numeric>

#include "drivers/metal/lowering/graph_work.h"
#include "ir/op.h"

namespace heddle::metal {
namespace {

Status lower_reshape(Lowering& l) {
  l.outputs[0] = l.emit.reshape(l.inputs[0], l.out_extents());
  return {};
}

Status lower_transpose(Lowering& l) {
  const int64_t rank = static_cast<int64_t>(extents_of(l.inputs[0]).rank());
  Axes order(static_cast<size_t>(rank));
  std::iota(order.rbegin(), order.rend(), 0);
  order = l.attributes().ints("perm", order);
  if (order.empty()) order = {0};
  for (int64_t& axis : order) axis = axis < 0 ? axis + rank : axis;
  l.outputs[0] = l.emit.transpose(l.inputs[0], order);
  return {};
}

Status lower_expand(Lowering& l) {
  l.outputs[0] = l.emit.broadcast(l.inputs[0], l.out_extents());
  return {};
}

Status lower_concat(Lowering& l) {
  HEDDLE_TRY_ASSIGN(const size_t axis,
                    ir::normalize_axis(l.attributes().i64("axis"), l.out_extents().rank()));
  std::vector<Tensor> parts;
  for (Tensor input : l.inputs) {
    if (input != nil) parts.push_back(input);
  }
  l.outputs[0] = l.emit.concat(parts, axis);
  return {};
}

Status lower_split(Lowering& l) {
  HEDDLE_TRY_ASSIGN(const size_t axis, ir::normalize_axis(l.attributes().i64("axis"), l.extents(0).rank()));
  int64_t begin = 0;
  for (size_t i = 0; i < l.outputs.size(); ++i) {
    const int64_t length = l.out_extents(i)[axis];
    if (length > 0) l.outputs[i] = l.emit.slice(l.inputs[0], axis, begin, length);
    begin += length;
  }
  return {};
}

Status lower_tile(Lowering& l) {
  HEDDLE_TRY_ASSIGN(const Axes times, l.integers(1, "repeats"));
  l.outputs[0] = times.empty() ? l.inputs[0] : l.emit.tile(l.inputs[0], times);
  return {};
}

// What a node moves along one axis, found by its reference: it is asked for each axis by itself, with the
// places of the axis as the elements.
Result<Axes> places_along(const Lowering& l, size_t axis, const std::vector<ir::Tensor>& others) {
  const ir::Extents extents = l.extents(0);
  ir::Extents lane;
  for (size_t i = 0; i < extents.rank(); ++i) lane.push_back(i == axis ? extents[i] : 1);
  ir::Tensor numbers = ir::Tensor::zeros(ir::DType::kI64, lane);
  for (int64_t i = 0; i < extents[axis]; ++i) numbers.set_i64(i, i);
  std::vector<const ir::Tensor*> in{&numbers};
  for (const ir::Tensor& other : others) in.push_back(&other);
  ir::Node node = l.node;
  node.inputs.resize(in.size());
  HEDDLE_TRY_ASSIGN(const std::vector<ir::Tensor> out, ir::evaluate(node, in));
  return out[0].to_i64();
}

struct Cuts {
  Axes starts, ends, axes, steps;
};

Result<Cuts> cuts_of(const Lowering& l) {
  Cuts cuts;
  HEDDLE_TRY_ASSIGN(cuts.starts, l.integers(1, "starts"));
  HEDDLE_TRY_ASSIGN(cuts.ends, l.integers(2, "ends"));
  cuts.axes.resize(cuts.starts.size());
  std::iota(cuts.axes.begin(), cuts.axes.end(), 0);
  cuts.steps.assign(cuts.starts.size(), 1);
  if (l.has(3)) {
    HEDDLE_TRY_ASSIGN(cuts.axes, l.integers(3, "axes"));
  }
  if (l.has(4)) {
    HEDDLE_TRY_ASSIGN(cuts.steps, l.integers(4, "steps"));
  }
  return cuts;
}

Status lower_slice(Lowering& l) {
  HEDDLE_TRY_ASSIGN(const Cuts cuts, cuts_of(l));
  Tensor out = l.inputs[0];
  for (size_t i = 0; i < cuts.axes.size(); ++i) {
    HEDDLE_TRY_ASSIGN(const size_t axis, ir::normalize_axis(cuts.axes[i], l.extents(0).rank()));
    const auto one = [](int64_t value) { return ir::Tensor::of_i64({value}); };
    HEDDLE_TRY_ASSIGN(const Axes places, places_along(l, axis,
                                                      {one(cuts.starts[i]), one(cuts.ends[i]),
                                                       one(static_cast<int64_t>(axis)), one(cuts.steps[i])}));
    out = l.emit.take(out, axis, places);
  }
  l.outputs[0] = out;
  return {};
}

// Constant padding by MPSGraph's pad, which takes its value while compiling; the other modes by places.
Status lower_pad(Lowering& l) {
  const Emit& e = l.emit;
  HEDDLE_TRY_ASSIGN(const Axes pads, l.integers(1, "pads"));
  const size_t rank = l.extents(0).rank();
  Axes axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  if (l.has(3)) {
    HEDDLE_TRY_ASSIGN(axes, l.integers(3, "axes"));
  }
  Axes before(rank, 0), after(rank, 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    HEDDLE_TRY_ASSIGN(const size_t axis, ir::normalize_axis(axes[i], rank));
    before[axis] = pads[i];
    after[axis] = pads[axes.size() + i];
  }
  Tensor out = l.inputs[0];
  if (l.attributes().str("mode", "constant") != "constant") {
    for (size_t axis = 0; axis < rank; ++axis) {
      if (before[axis] == 0 && after[axis] == 0) continue;
      Axes lane(2 * rank, 0);
      lane[axis] = before[axis];
      lane[rank + axis] = after[axis];
      HEDDLE_TRY_ASSIGN(const Axes places, places_along(l, axis, {ir::Tensor::of_i64(lane)}));
      out = e.take(out, axis, places);
    }
    l.outputs[0] = out;
    return {};
  }
  // What is cut off goes first; what is added is chosen by a mask, so that any value of any type will do.
  for (size_t axis = 0; axis < rank; ++axis) {
    const int64_t start = std::max<int64_t>(-before[axis], 0), end = std::max<int64_t>(-after[axis], 0);
    out = e.slice(out, axis, start, extents_of(out)[axis] - start - end);
    before[axis] = std::max<int64_t>(before[axis], 0);
    after[axis] = std::max<int64_t>(after[axis], 0);
  }
  const bool zero = !l.has(2) && dtype_of(out) != ir::DType::kBool;
  if (zero) {
    l.outputs[0] = e.pad(out, before, after, 0);
    return {};
  }
  const ir::DType dtype = dtype_of(out);
  Tensor ones = e.pad(e.filled(1, ir::DType::kI32, extents_of(out)), before, after, 0);
  Tensor numbers = dtype == ir::DType::kBool ? e.cast(out, ir::DType::kI32) : out;
  Tensor padded = e.cast(e.pad(numbers, before, after, 0), dtype);
  Tensor value = l.has(2) ? e.reshape(l.inputs[2], {1}) : e.scalar(0, dtype);
  l.outputs[0] = e.choose(e.equal(ones, e.whole(1, ir::DType::kI32)), padded, value);
  return {};
}

Status lower_trilu(Lowering& l) {
  const Emit& e = l.emit;
  int64_t k = 0;
  if (l.has(1)) {
    HEDDLE_TRY_ASSIGN(const Axes given, l.integers(1, "k"));
    k = given[0];
  }
  const ir::Extents extents = l.extents(0);
  const ir::Extents square{extents[extents.rank() - 2], extents[extents.rank() - 1]};
  Tensor diagonal = e.sub(e.counting(1, square), e.counting(0, square));
  Tensor limit = e.whole(std::clamp<int64_t>(k, -(int64_t{1} << 30), int64_t{1} << 30), ir::DType::kI32);
  const bool upper = l.attributes().i64("upper", 1) != 0;
  Tensor kept = upper ? e.greater_equal(diagonal, limit) : e.less_equal(diagonal, limit);
  l.outputs[0] = e.choose(kept, l.inputs[0], e.like(0, l.inputs[0]));
  return {};
}

Status lower_constant_of_shape(Lowering& l) {
  const ir::Attribute* value = l.attributes().find("value");
  const ir::Tensor fill =
      value == nullptr ? ir::Tensor::zeros(ir::DType::kF32, {1}) : std::get<ir::Tensor>(*value).reshaped({1});
  l.outputs[0] = l.emit.broadcast(l.emit.constant(fill), l.out_extents());
  return {};
}

// What follows from shapes is a constant once these are known; specialising has folded all but large ones.
Status lower_by_reference(Lowering& l) {
  std::vector<ir::Tensor> zeros(l.inputs.size());
  std::vector<const ir::Tensor*> in;
  for (size_t i = 0; i < l.inputs.size(); ++i) {
    const bool shape_only = l.node.is("Shape") || l.node.is("Size");
    if (shape_only) zeros[i] = ir::Tensor::zeros(l.value(i).type.dtype, l.extents(i));
    in.push_back(shape_only ? &zeros[i] : l.constant(i));
    if (in.back() == nullptr) return Status::unsupported("its operands are known when it runs only");
  }
  HEDDLE_TRY_ASSIGN(const std::vector<ir::Tensor> out, ir::evaluate(l.node, in));
  l.outputs[0] = l.emit.constant(out[0]);
  return {};
}

}  // namespace

std::span<const PathEntry> movement_paths() {
  using enum Path;
  static constexpr PathEntry kEntries[] = {
      {"Reshape", graph, lower_reshape},
      {"Squeeze", graph, lower_reshape},
      {"Unsqueeze", graph, lower_reshape},
      {"Flatten", graph, lower_reshape},
      {"Transpose", graph, lower_transpose},
      {"Expand", graph, lower_expand},
      {"Concat", graph, lower_concat, kTakesEmpty, "empty operands are left out"},
      {"Split", composed, lower_split, kPlain, "a slice for each part"},
      {"Tile", graph, lower_tile},
      {"Slice", composed, lower_slice, kPlain, "backwards by a gather of constant places"},
      {"Pad", composed, lower_pad, kPlain, "other modes than constant by a gather of constant places"},
      {"Trilu", composed, lower_trilu, kPlain,
       "by a mask: MPSGraph's band has no diagonals beyond the main one's side"},
      {"ConstantOfShape", composed, lower_constant_of_shape, kPlain, "a constant, once shapes are known"},
      {"Range", composed, lower_by_reference, kPlain, "a constant, once shapes are known"},
      {"Shape", composed, lower_by_reference, kTakesEmpty, "a constant, once shapes are known"},
      {"Size", composed, lower_by_reference, kTakesEmpty, "a constant, once shapes are known"},
      {"NonZero", refused, nullptr, kPlain,
       "its output's shape depends on the data, which no driver can plan for"},
  };
  return kEntries;
}

}  // namespace heddle::metal
