// narrow_values.h: which f32 values lie in memory as bf16, when a model computes in precision bf16.
//
//   What       Products round their operands to bf16. A value whose maker can write bf16 and whose readers
//              all take it so is rounded once, by its maker: the readers' pass over it falls away, and half
//              of its bytes. Operand::narrow marks it; its dtype stays f32.
//   Invariant  A narrow value lies in the arena: inputs, outputs and constants never are. It and its
//              renamings are all narrow or none is.
//   Threads    Pure.
#pragma once

#include <span>
#include <vector>

#include "drivers/host/step.h"
#include "ir/graph.h"

namespace heddle::host {

// `roots`: by value id, the value whose location it shares (storage.h).
void choose_narrow(const ir::Graph& graph, std::span<const ir::ValueId> roots,
                   std::vector<Operand>& operands);

// Groups of several channels have too few of them to gain; one channel each has kernels of its own.
bool convolves_in_bf16(const ir::Node& conv, const ir::Extents& x, const ir::Extents& weight);
// With fewer queries, rounding the keys and values costs as much as the products gain.
bool attends_in_bf16(const ir::Extents& queries);

}  // namespace heddle::host
