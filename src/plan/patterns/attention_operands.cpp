#include "plan/patterns/attention_operands.h"

#include <algorithm>
#include <utility>

namespace heddle::plan {

using ir::Dim;
using ir::Tensor;
using ir::ValueId;

namespace {

// [batch * heads, a, b] as [batch, heads, a, b].
bool split_heads(Movement& m) {
  if (m.axes.size() == 4) return true;
  if (m.axes.size() != 3) return false;
  std::vector<Piece> both = std::move(m.axes[0]);
  m.axes[0].clear();
  m.axes.insert(m.axes.begin() + 1, std::vector<Piece>{});
  if (both.empty()) return true;
  if (both.size() > 2) return false;
  m.axes[1] = {both.back()};
  if (both.size() == 2) m.axes[0] = {both.front()};
  return true;
}

// Every axis of the source that does not carry heads is walked whole, by batch and positions in this order.
bool covers_source(const Rewriter& rw, const Movement& m, size_t features, const std::vector<Piece>& batch,
                   const std::vector<Piece>& positions) {
  const ir::Shape& shape = rw.shape(m.source);
  for (size_t axis = 0; axis < features; ++axis) {
    Dim seen = 1;
    for (const auto* pieces : {&positions, &batch}) {
      if (pieces->empty() || (*pieces)[0].axis != axis) continue;
      if (!((*pieces)[0].stride == seen)) return false;
      seen = seen * (*pieces)[0].extent;
    }
    if (!(seen == shape[axis]) || m.base[axis] != 0) return false;
  }
  return true;
}

Dim extent_of(const std::vector<Piece>& pieces) { return pieces.empty() ? Dim(1) : pieces[0].extent; }

std::optional<size_t> axis_of(const std::vector<Piece>& pieces) {
  return pieces.empty() ? std::nullopt : std::optional(pieces[0].axis);
}

// Takes the piece that repeats each head off the axis of heads.
bool take_repeat(std::vector<Piece>& heads, Heads& out) {
  if (heads.empty() || !heads.back().stride.is(0)) return true;
  if (!heads.back().extent.is_static()) return false;
  out.repeat = heads.back().extent.value();
  heads.pop_back();
  return true;
}

// The source is [batch, heads, positions, size] itself, whole.
std::optional<Heads> by_head(const Rewriter& rw, Movement& m, HeadsOptions options) {
  Heads out;
  if (m.axes.size() != 4 || !take_repeat(m.axes[1], out)) return std::nullopt;
  if (options.transposed) std::swap(m.axes[2], m.axes[3]);
  const ir::Shape& shape = rw.shape(m.source);
  for (size_t i = 0; i < 4; ++i) {
    if (shape[i].is(1) && m.axes[i].empty()) continue;
    if (whole_axis(rw, m, i) != i) return std::nullopt;
  }
  if (!shape[1].is_static() || !shape[3].is_static()) return std::nullopt;
  out.source = m.source;
  out.by_head = true;
  out.heads = shape[1].value();
  out.size = shape[3].value();
  out.batch = shape[0];
  out.positions = shape[2];
  out.scale = m.scale;
  return out;
}

}  // namespace

std::optional<Heads> heads_of(const Rewriter& rw, ValueId id, HeadsOptions options) {
  Movement m = trace(rw, id, {.picks = true, .scales = options.scales});
  const size_t rank = rw.shape(m.source).size();
  if (rank == 4) return by_head(rw, m, options);
  Heads out;
  if ((rank != 2 && rank != 3) || !split_heads(m) || !take_repeat(m.axes[1], out)) return std::nullopt;
  const std::vector<Piece>& batch = m.axes[0];
  const std::vector<Piece>& heads = m.axes[1];
  const std::vector<Piece>& positions = m.axes[options.transposed ? 3 : 2];
  const std::vector<Piece>& size = m.axes[options.transposed ? 2 : 3];
  const size_t features = rank - 1;
  if (batch.size() > 1 || positions.size() > 1 || heads.size() > 1 || size.size() != 1) return std::nullopt;
  if (size[0].axis != features || !size[0].stride.is(1) || !size[0].extent.is_static()) return std::nullopt;

  out.source = m.source;
  out.size = size[0].extent.value();
  if (!heads.empty()) {
    const bool fits =
        heads[0].axis == features && heads[0].extent.is_static() && heads[0].stride.is(out.size);
    if (!fits) return std::nullopt;
    out.heads = heads[0].extent.value();
  }
  for (const auto* pieces : {&batch, &positions}) {
    if (!pieces->empty() && (*pieces)[0].axis == features) return std::nullopt;
  }
  if (!covers_source(rw, m, features, batch, positions)) return std::nullopt;
  out.batch_axis = axis_of(batch);
  out.position_axis = axis_of(positions);
  out.batch = extent_of(batch);
  out.positions = extent_of(positions);
  out.base = m.base[features];
  out.scale = m.scale;
  return out;
}

bool fit_together(const Heads& q, const Heads& k, const Heads& v) {
  return q.repeat == 1 && k.repeat == v.repeat && k.heads == v.heads && q.heads == k.heads * k.repeat &&
         q.size == k.size && q.batch == k.batch && q.batch == v.batch && k.positions == v.positions;
}

bool packed(const Rewriter& rw, const Heads& q, const Heads& k, const Heads& v) {
  if (q.by_head || k.repeat != 1) return false;
  const int64_t width = q.heads * q.size;
  for (const Heads* other : {&k, &v}) {
    if (other->source != q.source || other->size != q.size || !(other->positions == q.positions))
      return false;
    if (other->batch_axis != q.batch_axis || other->position_axis != q.position_axis) return false;
  }
  return q.base == 0 && k.base == width && v.base == 2 * width && rw.shape(q.source).back().is(3 * width);
}

Result<ValueId> rows_of(Rewriter& rw, const Heads& heads, const std::string& name) {
  if (heads.by_head) {
    HEDDLE_TRY_ASSIGN(const ValueId moved,
                      rw.emit("Transpose", {heads.source}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}},
                              name + "/by_position"));
    const ValueId shape = rw.constant(Tensor::of_i64({0, 0, heads.heads * heads.size}), name + "/rows_shape");
    return rw.emit("Reshape", {moved, shape}, {}, name + "/rows");
  }
  const ir::Shape from = rw.shape(heads.source);
  const ir::Shape to{heads.batch, heads.positions, from.back()};
  if (from == to && (heads.batch_axis != heads.position_axis || !heads.batch_axis) &&
      heads.batch_axis.value_or(0) <= heads.position_axis.value_or(1)) {
    return heads.source;
  }
  ValueId source = heads.source;
  const bool swapped = heads.batch_axis && heads.position_axis && *heads.batch_axis > *heads.position_axis;
  if (swapped)
    return rw.emit("Transpose", {source}, {{"perm", std::vector<int64_t>{1, 0, 2}}}, name + "/rows");
  const auto spec = reshape_spec(from, to);
  if (!spec) return Status::unsupported(name, ": ", from, " cannot be viewed as ", to);
  const ValueId shape = rw.constant(Tensor::of_i64(*spec), name + "/rows_shape");
  return rw.emit("Reshape", {source, shape}, {}, name + "/rows");
}

Result<ValueId> own_rows_of(Rewriter& rw, const Heads& heads, const std::string& name) {
  HEDDLE_TRY_ASSIGN(const ValueId rows, rows_of(rw, heads, name));
  const int64_t width = heads.heads * heads.size;
  if (rw.shape(rows).back().is(width)) return rows;
  const ValueId first = rw.constant(Tensor::of_i64({heads.base}), name + "/first");
  const ValueId last = rw.constant(Tensor::of_i64({heads.base + width}), name + "/last");
  const ValueId axis = rw.constant(Tensor::of_i64({2}), name + "/axis");
  return rw.emit("Slice", {rows, first, last, axis}, {}, name + "/features");
}

}  // namespace heddle::plan
