// Operators that move whole axes: transpose, join, split, repeat.
#include <algorithm>

#include "ir/ops/rules.h"
#include "ir/ops/tables.h"
#include "ir/ops/walk.h"

namespace heddle::ir {

namespace {

Result<std::vector<size_t>> permutation(const Node& node, const TensorType& type) {
  std::vector<size_t> perm(type.rank());
  for (size_t i = 0; i < perm.size(); ++i) perm[i] = perm.size() - 1 - i;
  if (!node.attributes.has("perm")) return perm;
  const std::vector<int64_t> given = node.attributes.ints("perm");
  HEDDLE_TRY_ASSIGN(const std::vector<size_t> sorted, axes_of(given, type));
  if (sorted.size() != type.rank()) {
    return Status::invalid("attribute 'perm' names ", given.size(), " axes of ", type,
                           "; it has to name each once");
  }
  for (size_t i = 0; i < perm.size(); ++i) {
    perm[i] = static_cast<size_t>(given[i] < 0 ? given[i] + static_cast<int64_t>(type.rank()) : given[i]);
  }
  return perm;
}

Status reference_transpose(const Node& node, DataIn in, DataOut out) {
  HEDDLE_TRY_ASSIGN(const std::vector<size_t> perm, permutation(node, in[0]->type()));
  const Strides strides(in[0]->extents());
  walk(out[0].extents(), [&](const Index& index, int64_t flat) {
    Index source{};
    for (size_t i = 0; i < perm.size(); ++i) source[perm[i]] = index[i];
    copy_element(out[0], flat, *in[0], strides.at(source));
  });
  return {};
}

Inferred infer_transpose(const Node& node, Operands in) {
  HEDDLE_TRY_ASSIGN(const std::vector<size_t> perm, permutation(node, in[0]->type));
  Shape shape;
  for (size_t axis : perm) shape.push_back(in[0]->type.shape[axis]);
  HEDDLE_TRY_ASSIGN(std::vector<Value> out, one(in[0]->type.dtype, std::move(shape)));
  follow_moves(node, in, 1, reference_transpose, out);
  return out;
}

Status reference_concat(const Node& node, DataIn in, DataOut out) {
  HEDDLE_TRY_ASSIGN(const size_t axis, axis_of(node.attributes.i64("axis"), in[0]->type()));
  const Lanes to(out[0].extents(), axis);
  int64_t begin = 0;
  for (const Tensor* operand : in) {
    const Lanes from(operand->extents(), axis);
    for (int64_t o = 0; o < from.outer; ++o) {
      for (int64_t a = 0; a < from.extent; ++a) {
        for (int64_t i = 0; i < from.inner; ++i)
          copy_element(out[0], to.at(o, begin + a, i), *operand, from.at(o, a, i));
      }
    }
    begin += from.extent;
  }
  return {};
}

Inferred infer_concat(const Node& node, Operands in) {
  const TensorType& first = in[0]->type;
  HEDDLE_TRY_ASSIGN(const size_t axis, axis_of(node.attributes.i64("axis"), first));
  Shape shape = first.shape;
  for (size_t i = 1; i < in.size(); ++i) {
    const TensorType& type = in[i]->type;
    HEDDLE_TRY(same_dtype(*in[0], "input 0", *in[i], text("input ", i)));
    bool fits = type.rank() == shape.size();
    for (size_t k = 0; fits && k < shape.size(); ++k) {
      if (k == axis) continue;
      fits = Dim::may_equal(shape[k], type.shape[k]);
      shape[k] = Dim(Dim::clearer(shape[k], type.shape[k]));
    }
    if (!fits) {
      return Status::invalid("input ", i, " is ", type, " but input 0 is ", first, "; all axes except ", axis,
                             " have to be equal");
    }
    shape[axis] = shape[axis] + type.shape[axis];
  }
  HEDDLE_TRY_ASSIGN(std::vector<Value> out, one(first.dtype, std::move(shape)));
  follow_moves(node, in, ~0u, reference_concat, out);
  return out;
}

Result<std::vector<Dim>> split_sizes(const Node& node, Operands in, const Dim& extent) {
  const int64_t parts = static_cast<int64_t>(node.outputs.size());
  if (const Value* given = optional_input(in, 1)) {
    if (node.attributes.has("num_outputs")) {
      return Status::invalid(
          "split and attribute 'num_outputs' are both given; one of them has to be left out");
    }
    HEDDLE_TRY_ASSIGN(const Argument sizes, shape_argument(*given, "split"));
    Dim sum(0);
    for (const Dim& size : sizes.dims) {
      if (size.is_static() && size.value() < 0)
        return Status::invalid("split is ", to_string(sizes.dims), "; sizes are 0 or more");
      sum = sum + size;
    }
    if (sizes.dims.size() != node.outputs.size() || !Dim::may_equal(sum, extent)) {
      return Status::invalid("split is ", to_string(sizes.dims), "; it has to be ", parts, " sizes with sum ",
                             extent);
    }
    return sizes.dims;
  }
  if (node.attributes.i64("num_outputs", parts) != parts) {
    return Status::invalid("attribute 'num_outputs' is ", node.attributes.i64("num_outputs"), " for ", parts,
                           " outputs");
  }
  const Dim size = Dim::ceil_div(extent, parts);
  std::vector<Dim> sizes(static_cast<size_t>(parts), size);
  sizes.back() = extent - size * Dim(parts - 1);
  if (sizes.back().is_static() && sizes.back().value() < 0) {
    return Status::invalid("an extent of ", extent, " cannot be split into ", parts, " parts of ", size);
  }
  return sizes;
}

Status reference_split(const Node& node, DataIn in, DataOut out) {
  HEDDLE_TRY_ASSIGN(const size_t axis, axis_of(node.attributes.i64("axis"), in[0]->type()));
  const Lanes from(in[0]->extents(), axis);
  int64_t begin = 0;
  for (Tensor& part : out) {
    const Lanes to(part.extents(), axis);
    for (int64_t o = 0; o < to.outer; ++o) {
      for (int64_t a = 0; a < to.extent; ++a) {
        for (int64_t i = 0; i < to.inner; ++i)
          copy_element(part, to.at(o, a, i), *in[0], from.at(o, begin + a, i));
      }
    }
    begin += to.extent;
  }
  return {};
}

Inferred infer_split(const Node& node, Operands in) {
  const TensorType& type = in[0]->type;
  HEDDLE_TRY_ASSIGN(const size_t axis, axis_of(node.attributes.i64("axis"), type));
  HEDDLE_TRY_ASSIGN(const std::vector<Dim> sizes, split_sizes(node, in, type.shape[axis]));
  std::vector<Value> out;
  for (const Dim& size : sizes) {
    Shape shape = type.shape;
    shape[axis] = size;
    out.push_back(typed(type.dtype, std::move(shape)));
  }
  follow_moves(node, in, 1, reference_split, out);
  return out;
}

Status reference_tile(const Node&, DataIn in, DataOut out) {
  const Strides strides(in[0]->extents());
  walk(out[0].extents(), [&](const Index& index, int64_t flat) {
    Index source{};
    for (size_t i = 0; i < in[0]->extents().rank(); ++i) source[i] = index[i] % in[0]->extents()[i];
    copy_element(out[0], flat, *in[0], strides.at(source));
  });
  return {};
}

Inferred infer_tile(const Node& node, Operands in) {
  const TensorType& type = in[0]->type;
  HEDDLE_TRY_ASSIGN(const Argument repeats, shape_argument(*in[1], "repeats"));
  if (repeats.dims.size() != type.rank()) {
    return Status::invalid("repeats has ", repeats.dims.size(), " elements; ", type, " takes ", type.rank());
  }
  Shape shape;
  for (size_t i = 0; i < type.rank(); ++i) {
    if (repeats.dims[i].is_static() && repeats.dims[i].value() < 0) {
      return Status::invalid("repeats is ", to_string(repeats.dims), "; its elements are 0 or more");
    }
    shape.push_back(type.shape[i] * repeats.dims[i]);
  }
  HEDDLE_TRY_ASSIGN(std::vector<Value> out, one(type.dtype, std::move(shape)));
  follow_moves(node, in, 1, reference_tile, out);
  return out;
}

}  // namespace

std::vector<OpDef> movement_ops() {
  using enum AttributeKind;
  return {
      {"Transpose", 1, 1, 1, 1, {{"perm", kInts}}, infer_transpose, reference_transpose},
      {"Concat", 1, -1, 1, 1, {{"axis", kInt, true}}, infer_concat, reference_concat},
      {"Split", 1, 2, 1, -1, {{"axis", kInt}, {"num_outputs", kInt}}, infer_split, reference_split},
      {"Tile", 2, 2, 1, 1, {}, infer_tile, reference_tile},
  };
}

}  // namespace heddle::ir
