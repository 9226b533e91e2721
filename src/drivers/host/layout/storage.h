// storage.h: where every value of a specialised graph lies during a run.
//
//   What       Operands by value id, placed as plan/placement.h says, the copies that remain at the end, and
//              the arena's size. channel_layout.h says which lie with their channels last, narrow_values.h
//              which as bf16, half_operands.h which where they were cast from.
//   Threads    Pure.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "drivers/host/step.h"
#include "ir/graph.h"
#include "plan/placement.h"

namespace heddle::host {

struct Storage {
  std::vector<Operand> operands;                    // by value id; kNone for values that no run touches
  std::vector<std::pair<Operand, Operand>> copies;  // from, to: after the last step
  uint64_t arena_bytes = 0;
  uint64_t arena_bytes_apart = 0;  // if no byte were used twice
  std::vector<ir::ValueId> root;   // by value id: the value whose bytes it names, itself for most
};

// Nodes that no run computes: their output is what they were given.
bool falls_away(const ir::Node& node, const Storage& storage);

using plan::renames;

bool counts_beyond_padding(const ir::Node& pool);  // an average that oneDNN defines otherwise
// True if a transposed convolution's output extends a full stride past the last input's reach. oneDNN rejects
// this.
bool goes_beyond_reach(const ir::Node& node, const ir::Extents& x, const ir::Extents& w,
                       const ir::Extents& y);

// Every type static; internal when one is not.
struct StorageRules {
  bool bf16 = false;           // products round their operands (narrow_values.h)
  bool half_operands = false;  // products take what callers bring in 16 bits (half_operands.h)
  bool multiplies_bf16 = false;
};
Result<Storage> assign_storage(const ir::Graph& graph, const StorageRules& rules);

}  // namespace heddle::host
