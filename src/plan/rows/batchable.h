// batchable.h: may calls be joined along axis 0? A proof per operator, never a guess from shapes.
//
//   What       Follows, node by node, how axis 0 of the inputs lies in every value. The answer is yes only
//              when row i of every output depends on row i of the inputs only, for every batch size.
//              mark_rows() keeps what was found.
//   Threads    Pure.
#pragma once

#include <string>

#include "ir/graph.h"

namespace heddle::plan {

struct Batchable {
  bool yes = false;
  // When not: the node and why, such as "node \'pool/ReduceMean\' (ReduceMean) reduces over axis 0, which
  // holds the rows".
  std::string reason;
};

Batchable batchable(const ir::Graph& graph);

// The graph with Value::row_axis wherever the proof knows it, in nested graphs too: for drivers, which say
// whose row an element of the data belongs to. As it was when it is not batchable.
ir::Graph mark_rows(ir::Graph graph);

}  // namespace heddle::plan
