// replacements.h: which nodes of a graph the nodes of its optimised form stand for.
//
//   What       Passes keep the name of a value that a replacement takes over. So a node of the optimised
//              graph stands for all that the source computes between the values it reads and the one it
//              makes. Nodes of a value the source has not (packed projections, say) stand together with
//              those that read it.
//   Invariant  Every node of the optimised graph is in one Replacement, every source node in one at most: the
//              first that needs it. Those in none were folded away with nothing left of them, or dead.
//   Threads    Pure.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace heddle::plan {

struct Replacement {
  std::vector<int> nodes;    // of the optimised graph, in order
  std::vector<int> sources;  // of the source, in order
};

// Gives every value that a node makes a name of its own; those of inputs and outputs stay. For the source,
// before it is optimised: replacements() goes by names.
void name_values(ir::Graph& graph);

// In the order of the optimised graph. Graphs inside nodes are not looked into.
std::vector<Replacement> replacements(const ir::Graph& source, const ir::Graph& optimised);

}  // namespace heddle::plan
