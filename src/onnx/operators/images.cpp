// Operators that interpolate images.
#include <string>
#include <vector>

#include "onnx/operators.h"
#include "onnx/operators/parts.h"

namespace heddle::onnx {
namespace {

using ir::DType;
using ir::ValueId;

// An empty tensor stands for an operand that is left out.
ValueId present(const Call& call, size_t input) {
  if (!call.has(input)) return ir::kNoValue;
  const ir::Shape& shape = call.value(call.input(input)).type.shape;
  return shape.size() == 1 && shape[0].is(0) ? ir::kNoValue : call.input(input);
}

Status emit_resize(Call& call, std::vector<ValueId> inputs) {
  while (inputs.back() == ir::kNoValue) inputs.pop_back();
  return call.emit("Resize", std::move(inputs), call.attributes());
}

// Opset 10 has scales as the second input, and the coordinates of Upsample.
Status resize(Call& call) {
  HEDDLE_TRY_ASSIGN(const ValueId x, call.required(0));
  if (call.opset() < 11) {
    call.attributes().set("coordinate_transformation_mode", std::string("asymmetric"));
    call.attributes().set("nearest_mode", std::string("floor"));
    return emit_resize(call, {x, ir::kNoValue, present(call, 1)});
  }
  const bool cropped = call.attributes().str("coordinate_transformation_mode", "") == "tf_crop_and_resize";
  return emit_resize(call,
                     {x, cropped ? present(call, 1) : ir::kNoValue, present(call, 2), present(call, 3)});
}

Status upsample(Call& call) {
  HEDDLE_TRY_ASSIGN(const ValueId x, call.required(0));
  ValueId scales = call.input(1);
  if (const ir::Attribute* list = call.attributes().find("scales")) {
    const auto* numbers = std::get_if<std::vector<double>>(list);
    if (numbers == nullptr) return call.invalid("attribute 'scales' is of the wrong kind; it must be floats");
    const ir::Extents extents{static_cast<int64_t>(numbers->size())};
    scales = call.constant(ir::Tensor::of<double>(DType::kF32, extents, *numbers), "scales");
    call.attributes().erase("scales");
  }
  call.attributes().set("coordinate_transformation_mode", std::string("asymmetric"));
  call.attributes().set("nearest_mode", std::string("floor"));
  return emit_resize(call, {x, ir::kNoValue, scales});
}

// Opset 16 calls the modes bilinear and bicubic.
Status grid_sample(Call& call) {
  HEDDLE_TRY_ASSIGN(const std::string mode, call.take_str("mode", "linear"));
  call.attributes().set("mode", mode == "bilinear" ? "linear" : mode == "bicubic" ? "cubic" : mode);
  return convert_same(call);
}

Status roi_align(Call& call) {
  HEDDLE_TRY_ASSIGN(const std::string mode,
                    call.take_str("coordinate_transformation_mode",
                                  call.opset() < 16 ? "output_half_pixel" : "half_pixel"));
  call.attributes().set("coordinate_transformation_mode", mode);
  return convert_same(call);
}

// Points of an axis of `count` elements in [-1, 1]: the elements' centres, or from border to border.
ValueId points(Parts& parts, ValueId count, DType dtype, bool align_corners) {
  const auto number = [&](double value) { return parts.number(DType::kF64, value); };
  const ValueId place = parts.range(count, DType::kF64);
  const ValueId all = parts.cast(count, DType::kF64);
  if (align_corners) {
    const ValueId steps = parts.pair("Max", parts.pair("Sub", all, number(1)), number(1));
    const ValueId along = parts.pair("Div", parts.pair("Mul", place, number(2)), steps);
    return parts.cast(parts.pair("Sub", along, number(1)), dtype);
  }
  const ValueId along = parts.pair("Add", parts.pair("Mul", place, number(2)), number(1));
  return parts.cast(parts.pair("Sub", parts.pair("Div", along, all), number(1)), dtype);
}

// theta x (x, y, 1) for each point of the image, or (x, y, z, 1).
Status affine_grid(Call& call) {
  HEDDLE_TRY_ASSIGN(const ir::TensorType theta, call.type(0));
  HEDDLE_TRY_ASSIGN(const ir::TensorType size, call.type(1));
  HEDDLE_TRY_ASSIGN(const int64_t corners, call.take_i64("align_corners", 0));
  const bool flat = size.rank() == 1 && size.shape[0].is(4), deep = size.rank() == 1 && size.shape[0].is(5);
  if (theta.rank() != 3 || !(flat || deep))
    return call.invalid("theta is ", theta, " and size is ", size,
                        "; they have to be of rank 3 and of 4 or 5 elements");
  const int64_t axes = flat ? 2 : 3;
  Parts parts(call);
  std::vector<int64_t> spatial;
  for (int64_t axis = 0; axis < axes; ++axis) spatial.push_back(2 + axis);
  const ValueId extents = parts.node("Gather", {call.input(1), parts.ints(spatial)});
  const ValueId shape = parts.join({extents, parts.ints({1})});
  std::vector<ValueId> coordinates;  // the last axis first
  for (int64_t axis = axes; axis-- > 0;) {
    const ValueId count = parts.node("Gather", {extents, parts.ints({axis})});
    std::vector<int64_t> others;
    for (int64_t i = axis + 1; i <= axes; ++i) others.push_back(i - axis);
    const ValueId along = parts.unsqueeze(points(parts, count, theta.dtype, corners != 0), others);
    coordinates.push_back(parts.node("Expand", {along, shape}));
  }
  coordinates.push_back(parts.node("Expand", {parts.number(theta.dtype, 1), shape}));
  const ValueId grid = parts.node("Concat", coordinates, {{"axis", int64_t{-1}}});
  const ValueId rows = parts.node("Reshape", {grid, parts.ints({-1, axes + 1})});
  const ValueId placed = parts.pair("MatMul", rows, parts.transpose(call.input(0), {0, 2, 1}));
  const ValueId result = parts.join({parts.extent(call.input(0), 0), extents, parts.ints({axes})});
  return parts.emit(parts.node("Reshape", {placed, result}));
}

}  // namespace

std::span<const Operator> image_operators() {
  static constexpr Operator kTable[] = {
      {"AffineGrid", 20, affine_grid}, {"GridSample", 16, grid_sample}, {"Resize", 10, resize},
      {"RoiAlign", 10, roi_align},     {"Upsample", 7, upsample},
  };
  return kTable;
}

}  // namespace heddle::onnx
