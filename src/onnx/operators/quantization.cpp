// Quantised operators. Products of integers are the IR's, exact in 32 bits; the rest is arithmetic in f32.
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "onnx/operators.h"
#include "onnx/operators/windows.h"
#include "onnx/proto.h"

namespace heddle::onnx {
namespace {

using ir::DType;
using ir::TensorType;
using ir::ValueId;

bool single(const TensorType& type) {
  for (const ir::Dim& dim : type.shape) {
    if (!dim.is(1)) return false;
  }
  return true;
}

Result<ValueId> reshaped(Call& call, ValueId id, const std::vector<int64_t>& shape,
                         std::string_view purpose) {
  return call.add("Reshape", {id, call.constant(ir::Tensor::of_i64(shape), text(purpose, "_shape"))}, {},
                  purpose);
}

// How a scale or zero point covers a tensor: one for all, one for each index of an axis, or one for each
// block of `block` indices.
struct Cover {
  size_t rank;
  size_t axis;
  int64_t block;
  ir::Dim extent;  // of the axis
};

Result<Cover> take_cover(Call& call) {
  HEDDLE_TRY_ASSIGN(const TensorType x, call.type(0));
  HEDDLE_TRY_ASSIGN(const int64_t axis, call.take_i64("axis", 1));
  HEDDLE_TRY_ASSIGN(const int64_t block, call.take_i64("block_size", 0));
  Cover cover{x.rank(), 0, block, ir::Dim(1)};
  if (block < 0) return call.invalid("block_size is ", block, "; it must be 0 or more");
  HEDDLE_TRY_ASSIGN(const TensorType scale, call.type(1));
  if (single(scale)) return cover;  // the axis means nothing then
  const Result<size_t> normal = ir::normalize_axis(axis, x.rank());
  if (!normal.ok()) return call.invalid("axis ", axis, " is not one of ", x);
  cover.axis = *normal;
  cover.extent = x.shape[cover.axis];
  return cover;
}

// Each block's number for all its indices; the last block may be cut short.
Result<ValueId> spread_blocks(Call& call, ValueId id, const Cover& cover, std::string_view purpose) {
  const TensorType type = call.value(id).type;
  const auto extents = type.extents();
  if (type.rank() != cover.rank || !extents)
    return call.unsupported("the ", purpose, " is ", type, "; in blocks it must have known extents and rank ",
                            cover.rank);
  std::vector<int64_t> wide(cover.rank + 1, 1), joined(extents->begin(), extents->end());
  wide[cover.axis + 1] = cover.block;
  joined[cover.axis] *= cover.block;
  const auto number = [&](int64_t n, std::string_view what) {
    return call.constant(ir::Tensor::of_i64({n}), text(purpose, what));
  };
  const auto axis = static_cast<int64_t>(cover.axis);
  HEDDLE_TRY_ASSIGN(const ValueId apart, call.add("Unsqueeze", {id, number(axis + 1, "_block_axis")}, {},
                                                  text(purpose, "_apart")));
  const ValueId times = call.constant(ir::Tensor::of_i64(wide), text(purpose, "_times"));
  HEDDLE_TRY_ASSIGN(const ValueId many, call.add("Expand", {apart, times}, {}, text(purpose, "_many")));
  HEDDLE_TRY_ASSIGN(const ValueId all, reshaped(call, many, joined, text(purpose, "_all")));
  if (!cover.extent.is_static() || cover.extent.value() == joined[cover.axis]) return all;
  return call.add("Slice",
                  {all, number(0, "_begin"), number(cover.extent.value(), "_end"), number(axis, "_axis")}, {},
                  text(purpose, "_cut"));
}

Result<ValueId> spread(Call& call, ValueId id, const Cover& cover, std::string_view purpose) {
  const TensorType& type = call.value(id).type;
  if (type.rank() == 0) return id;
  if (single(type)) return reshaped(call, id, {}, text(purpose, "_scalar"));
  if (cover.block > 0) return spread_blocks(call, id, cover, purpose);
  if (type.rank() != 1) {
    return call.invalid("the ", purpose, " is ", type, "; it must be a scalar or a vector along the axis");
  }
  std::vector<int64_t> shape(cover.rank, 1);
  shape[cover.axis] = -1;
  return reshaped(call, id, shape, text(purpose, "_along"));
}

// Operand `input` over the tensor, in f32 (or `dtype`).
Result<ValueId> operand(Call& call, size_t input, const Cover& cover, std::string_view purpose,
                        DType dtype = DType::kF32) {
  HEDDLE_TRY_ASSIGN(const ValueId id, call.required(input));
  HEDDLE_TRY_ASSIGN(const ValueId number, call.cast(id, dtype, text(purpose, "_number")));
  return spread(call, number, cover, purpose);
}

struct Range {
  double low, high;
};
std::optional<Range> range_of(DType dtype) {
  switch (dtype) {
    case DType::kI8:
      return Range{-128, 127};
    case DType::kU8:
      return Range{0, 255};
    case DType::kI16:
      return Range{-32768, 32767};
    case DType::kU16:
      return Range{0, 65535};
    default:
      return std::nullopt;
  }
}

// saturate(round(x) + zero_point), rounding halves to even. x is f32 or narrower; zero_point may be absent.
Status emit_saturated(Call& call, ValueId x, ValueId zero_point, DType to) {
  const auto range = range_of(to);
  if (!range) return call.unsupported("cannot quantise to ", to, "; it must be i8, u8, i16 or u16");
  HEDDLE_TRY_ASSIGN(const ValueId rounded, call.add("Round", {x}, {}, "rounded"));
  HEDDLE_TRY_ASSIGN(ValueId whole, call.cast(rounded, DType::kF32, "whole"));
  if (zero_point != ir::kNoValue) {
    HEDDLE_TRY_ASSIGN(whole, call.add("Add", {whole, zero_point}, {}, "moved"));
  }
  HEDDLE_TRY_ASSIGN(const ValueId held, call.add("Clip",
                                                 {whole, call.scalar(DType::kF32, range->low, "low"),
                                                  call.scalar(DType::kF32, range->high, "high")},
                                                 {}, "saturated"));
  return call.emit("Cast", {held}, {{"to", std::string(ir::name(to))}});
}

Result<std::optional<DType>> take_optional_dtype(Call& call, std::string_view name) {
  HEDDLE_TRY_ASSIGN(const int64_t number, call.take_i64(name, 0));
  if (number == 0) return std::optional<DType>();
  const int type = number > 0 && number <= 255 ? static_cast<int>(number) : 0;
  const std::optional<DType> dtype = dtype_of(type);
  if (!dtype) return call.unsupported(name, " ", data_type_name(type), " is not supported");
  return dtype;
}

Status quantize_linear(Call& call) {
  HEDDLE_TRY_ASSIGN(const Cover cover, take_cover(call));
  HEDDLE_TRY_ASSIGN(const auto wanted, take_optional_dtype(call, "output_dtype"));
  HEDDLE_TRY_ASSIGN(const auto precision, take_optional_dtype(call, "precision"));
  call.attributes().erase("saturate");  // speaks of 8-bit floats only
  HEDDLE_TRY_ASSIGN(const TensorType x, call.type(0));
  HEDDLE_TRY_ASSIGN(const TensorType scale, call.type(1));
  // Halves are divided as halves, all else in f32.
  const bool alike = x.dtype == scale.dtype && ir::is_float(x.dtype) && !precision;
  const DType in = alike ? x.dtype : precision.value_or(DType::kF32);
  if (!ir::is_float(in)) return call.invalid("precision is ", in, "; it must be a float type");
  DType to = wanted.value_or(DType::kU8);
  ValueId zero_point = ir::kNoValue;
  if (call.has(2)) {
    to = call.value(call.input(2)).type.dtype;
    if (wanted && *wanted != to)
      return call.invalid("output_dtype is ", *wanted, ", but the zero point is ", to);
    HEDDLE_TRY_ASSIGN(zero_point, operand(call, 2, cover, "zero_point"));
  }
  HEDDLE_TRY_ASSIGN(const ValueId divisor, operand(call, 1, cover, "scale", in));
  HEDDLE_TRY_ASSIGN(const ValueId numerator, call.cast(call.input(0), in, "numerator"));
  HEDDLE_TRY_ASSIGN(const ValueId quotient, call.add("Div", {numerator, divisor}, {}, "quotient"));
  return emit_saturated(call, quotient, zero_point, to);
}

Status dequantize_linear(Call& call) {
  HEDDLE_TRY_ASSIGN(const Cover cover, take_cover(call));
  HEDDLE_TRY_ASSIGN(const auto wanted, take_optional_dtype(call, "output_dtype"));
  HEDDLE_TRY_ASSIGN(const TensorType x, call.type(0));
  HEDDLE_TRY_ASSIGN(const TensorType scale, call.type(1));
  if (!ir::is_integer(x.dtype)) return call.invalid("the input is ", x, "; it must be of an integer dtype");
  HEDDLE_TRY_ASSIGN(ValueId number, call.cast(call.input(0), DType::kF32, "number"));
  if (call.has(2)) {
    HEDDLE_TRY_ASSIGN(const ValueId zero_point, operand(call, 2, cover, "zero_point"));
    HEDDLE_TRY_ASSIGN(number, call.add("Sub", {number, zero_point}, {}, "moved"));
  }
  HEDDLE_TRY_ASSIGN(const ValueId factor, operand(call, 1, cover, "scale"));
  HEDDLE_TRY_ASSIGN(const ValueId y, call.add("Mul", {number, factor}, {}, "product"));
  return call.emit("Cast", {y}, {{"to", std::string(ir::name(wanted.value_or(scale.dtype)))}});
}

Status dynamic_quantize_linear(Call& call) {
  HEDDLE_TRY_ASSIGN(const ValueId x, call.required(0));
  const ir::Attributes whole = {{"keepdims", int64_t{0}}};
  const auto number = [&](double value, std::string_view purpose) {
    return call.scalar(DType::kF32, value, purpose);
  };
  const ValueId zero = number(0, "zero"), top = number(255, "top");
  HEDDLE_TRY_ASSIGN(const ValueId largest, call.add("ReduceMax", {x}, whole, "largest"));
  HEDDLE_TRY_ASSIGN(const ValueId smallest, call.add("ReduceMin", {x}, whole, "smallest"));
  HEDDLE_TRY_ASSIGN(const ValueId high, call.add("Max", {largest, zero}, {}, "high"));
  HEDDLE_TRY_ASSIGN(const ValueId low, call.add("Min", {smallest, zero}, {}, "low"));
  HEDDLE_TRY_ASSIGN(const ValueId spread, call.add("Sub", {high, low}, {}, "spread"));
  HEDDLE_TRY_ASSIGN(const ValueId flat, call.add("Equal", {high, low}, {}, "flat"));
  HEDDLE_TRY_ASSIGN(const ValueId extent, call.add("Where", {flat, top, spread}, {}, "extent"));
  HEDDLE_TRY_ASSIGN(const ValueId scale, call.add("Div", {extent, top}, {}, "scale"));
  HEDDLE_TRY_ASSIGN(const ValueId below, call.add("Div", {low, scale}, {}, "below"));
  HEDDLE_TRY_ASSIGN(const ValueId start, call.add("Sub", {zero, below}, {}, "start"));
  HEDDLE_TRY_ASSIGN(const ValueId held, call.add("Clip", {start, zero, top}, {}, "held"));
  HEDDLE_TRY_ASSIGN(const ValueId point, call.add("Round", {held}, {}, "point"));
  HEDDLE_TRY_ASSIGN(const ValueId byte, call.cast(point, DType::kU8, "byte"));
  HEDDLE_TRY_ASSIGN(const ValueId quotient, call.add("Div", {x, scale}, {}, "quotient"));
  HEDDLE_TRY(emit_saturated(call, quotient, point, DType::kU8));
  call.bind(1, scale);
  call.bind(2, byte);
  return {};
}

// A vector of one number per row of the left operand is a column there.
Result<ValueId> rows_of(Call& call, ValueId id, size_t operand_rank, std::string_view purpose) {
  const TensorType& type = call.value(id).type;
  if (single(type)) return type.rank() == 0 ? Result<ValueId>(id) : reshaped(call, id, {}, purpose);
  if (type.rank() != 1 || operand_rank < 2) return id;
  return reshaped(call, id, {-1, 1}, purpose);
}

// sum over k of (a - its zero point) * (b - its zero point), in i32.
Result<ValueId> product(Call& call, ValueId a, ValueId a_point, ValueId b, ValueId b_point) {
  const size_t rank = call.value(a).type.rank();
  if (a_point != ir::kNoValue) {
    HEDDLE_TRY_ASSIGN(a_point, rows_of(call, a_point, rank, "a_zero_point"));
  }
  return call.add("MatMulInteger", {a, b, a_point, b_point}, {}, "product");
}

Status matmul_integer(Call& call) {
  HEDDLE_TRY_ASSIGN(const ValueId a, call.required(0));
  HEDDLE_TRY_ASSIGN(const ValueId b, call.required(1));
  HEDDLE_TRY_ASSIGN(const ValueId y, product(call, a, call.input(2), b, call.input(3)));
  call.bind(0, y);
  return {};
}

// acc * (scale of a * scale of b / scale of y), rounded, moved and saturated.
Status requantize(Call& call, ValueId sum, ValueId a_scale, ValueId b_scale, size_t y_scale) {
  HEDDLE_TRY_ASSIGN(const ValueId y_point_id, call.required(y_scale + 1));
  const DType to = call.value(y_point_id).type.dtype;
  const Cover one{call.value(sum).type.rank(), 0, 0, ir::Dim(1)};
  HEDDLE_TRY_ASSIGN(const ValueId number, call.cast(sum, DType::kF32, "sum"));
  HEDDLE_TRY_ASSIGN(const ValueId left, call.cast(a_scale, DType::kF32, "left_scale"));
  HEDDLE_TRY_ASSIGN(const ValueId right, call.cast(b_scale, DType::kF32, "right_scale"));
  HEDDLE_TRY_ASSIGN(const ValueId result, operand(call, y_scale, one, "result_scale"));
  HEDDLE_TRY_ASSIGN(const ValueId point, operand(call, y_scale + 1, one, "result_zero_point"));
  HEDDLE_TRY_ASSIGN(const ValueId both, call.add("Mul", {left, right}, {}, "both_scales"));
  HEDDLE_TRY_ASSIGN(const ValueId factor, call.add("Div", {both, result}, {}, "factor"));
  HEDDLE_TRY_ASSIGN(const ValueId scaled, call.add("Mul", {number, factor}, {}, "scaled"));
  return emit_saturated(call, scaled, point, to);
}

Status qlinear_matmul(Call& call) {
  for (size_t i = 0; i < 8; ++i) HEDDLE_TRY(status_of(call.required(i)));
  const size_t rank = call.value(call.input(0)).type.rank();
  HEDDLE_TRY_ASSIGN(const ValueId sum,
                    product(call, call.input(0), call.input(2), call.input(3), call.input(5)));
  HEDDLE_TRY_ASSIGN(const ValueId a_scale, rows_of(call, call.input(1), rank, "a_scale"));
  HEDDLE_TRY_ASSIGN(const ValueId b_scale, rows_of(call, call.input(4), 0, "b_scale"));
  return requantize(call, sum, a_scale, b_scale, 6);
}

// One number per output channel, for a weight (leading axis) or a result (axis 1) of that rank.
Result<ValueId> channels_of(Call& call, ValueId id, size_t rank, size_t axis, std::string_view purpose) {
  const TensorType& type = call.value(id).type;
  if (single(type)) return type.rank() == 0 ? Result<ValueId>(id) : reshaped(call, id, {}, purpose);
  std::vector<int64_t> shape(rank, 1);
  shape[axis] = -1;
  return reshaped(call, id, shape, purpose);
}

Result<ValueId> integer_conv(Call& call, ValueId x, ValueId w, ValueId x_point, ValueId w_point) {
  HEDDLE_TRY(normal_padding(call));
  const size_t rank = call.value(w).type.rank();
  if (x_point != ir::kNoValue) {
    HEDDLE_TRY_ASSIGN(x_point, channels_of(call, x_point, 1, 0, "x_zero_point"));
  }
  if (w_point != ir::kNoValue) {
    HEDDLE_TRY_ASSIGN(w_point, channels_of(call, w_point, rank, 0, "w_zero_point"));
  }
  return call.add("ConvInteger", {x, w, x_point, w_point}, call.attributes(), "sums");
}

Status conv_integer(Call& call) {
  HEDDLE_TRY_ASSIGN(const ValueId x, call.required(0));
  HEDDLE_TRY_ASSIGN(const ValueId w, call.required(1));
  HEDDLE_TRY_ASSIGN(const ValueId y, integer_conv(call, x, w, call.input(2), call.input(3)));
  call.bind(0, y);
  return {};
}

Status qlinear_conv(Call& call) {
  for (size_t i = 0; i < 8; ++i) HEDDLE_TRY(status_of(call.required(i)));
  HEDDLE_TRY_ASSIGN(ValueId sum,
                    integer_conv(call, call.input(0), call.input(3), call.input(2), call.input(5)));
  const size_t rank = call.value(sum).type.rank();
  if (call.has(8)) {
    HEDDLE_TRY_ASSIGN(const ValueId bias, channels_of(call, call.input(8), rank, 1, "bias"));
    HEDDLE_TRY_ASSIGN(sum, call.add("Add", {sum, bias}, {}, "biased"));
  }
  HEDDLE_TRY_ASSIGN(const ValueId x_scale, channels_of(call, call.input(1), 1, 0, "x_scale"));
  HEDDLE_TRY_ASSIGN(const ValueId w_scale, channels_of(call, call.input(4), rank, 1, "w_scale"));
  return requantize(call, sum, x_scale, w_scale, 6);
}

}  // namespace

std::span<const Operator> quantization_operators() {
  static constexpr Operator kTable[] = {
      {"ConvInteger", 10, conv_integer},
      {"DequantizeLinear", 10, dequantize_linear},
      {"DynamicQuantizeLinear", 11, dynamic_quantize_linear},
      {"MatMulInteger", 10, matmul_integer},
      {"QLinearConv", 10, qlinear_conv},
      {"QLinearMatMul", 10, qlinear_matmul},
      {"QuantizeLinear", 10, quantize_linear},
  };
  return kTable;
}

}  // namespace heddle::onnx
