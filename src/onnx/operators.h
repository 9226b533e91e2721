// operators.h: how each ONNX operator is spelled in the IR.
//
//   What       One entry per operator of ai.onnx, in the table of its family (operators/*.cpp). Adding one is
//              one entry. `since` is the opset that brought the oldest form that the rule reads; it
//              reads the form of the node's opset.
//   Refusals   Operators known by name that can never be compiled here, with the reason.
//   Threads    Constants and pure functions; any thread.
#pragma once

#include <span>
#include <string_view>

#include "base/status.h"
#include "onnx/call.h"

namespace heddle::onnx {

struct Operator {
  std::string_view name;
  int64_t since;
  Status (*convert)(Call&);  // null for those that hold graphs: GraphReader reads them itself
};

struct Refusal {
  std::string_view name;
  std::string_view reason;  // completes "Heddle does not run it: "
};

const Operator* find_operator(std::string_view name);  // null when unknown
const Refusal* find_refusal(std::string_view name);
std::span<const Operator* const> all_operators();  // sorted by name

// The IR has the operator under the same name, with the same inputs and attributes.
Status convert_same(Call& call);

// The tables of the families.
std::span<const Operator> elementwise_operators();
std::span<const Operator> movement_operators();
std::span<const Operator> reduction_operators();
std::span<const Operator> neural_operators();
std::span<const Operator> activation_operators();
std::span<const Operator> rearrangement_operators();
std::span<const Operator> image_operators();
std::span<const Operator> signal_operators();
std::span<const Operator> normalization_operators();
std::span<const Operator> recurrent_operators();
std::span<const Operator> quantization_operators();
std::span<const Operator> deform_conv_operators();
std::span<const Operator> state_space_operators();
std::span<const Operator> loss_operators();
std::span<const Operator> control_operators();

// Makes the attribute `name` (a list) the input at `index`, as opsets before it became an input write it.
Result<std::vector<ir::ValueId>> attribute_to_input(Call& call, std::string_view name, size_t index);

}  // namespace heddle::onnx
