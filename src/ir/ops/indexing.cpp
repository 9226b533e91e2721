// Operators that read by index. An index out of range shows in the data only, so the references report it.
#include <algorithm>

#include "ir/ops/rules.h"
#include "ir/ops/tables.h"
#include "ir/ops/walk.h"

namespace heddle::ir {

namespace {

Status reference_gather(const Node& node, DataIn in, DataOut out) {
  HEDDLE_TRY_ASSIGN(const size_t axis, axis_of(node.attributes.i64("axis"), in[0]->type()));
  const Lanes from(in[0]->extents(), axis);
  const int64_t count = in[1]->elements();
  for (int64_t k = 0; k < count; ++k) {
    HEDDLE_TRY_ASSIGN(const int64_t at, place_of(in[1]->get_i64(k), from.extent));
    for (int64_t o = 0; o < from.outer; ++o) {
      for (int64_t i = 0; i < from.inner; ++i) {
        copy_element(out[0], (o * count + k) * from.inner + i, *in[0], from.at(o, at, i));
      }
    }
  }
  return {};
}

Inferred infer_gather(const Node& node, Operands in) {
  const TensorType& type = in[0]->type;
  HEDDLE_TRY(accept(*in[1], "indices", Accept::kIndex));
  HEDDLE_TRY_ASSIGN(const size_t axis, axis_of(node.attributes.i64("axis"), type));
  Shape shape = type.shape;
  const auto at = shape.erase(shape.begin() + static_cast<int64_t>(axis));
  shape.insert(at, in[1]->type.shape.begin(), in[1]->type.shape.end());
  HEDDLE_TRY_ASSIGN(std::vector<Value> out, one(type.dtype, std::move(shape)));
  follow_moves(node, in, 1, reference_gather, out);
  return out;
}

Status reference_gather_elements(const Node& node, DataIn in, DataOut out) {
  HEDDLE_TRY_ASSIGN(const size_t axis, axis_of(node.attributes.i64("axis"), in[0]->type()));
  const Strides strides(in[0]->extents());
  Status status;
  walk(out[0].extents(), [&](const Index& index, int64_t flat) {
    const Result<int64_t> at = place_of(in[1]->get_i64(flat), in[0]->extents()[axis]);
    if (!at.ok()) {
      if (status.ok()) status = at.status();
      return;
    }
    Index source = index;
    source[axis] = at.value();
    copy_element(out[0], flat, *in[0], strides.at(source));
  });
  return status;
}

Inferred infer_gather_elements(const Node& node, Operands in) {
  const TensorType& type = in[0]->type;
  const TensorType& indices = in[1]->type;
  HEDDLE_TRY(accept(*in[1], "indices", Accept::kIndex));
  HEDDLE_TRY(check_rank(*in[1], "indices", type.rank(), type.rank()));
  HEDDLE_TRY_ASSIGN(const size_t axis, axis_of(node.attributes.i64("axis"), type));
  for (size_t i = 0; i < type.rank(); ++i) {
    const bool both = indices.shape[i].is_static() && type.shape[i].is_static();
    if (i != axis && both && indices.shape[i].value() > type.shape[i].value()) {
      return Status::invalid("indices is ", indices, "; axis ", i, " has to be at most that of ", type);
    }
  }
  HEDDLE_TRY_ASSIGN(std::vector<Value> out, one(type.dtype, indices.shape));
  follow_moves(node, in, 1, reference_gather_elements, out);
  return out;
}

Status reference_gather_nd(const Node& node, DataIn in, DataOut out) {
  const size_t batch = static_cast<size_t>(node.attributes.i64("batch_dims"));
  const Extents& extents = in[0]->extents();
  const Extents& indices = in[1]->extents();
  const size_t depth = static_cast<size_t>(indices[indices.rank() - 1]);
  const size_t lead = indices.rank() - 1;  // axes of the output that come from indices
  const Strides strides(extents);
  Status status;
  walk(out[0].extents(), [&](const Index& index, int64_t flat) {
    Index source{};
    int64_t row = 0;
    for (size_t i = 0; i < lead; ++i) row = row * indices[i] + index[i];
    for (size_t i = 0; i < batch; ++i) source[i] = index[i];
    for (size_t i = 0; i < depth; ++i) {
      const Result<int64_t> at = place_of(
          in[1]->get_i64(row * static_cast<int64_t>(depth) + static_cast<int64_t>(i)), extents[batch + i]);
      if (!at.ok() && status.ok()) status = at.status();
      source[batch + i] = at.ok() ? at.value() : 0;
    }
    for (size_t i = batch + depth; i < extents.rank(); ++i) source[i] = index[lead + i - batch - depth];
    if (status.ok()) copy_element(out[0], flat, *in[0], strides.at(source));
  });
  return status;
}

Inferred infer_gather_nd(const Node& node, Operands in) {
  const TensorType& type = in[0]->type;
  const Shape& indices = in[1]->type.shape;
  HEDDLE_TRY(accept(*in[1], "indices", Accept::kIndex));
  HEDDLE_TRY(check_rank(*in[1], "indices", 1));
  const int64_t batch = node.attributes.i64("batch_dims");
  const Dim& depth = indices.back();
  if (batch < 0 || batch >= static_cast<int64_t>(std::min(type.rank(), indices.size()))) {
    return Status::invalid("attribute 'batch_dims' is ", batch,
                           "; it has to be 0 or more and below the ranks of ", type, " and ", in[1]->type);
  }
  if (!depth.is_static())
    return Status::unsupported("indices is ", in[1]->type, "; its last extent has to be a number");
  if (depth.value() < 1 || depth.value() > static_cast<int64_t>(type.rank()) - batch) {
    return Status::invalid("indices is ", in[1]->type, "; its last extent has to be 1 to ",
                           static_cast<int64_t>(type.rank()) - batch, " for ", type);
  }
  for (size_t i = 0; i < static_cast<size_t>(batch); ++i) {
    if (Dim::may_equal(type.shape[i], indices[i])) continue;
    return Status::invalid("axis ", i, " of x and indices differs: ", type, " and ", in[1]->type);
  }
  Shape shape(indices.begin(), indices.end() - 1);
  shape.insert(shape.end(), type.shape.begin() + batch + depth.value(), type.shape.end());
  HEDDLE_TRY_ASSIGN(std::vector<Value> out, one(type.dtype, std::move(shape)));
  follow_moves(node, in, 1, reference_gather_nd, out);
  return out;
}

Result<size_t> one_hot_axis(const Node& node, size_t rank) {
  const Result<size_t> axis = normalize_axis(node.attributes.i64("axis", -1), rank + 1);
  if (axis.ok()) return axis;
  return Status::invalid(axis.status().message(), " of the result, which has rank ", rank + 1);
}

Inferred infer_one_hot(const Node& node, Operands in) {
  HEDDLE_TRY(accept(*in[0], "indices", Accept::kNumber));
  HEDDLE_TRY(accept(*in[1], "depth", Accept::kNumber));
  HEDDLE_TRY(check_shape(*in[2], "values", {2}));
  if (in[1]->type.rank() != 0) HEDDLE_TRY(check_shape(*in[1], "depth", {1}));
  HEDDLE_TRY_ASSIGN(const size_t axis, one_hot_axis(node, in[0]->type.rank()));
  Dim depth = Dim::unknown();
  if (in[1]->constant.has_value()) {
    depth = in[1]->constant->get_i64(0);
  } else if (in[1]->contents.has_value()) {
    depth = in[1]->contents->front();
  }
  if (depth.is_static() && depth.value() < 0)
    return Status::invalid("depth is ", depth, "; it has to be 0 or more");
  Shape shape = in[0]->type.shape;
  shape.insert(shape.begin() + static_cast<int64_t>(axis), depth);
  return one(in[2]->type.dtype, std::move(shape));
}

// Indices outside [-depth, depth - 1] light nothing.
Status reference_one_hot(const Node& node, DataIn in, DataOut out) {
  HEDDLE_TRY_ASSIGN(const size_t axis, one_hot_axis(node, in[0]->extents().rank()));
  const Lanes lanes(out[0].extents(), axis);
  for (int64_t o = 0; o < lanes.outer; ++o) {
    for (int64_t i = 0; i < lanes.inner; ++i) {
      const int64_t index = in[0]->get_i64(o * lanes.inner + i);
      for (int64_t a = 0; a < lanes.extent; ++a) {
        const bool lit = a == (index < 0 ? wrap_add(index, lanes.extent) : index);
        copy_element(out[0], lanes.at(o, a, i), *in[2], lit ? 1 : 0);
      }
    }
  }
  return {};
}

Inferred infer_non_zero(const Node&, Operands) {
  return Status::unsupported("its result has a data-dependent shape, which is not supported");
}

Status reference_non_zero(const Node&, DataIn, DataOut) {
  return Status::unsupported("its result has a data-dependent shape, which is not supported");
}

}  // namespace

std::vector<OpDef> indexing_ops() {
  using enum AttributeKind;
  return {
      {"Gather", 2, 2, 1, 1, {{"axis", kInt}}, infer_gather, reference_gather},
      {"GatherElements", 2, 2, 1, 1, {{"axis", kInt}}, infer_gather_elements, reference_gather_elements},
      {"GatherND", 2, 2, 1, 1, {{"batch_dims", kInt}}, infer_gather_nd, reference_gather_nd},
      {"OneHot", 3, 3, 1, 1, {{"axis", kInt}}, infer_one_hot, reference_one_hot},
      {"NonZero", 1, 1, 1, 1, {}, infer_non_zero, reference_non_zero},
  };
}

}  // namespace heddle::ir
