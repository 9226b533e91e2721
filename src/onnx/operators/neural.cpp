// Linear algebra, convolution, pooling. Normalisation, recurrence, quantisation and attention have files of
// their own.
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "onnx/operators.h"
#include "onnx/operators/attention.h"
#include "onnx/operators/windows.h"

namespace heddle::onnx {

Status normal_padding(Call& call) {
  HEDDLE_TRY_ASSIGN(const std::string padding, call.take_str("auto_pad", "NOTSET"));
  if (padding != "NOTSET" && !padding.empty()) call.attributes().set("auto_pad", padding);
  return {};
}

namespace {

using ir::Attributes;
using ir::TensorType;
using ir::ValueId;

Status windowed(Call& call) {
  HEDDLE_TRY(normal_padding(call));
  return convert_same(call);
}

Status max_pool(Call& call) {
  HEDDLE_TRY(normal_padding(call));
  const size_t outputs = call.output_count() > 1 ? 2 : 1;
  if (outputs == 1) call.attributes().erase("storage_order");  // the order of the indices
  return call.emit("MaxPool", call.inputs(), call.attributes(), outputs);
}

// The p-norm of whole planes.
Status global_lp_pool(Call& call) {
  HEDDLE_TRY_ASSIGN(const int64_t p, call.take_i64("p", 2));
  HEDDLE_TRY_ASSIGN(const TensorType x, call.type(0));
  if (p < 1 || x.rank() < 3) {
    return call.invalid("p is ", p, " and the input is ", x, "; p must be 1 or more, the rank 3 or more");
  }
  std::vector<int64_t> planes(x.rank() - 2);
  std::iota(planes.begin(), planes.end(), 2);
  const ValueId axes = call.constant(ir::Tensor::of_i64(planes), "axes");
  if (p == 2) return call.emit("ReduceL2", {call.input(0), axes}, call.attributes());
  const auto power = static_cast<double>(p);
  HEDDLE_TRY_ASSIGN(const ValueId size, call.add("Abs", {call.input(0)}, {}, "size"));
  HEDDLE_TRY_ASSIGN(const ValueId raised,
                    call.add("Pow", {size, call.scalar(x.dtype, power, "p")}, {}, "raised"));
  HEDDLE_TRY_ASSIGN(const ValueId sum, call.add("ReduceSum", {raised, axes}, {}, "sum"));
  return call.emit("Pow", {sum, call.scalar(x.dtype, 1 / power, "root")}, call.attributes());
}

// Of integers: written as products and sums, whose factors have to be whole numbers.
Status integer_gemm(Call& call, const TensorType& type) {
  HEDDLE_TRY_ASSIGN(const double alpha, call.take_f64("alpha", 1));
  HEDDLE_TRY_ASSIGN(const double beta, call.take_f64("beta", 1));
  if (alpha != std::nearbyint(alpha) || beta != std::nearbyint(beta)) {
    return call.unsupported("alpha is ", alpha, " and beta is ", beta,
                            "; for integers they must be whole numbers");
  }
  const std::vector<int64_t> swap = {1, 0};
  ValueId sides[2];
  const std::string_view flags[] = {"transA", "transB"};
  for (size_t i = 0; i < 2; ++i) {
    HEDDLE_TRY_ASSIGN(sides[i], call.required(i));
    HEDDLE_TRY_ASSIGN(const int64_t turned, call.take_i64(flags[i], 0));
    if (turned == 0) continue;
    HEDDLE_TRY_ASSIGN(sides[i], call.add("Transpose", {sides[i]}, {{"perm", swap}}, flags[i]));
  }
  HEDDLE_TRY_ASSIGN(ValueId y, call.add("MatMul", {sides[0], sides[1]}, {}, "product"));
  if (alpha != 1) {
    HEDDLE_TRY_ASSIGN(y, call.add("Mul", {y, call.scalar(type.dtype, alpha, "alpha")}, {}, "scaled"));
  }
  if (!call.has(2)) return call.emit("Identity", {y}, call.attributes());
  ValueId added = call.input(2);
  if (beta != 1) {
    HEDDLE_TRY_ASSIGN(added, call.add("Mul", {added, call.scalar(type.dtype, beta, "beta")}, {}, "added"));
  }
  return call.emit("Add", {y, added}, call.attributes());
}

Status gemm(Call& call) {
  HEDDLE_TRY_ASSIGN(const TensorType a, call.type(0));
  for (size_t i = 1; i < 3; ++i) {
    if (i == 2 && !call.has(i)) continue;
    HEDDLE_TRY_ASSIGN(const TensorType other, call.type(i));
    if (other.dtype != a.dtype)
      return call.invalid("operand ", i, " is ", other, "; it must hold ", a.dtype, " as operand 0 does");
  }
  return ir::is_float(a.dtype) ? convert_same(call) : integer_gemm(call, a);
}

}  // namespace

std::span<const Operator> neural_operators() {
  static constexpr Operator kTable[] = {
      {"Attention", 23, convert_attention},
      {"AveragePool", 7, windowed},
      {"Conv", 1, windowed},
      {"ConvTranspose", 1, windowed},
      {"Gemm", 7, gemm},
      {"GlobalAveragePool", 1, convert_same},
      {"GlobalLpPool", 2, global_lp_pool},
      {"GlobalMaxPool", 1, convert_same},
      {"LpPool", 2, windowed},
      {"MatMul", 1, convert_same},
      {"MaxPool", 8, max_pool},
      {"MaxUnpool", 9, convert_same},
      {"RotaryEmbedding", 23, convert_rotary_embedding},
  };
  return kTable;
}

}  // namespace heddle::onnx
