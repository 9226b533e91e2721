#include "ir/ops/rules.h"

#include <algorithm>
#include <string>

#include "ir/ops/walk.h"

namespace heddle::ir {

namespace {

bool accepts(DType d, Accept wanted) {
  switch (wanted) {
    case Accept::kAny:
      return true;
    case Accept::kFloat:
      return is_float(d);
    case Accept::kNumber:
      return d != DType::kBool && d != DType::kU64;
    case Accept::kNumberOrU64:
      return d != DType::kBool;
    case Accept::kInteger:
      return is_integer(d);
    case Accept::kIndex:
      return d == DType::kI32 || d == DType::kI64;
    case Accept::kBool:
      return d == DType::kBool;
  }
  return false;
}

constexpr std::string_view kAcceptNames[] = {"any dtype",
                                             "f32, f16, bf16 or f64",
                                             "a float or integer dtype other than u64",
                                             "a float or integer dtype",
                                             "an integer dtype",
                                             "i32 or i64",
                                             "bool"};

std::optional<int64_t> small_count(const TensorType& type) {
  const std::optional<Extents> extents = type.extents();
  if (!extents.has_value() || !checked_elements(extents->span(), type.dtype).ok()) return std::nullopt;
  const int64_t count = extents->elements();
  return count <= static_cast<int64_t>(kMaxContents) ? std::optional(count) : std::nullopt;
}

// Operators wrap where their dtype ends, and Dims do not.
bool holds(DType dtype, const Dim& dim) {
  if (!dim.is_static()) return true;
  if (dtype == DType::kU64) return dim.value() >= 0;
  Tensor number = Tensor::zeros(dtype, {});
  number.set_i64(0, dim.value());
  return number.get_i64(0) == dim.value();
}

}  // namespace

Status accept(const Value& value, std::string_view argument, Accept wanted) {
  if (accepts(value.type.dtype, wanted)) return {};
  return Status::invalid(argument, " is ", value.type, "; it has to be of ",
                         kAcceptNames[static_cast<size_t>(wanted)]);
}

Status same_dtype(const Value& a, std::string_view a_name, const Value& b, std::string_view b_name) {
  if (a.type.dtype == b.type.dtype) return {};
  return Status::invalid(b_name, " is ", b.type, " but ", a_name, " is ", a.type,
                         "; their dtypes have to be equal");
}

Status check_rank(const Value& value, std::string_view argument, size_t least, size_t most) {
  const size_t rank = value.type.rank();
  if (rank >= least && rank <= most) return {};
  if (least == most) return Status::invalid(argument, " is ", value.type, "; its rank has to be ", least);
  return Status::invalid(argument, " is ", value.type, "; its rank has to be ", least, " to ", most);
}

bool may_equal(const Shape& a, const Shape& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), Dim::may_equal);
}

Status check_shape(const Value& value, std::string_view argument, const Shape& wanted) {
  if (may_equal(value.type.shape, wanted)) return {};
  return Status::invalid(argument, " is ", value.type, "; its shape has to be ", to_string(wanted));
}

Result<size_t> axis_of(int64_t axis, const TensorType& type) {
  Result<size_t> normal = normalize_axis(axis, type.rank());
  if (normal.ok()) return normal;
  return Status::invalid(normal.status().message(), " of ", type);
}

Result<std::vector<size_t>> axes_of(const std::vector<int64_t>& axes, const TensorType& type) {
  std::vector<size_t> out;
  for (int64_t axis : axes) {
    HEDDLE_TRY_ASSIGN(const size_t normal, axis_of(axis, type));
    if (std::find(out.begin(), out.end(), normal) != out.end()) {
      return Status::invalid("axis ", axis, " is given twice for ", type);
    }
    out.push_back(normal);
  }
  std::sort(out.begin(), out.end());
  return out;
}

Status check_addend(Operands in, size_t i, std::string_view argument, const Shape& wanted) {
  const Value* addend = optional_input(in, i);
  if (addend == nullptr) return {};
  HEDDLE_TRY(same_dtype(*in[0], "x", *addend, argument));
  return check_shape(*addend, argument, wanted);
}

KnownOperands::KnownOperands(DataIn in) : values_(in.size()), pointers_(in.size(), nullptr) {
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i] == nullptr) continue;
    values_[i].type = in[i]->type();
    values_[i].constant = *in[i];
    pointers_[i] = &values_[i];
  }
}

Value typed(DType dtype, Shape shape, std::optional<std::vector<Dim>> contents) {
  Value value;
  value.type = {dtype, std::move(shape)};
  const std::optional<int64_t> count = small_count(value.type);
  const bool known =
      contents.has_value() && !is_float(dtype) && count == static_cast<int64_t>(contents->size());
  if (known &&
      std::all_of(contents->begin(), contents->end(), [&](const Dim& dim) { return holds(dtype, dim); })) {
    value.contents = std::move(contents);
  }
  return value;
}

Inferred one(DType dtype, Shape shape, std::optional<std::vector<Dim>> contents) {
  std::vector<Value> out;
  out.push_back(typed(dtype, std::move(shape), std::move(contents)));
  return out;
}

Result<Argument> shape_argument(const Value& value, std::string_view argument) {
  HEDDLE_TRY(accept(value, argument, Accept::kIndex));
  HEDDLE_TRY(check_rank(value, argument, 0, 1));
  if (std::optional<std::vector<Dim>> dims = value.integers()) return Argument{std::move(*dims), true};
  if (!value.type.is_static()) {
    return Status::unsupported(
        argument, " is ", value.type,
        " with data-dependent elements; its length has to be known when the model is compiled");
  }
  const int64_t count = value.type.rank() == 0 ? 1 : value.type.shape[0].value();
  if (count > static_cast<int64_t>(kMaxContents)) {
    return Status::unsupported(argument, " is ", value.type, "; it has at most ", kMaxContents, " elements");
  }
  Argument unknown{{}, false};
  for (int64_t i = 0; i < count; ++i) unknown.dims.push_back(Dim::unknown());
  return unknown;
}

Result<std::vector<int64_t>> number_argument(const Value& value, std::string_view argument) {
  HEDDLE_TRY(accept(value, argument, Accept::kIndex));
  HEDDLE_TRY(check_rank(value, argument, 0, 1));
  const std::optional<std::vector<Dim>> dims = value.integers();
  std::vector<int64_t> numbers;
  if (dims.has_value()) {
    for (const Dim& dim : *dims) {
      if (dim.is_static()) numbers.push_back(dim.value());
    }
  }
  if (!dims.has_value() || numbers.size() != dims->size()) {
    return Status::unsupported(argument, " is data-dependent; it has to be constant");
  }
  return numbers;
}

void follow_moves(const Node& node, Operands in, uint32_t moved, Reference reference,
                  std::vector<Value>& out) {
  std::vector<Dim> dims = {Dim(0)};  // position 0 stands for what the operator fills in
  std::vector<Tensor> operands(in.size());
  std::vector<const Tensor*> pointers(in.size(), nullptr);
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i] == nullptr) continue;
    const std::optional<std::vector<Dim>> known = in[i]->integers();
    const std::optional<Extents> extents = in[i]->type.extents();
    if (!known.has_value() || !extents.has_value()) return;
    const bool is_moved = i >= 32 || (moved >> i & 1) != 0;
    operands[i] = Tensor::zeros(DType::kI64, *extents);
    for (size_t k = 0; k < known->size(); ++k) {
      const Dim& dim = (*known)[k];
      if (!is_moved && !dim.is_static()) return;
      operands[i].set_i64(static_cast<int64_t>(k),
                          is_moved ? static_cast<int64_t>(dims.size()) : dim.value());
      if (is_moved) dims.push_back(dim);
    }
    pointers[i] = &operands[i];
  }
  std::vector<Tensor> results;
  for (const Value& value : out) {
    if (is_float(value.type.dtype) || !small_count(value.type).has_value()) return;
    results.push_back(Tensor::zeros(DType::kI64, *value.type.extents()));
  }
  if (!reference(node, pointers, results).ok()) return;  // the same mistake is reported when it is run
  for (size_t i = 0; i < out.size(); ++i) {
    std::vector<Dim> contents;
    for (int64_t position : results[i].to_i64()) contents.push_back(dims[static_cast<size_t>(position)]);
    out[i].contents = std::move(contents);
  }
}

std::optional<std::vector<Dim>> zip_contents(const Node& node, Operands in, const TensorType& out,
                                             DimFunction f) {
  if (is_float(out.dtype) || !small_count(out).has_value()) return std::nullopt;
  std::vector<std::vector<Dim>> known;
  std::vector<Strides> strides;
  for (const Value* value : in) {
    if (value == nullptr) return std::nullopt;
    std::optional<std::vector<Dim>> dims = value->integers();
    const std::optional<Extents> extents = value->type.extents();
    if (!dims.has_value() || !extents.has_value()) return std::nullopt;
    known.push_back(std::move(*dims));
    strides.emplace_back(*extents, out.rank());
  }
  std::vector<Dim> contents;
  bool complete = true;
  walk(*out.extents(), [&](const Index& index, int64_t) {
    std::vector<Dim> operands;
    for (size_t i = 0; i < known.size(); ++i)
      operands.push_back(known[i][static_cast<size_t>(strides[i].at(index))]);
    const std::optional<Dim> dim = complete ? f(node, operands) : std::nullopt;
    complete = complete && dim.has_value();
    if (complete) contents.push_back(*dim);
  });
  return complete ? std::optional(std::move(contents)) : std::nullopt;
}

}  // namespace heddle::ir
