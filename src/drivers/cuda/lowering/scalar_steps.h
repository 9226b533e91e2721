// scalar_steps.h: an element-wise node as operators of kernels/scalar.h, one after another.
//
//   What       Each step is an operator, the type that it computes in, and its operands. What a step makes
//              has the type of the node's output. elementwise.cpp launches a kernel for each step, chain.cpp
//              makes one program of the steps of many nodes.
#pragma once

#include <string_view>
#include <vector>

#include "drivers/cuda/kernels/scalar.h"
#include "ir/graph.h"

namespace heddle::cuda {

struct ScalarStep {
  static constexpr int kBefore = -1;  // the operand that the step before made
  std::string_view kernel;            // of scalars.inc, or kChoose
  ir::DType computed;
  std::vector<int> operands;  // of the node
  Numbers numbers = {};
};
inline constexpr std::string_view kChoose = "choose";  // operand 0, a bool, says whether 1 or 2

// The operators that have steps.
std::vector<std::string_view> scalar_operators();
// Empty when the node is no such operator. `in`: its operands' types.
std::vector<ScalarStep> scalar_steps(const ir::Node& node, const std::vector<ir::DType>& in);

}  // namespace heddle::cuda
