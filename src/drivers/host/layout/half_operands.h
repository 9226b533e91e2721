// half_operands.h: which operands that a caller brings in f16 or bf16 a product reads as they are.
//
//   What       A Cast of a graph's input to f32 falls away, so that no run makes its value, where all its
//              readers are plain Linears that take it as their weight. Where the processor multiplies bf16,
//              Casts from bf16 do so, too, where all readers are such Linears or Convs that take it as their
//              weight, or multiply it with a weight that is bf16, too.
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
