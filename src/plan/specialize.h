// specialize.h: the second stage: the graph for concrete input shapes.
//
//   What       Every value gets a static type; shape arithmetic (and whatever else has become constant) is
//              folded away through the references; dead code is dropped. What stays data-dependent is
//              unsupported, by the node's name.
//   Cost       One walk over the nodes, no pattern matching: cheap enough for ragged text. Weights are
//              shared, never copied.
//   Threads    Pure.
#pragma once

#include <cstdint>
#include <span>

#include "ir/graph.h"

namespace heddle::plan {

// `inputs` in graph order. Symbols are bound by the declared input types: an extent that contradicts a static
// dimension, or two inputs that disagree on a symbol, is invalid and names the input, the axis and both
// numbers. A value of more than `bytes_max` is exhausted, by the name of the node that makes it.
Result<ir::Graph> specialize(const ir::Graph& graph, std::span<const ir::Extents> inputs, uint64_t bytes_max);
inline Result<ir::Graph> specialize(const ir::Graph& graph, std::span<const ir::Extents> inputs) {
  return specialize(graph, inputs, UINT64_MAX);
}

}  // namespace heddle::plan
