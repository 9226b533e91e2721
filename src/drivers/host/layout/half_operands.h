// half_operands.h: which operands that a caller brings in f16 or bf16 a product reads as they are.
//
//   What       A Cast of a graph's input to f32 falls away, so that no run makes its value, where all its
//              readers are Convs, or plain Linears that take it as their weight. Where the processor
//              multiplies bf16, such a Linear takes what it multiplies, too, if both are bf16.
//              Operand::half marks such values; their dtype stays f32.
//   Threads    Pure.
#pragma once

#include <vector>

#include "drivers/host/step.h"
#include "ir/graph.h"

namespace heddle::host {

// By value id: the input that it is cast from, or kNoValue. Types are static.
std::vector<ir::ValueId> half_operands(const ir::Graph& graph, bool multiplies_bf16);

}  // namespace heddle::host
