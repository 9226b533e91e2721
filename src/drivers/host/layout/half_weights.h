// half_weights.h: which weights that a caller brings in f16 or bf16 a product reads as they are.
//
//   What       A Cast of a graph's input to f32 whose readers are all plain Linears that take it as their
//              weight falls away: no run makes its value. Operand::half marks it; its dtype stays f32.
//   Threads    Pure.
#pragma once

#include <vector>

#include "drivers/host/step.h"
#include "ir/graph.h"

namespace heddle::host {

// By value id: the input that it is cast from, or kNoValue. Types are static.
std::vector<ir::ValueId> half_weights(const ir::Graph& graph);

// Whether Linear is what half_linear.h computes: without activation and residual.
bool is_plain(const ir::Node& linear);

}  // namespace heddle::host
