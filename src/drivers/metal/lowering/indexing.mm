// Elements picked and put by indices. MPSGraph checks none: what lies outside is reported by flags, reads the
// first element, and writes nothing.
#include "drivers/metal/lowering/indexing.h"

#include <limits>

#include "drivers/metal/lowering/extremes.h"
#include "drivers/metal/lowering/graph_work.h"
#include "ir/tensor_type.h"

namespace heddle::metal {

// MPSGraph promises no order of updates, so each row first finds its last one.
Tensor put_last(const Emit& e, Tensor rows, Tensor updates, Tensor targets) {
  constexpr int64_t kExactInF32 = 1 << 24;
  const int64_t count = extents_of(rows)[0], given = extents_of(updates)[0];
  const ir::DType type = given <= kExactInF32 ? ir::DType::kF32 : ir::DType::kI32;
  Tensor number = e.reshape(e.cast(e.counting(0, {given}), type), {given, 1});
  Tensor last = scatter_extreme(e, e.filled(-1, type, {count, 1}), number, targets, true);
  last = e.reshape(e.cast(last, ir::DType::kI32), {count});
  Tensor zero = e.whole(0, ir::DType::kI32);
  Tensor put = e.gather(updates, e.max(last, zero), 0);
  return e.choose(e.reshape(e.greater_equal(last, zero), {count, 1}), put, rows);
}

namespace {

Result<size_t> axis_of(const Lowering& l) {
  return ir::normalize_axis(l.attributes().i64("axis"), l.extents(0).rank());
}

Status lower_gather(Lowering& l) {
  HEDDLE_TRY_ASSIGN(const size_t axis, axis_of(l));
  Tensor indices = l.emit.cast(l.within(1, l.inputs[1], l.extents(0)[axis]), ir::DType::kI32);
  l.outputs[0] = l.emit.gather(l.inputs[0], indices, axis);
  return {};
}

Status lower_gather_elements(Lowering& l) {
  const Emit& e = l.emit;
  HEDDLE_TRY_ASSIGN(const size_t axis, axis_of(l));
  Tensor indices = e.cast(l.within(1, l.inputs[1], l.extents(0)[axis]), ir::DType::kI32);
  Tensor x = l.inputs[0];
  for (size_t i = 0; i < l.extents(1).rank(); ++i) {
    if (i != axis) x = e.slice(x, i, 0, l.extents(1)[i]);
  }
  l.outputs[0] = e.gather_elements(x, indices, axis);
  return {};
}

// Points are indices whose last axis names a place along each of several axes of input 0, from `first` on.
Tensor points_within(Lowering& l, size_t first) {
  const ir::Extents extents = l.extents(1);
  const size_t last = extents.rank() - 1;
  std::vector<Tensor> parts;
  for (int64_t i = 0; i < extents[last]; ++i) {
    Tensor part = l.emit.slice(l.inputs[1], last, i, 1);
    const int64_t extent = l.extents(0)[first + static_cast<size_t>(i)];
    parts.push_back(l.emit.cast(l.within(1, part, extent), ir::DType::kI32));
  }
  return l.emit.concat(parts, last);
}

Status lower_gather_nd(Lowering& l) {
  const size_t batch = static_cast<size_t>(l.attributes().i64("batch_dims"));
  l.outputs[0] = l.emit.gather_nd(l.inputs[0], points_within(l, batch), batch);
  return {};
}

// Indices outside light nothing.
Status lower_one_hot(Lowering& l) {
  const Emit& e = l.emit;
  const ir::Extents out = l.out_extents();
  HEDDLE_TRY_ASSIGN(const size_t axis, ir::normalize_axis(l.attributes().i64("axis", -1), out.rank()));
  Tensor indices = e.cast(l.inputs[0], ir::DType::kI64);
  Tensor depth = e.whole(out[axis], ir::DType::kI64);
  indices = e.choose(e.less(indices, e.whole(0, ir::DType::kI64)), e.add(indices, depth), indices);
  ir::Extents one, lane;
  for (size_t i = 0; i < out.rank(); ++i) {
    one.push_back(i == axis ? 1 : out[i]);
    lane.push_back(i == axis ? out[i] : 1);
  }
  Tensor lit = e.equal(e.reshape(indices, one), e.cast(e.counting(axis, lane), ir::DType::kI64));
  l.outputs[0] = e.choose(lit, e.slice(l.inputs[2], 0, 1, 1), e.slice(l.inputs[2], 0, 0, 1));
  return {};
}

// A maximum and a minimum of Metal lose NaN: a sum says where one went. points [n, 1].
Tensor or_nan(const Emit& e, Tensor extreme, Tensor data, Tensor updates, Tensor points) {
  if (!ir::is_float(dtype_of(extreme))) return extreme;
  const auto is_nan = [&](Tensor x) { return e.cast(e.is_nan(x), ir::DType::kF32); };
  Tensor lost = e.scatter_nd(is_nan(data), is_nan(updates), points, MPSGraphScatterModeAdd);
  Tensor nan = e.like(std::numeric_limits<double>::quiet_NaN(), extreme);
  return e.choose(e.greater(lost, e.scalar(0, ir::DType::kF32)), nan, extreme);
}

Tensor scattered(const Emit& e, Tensor data, Tensor updates, Tensor targets, const std::string& reduction) {
  if (reduction == "none") return put_last(e, data, updates, targets);
  Tensor points = e.reshape(targets, {extents_of(targets)[0], 1});
  if (reduction == "max" || reduction == "min") {
    Tensor extreme = scatter_extreme(e, data, updates, targets, reduction == "max");
    return or_nan(e, extreme, data, updates, points);
  }
  return e.scatter_nd(data, updates, points,
                      reduction == "add" ? MPSGraphScatterModeAdd : MPSGraphScatterModeMul);
}

// data [rows, each], updates [n, each], targets i32 [n]; `wrong` (nil: none can be) writes nothing: it has a
// row of its own, which is cut off.
Tensor scatter_rows(const Lowering& l, Tensor data, Tensor updates, Tensor targets, Tensor wrong) {
  const Emit& e = l.emit;
  const ir::DType dtype = dtype_of(data);
  if (dtype == ir::DType::kBool)
    data = e.cast(data, ir::DType::kU8), updates = e.cast(updates, ir::DType::kU8);
  const int64_t rows = extents_of(data)[0];
  if (wrong != nil) {
    data = e.pad(data, {0, 0}, {1, 0}, 0);
    targets = e.choose(wrong, e.whole(rows, ir::DType::kI32), targets);
  }
  Tensor out = scattered(e, data, updates, targets, l.attributes().str("reduction", "none"));
  return e.cast(e.slice(out, 0, 0, rows), dtype);
}

Tensor any_wrong(const Lowering& l, int64_t count) {
  Tensor wrong = nil;
  for (const Mistake& mistake : l.mistakes) {
    Tensor flat = l.emit.reshape(mistake.wrong, {count});
    wrong = wrong == nil ? flat : l.emit.either(wrong, flat);
  }
  return wrong;
}

Status lower_scatter_elements(Lowering& l) {
  const Emit& e = l.emit;
  if (l.inputs[1] == nil) {
    l.outputs[0] = l.inputs[0];
    return {};
  }
  HEDDLE_TRY_ASSIGN(const size_t axis, axis_of(l));
  const ir::Extents data = l.extents(0), indices = l.extents(1);
  Tensor along = e.cast(l.within(1, l.inputs[1], data[axis]), ir::DType::kI32);
  Tensor targets = nil;
  int64_t stride = 1;
  for (size_t i = data.rank(); i-- > 0;) {
    Tensor place = i == axis ? along : e.counting(i, indices);
    Tensor offset = e.mul(place, e.whole(stride, ir::DType::kI32));
    targets = targets == nil ? offset : e.add(targets, offset);
    stride *= data[i];
  }
  const int64_t count = indices.elements();
  Tensor out =
      scatter_rows(l, e.reshape(l.inputs[0], {data.elements(), 1}), e.reshape(l.inputs[2], {count, 1}),
                   e.reshape(targets, {count}), any_wrong(l, count));
  l.outputs[0] = e.reshape(out, data);
  return {};
}

Status lower_scatter_nd(Lowering& l) {
  const Emit& e = l.emit;
  if (l.inputs[2] == nil) {
    l.outputs[0] = l.inputs[0];
    return {};
  }
  const ir::Extents data = l.extents(0), indices = l.extents(1);
  const int64_t depth = indices[indices.rank() - 1];
  if (depth == 0) return Status::unsupported("its indices name no axis");
  const int64_t count = indices.elements() / depth;
  Tensor points = e.reshape(points_within(l, 0), {count, depth}), targets = nil;
  int64_t stride = 1;
  for (int64_t i = depth; i-- > 0;) {
    Tensor offset = e.mul(e.slice(points, 1, i, 1), e.whole(stride, ir::DType::kI32));
    targets = targets == nil ? offset : e.add(targets, offset);
    stride *= data[static_cast<size_t>(i)];
  }
  const int64_t each = data.elements() / stride;
  Tensor out = scatter_rows(l, e.reshape(l.inputs[0], {stride, each}), e.reshape(l.inputs[2], {count, each}),
                            e.reshape(targets, {count}), any_wrong(l, count));
  l.outputs[0] = e.reshape(out, data);
  return {};
}

}  // namespace

std::span<const PathEntry> index_paths() {
  using enum Path;
  constexpr std::string_view kChecked = "with flags for indices outside: MPSGraph reports none";
  constexpr std::string_view kLast = "of updates of one place the last stands, which MPSGraph's scatter does "
                                     "not promise; flags for indices outside";
  static constexpr PathEntry kEntries[] = {
      {"Gather", composed, lower_gather, kPlain, kChecked},
      {"GatherElements", composed, lower_gather_elements, kPlain, kChecked},
      {"GatherND", composed, lower_gather_nd, kPlain, kChecked},
      {"OneHot", composed, lower_one_hot, kPlain,
       "by comparison: MPSGraph's takes its values while compiling"},
      {"ScatterElements", composed, lower_scatter_elements, kWide | kTakesEmpty, kLast},
      {"ScatterND", composed, lower_scatter_nd, kWide | kTakesEmpty, kLast},
  };
  return kEntries;
}

}  // namespace heddle::metal
