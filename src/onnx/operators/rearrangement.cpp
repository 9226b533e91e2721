// Operators that put elements elsewhere: by blocks, by index, by length.
#include <string>
#include <vector>

#include "onnx/operators.h"
#include "onnx/operators/einsum.h"
#include "onnx/operators/parts.h"
#include "onnx/proto.h"

namespace heddle::onnx {
namespace {

using ir::DType;
using ir::ValueId;

Result<int64_t> take_block(Call& call, const ir::TensorType& x) {
  HEDDLE_TRY_ASSIGN(const int64_t block, call.take_i64("blocksize", 0));
  constexpr int64_t kMost = int64_t{1} << 23;  // its square fits a tensor
  if (block < 1 || block > kMost)
    return call.invalid("attribute 'blocksize' is ", block, "; it has to be 1 to ", kMost);
  if (x.rank() != 4) return call.invalid("the input is ", x, "; its rank has to be 4");
  return block;
}

Status depth_to_space(Call& call) {
  HEDDLE_TRY_ASSIGN(const ir::TensorType type, call.type(0));
  HEDDLE_TRY_ASSIGN(const int64_t block, take_block(call, type));
  HEDDLE_TRY_ASSIGN(const std::string mode, call.take_str("mode", "DCR"));
  if (mode != "DCR" && mode != "CRD")
    return call.invalid("attribute 'mode' is '", mode, "'; it has to be 'DCR' or 'CRD'");
  if (type.shape[1].is_static() && type.shape[1].value() % (block * block) != 0) {
    return call.invalid("the input is ", type, "; its channels have to be a multiple of ", block * block);
  }
  Parts parts(call);
  const ValueId x = call.input(0);
  const ValueId batch = parts.extent(x, 0), size = parts.extents(x, 2, 4);
  const ValueId blocks = parts.ints({block, block});
  const ValueId depth = parts.pair("Div", parts.extent(x, 1), parts.ints({block * block}));
  const bool columns_first = mode == "CRD";
  const ValueId apart = parts.node("Reshape",
                                   {x, columns_first ? parts.join({batch, depth, blocks, size})
                                                     : parts.join({batch, blocks, depth, size})},
                                   {{"allowzero", int64_t{1}}});
  const ValueId moved =
      columns_first ? parts.transpose(apart, {0, 1, 4, 2, 5, 3}) : parts.transpose(apart, {0, 3, 4, 1, 5, 2});
  const ValueId shape = parts.join({batch, depth, parts.pair("Mul", size, blocks)});
  return parts.emit(parts.node("Reshape", {moved, shape}, {{"allowzero", int64_t{1}}}));
}

Status space_to_depth(Call& call) {
  HEDDLE_TRY_ASSIGN(const ir::TensorType type, call.type(0));
  HEDDLE_TRY_ASSIGN(const int64_t block, take_block(call, type));
  HEDDLE_TRY_ASSIGN(const std::string mode, call.take_str("mode", "DCR"));
  if (mode != "DCR" && mode != "CRD")
    return call.invalid("attribute 'mode' is '", mode, "'; it has to be 'DCR' or 'CRD'");
  for (size_t axis : {2, 3}) {
    if (!type.shape[axis].is_static() || type.shape[axis].value() % block == 0) continue;
    return call.invalid("the input is ", type, "; its height and width have to be multiples of ", block);
  }
  Parts parts(call);
  const ValueId x = call.input(0);
  const ValueId batch = parts.extent(x, 0), channels = parts.extent(x, 1), one = parts.ints({block});
  const ValueId high = parts.pair("Div", parts.extent(x, 2), one);
  const ValueId wide = parts.pair("Div", parts.extent(x, 3), one);
  const ValueId apart = parts.node("Reshape", {x, parts.join({batch, channels, high, one, wide, one})},
                                   {{"allowzero", int64_t{1}}});
  const std::vector<int64_t> perm =
      mode == "CRD" ? std::vector<int64_t>{0, 1, 3, 5, 2, 4} : std::vector<int64_t>{0, 3, 5, 1, 2, 4};
  const ValueId depth = parts.pair("Mul", channels, parts.ints({block * block}));
  return parts.emit(parts.node("Reshape",
                               {parts.transpose(apart, perm), parts.join({batch, depth, high, wide})},
                               {{"allowzero", int64_t{1}}}));
}

// Positions along the axis of time, as indices for GatherElements: mirrored up to each example's length.
Status reverse_sequence(Call& call) {
  HEDDLE_TRY_ASSIGN(const int64_t batch_axis, call.take_i64("batch_axis", 1));
  HEDDLE_TRY_ASSIGN(const int64_t time_axis, call.take_i64("time_axis", 0));
  HEDDLE_TRY_ASSIGN(const ir::TensorType type, call.type(0));
  HEDDLE_TRY(call.required(1));
  const bool known = (batch_axis == 0 && time_axis == 1) || (batch_axis == 1 && time_axis == 0);
  if (!known || type.rank() < 2) {
    return call.invalid("batch_axis is ", batch_axis, " and time_axis is ", time_axis, " for ", type,
                        "; one has to be 0, the other 1, of rank 2 or more");
  }
  Parts parts(call);
  const ValueId x = call.input(0);
  const ValueId times = parts.range(parts.extent(x, static_cast<size_t>(time_axis)), DType::kI64);
  const ValueId time = parts.unsqueeze(times, {batch_axis});
  const ValueId length = parts.unsqueeze(parts.cast(call.input(1), DType::kI64), {time_axis});
  const ValueId last = parts.pair("Sub", length, parts.number(DType::kI64, 1));
  const ValueId place =
      parts.node("Where", {parts.pair("Less", time, length), parts.pair("Sub", last, time), time});
  std::vector<int64_t> trailing;
  for (size_t axis = 2; axis < type.rank(); ++axis) trailing.push_back(static_cast<int64_t>(axis));
  const ValueId indices =
      parts.node("Expand", {parts.unsqueeze(place, trailing), parts.extents(x, 0, type.rank())});
  return parts.emit(parts.node("GatherElements", {x, indices}, {{"axis", time_axis}}));
}

Status eye_like(Call& call) {
  HEDDLE_TRY_ASSIGN(const ir::TensorType type, call.type(0));
  HEDDLE_TRY_ASSIGN(const int64_t k, call.take_i64("k", 0));
  HEDDLE_TRY_ASSIGN(const int64_t given, call.take_i64("dtype", proto::TensorProto::UNDEFINED));
  if (type.rank() != 2) return call.invalid("the input is ", type, "; its rank has to be 2");
  const int data_type = given >= 0 && given <= 255 ? static_cast<int>(given) : -1;
  const auto dtype = given == proto::TensorProto::UNDEFINED ? std::optional(type.dtype) : dtype_of(data_type);
  if (!dtype) return call.unsupported("cannot make ", data_type_name(data_type));
  Parts parts(call);
  const ValueId rows = parts.range(parts.extent(call.input(0), 0), DType::kI64);
  const ValueId columns = parts.range(parts.extent(call.input(0), 1), DType::kI64);
  const ValueId diagonal =
      parts.unsqueeze(parts.pair("Add", rows, parts.number(DType::kI64, static_cast<double>(k))), {1});
  return parts.emit(parts.cast(parts.pair("Equal", diagonal, columns), *dtype));
}

// What is too long is cut on both sides, what is too short is padded with zeros; an odd rest goes to the end.
Status center_crop_pad(Call& call) {
  HEDDLE_TRY_ASSIGN(const ir::TensorType type, call.type(0));
  HEDDLE_TRY_ASSIGN(const auto given, call.take_ints("axes"));
  HEDDLE_TRY(call.required(1));
  std::vector<int64_t> axes;
  for (size_t axis = 0; axis < type.rank() && !given; ++axis) axes.push_back(static_cast<int64_t>(axis));
  for (int64_t axis : given.value_or(std::vector<int64_t>())) {
    const Result<size_t> normal = ir::normalize_axis(axis, type.rank());
    if (!normal.ok()) return call.invalid(normal.status().message(), " of ", type);
    axes.push_back(static_cast<int64_t>(*normal));
  }
  Parts parts(call);
  const ValueId zero = parts.ints({0}), two = parts.ints({2}), which = parts.ints(axes);
  const ValueId have = parts.node("Gather", {parts.extents(call.input(0), 0, type.rank()), which});
  const ValueId want = parts.cast(call.input(1), DType::kI64);
  const ValueId excess = parts.pair("Max", parts.pair("Sub", have, want), zero);
  const ValueId start = parts.pair("Div", excess, two);
  const ValueId end = parts.pair("Add", start, parts.pair("Min", have, want));
  const ValueId cut = parts.node("Slice", {call.input(0), start, end, which});
  const ValueId lack = parts.pair("Max", parts.pair("Sub", want, have), zero);
  const ValueId before = parts.pair("Div", lack, two);
  const ValueId pads = parts.join({before, parts.pair("Sub", lack, before)});
  return parts.emit(parts.node("Pad", {cut, pads, ir::kNoValue, which}));
}

// The rows of the update go to consecutive places of the cache, from each example's own index on.
Status tensor_scatter(Call& call) {
  HEDDLE_TRY_ASSIGN(const ir::TensorType type, call.type(0));
  HEDDLE_TRY_ASSIGN(const ir::TensorType update, call.type(1));
  HEDDLE_TRY_ASSIGN(const int64_t given, call.take_i64("axis", -2));
  HEDDLE_TRY_ASSIGN(const std::string mode, call.take_str("mode", "linear"));
  if (mode != "linear" && mode != "circular")
    return call.invalid("attribute 'mode' is '", mode, "'; it has to be 'linear' or 'circular'");
  const Result<size_t> axis = ir::normalize_axis(given, type.rank());
  if (!axis.ok() || *axis == 0 || update.rank() != type.rank()) {
    return call.invalid("axis ", given, " of the cache, ", type, ", and the update, ", update,
                        ": ranks have to be equal and the axis another than that of the examples");
  }
  Parts parts(call);
  const ValueId steps = parts.range(parts.extent(call.input(1), *axis), DType::kI64);
  const ValueId start = call.has(2) ? parts.unsqueeze(call.input(2), {1})
                                    : parts.constant(ir::Tensor::of_i64({0}).reshaped({1, 1}));
  ValueId place = parts.pair("Add", start, steps);  // [examples or 1, steps]
  if (mode == "circular") place = parts.pair("Mod", place, parts.extent(call.input(0), *axis));
  std::vector<int64_t> others;
  for (size_t i = 1; i < type.rank(); ++i) {
    if (i != *axis) others.push_back(static_cast<int64_t>(i));
  }
  const ValueId indices =
      parts.node("Expand", {parts.unsqueeze(place, others), parts.extents(call.input(1), 0, type.rank())});
  return parts.emit(parts.node("ScatterElements", {call.input(0), indices, call.input(1)},
                               {{"axis", static_cast<int64_t>(*axis)}}));
}

Status scatter(Call& call) { return call.emit("ScatterElements", call.inputs(), call.attributes()); }

}  // namespace

std::span<const Operator> rearrangement_operators() {
  static constexpr Operator kTable[] = {
      {"CenterCropPad", 18, center_crop_pad},
      {"Col2Im", 18, convert_same},
      {"CumProd", 26, convert_same},
      {"DepthToSpace", 1, depth_to_space},
      {"Det", 11, convert_same},
      {"Einsum", 12, convert_einsum},
      {"EyeLike", 9, eye_like},
      {"ReverseSequence", 10, reverse_sequence},
      {"Scatter", 9, scatter},
      {"ScatterElements", 11, convert_same},
      {"ScatterND", 11, convert_same},
      {"SpaceToDepth", 1, space_to_depth},
      {"TensorScatter", 24, tensor_scatter},
  };
  return kTable;
}

}  // namespace heddle::onnx
