// Operators of recurrent language models that carry a state from call to call: CausalConvWithState and
// LinearAttention.
#include <string>
#include <vector>

#include "onnx/operators.h"
#include "onnx/operators/parts.h"

namespace heddle::onnx {
namespace {

using ir::ValueId;

// The past, or zeros, stands before the input; a convolution of each channel goes over both, and the end of
// both is the next call's past.
Status causal_conv(Call& call) {
  enum Input : size_t { kInput, kWeight, kBias, kPast };
  HEDDLE_TRY_ASSIGN(const ir::TensorType type, call.type(kInput));
  HEDDLE_TRY_ASSIGN(const ir::TensorType weight, call.type(kWeight));
  HEDDLE_TRY_ASSIGN(const std::string activation, call.take_str("activation", "none"));
  if (activation != "none" && activation != "silu" && activation != "swish")
    return call.invalid("activation is '", activation, "'; it must be none, silu or swish");
  if (type.rank() != 3 || weight.rank() != 3 || !weight.shape[0].is_static() ||
      !weight.shape[2].is_static() || !weight.shape[1].is(1) || weight.shape[2].is(0)) {
    return call.invalid("the input is ", type, " and the weight ", weight,
                        "; they must be [batch, channels, length] and [channels, 1, kernel], of known "
                        "channels and kernel");
  }
  const int64_t past_length = weight.shape[2].value() - 1;
  Parts parts(call);
  ValueId past = call.input(kPast);
  if (past == ir::kNoValue) {
    const ValueId shape = parts.join({parts.extents(call.input(kInput), 0, 2), parts.ints({past_length})});
    past = parts.node("Expand", {parts.number(type.dtype, 0), shape});
  } else if (call.value(past).type.rank() != 3 ||
             !ir::Dim::may_equal(call.value(past).type.shape[2], past_length)) {
    return call.invalid("past_state is ", call.value(past).type, "; its length must be ", past_length);
  }
  const ValueId both = parts.node("Concat", {past, call.input(kInput)}, {{"axis", int64_t{2}}});
  std::vector<ValueId> operands = {both, call.input(kWeight)};
  if (call.has(kBias)) operands.push_back(call.input(kBias));
  ValueId y = parts.node("Conv", std::move(operands), {{"group", weight.shape[0].value()}});
  if (activation != "none") y = parts.node("Silu", {y});
  HEDDLE_TRY(parts.emit(y));
  const ValueId end = parts.extent(both, 2);
  const ValueId begin = parts.extent(call.input(kInput), 2);
  return parts.emit(parts.node("Slice", {both, begin, end, parts.ints({2})}), 1);
}

// The size of chunks is a hint.
Status linear_attention(Call& call) {
  call.attributes().erase("chunk_size");
  return call.emit("LinearAttention", call.inputs(), call.attributes(), 2);
}

}  // namespace

std::span<const Operator> state_space_operators() {
  static constexpr Operator kTable[] = {
      {"CausalConvWithState", 27, causal_conv},
      {"LinearAttention", 27, linear_attention},
  };
  return kTable;
}

}  // namespace heddle::onnx
