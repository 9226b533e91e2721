// RNN, GRU and LSTM. The IR's take the sequence before the batch and give the last states with an axis of
// extent 1 before them.
#include <string>
#include <vector>

#include "onnx/operators.h"

namespace heddle::onnx {
namespace {

using ir::ValueId;

constexpr size_t kInitialState = 5, kInitialCell = 6;

// layout 1 has the batch first: [batch, sequence, ..], states [batch, directions, hidden].
Status recurrent(Call& call) {
  HEDDLE_TRY_ASSIGN(const int64_t layout, call.take_i64("layout", 0));
  if (layout != 0 && layout != 1) return call.invalid("layout is ", layout, "; it must be 0 or 1");
  const std::vector<int64_t> swap = {1, 0, 2};
  std::vector<ValueId> inputs = call.inputs();
  if (layout == 1) {
    for (const size_t i : {size_t{0}, kInitialState, kInitialCell}) {
      if (!call.has(i)) continue;
      HEDDLE_TRY_ASSIGN(inputs[i],
                        call.add("Transpose", {inputs[i]}, {{"perm", swap}}, text("input", i, "_turned")));
    }
  }
  const size_t outputs = call.op() == "LSTM" ? 3 : 2;
  HEDDLE_TRY(call.emit(call.op(), std::move(inputs), call.attributes(), outputs));
  const std::vector<int64_t> sequence = {2, 0, 1, 3};
  const ValueId first = call.constant(ir::Tensor::of_i64({0}), "state_axis");
  for (size_t i = 0; i < call.bound().size(); ++i) {
    ValueId id = call.bound()[i];
    if (i > 0) {
      HEDDLE_TRY_ASSIGN(id, call.add("Squeeze", {id, first}, {}, text("state", i)));
    }
    if (layout == 1) {
      HEDDLE_TRY_ASSIGN(id, call.add("Transpose", {id}, {{"perm", i == 0 ? sequence : swap}},
                                     text("output", i, "_turned")));
    }
    call.bind(i, id);
  }
  return {};
}

}  // namespace

std::span<const Operator> recurrent_operators() {
  static constexpr Operator kTable[] = {
      {"GRU", 7, recurrent},
      {"LSTM", 7, recurrent},
      {"RNN", 7, recurrent},
  };
  return kTable;
}

}  // namespace heddle::onnx
