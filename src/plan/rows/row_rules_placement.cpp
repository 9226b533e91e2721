// Operators that write by index, or interpolate.
#include <algorithm>

#include "plan/rows/row_rules.h"

namespace heddle::plan {

namespace {

Rows same_place(const RowContext& c) { return c.in[0]; }

// Every operand brings its own rows, and indices stay within one.
Rows scattered(const RowContext& c) {
  const auto axis = ir::normalize_axis(c.node.attributes.i64("axis"), c.result().size());
  for (size_t i = 0; i < 3; ++i) {
    if (!c.rows(i) || c.in[i].axis != c.in[0].axis || !(c.in[i].block == c.in[0].block))
      return Rows::mixed("needs rows along one axis in all operands");
  }
  if (!axis.ok() || *axis == c.in[0].axis)
    return Rows::mixed(text("writes along axis ", c.in[0].axis, ", which holds the rows"));
  return c.in[0];
}

// Extents beside the rows are checked where all results are.
Rows resized(const RowContext& c) {
  constexpr size_t kScales = 2;
  const size_t row_axis = c.in[0].axis;
  const std::string mixed = text("resizes axis ", row_axis, ", which holds the rows");
  if (c.node.attributes.str("coordinate_transformation_mode") == "tf_crop_and_resize")
    return Rows::mixed("crops by a region that may cover several rows");
  if (!(c.result()[row_axis] == c.shape(0)[row_axis])) return Rows::mixed(mixed);
  if (!c.node.has_input(kScales)) return c.in[0];
  const auto& scales = c.graph.values[c.node.inputs[kScales]].constant;
  if (!scales || !c.fixed(kScales)) return Rows::mixed("is scaled by numbers that are not fixed");
  const size_t rank = c.shape(0).size();
  const std::vector<int64_t> axes = c.node.attributes.ints("axes");
  for (int64_t i = 0; i < scales->elements(); ++i) {
    const auto axis = ir::normalize_axis(axes.empty() ? i : axes[static_cast<size_t>(i)], rank);
    if (axis.ok() && *axis == row_axis && scales->get(i) != 1) return Rows::mixed(mixed);
  }
  return c.in[0];
}

Rows sampled(const RowContext& c) {
  const bool paired = c.rows(0) && c.rows(1) && c.in[0].axis == 0 && c.in[1].axis == 0;
  if (!paired || !(c.in[0].block == c.in[1].block))
    return Rows::mixed("needs rows along axis 0 of the image and of the grid");
  return c.in[0];
}

Rows folded(const RowContext& c) {
  if (!c.rows(0) || c.in[0].axis != 0) return Rows::mixed("joins blocks of several rows");
  return c.in[0];
}

Rows determined(const RowContext& c) {
  if (c.in[0].axis + 2 < c.shape(0).size()) return c.in[0];
  return Rows::mixed(text("takes axis ", c.in[0].axis, ", which holds the rows, into one number"));
}

// The regions are counted in another way than the images.
Rows regions(const RowContext&) { return Rows::mixed("takes regions of several rows by their number"); }

// A row of indices may name any place.
Rows scattered_nd(const RowContext&) { return Rows::mixed("writes elements across rows"); }

// As MaxPool gives them.
Rows unpooled(const RowContext&) { return Rows::mixed("takes indices that count through all examples"); }

}  // namespace

std::vector<RowRule> placement_row_rules() {
  return {{"BitCast", same_place}, {"ScatterElements", scattered}, {"ScatterND", scattered_nd},
          {"Resize", resized, 1},  {"GridSample", sampled},        {"Col2Im", folded, 1},
          {"Det", determined},     {"RoiAlign", regions},          {"MaxUnpool", unpooled}};
}

}  // namespace heddle::plan
