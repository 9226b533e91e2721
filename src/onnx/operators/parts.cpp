#include "onnx/operators/parts.h"

#include <utility>

namespace heddle::onnx {

using ir::ValueId;

// After a failure ids stand for nothing: they are only handed on to further calls, which do nothing.
ValueId Parts::node(std::string_view op, std::vector<ValueId> inputs, ir::Attributes attributes) {
  if (!status_.ok()) return ir::kNoValue;
  Result<ValueId> made = call_.add(op, std::move(inputs), std::move(attributes), op);
  if (made.ok()) return *made;
  fail(made.status());
  return ir::kNoValue;
}

void Parts::fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

ValueId Parts::ints(const std::vector<int64_t>& values) {
  return call_.constant(ir::Tensor::of_i64(values), "ints");
}

ValueId Parts::number(ir::DType dtype, double value) { return call_.scalar(dtype, value, "number"); }

ValueId Parts::extents(ValueId x, size_t begin, size_t end) {
  return node("Shape", {x}, {{"start", static_cast<int64_t>(begin)}, {"end", static_cast<int64_t>(end)}});
}

ValueId Parts::join(const std::vector<ValueId>& vectors) {
  return node("Concat", vectors, {{"axis", int64_t{0}}});
}

ValueId Parts::cast(ValueId x, ir::DType dtype) {
  return node("Cast", {x}, {{"to", std::string(ir::name(dtype))}});
}

ValueId Parts::range(ValueId count, ir::DType dtype) {
  const ValueId numbers =
      node("Range", {number(ir::DType::kI64, 0), scalar_of(count), number(ir::DType::kI64, 1)});
  return dtype == ir::DType::kI64 ? numbers : cast(numbers, dtype);
}

ValueId Parts::scalar_of(ValueId vector) { return node("Reshape", {vector, ints({})}); }

ValueId Parts::unsqueeze(ValueId x, const std::vector<int64_t>& axes) {
  return axes.empty() ? x : node("Unsqueeze", {x, ints(axes)});
}

ValueId Parts::squeeze(ValueId x, const std::vector<int64_t>& axes) {
  return axes.empty() ? x : node("Squeeze", {x, ints(axes)});
}

ValueId Parts::transpose(ValueId x, const std::vector<int64_t>& perm) {
  for (size_t i = 0; i < perm.size(); ++i) {
    if (perm[i] != static_cast<int64_t>(i)) return node("Transpose", {x}, {{"perm", perm}});
  }
  return x;
}

Status Parts::emit(ValueId x, size_t output) {
  HEDDLE_TRY(status_);
  call_.bind(output, x);
  return {};
}

}  // namespace heddle::onnx
