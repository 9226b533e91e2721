// Operators about shapes: reading them, and giving the same elements another one.
#include <algorithm>
#include <cmath>

#include "ir/ops/rules.h"
#include "ir/ops/tables.h"
#include "ir/ops/walk.h"

namespace heddle::ir {

namespace {

Dim product(const Shape& shape) {
  Dim all(1);
  for (const Dim& dim : shape) all = all * dim;
  return all;
}

// Reshapes move nothing: the elements of the result are those of the operand, in order.
Status reference_same_elements(const Node&, DataIn in, DataOut out) {
  for (int64_t i = 0; i < out[0].elements(); ++i) copy_element(out[0], i, *in[0], i);
  return {};
}

struct Range {
  size_t begin;
  size_t end;
};
Range axes_of_shape(const Node& node, size_t rank) {
  const int64_t n = static_cast<int64_t>(rank);
  const auto clamp = [n](int64_t axis) {
    return static_cast<size_t>(std::clamp<int64_t>(axis < 0 ? axis + n : axis, 0, n));
  };
  const size_t begin = clamp(node.attributes.i64("start", 0));
  return {begin, std::max(begin, clamp(node.attributes.i64("end", n)))};
}

Inferred infer_shape(const Node& node, Operands in) {
  const Shape& shape = in[0]->type.shape;
  const Range range = axes_of_shape(node, shape.size());
  const auto first = shape.begin();
  std::vector<Dim> dims(first + static_cast<int64_t>(range.begin), first + static_cast<int64_t>(range.end));
  return one(DType::kI64, {static_cast<int64_t>(dims.size())}, dims);
}

Status reference_shape(const Node& node, DataIn in, DataOut out) {
  const Range range = axes_of_shape(node, in[0]->extents().rank());
  for (size_t axis = range.begin; axis < range.end; ++axis) {
    out[0].set_i64(static_cast<int64_t>(axis - range.begin), in[0]->extents()[axis]);
  }
  return {};
}

Inferred infer_size(const Node&, Operands in) {
  return one(DType::kI64, {}, std::vector<Dim>{product(in[0]->type.shape)});
}

Status reference_size(const Node&, DataIn in, DataOut out) {
  out[0].set_i64(0, in[0]->elements());
  return {};
}

Result<Shape> target_shape(const Value& value) {
  HEDDLE_TRY(check_rank(value, "shape", 1, 1));
  HEDDLE_TRY_ASSIGN(Argument argument, shape_argument(value, "shape"));
  for (const Dim& dim : argument.dims) {
    if (dim.is_static() && dim.value() < 0) {
      return Status::invalid("shape is ", to_string(argument.dims), "; its elements are 0 or more");
    }
  }
  return argument.dims;
}

Inferred infer_constant_of_shape(const Node& node, Operands in) {
  HEDDLE_TRY_ASSIGN(Shape shape, target_shape(*in[0]));
  const Attribute* attribute = node.attributes.find("value");
  if (attribute == nullptr) return one(DType::kF32, std::move(shape));
  const Tensor& value = std::get<Tensor>(*attribute);
  if (value.elements() != 1)
    return Status::invalid("attribute 'value' is ", value.type(), "; it has to hold 1 element");
  const Dim count = product(shape);
  std::optional<std::vector<Dim>> contents;
  if (count.is_static() && count.value() >= 0 && count.value() <= static_cast<int64_t>(kMaxContents)) {
    contents.emplace(static_cast<size_t>(count.value()), Dim(value.get_i64(0)));
  }
  return one(value.dtype(), std::move(shape), std::move(contents));
}

Status reference_constant_of_shape(const Node& node, DataIn, DataOut out) {
  const Attribute* attribute = node.attributes.find("value");
  const Tensor value = attribute == nullptr ? Tensor::scalar(DType::kF32, 0) : std::get<Tensor>(*attribute);
  for (int64_t i = 0; i < out[0].elements(); ++i) copy_element(out[0], i, value, 0);
  return {};
}

Result<Dim> range_count_floats(const Value& start, const Value& limit, const Value& delta) {
  if (!start.constant.has_value() || !limit.constant.has_value() || !delta.constant.has_value())
    return Dim::unknown();
  const double step = delta.constant->get(0);
  const double count = std::ceil((limit.constant->get(0) - start.constant->get(0)) / step);
  if (step == 0 || std::isnan(count))
    return Status::invalid("delta is ", step, "; it has to be a number other than 0");
  return Dim(count <= 0 ? 0 : count < 1e18 ? static_cast<int64_t>(count) : Dim::kHuge);
}

Inferred infer_range(const Node&, Operands in) {
  HEDDLE_TRY(accept(*in[0], "start", Accept::kNumber));
  const std::string_view names[] = {"start", "limit", "delta"};
  for (size_t i = 0; i < 3; ++i) {
    HEDDLE_TRY(same_dtype(*in[0], "start", *in[i], names[i]));
    if (in[i]->type.rank() != 0) HEDDLE_TRY(check_shape(*in[i], names[i], {1}));
  }
  const DType dtype = in[0]->type.dtype;
  if (is_float(dtype)) {
    HEDDLE_TRY_ASSIGN(const Dim count, range_count_floats(*in[0], *in[1], *in[2]));
    return one(dtype, {count});
  }
  const auto start = in[0]->integers();
  const auto limit = in[1]->integers();
  const auto delta = in[2]->integers();
  if (!start.has_value() || !limit.has_value() || !delta.has_value()) return one(dtype, {Dim::unknown()});
  const Dim& step = delta->front();
  if (step.is(0)) return Status::invalid("delta is 0; it has to be a number other than 0");
  if (!step.is_static()) return one(dtype, {Dim::unknown()});
  const Dim count = Dim::max(Dim::ceil_div(limit->front() - start->front(), step), 0);
  std::vector<Dim> contents;
  if (count.is_static() && count.value() <= static_cast<int64_t>(kMaxContents)) {
    for (int64_t i = 0; i < count.value(); ++i) contents.push_back(start->front() + step * Dim(i));
  }
  return one(dtype, {count}, std::move(contents));
}

Status reference_range(const Node&, DataIn in, DataOut out) {
  for (int64_t i = 0; i < out[0].elements(); ++i) {
    if (is_float(out[0].dtype())) {
      out[0].set(i, in[0]->get(0) + static_cast<double>(i) * in[2]->get(0));
    } else {
      out[0].set_i64(i, wrap_add(in[0]->get_i64(0), wrap_mul(i, in[2]->get_i64(0))));
    }
  }
  return {};
}

Status misfit(const Shape& from, const Shape& wanted, std::string_view why) {
  return Status::invalid("cannot reshape ", to_string(from), " to ", to_string(wanted), ": ", why);
}

// 0 copies an extent (unless allowzero), -1 takes what is left. Copied extents count on both sides, so they
// are left out of the division: [0, -1] works for an empty batch.
Result<Shape> reshape(const Shape& from, const Shape& wanted, bool allow_zero) {
  Shape out;
  Dim given(1);
  Dim left(1);
  std::optional<size_t> inferred;
  std::vector<char> copied(from.size(), 0);
  for (size_t i = 0; i < wanted.size(); ++i) {
    out.push_back(wanted[i]);
    if (wanted[i].is(0) && !allow_zero) {
      if (i >= from.size())
        return misfit(from, wanted, text("element ", i, " is 0, but there is no axis ", i, " to copy"));
      out[i] = from[i];
      copied[i] = 1;
    } else if (wanted[i].is(-1)) {
      if (inferred.has_value()) return misfit(from, wanted, "at most one element is -1");
      inferred = i;
    } else if (wanted[i].is_static() && wanted[i].value() < -1) {
      return misfit(from, wanted, text("element ", i, " is ", wanted[i], "; only -1 may be negative"));
    } else {
      given = given * wanted[i];
    }
  }
  for (size_t i = 0; i < from.size(); ++i) {
    if (copied[i] == 0) left = left * from[i];
  }
  const std::string counts = text(product(from), " elements");
  if (!inferred.has_value()) {
    if (!Dim::may_equal(product(out), product(from))) {
      return misfit(from, wanted, text(counts, " do not fit ", product(out)));
    }
    return out;
  }
  if (given.is(0)) return misfit(from, wanted, "-1 could be any extent beside a 0");
  const std::optional<Dim> exact = Dim::divide_exact(left, given);
  if (!exact.has_value() && left.is_static() && given.is_static()) {
    return misfit(from, wanted, text(counts, " are no multiple of what is given"));
  }
  out[*inferred] = exact.has_value() ? *exact : Dim::floor_div(left, given);
  return out;
}

Inferred infer_reshape(const Node& node, Operands in) {
  HEDDLE_TRY(check_rank(*in[1], "shape", 1, 1));
  HEDDLE_TRY_ASSIGN(const Argument wanted, shape_argument(*in[1], "shape"));
  HEDDLE_TRY_ASSIGN(Shape shape,
                    reshape(in[0]->type.shape, wanted.dims, node.attributes.i64("allowzero") != 0));
  return one(in[0]->type.dtype, std::move(shape), in[0]->integers());
}

Inferred infer_squeeze(const Node&, Operands in) {
  const TensorType& type = in[0]->type;
  const Value* argument = optional_input(in, 1);
  std::vector<char> dropped(type.rank(), 0);
  if (argument != nullptr) {
    HEDDLE_TRY_ASSIGN(const std::vector<int64_t> numbers, number_argument(*argument, "axes"));
    HEDDLE_TRY_ASSIGN(const std::vector<size_t> axes, axes_of(numbers, type));
    for (size_t axis : axes) dropped[axis] = 1;
  }
  Shape shape;
  for (size_t axis = 0; axis < type.rank(); ++axis) {
    const Dim& dim = type.shape[axis];
    if (argument == nullptr && !dim.is_static()) {
      return Status::unsupported("axes are left out and axis ", axis, " of ", type,
                                 " is symbolic; name the axes to drop");
    }
    if (argument == nullptr ? dim.is(1) : dropped[axis] != 0) {
      if (Dim::may_equal(dim, 1)) continue;
      return Status::invalid("axis ", axis, " of ", type, " is squeezed; its extent has to be 1");
    }
    shape.push_back(dim);
  }
  return one(type.dtype, std::move(shape), in[0]->integers());
}

Inferred infer_unsqueeze(const Node&, Operands in) {
  const TensorType& type = in[0]->type;
  HEDDLE_TRY_ASSIGN(const std::vector<int64_t> numbers, number_argument(*in[1], "axes"));
  const TensorType grown{type.dtype, Shape(type.rank() + numbers.size(), Dim(1))};
  if (grown.rank() > kMaxRank) {
    return Status::unsupported("the result has rank ", grown.rank(), "; tensors have at most ", kMaxRank,
                               " axes");
  }
  HEDDLE_TRY_ASSIGN(const std::vector<size_t> axes, axes_of(numbers, grown));
  Shape shape = type.shape;
  for (size_t axis : axes) shape.insert(shape.begin() + static_cast<int64_t>(axis), Dim(1));
  return one(type.dtype, std::move(shape), in[0]->integers());
}

Inferred infer_flatten(const Node& node, Operands in) {
  const TensorType& type = in[0]->type;
  const int64_t rank = static_cast<int64_t>(type.rank());
  const int64_t given = node.attributes.i64("axis", 1);
  const int64_t axis = given < 0 ? given + rank : given;
  if (axis < 0 || axis > rank)
    return Status::invalid("axis ", given, " is outside [", -rank, ", ", rank, "] of ", type);
  const auto middle = type.shape.begin() + axis;
  return one(type.dtype,
             {product(Shape(type.shape.begin(), middle)), product(Shape(middle, type.shape.end()))},
             in[0]->integers());
}

Status reference_expand(const Node&, DataIn in, DataOut out) {
  const Strides strides(in[0]->extents(), out[0].extents().rank());
  walk(out[0].extents(),
       [&](const Index& index, int64_t flat) { copy_element(out[0], flat, *in[0], strides.at(index)); });
  return {};
}

Inferred infer_expand(const Node& node, Operands in) {
  HEDDLE_TRY_ASSIGN(const Shape wanted, target_shape(*in[1]));
  HEDDLE_TRY_ASSIGN(Shape shape, broadcast(in[0]->type.shape, wanted));
  HEDDLE_TRY_ASSIGN(std::vector<Value> out, one(in[0]->type.dtype, std::move(shape)));
  follow_moves(node, in, 1, reference_expand, out);
  return out;
}

}  // namespace

std::vector<OpDef> shape_ops() {
  using enum AttributeKind;
  return {
      {"Shape", 1, 1, 1, 1, {{"start", kInt}, {"end", kInt}}, infer_shape, reference_shape},
      {"Size", 1, 1, 1, 1, {}, infer_size, reference_size},
      {"ConstantOfShape",
       1,
       1,
       1,
       1,
       {{"value", kTensor}},
       infer_constant_of_shape,
       reference_constant_of_shape},
      {"Range", 3, 3, 1, 1, {}, infer_range, reference_range},
      {"Reshape", 2, 2, 1, 1, {{"allowzero", kInt}}, infer_reshape, reference_same_elements},
      {"Squeeze", 1, 2, 1, 1, {}, infer_squeeze, reference_same_elements},
      {"Unsqueeze", 2, 2, 1, 1, {}, infer_unsqueeze, reference_same_elements},
      {"Flatten", 1, 1, 1, 1, {{"axis", kInt}}, infer_flatten, reference_same_elements},
      {"Expand", 2, 2, 1, 1, {}, infer_expand, reference_expand},
  };
}

}  // namespace heddle::ir
