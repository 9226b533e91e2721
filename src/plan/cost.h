// cost.h: what a node has to compute and to move, and how long that takes at a device's rates.
//
//   What       A roofline: the larger of flops / flop rate and bytes / byte rate, and what starting a step
//              takes: what a kernel needs that is as good as those the rates were measured with.
//   Counting   A multiplication and an addition are 2 flops. Operators without products count one flop per
//              element of their largest operand (a chain: one per operator in it). Bytes are those of the
//              operands as the graph types them, each read or written once; of a table that is read by index,
//              the part that is read.
//   Threads    Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "ir/graph.h"

namespace heddle::plan {

struct Cost {
  double flops = 0;
  double bytes = 0;
};

// Of a node of a specialised graph. None for one that holds graphs (If, Loop): their nodes run many times or
// not at all, and read each other's results from caches.
std::optional<Cost> cost(const ir::Graph& graph, const ir::Node& node);

struct Rates {
  double flops_per_s;
  double cached_bytes_per_s;  // of operands that the caches hold
  double memory_bytes_per_s;  // of larger ones
  double cached_bytes;        // up to which operands, all together, count as cached
  double step_s;              // of starting a step
};
double seconds(const Cost& cost, const Rates& rates);

}  // namespace heddle::plan
