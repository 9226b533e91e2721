#include <algorithm>

#include "plan/patterns/movement.h"
#include "plan/rows/row_rules.h"

namespace heddle::plan {

namespace {

std::optional<std::vector<int64_t>> fixed_ints(const RowContext& c, size_t input) {
  if (input >= c.node.inputs.size() || c.node.inputs[input] == ir::kNoValue) return std::nullopt;
  const auto dims = c.graph.values[c.node.inputs[input]].integers();
  return dims ? static_dims(*dims) : std::nullopt;
}

// Three pieces: what lies before the rows, the rows, what belongs to one row. How axes divide within a piece
// does not matter.
Rows regrouped(const RowContext& c) {
  enum : size_t { kBefore, kBatch, kWithin };
  const ir::Shape& from = c.shape(0);
  ir::Dim before = 1;
  ir::Dim within = c.in[0].block;
  for (size_t axis = 0; axis < from.size(); ++axis) {
    if (axis < c.in[0].axis) before = before * from[axis];
    if (axis > c.in[0].axis) within = within * from[axis];
  }
  std::vector<Piece> pieces;
  if (!before.is(1)) pieces.push_back({kBefore, before, 1});
  pieces.push_back({kBatch, c.batch, 1});
  if (!within.is(1)) pieces.push_back({kWithin, within, 1});
  const auto axes = regroup(std::move(pieces), c.result());
  if (!axes)
    return Rows::mixed(text("regroups ", to_string(from), " as ", to_string(c.result()), " across rows"));
  for (size_t axis = 0; axis < axes->size(); ++axis) {
    const std::vector<Piece>& here = (*axes)[axis];
    const auto batch =
        std::find_if(here.begin(), here.end(), [](const Piece& p) { return p.axis == kBatch; });
    if (batch == here.end()) continue;
    if (batch != here.begin() || !(batch->extent == c.batch)) {
      return Rows::mixed(
          text("puts other elements between the rows: ", to_string(from), " as ", to_string(c.result())));
    }
    ir::Dim block = 1;
    for (const Piece& p : here) block = p.axis == kBatch ? block : block * p.extent;
    return Rows::along(axis, block);
  }
  return Rows::mixed("loses the rows");
}

Rows transposed(const RowContext& c) {
  const std::vector<int64_t> perm = permutation(c.node, c.shape(0).size());
  const auto at = std::find(perm.begin(), perm.end(), static_cast<int64_t>(c.in[0].axis));
  return Rows::along(static_cast<size_t>(at - perm.begin()), c.in[0].block);
}

Rows concatenated(const RowContext& c) {
  const auto axis = ir::normalize_axis(c.node.attributes.i64("axis"), c.result().size());
  const Rows* first = nullptr;
  for (size_t i = 0; i < c.in.size(); ++i) {
    if (!c.rows(i)) return Rows::mixed(text("joins rows with operand ", i, ", which has none"));
    if (first == nullptr) first = &c.in[i];
    if (c.in[i].axis != first->axis || !(c.in[i].block == first->block))
      return Rows::mixed("joins rows of different axes");
  }
  if (axis.ok() && *axis == first->axis)
    return Rows::mixed(text("joins along axis ", *axis, ", which holds the rows"));
  return *first;
}

Rows split(const RowContext& c) {
  const auto axis = ir::normalize_axis(c.node.attributes.i64("axis"), c.shape(0).size());
  if (!axis.ok() || *axis == c.in[0].axis)
    return Rows::mixed(text("splits axis ", c.in[0].axis, ", which holds the rows"));
  return c.in[0];
}

// The row axis stays whole, and what is taken of the others does not depend on the number of rows.
Rows sliced(const RowContext& c) {
  for (size_t i = 1; i < c.in.size(); ++i) {
    if (!c.fixed(i)) return Rows::mixed("takes positions that depend on the number of rows");
  }
  const size_t rank = c.shape(0).size();
  const auto starts = fixed_ints(c, 1);
  std::vector<int64_t> axes;
  if (const auto given = fixed_ints(c, 3)) {
    axes = *given;
  } else if (c.node.has_input(3) || !c.graph.type(c.node.inputs[1]).shape[0].is_static()) {
    return Rows::mixed("takes positions along axes that are not known");
  } else {
    for (int64_t i = 0; i < c.graph.type(c.node.inputs[1]).shape[0].value(); ++i) axes.push_back(i);
  }
  const auto steps = fixed_ints(c, 4);
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto axis = ir::normalize_axis(axes[i], rank);
    if (!axis.ok() || *axis != c.in[0].axis) continue;
    const bool forward = !c.node.has_input(4) || (steps && (*steps)[i] == 1);
    const bool whole = starts && (*starts)[i] == 0 && forward && c.result()[*axis] == c.shape(0)[*axis];
    if (!whole) return Rows::mixed(text("takes a part of axis ", *axis, ", which holds the rows"));
  }
  return c.in[0];
}

Rows gathered(const RowContext& c) {
  const size_t rank = c.shape(0).size();
  const auto axis = ir::normalize_axis(c.node.attributes.i64("axis"), rank);
  if (!axis.ok() || (c.rows(0) && c.rows(1))) return Rows::mixed("looks rows up in rows");
  if (c.rows(1)) return Rows::along(*axis + c.in[1].axis, c.in[1].block);
  if (c.in[0].axis == *axis)
    return Rows::mixed(text("takes a part of axis ", *axis, ", which holds the rows"));
  const size_t indices = c.shape(1).size();
  return Rows::along(c.in[0].axis < *axis ? c.in[0].axis : c.in[0].axis + indices - 1, c.in[0].block);
}

Rows gathered_elements(const RowContext& c) {
  const auto axis = ir::normalize_axis(c.node.attributes.i64("axis"), c.result().size());
  if (!c.rows(0) || !c.rows(1) || c.in[0].axis != c.in[1].axis || !(c.in[0].block == c.in[1].block)) {
    return Rows::mixed("needs rows along one axis in both operands");
  }
  if (!axis.ok() || *axis == c.in[0].axis)
    return Rows::mixed(text("takes elements along axis ", c.in[0].axis, ", which holds the rows"));
  return c.in[0];
}

Rows gathered_nd(const RowContext& c) {
  const bool both = c.rows(0) && c.rows(1);
  const auto shared = static_cast<size_t>(std::max<int64_t>(c.node.attributes.i64("batch_dims"), 0));
  if (c.rows(1) && !c.rows(0) && c.in[1].axis + 1 < c.shape(1).size() && shared == 0) return c.in[1];
  const bool apart =
      both && c.in[0].axis == c.in[1].axis && c.in[0].axis < shared && c.in[0].block == c.in[1].block;
  return apart ? c.in[0] : Rows::mixed("looks elements up across rows");
}

Rows expanded(const RowContext& c) {
  const size_t lead = c.result().size() - c.shape(0).size();
  return Rows::along(c.in[0].axis + lead, c.in[0].block);
}

// Only the extent along the rows has to stay.
Rows tiled(const RowContext& c) {
  const auto repeats = fixed_ints(c, 1);
  if (!repeats || (*repeats)[c.in[0].axis] != 1)
    return Rows::mixed(text("may repeat axis ", c.in[0].axis, ", which holds the rows"));
  return c.in[0];
}

Rows padded(const RowContext& c) {
  const auto pads = fixed_ints(c, 1);
  if (!pads || !c.fixed(2)) return Rows::mixed("pads by amounts or a value that are not fixed");
  const size_t rank = c.shape(0).size();
  std::vector<int64_t> axes;
  if (c.node.has_input(3)) {
    const auto given = fixed_ints(c, 3);
    if (!given) return Rows::mixed("pads axes that are not fixed");
    axes = *given;
  } else {
    for (size_t i = 0; i < rank; ++i) axes.push_back(static_cast<int64_t>(i));
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto axis = ir::normalize_axis(axes[i], rank);
    const bool padding = (*pads)[i] != 0 || (*pads)[i + axes.size()] != 0;
    if (axis.ok() && *axis == c.in[0].axis && padding)
      return Rows::mixed(text("pads axis ", *axis, ", which holds the rows"));
  }
  return c.in[0];
}

Rows triangle(const RowContext& c) {
  if (!c.fixed(1) || c.in[0].axis + 2 >= c.shape(0).size()) return Rows::mixed("cuts a triangle across rows");
  return c.in[0];
}

Rows one_hot(const RowContext& c) {
  if (!c.rows(0) || !c.fixed(1) || !c.fixed(2)) return Rows::mixed("needs a fixed depth and fixed values");
  const auto axis = ir::normalize_axis(c.node.attributes.i64("axis", -1), c.result().size());
  if (!axis.ok()) return Rows::mixed("has an axis that is not known");
  return Rows::along(c.in[0].axis + (*axis <= c.in[0].axis ? 1 : 0), c.in[0].block);
}

}  // namespace

std::vector<RowRule> movement_row_rules() {
  return {{"Reshape", regrouped, 1},   {"Squeeze", regrouped, 1},
          {"Unsqueeze", regrouped, 1}, {"Flatten", regrouped},
          {"Transpose", transposed},   {"Concat", concatenated},
          {"Split", split, 1},         {"Slice", sliced, 1},
          {"Gather", gathered},        {"GatherElements", gathered_elements},
          {"GatherND", gathered_nd},   {"Expand", expanded, 1},
          {"Tile", tiled, 1},          {"Pad", padded, 1},
          {"Trilu", triangle, 1},      {"OneHot", one_hot, 1}};
}

}  // namespace heddle::plan
